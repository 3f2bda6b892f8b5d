"""The proxy's view of who may do what: credentials to grants, a short cache, and closed doors when the table does not answer.

A grant is believed for ``EGRESS_POLICY_SECONDS_MAX`` after it was read. Grants with open connections are read again in the
background at half that age, so that requests seldom wait for the table. When the table cannot be read, a grant that is too old
is no grant: :class:`PolicyUnavailable`. Values are opened once per version of the records, not at every reading.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import field, replace

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.keys import KeyService
from moorage.egress.policy import EgressPolicy
from moorage.egress.secrets import (
    OpenSecret,
    OperatorSecret,
    SealedSecret,
    container_context,
    open_operator_secret,
    opened,
    unseal,
)
from moorage.egress.service import credential_sha256
from moorage.egress.store import EgressStore, GrantRecord
from moorage.errors import MoorageError
from moorage.telemetry import tell_error

_CACHED_MAX = 4_096
"""Credentials remembered, known and unknown; beyond it the oldest is forgotten."""


class PolicyUnavailable(MoorageError):
    """The table or the key service could not be asked: refuse, and ask again."""


@dataclass(frozen=True, slots=True)
class Grant:
    tenant_id: str
    container_id: str
    policy: EgressPolicy
    secrets: tuple[OpenSecret, ...] = field(default=(), repr=False)
    version: str = ""

    def secrets_for(self, host: str) -> tuple[OpenSecret, ...]:
        return tuple(secret for secret in self.secrets if secret.goes_to(host))


@dataclass(slots=True)
class _Cached:
    grant: Grant | None
    read_at: float


class Grants:
    def __init__(self, store: EgressStore, keys: KeyService | None, ceiling: EgressPolicy, monotonic: Callable[[], float]) -> None:
        """``ceiling`` is the operator's part of every policy; ``monotonic`` gives seconds."""
        self._store = store
        self._keys = keys
        self._ceiling = ceiling
        self._monotonic = monotonic
        self._cache: dict[str, _Cached] = {}
        self._is_told = False
        self._reading: dict[str, asyncio.Task[Grant | None]] = {}

    async def find(self, username: str, password: str) -> Grant | None:
        """The grant of a credential, None if there is none (any more). Raises :class:`PolicyUnavailable`."""
        digest = credential_sha256(password)
        grant = await self._current(digest, limits.EGRESS_POLICY_SECONDS_MAX)
        # A credential belongs to one container: that it is used under another name is a mix-up that nobody should rely on.
        return grant if grant is not None and hmac.compare_digest(grant.container_id.encode(), username.encode()) else None

    async def reread(self, password: str) -> Grant | None:
        """The grant as the table has it now, for an approval of this moment. Raises :class:`PolicyUnavailable`."""
        return await self._current(credential_sha256(password), 0.0)

    async def refresh(self, password: str) -> Grant | None:
        """The same for a connection that is open: read again at half the allowed age."""
        return await self._current(credential_sha256(password), limits.EGRESS_POLICY_SECONDS_MAX / 2)

    async def _current(self, digest: str, age_max: float) -> Grant | None:
        cached = self._cache.get(digest)
        if cached is not None and self._monotonic() - cached.read_at < age_max:
            return cached.grant
        reading = self._reading.get(digest)
        if reading is None:
            reading = self._reading[digest] = asyncio.create_task(self._read(digest, cached.grant if cached else None))
            reading.add_done_callback(lambda _: self._reading.pop(digest, None))
        return await asyncio.shield(reading)

    async def _read(self, digest: str, before: Grant | None) -> Grant | None:
        started = self._monotonic()
        try:
            grant = await self._load(digest, before)
        except Exception as error:  # boto3 and cryptography raise a whole zoo here, and the answer to all of it is no.
            self._tell_unavailable(error)
            raise PolicyUnavailable(f"The policy could not be read ({type(error).__name__}).") from error
        self._is_told = False
        while len(self._cache) >= _CACHED_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache.pop(digest, None)
        self._cache[digest] = _Cached(grant, started)
        return grant

    def _tell_unavailable(self, error: Exception) -> None:
        """The first of an outage: every request of every container would tell the same."""
        if not self._is_told:
            tell_error(error, "egress_policy_unavailable")
        self._is_told = True

    async def _load(self, digest: str, before: Grant | None) -> Grant | None:
        holder = await self._store.holder(digest) if before is None else (before.tenant_id, before.container_id)
        record = None if holder is None else await self._store.load(*holder)
        if holder is None or record is None:
            return None
        installs = hmac.compare_digest(record.installer_sha256, digest)
        if not installs and not hmac.compare_digest(record.credential_sha256, digest):
            return None
        named = {sealed.name: await self._named(sealed, holder[0]) for sealed in record.secrets if sealed.ciphertext is None}
        version = _version(record, named)
        if before is not None and before.version == version:
            return before
        policy = replace(
            self._ceiling,
            domains=record.domains,
            asks_hosts=record.asks_hosts,
            asks_secrets=record.asks_secrets,
            opened=record.opened,
        )
        policy = policy.installing() if installs else policy
        return Grant(record.tenant_id, record.container_id, policy, await self._open(record, named), version)

    async def _named(self, sealed: SealedSecret, tenant_id: str) -> OperatorSecret | None:
        """The operator may have withdrawn or moved it since: then the placeholder stays a placeholder."""
        named = await self._store.load_operator_secret(sealed.name)
        is_usable = named is not None and named.domain == sealed.domain and named.may_be_used_by(tenant_id)
        return named if is_usable else None

    async def _open(self, record: GrantRecord, named: Mapping[str, OperatorSecret | None]) -> tuple[OpenSecret, ...]:
        if not record.secrets:
            return ()
        assert self._keys is not None, "a container has secrets, and the proxy has no key service"
        context = container_context(record.tenant_id, record.container_id)
        key = b"" if record.wrapped_key is None else await self._keys.unwrap(record.wrapped_key, context)
        own = [unseal(sealed, key, context) for sealed in record.secrets if sealed.ciphertext is not None]
        operators = [
            opened(sealed, await open_operator_secret(secret, self._keys))
            for sealed in record.secrets
            if (secret := named.get(sealed.name)) is not None
        ]
        return (*own, *operators)


def _version(record: GrantRecord, named: Mapping[str, OperatorSecret | None]) -> str:
    """Changes with the container's records and with each operator secret that they refer to."""
    ciphertexts = b"".join(secret.ciphertext for _, secret in sorted(named.items()) if secret is not None)
    opened = ",".join(sorted(opening.key for opening in record.opened))
    return f"{record.version}:{record.seal}:{opened}:{hashlib.sha256(ciphertexts).hexdigest()}"
