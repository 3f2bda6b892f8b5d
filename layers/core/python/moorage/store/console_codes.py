"""How a browser gets a key that nobody pastes: ``moorage console`` makes a key for the page and a code for the address bar.

The code is a key record that opens nothing but its exchange, and lives for two minutes. It holds the page's key sealed under the code
itself, so that the table tells neither. The note that it was used is written before the key is given away.
"""

import hashlib
import secrets
from collections.abc import Callable

from moorage import limits, sealing
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, code_used_up
from moorage.ids import KEY_PREFIX
from moorage.store import keys
from moorage.store.api_keys import CODE, READ, ApiKey, ApiKeys, hash_of
from moorage.store.table import Table


@dataclass(frozen=True, slots=True)
class ConsoleCodes:
    table: Table
    api_keys: ApiKeys
    clock: Callable[[], float]

    async def make(self, api_key: str, *, reads_only: bool) -> str | None:
        """A code for a key made of this one; None if this one is unknown."""
        parent = await self.api_keys.find(api_key)
        if parent is None:
            return None
        digest = parent.parent or hash_of(api_key)
        key, code = (f"{KEY_PREFIX}{secrets.token_urlsafe(32)}" for _ in range(2))
        seconds = limits.CONSOLE_READ_SECONDS if reads_only else limits.CONSOLE_SECONDS
        await self.api_keys.derive(key, parent, digest, scope=READ if reads_only else "", seconds=seconds)
        sealed = sealing.seal(key, _sealing_key(code), parent.tenant_id.encode())
        await self.api_keys.derive(code, parent, digest, scope=CODE, seconds=limits.CONSOLE_CODE_SECONDS, sealed=sealed)
        return code

    async def exchange(self, code: str, found: ApiKey) -> str:
        """The key that a code stands for, once. Raises :class:`~moorage.errors.ApiError` for a code that was used."""
        note = {"PK": keys.console_code(hash_of(code)), "SK": keys.META, "ttl": found.expires_at + limits.CONSOLE_CODE_SECONDS}
        try:
            await self.table.put(note, if_absent=True)
        except ConditionFailed:
            raise code_used_up() from None
        return sealing.unseal(found.sealed, _sealing_key(code), found.tenant_id.encode())


def _sealing_key(code: str) -> bytes:
    """The table holds another hash of the code: it does not lead to this one."""
    return hashlib.sha256(b"what a console's code seals " + code.encode()).digest()
