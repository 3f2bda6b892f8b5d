"""The start of each incarnation of a container's sandbox: its token, its network, its place."""

import hashlib
import hmac
from collections.abc import Callable, Mapping

from moorage import limits
from moorage.containers.store import ContainerRecord
from moorage.egress.places import place_word, places_key
from moorage.egress.service import EgressService
from moorage.sandbox.provisioner import EgressSpec, Handle, SandboxSpec


class Incarnations:
    def __init__(
        self, sandbox_key: Callable[[], bytes], *, egress: EgressService | None = None, egress_proxy: str | None = None
    ) -> None:
        self._sandbox_key = sandbox_key
        self._egress = egress
        self._egress_proxy = egress_proxy

    async def spec(self, record: ContainerRecord) -> SandboxSpec:
        """A provisioner's input to start the record's sandbox, or to find the placed one."""
        egress, env = await self._way_out(record)
        return SandboxSpec(
            tenant_id=record.tenant_id,
            container_id=record.id,
            token=self.token_of(record.id, record.incarnation),
            memory_gib=limits.MEMORY_LIMITS[record.memory_limit],
            env=env,
            egress=egress,
            idle_minutes=record.idle_minutes,
            is_read_only=record.is_read_only,
            placed=None if record.sandbox is None or record.sandbox.endpoint is None else self.handle(record),
        )

    async def _way_out(self, record: ContainerRecord) -> tuple[EgressSpec | None, Mapping[str, str]]:
        """The proxy as this sandbox may use it, and the placeholders of its secrets; nothing by default."""
        if self._egress is None or self._egress_proxy is None or not _goes_out(record):
            return None, {}
        password = derived(self._sandbox_key(), "egress", record.id, record.incarnation)
        grant = await self._egress.renew(record.tenant_id, record.id, password=password)
        if grant is None:
            return None, {}
        place = place_word(places_key(self._sandbox_key()), record.id)
        spec = EgressSpec(
            proxy=self._egress_proxy, username=grant.username, password=grant.password, place=place, ca_pem=self._egress.ca_pem()
        )
        return spec, grant.placeholders

    async def close_way_out(self, record: ContainerRecord) -> None:
        """Until the next incarnation."""
        if self._egress is not None and _goes_out(record):
            await self._egress.pause(record.tenant_id, record.id)

    def handle(self, record: ContainerRecord) -> Handle:
        """The address of the record's sandbox."""
        assert record.sandbox is not None
        assert record.sandbox.endpoint is not None
        assert record.sandbox.sandbox_id is not None
        token = self.token_of(record.id, record.incarnation)
        return Handle(record.sandbox.endpoint, token, record.sandbox.sandbox_id, record.ends_at)

    def token_of(self, container_id: str, incarnation: int) -> str:
        """Derived, so that the table holds nothing that opens a sandbox."""
        return derived(self._sandbox_key(), "sandbox", container_id, incarnation)


def derived(key: bytes, purpose: str, container_id: str, incarnation: int) -> str:
    """A secret of one incarnation: the same however often its start is repeated, another one for the next."""
    message = f"{purpose}\0{container_id}\0{incarnation}".encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _goes_out(record: ContainerRecord) -> bool:
    """If only for its packages."""
    return record.network_policy["type"] != "disabled" or bool(record.packages)
