"""Sessions that were ended before their time: keys of the console, and tokens. A record says so until the session would expire."""

from collections.abc import Callable
from dataclasses import field
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.store import keys
from moorage.store.api_keys import hash_of
from moorage.store.table import Table

_ENDED = "ENDED"
CALLER: Final = "caller"
"""What the gateway's authorizer calls that which it found of a token (``identity/tokens.py``)."""
CALLBACK: Final = "signed-in"
"""The last part of the redirect URI, below the console's address. It stands here because this module needs no library for tokens."""


def looks_like_token(secret: str) -> bool:
    """Whether a secret has the form of a signed JWT. No key has this form."""
    return secret.count(".") == 2 and secret.startswith("eyJ")


def session_digest(secret: str) -> str:
    """The hash by which a session is known. Of a token it is that of the signed part: whoever holds a token with an ECDSA signature
    can write a second valid signature."""
    return hash_of(secret.rpartition(".")[0] if looks_like_token(secret) else secret)


@dataclass(slots=True)
class EndedSessions:
    table: Table
    clock: Callable[[], float]
    _seen: dict[str, tuple[float, bool]] = field(default_factory=dict)

    async def end(self, digest: str, expires_at: int) -> None:
        """``digest`` is that of :func:`session_digest`. Other processes obey within 30 seconds."""
        await self.table.put({"PK": keys.console_code(digest), "SK": _ENDED, "ttl": expires_at + limits.TOKEN_LEEWAY_SECONDS})
        self._seen[digest] = (self.clock(), True)

    async def has(self, digest: str) -> bool:
        now = self.clock()
        read_at, is_ended = self._seen.get(digest, (0.0, False))
        if is_ended or now - read_at < limits.TOKEN_KEPT_SECONDS:
            return is_ended
        is_ended = await self.table.get(keys.console_code(digest), _ENDED) is not None
        if len(self._seen) >= limits.TOKENS_KEPT_MAX:
            self._seen.clear()
        self._seen[digest] = (now, is_ended)
        return is_ended
