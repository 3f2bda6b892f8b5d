"""API keys: ``sk-moorage-<secret>``. The table holds their SHA-256 and never the key.

The secret has 256 random bits, so a fast hash is enough: there is nothing to guess. A key belongs to a tenant, and a tenant is
whatever its keys say: the first key of a name makes it.

A key may be made of another one, for a while: it counts as that one, and ends with it. So the console's pages hold none of a user's
own keys (``moorage console``).
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from moorage.codec import Codec, FieldCodec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, SettingsConflict
from moorage.ids import KEY_PREFIX
from moorage.store import keys
from moorage.store.table import Table

TENANT_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_CACHE_SECONDS: Final = 30
"""How long a revoked key may go on in a process that has just seen it."""
_CACHE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: str
    tenant_id: str
    name: str
    created_at: int
    tier: str = ""
    """The usage plan of its tenant at the gateway, where there are any."""
    scope: str = ""
    """Empty for everything; or ``READ`` or ``CODE``."""
    expires_at: int = 0
    """Unix seconds; 0 for never."""
    parent: str = ""
    """Hash of the key that it was made of."""
    sealed: bytes = b""
    """Of a code: the key that it is exchanged for, under the code itself."""
    budgets: tuple[str, ...] = ()
    """Of what there is a budget: ``key``, ``tenant``. So a request without one asks the table for none."""
    subject: str = ""
    """Of a token (``identity/tokens.py``): who it was issued for. Keys in the table have none."""


READ: Final = "read"
"""May look, and change nothing."""
MEMBER: Final = "member"
"""Of tokens: may do everything but change what concerns the whole tenant."""
CODE: Final = "code"
"""Opens nothing: it is exchanged once for another key."""

_KEY: Final = Codec(
    ApiKey,
    names={"tenant_id": "tenant"},
    nested={"sealed": FieldCodec(bytes, bytes)},
    sparse=("budgets", "scope", "expires_at", "parent", "sealed", "subject"),
)


class ApiKeys:
    def __init__(self, table: Table, *, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._seen: dict[str, tuple[float, ApiKey | None]] = {}

    async def create(
        self, tenant_id: str, *, name: str = "", tier: str = "", key: str | None = None, scope: str = "", seconds: int = 0
    ) -> tuple[ApiKey, str]:
        """Make a key, for ``seconds`` if that is not 0; the second value is the key itself, which is shown now or never."""
        if not TENANT_PATTERN.fullmatch(tenant_id):
            raise SettingsConflict(f"A tenant is named with a-z, 0-9 and '-', up to 63 characters; '{tenant_id}' is not.")
        secret = key or f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"
        has_budget = await self._table.get(keys.budgets(tenant_id), f"tenant:{tenant_id}") is not None
        budgets = ("tenant",) if has_budget else ()
        now = int(self._clock())
        expires_at = now + seconds if seconds else 0
        made = ApiKey(key_id_of(hash_of(secret)), tenant_id, name, now, tier, scope, expires_at, budgets=budgets)
        await self._put(made, hash_of(secret))
        return made, secret

    async def derive(self, secret: str, parent: ApiKey, parent_digest: str, *, scope: str, seconds: int, sealed: bytes = b"") -> ApiKey:
        """Make a key of another one, for a while."""
        now = int(self._clock())
        made = replace(
            parent,
            key_id=key_id_of(hash_of(secret)),
            name="console",
            created_at=now,
            scope=scope,
            expires_at=now + seconds,
            parent=parent_digest,
            sealed=sealed,
        )
        await self._put(made, hash_of(secret))
        return made

    async def _put(self, made: ApiKey, digest: str) -> None:
        await self._table.put(
            {
                "PK": keys.api_key(digest),
                "SK": keys.META,
                **_KEY.pack(made),
                **({"ttl": made.expires_at} if made.expires_at else {}),
                "GSI1PK": keys.KEYS,
                "GSI1SK": keys.listed(made.created_at, made.key_id),
            }
        )
        self._seen.pop(digest, None)

    async def find(self, secret: str) -> ApiKey | None:
        """The record of a key; None for unknown, revoked and expired ones, and for those made of one that is."""
        return await self.known(hash_of(secret))

    async def known(self, digest: str) -> ApiKey | None:
        """The same by the key's hash."""
        found = await self._read(digest)
        if found is None or (found.expires_at and found.expires_at <= self._clock()):
            return None
        if not found.parent:
            return found
        parent = await self._read(found.parent)
        return None if parent is None else replace(found, budgets=parent.budgets)

    async def _read(self, digest: str) -> ApiKey | None:
        now = self._clock()
        if digest in self._seen:
            read_at, known = self._seen[digest]
            if now - read_at < _CACHE_SECONDS:
                return known
        record = await self._table.get(keys.api_key(digest), keys.META)
        found = None if record is None else _KEY.unpack(record)
        if len(self._seen) >= _CACHE_MAX:
            self._seen.clear()
        self._seen[digest] = (now, found)
        return found

    async def page(self) -> list[ApiKey]:
        """All keys of the deployment, oldest first, without those that have run out and codes."""
        listed = await self._table.query(keys.KEYS, index="GSI1")
        records = await self._table.get_many((entry["PK"], entry["SK"]) for entry in listed)
        found = [key for key in map(_KEY.unpack, records) if key.scope != CODE and not 0 < key.expires_at <= self._clock()]
        return sorted(found, key=lambda key: (key.created_at, key.key_id))

    async def mark(self, key_id: str, kind: str, *, has_budget: bool) -> None:
        """Note on a key that there is a budget of it, or of its tenant; processes that have just seen it obey within 30 seconds."""
        for entry in await self._table.query(keys.KEYS, index="GSI1"):
            if entry["GSI1SK"].endswith(f"#{key_id}"):
                record = await self._table.get(entry["PK"], entry["SK"])
                before = set() if record is None else {*_KEY.unpack(record).budgets}
                after = sorted(before | {kind} if has_budget else before - {kind})
                with suppress(ConditionFailed):  # Revoked meanwhile.
                    await self._table.update(entry["PK"], entry["SK"], set={"budgets": after})

    async def is_known(self, key_id: str) -> bool:
        """Whether there is an unrevoked key of this id. Reads the list: for rare use."""
        listed = await self._table.query(keys.KEYS, index="GSI1")
        return any(entry["GSI1SK"].endswith(f"#{key_id}") for entry in listed)

    async def of_id(self, key_id: str) -> ApiKey | None:
        """The key of an id; None for one that is unknown, revoked, or has run out. Reads the list: for rare use."""
        for entry in await self._table.query(keys.KEYS, index="GSI1"):
            if entry["GSI1SK"].endswith(f"#{key_id}"):
                return await self.known(keys.api_key.read(entry["PK"]))
        return None

    async def revoke(self, key_id: str) -> bool:
        """Forget a key; False if there is none of this id."""
        for entry in await self._table.query(keys.KEYS, index="GSI1"):
            if entry["GSI1SK"].endswith(f"#{key_id}"):
                await self._table.delete(entry["PK"], entry["SK"])
                return True
        return False


def key_id_of(key_sha256: str) -> str:
    """The id of a key for lists and counts; it tells nothing of the key."""
    return f"key_{key_sha256[:16]}"


def hash_of(secret: str) -> str:
    """SHA-256 of a key, as hex."""
    return hashlib.sha256(secret.encode()).hexdigest()
