"""Rate limits for each API key: requests and tokens a minute, as token buckets.

A bucket holds a minute's worth and fills evenly. Its level stands in the table (``store/rates.py``), so that a limit holds however
many processes there are. A process does not go there for each request: if a key asks often, it takes a share for the next second
along, and admits from that. What is left of a share after its second is lost, so that a limit may be met early, and is never exceeded.

Tokens are estimated from the size of the body, since nobody knows the model's count beforehand. Limits are off unless the operator
sets them.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage import limits
from moorage.api.answers import JsonResponse
from moorage.dataclass import dataclass
from moorage.errors import ApiError, rate_limited, server_error
from moorage.store.rates import BucketLevels, Rates

_MINUTE: Final = 60.0
_BYTES_PER_TOKEN: Final = 4
_LIMITED: Final = frozenset(
    {"/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens", "/v1/chat/completions", "/v1/embeddings"}
)
"""Where models are asked."""

Amounts = dict[str, float]
"""By kind: ``requests``, ``tokens``."""


@dataclass(slots=True)
class _Share:
    """This process's view of a key's buckets, and its takings from them."""

    levels: BucketLevels = field(default_factory=BucketLevels)
    """As last seen. Since then others may have taken, so it is never less than this."""
    taken: Amounts = field(default_factory=dict)
    """And not used yet."""
    size: Amounts = field(default_factory=dict)
    """Of the share when it was taken."""
    until: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class RateLimits:
    """``0`` a minute is no limit."""

    requests_per_minute: int
    tokens_per_minute: int
    rates: Rates
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    _shares: dict[str, _Share] = field(default_factory=dict)

    @property
    def per_minute(self) -> dict[str, int]:
        configured = {"requests": self.requests_per_minute, "tokens": self.tokens_per_minute}
        return {kind: rate for kind, rate in configured.items() if rate}

    async def admit(self, key_sha256: str, body_bytes: int, *, requests: int = 1) -> Mapping[str, str]:
        """Take one request from the key's buckets. Returns the ``x-ratelimit-*`` headers; raises 429 with them.

        A request that is larger than a whole bucket passes when the bucket is full, or it could never pass.
        """
        per_minute = self.per_minute
        if not per_minute:
            return {}
        asked = {"requests": float(requests), "tokens": float(max(1, body_bytes // _BYTES_PER_TOKEN))}
        wanted = {kind: min(asked[kind], rate) for kind, rate in per_minute.items()}
        share = self._share_of(key_sha256)
        async with share.lock:
            if self.clock() >= share.until:
                share.taken = dict.fromkeys(per_minute, 0.0)
            if any(share.taken[kind] < amount for kind, amount in wanted.items()):
                await self._take(key_sha256, share, wanted)
            for kind, amount in wanted.items():
                share.taken[kind] -= amount
            return self._headers(share)

    def _share_of(self, key: str) -> _Share:
        if key not in self._shares and len(self._shares) >= limits.RATE_LIMITED_KEYS_MAX:
            self._shares.pop(next(iter(self._shares)))
        return self._shares.setdefault(key, _Share())

    async def _take(self, key: str, share: _Share, wanted: Amounts) -> None:
        """Take the missing tokens, and those of the next second, from the buckets."""
        missing = {kind: max(0.0, amount - share.taken[kind]) for kind, amount in wanted.items()}
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            now = max(self.clock(), share.levels.at)
            filled = self._filled(share.levels, now)
            self._refuse_if_scarce(share, filled, missing)
            size = self._size(share, missing, now)
            taken = {kind: min(size[kind], level) for kind, level in filled.items()}
            left = {kind: level - taken[kind] for kind, level in filled.items()}
            is_taken, share.levels = await self.rates.replace(key, share.levels, left, at=now)
            if is_taken:
                share.taken = {kind: amount + taken[kind] for kind, amount in share.taken.items()}
                share.size, share.until = size, now + limits.RATE_SHARE_SECONDS
                return
        raise server_error("The API key's rate is being counted by too many processes at once. Please retry.")

    def _filled(self, levels: BucketLevels, now: float) -> Amounts:
        seconds = now - levels.at
        return {kind: min(rate, levels.left.get(kind, rate) + seconds * rate / _MINUTE) for kind, rate in self.per_minute.items()}

    def _size(self, share: _Share, missing: Amounts, now: float) -> Amounts:
        """Twice the last share if that did not last its second, up to a second's worth of the rate."""
        if now >= share.until:
            return missing
        return {
            kind: max(amount, min(2 * share.size[kind], self.per_minute[kind] * limits.RATE_SHARE_SECONDS / _MINUTE))
            for kind, amount in missing.items()
        }

    def _refuse_if_scarce(self, share: _Share, filled: Amounts, missing: Amounts) -> None:
        waits = {kind: (amount - filled[kind]) * _MINUTE / self.per_minute[kind] for kind, amount in missing.items()}
        scarce = max(waits, key=lambda kind: waits[kind], default=None)
        if scarce is None or waits[scarce] <= 0:
            return
        seconds = waits[scarce]
        error = rate_limited(
            f"Rate limit reached for {scarce}: {self.per_minute[scarce]} a minute. Try again in {_duration(seconds)}.", seconds
        )
        error.headers |= self._headers(share) | {
            "retry-after": str(math.ceil(seconds)),
            "retry-after-ms": str(math.ceil(seconds * 1000)),
        }
        raise error

    def _headers(self, share: _Share) -> dict[str, str]:
        filled = self._filled(share.levels, max(self.clock(), share.levels.at))
        headers = {}
        for kind, rate in self.per_minute.items():
            left = min(rate, filled[kind] + share.taken[kind])
            headers[f"x-ratelimit-limit-{kind}"] = str(rate)
            headers[f"x-ratelimit-remaining-{kind}"] = str(math.floor(left))
            headers[f"x-ratelimit-reset-{kind}"] = _duration((rate - left) * _MINUTE / rate)
        return headers


def _duration(seconds: float) -> str:
    """``850ms``, ``12.3s``, as OpenAI writes them; it never exceeds a minute."""
    return f"{math.ceil(seconds * 1000)}ms" if seconds < 1 else f"{seconds:.1f}s"


class RateLimiter:
    """The limits before everything that asks a model, or counts for one; the WebSocket transport asks them for each frame. The Gate has
    run by then."""

    def __init__(self, app: ASGIApp, rate_limits: RateLimits) -> None:
        self._app = app
        self._rate_limits = rate_limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in _LIMITED:
            await self._app(scope, receive, send)
            return
        key, declared = scope["state"]["key_digest"], Headers(scope=scope).get("content-length")
        try:
            headers = await self._rate_limits.admit(key, int(declared) if declared is not None and declared.isdigit() else 0)
        except ApiError as error:
            answer = JsonResponse(error.envelope(), status_code=error.status, headers=error.headers)
            await answer(scope, receive, send)
            return
        size = 0

        async def receive_counted() -> Message:
            """A body without a declared length is counted when it is there: its route has not looked at it then."""
            nonlocal headers, size
            message = await receive()
            if declared is None and message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size and not message.get("more_body"):
                    headers = await self._rate_limits.admit(key, size, requests=0)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await self._app(scope, receive_counted, send_with_headers)
