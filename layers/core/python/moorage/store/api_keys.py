"""API keys: ``sk-moorage-<secret>``, of which the table holds a SHA-256 and never the key.

The secret has 256 random bits, so a fast hash is enough: there is nothing to guess. A key belongs to a tenant, and a tenant is
whatever its keys say: the first key of a name makes it.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moorage.codec import Codec
from moorage.errors import SettingsConflict
from moorage.store import keys
from moorage.store.table import Table

KEY_PREFIX: Final = "sk-moorage-"
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


_KEY: Final = Codec(ApiKey, names={"tenant_id": "tenant"})


class ApiKeys:
    def __init__(self, table: Table, *, clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._seen: dict[str, tuple[float, ApiKey | None]] = {}

    async def create(self, tenant_id: str, *, name: str = "", tier: str = "", key: str | None = None) -> tuple[ApiKey, str]:
        """Make a key; the second value is the key itself, which is shown now or never."""
        if not TENANT_PATTERN.fullmatch(tenant_id):
            raise SettingsConflict(f"A tenant is named with a-z, 0-9 and '-', up to 63 characters; '{tenant_id}' is not.")
        secret = key or f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"
        made = ApiKey(key_id_of(hash_of(secret)), tenant_id, name, int(self._clock()), tier)
        await self._table.put(
            {
                "PK": keys.api_key(hash_of(secret)),
                "SK": keys.META,
                **_KEY.pack(made),
                "GSI1PK": keys.KEYS,
                "GSI1SK": keys.listed(made.created_at, made.key_id),
            }
        )
        self._seen.pop(hash_of(secret), None)
        return made, secret

    async def tenant_of(self, secret: str) -> str | None:
        """The tenant of a key; None for unknown and revoked ones."""
        found = await self.find(secret)
        return None if found is None else found.tenant_id

    async def find(self, secret: str) -> ApiKey | None:
        """What is known of a key; None for unknown and revoked ones."""
        digest = hash_of(secret)
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
        """All keys of the deployment, oldest first."""
        listed = await self._table.query(keys.KEYS, index="GSI1")
        records = await self._table.get_many((entry["PK"], entry["SK"]) for entry in listed)
        return sorted(map(_KEY.unpack, records), key=lambda key: (key.created_at, key.key_id))

    async def revoke(self, key_id: str) -> bool:
        """Forget a key; False if there is none of this id."""
        for entry in await self._table.query(keys.KEYS, index="GSI1"):
            if entry["GSI1SK"].endswith(f"#{key_id}"):
                await self._table.delete(entry["PK"], entry["SK"])
                return True
        return False


def key_id_of(key_sha256: str) -> str:
    """The id under which a key is listed and counted; it tells nothing of the key."""
    return f"key_{key_sha256[:16]}"


def hash_of(secret: str) -> str:
    """SHA-256 of a key, as hex."""
    return hashlib.sha256(secret.encode()).hexdigest()
