"""Sandboxes on this machine: a client of the launcher (``local/launcher.py``), which owns them.

Step workers come and go, and a sandbox must outlive them; so one small process holds the sandboxes, and everybody else asks it over
a Unix socket.
"""

import hashlib
from typing import Any

import httpx

from moorage.dataclass import dataclass
from moorage.errors import DeskUnavailable, SandboxCapacity, SandboxError, SandboxGone, SandboxHostAway
from moorage.limits import EXEC_CONNECT_SECONDS, SANDBOX_START_SECONDS
from moorage.net.transport import UpstreamTransport
from moorage.sandbox.over_http import OverHttp
from moorage.sandbox.provisioner import Handle, SandboxSpec, SandboxStatus


@dataclass(frozen=True, slots=True)
class RunningSandbox:
    sandbox_id: str
    tenant_id: str
    container_id: str
    pid: int
    """Process id, on this machine, of the first process in the sandbox: killing it kills the sandbox."""


class LauncherProvisioner(OverHttp):
    revision = ""
    """Sandboxes end with the launcher, so that all of them are started from the same."""

    def __init__(self, socket_path: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            base_url="http://launcher",
            transport=transport or UpstreamTransport(uds=socket_path),
            timeout=httpx.Timeout(SANDBOX_START_SECONDS + EXEC_CONNECT_SECONDS, connect=EXEC_CONNECT_SECONDS),
            trust_env=False,
        )

    async def start(self, spec: SandboxSpec) -> Handle:
        body = await self._ask("POST", "/v1/sandboxes", json=wire_spec(spec))
        return Handle(body["endpoint"], spec.token, body["sandbox_id"])

    async def find(self, spec: SandboxSpec) -> str | None:
        place = (spec.tenant_id, spec.container_id)
        return next((each.sandbox_id for each in await self.running() if (each.tenant_id, each.container_id) == place), None)

    async def stop(self, sandbox_id: str) -> None:
        await self._ask("DELETE", f"/v1/sandboxes/{sandbox_id}")

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        await self._ask("PUT", f"/v1/sandboxes/{handle.sandbox_id}/skills/{directory}", content=archive)
        return True

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        token_sha256 = hashlib.sha256(handle.token.encode()).hexdigest()
        wanted = {"token_sha256": token_sha256, "starts": starts}
        answer = await self._ask("PUT", f"/v1/sandboxes/{handle.sandbox_id}/desk", json=wanted)
        return Handle(answer["endpoint"], handle.token, handle.sandbox_id)

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        return SandboxStatus((await self._ask("GET", f"/v1/sandboxes/{sandbox_id}"))["status"])

    async def running(self) -> list[RunningSandbox]:
        """All sandboxes that the launcher holds."""
        return [RunningSandbox(**sandbox) for sandbox in (await self._ask("GET", "/v1/sandboxes"))["data"]]

    async def programs(self) -> str:
        """The programs in a sandbox of this machine."""
        return str((await self._ask("GET", "/v1/place"))["programs"])

    async def _ask(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise SandboxHostAway from error
        body: dict[str, Any] = response.json()
        match response.status_code:
            case httpx.codes.OK:
                return body
            case httpx.codes.SERVICE_UNAVAILABLE:
                raise SandboxCapacity(body["error"]["message"])
            case httpx.codes.GONE:
                raise SandboxGone(body["error"]["message"])
            case httpx.codes.NOT_IMPLEMENTED:
                raise DeskUnavailable(body["error"]["message"])
            case _:
                raise SandboxError(body["error"]["message"])


def wire_spec(spec: SandboxSpec) -> dict[str, Any]:
    """The spec as the launcher reads it."""
    egress = spec.egress
    return {
        "tenant_id": spec.tenant_id,
        "container_id": spec.container_id,
        "token": spec.token,
        "memory_gib": spec.memory_gib,
        "env": dict(spec.env),
        "is_unclaimed": spec.is_unclaimed,
        "is_read_only": spec.is_read_only,
        "egress": None
        if egress is None
        else {"proxy": egress.proxy, "username": egress.username, "password": egress.password, "ca_pem": egress.ca_pem},
    }
