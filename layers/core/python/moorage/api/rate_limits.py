"""Rate limits for each API key: requests and tokens a minute, as token buckets.

A bucket holds a minute's worth and fills evenly. Every process counts for itself, so that a limit costs no request to the table;
with n API processes a key may get up to n times as much. Tokens are estimated from the size of the body, since nobody knows the
model's count beforehand. Limits are off unless the operator sets them.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage import limits
from moorage.api.answers import JsonResponse
from moorage.errors import ApiError, rate_limited

_MINUTE: Final = 60.0
_BYTES_PER_TOKEN: Final = 4
_LIMITED: Final = frozenset({"/v1/responses"})
"""Where models are asked."""


@dataclass(slots=True)
class _Bucket:
    per_minute: int
    level: float
    at: float

    def fill(self, now: float) -> None:
        self.level = min(self.per_minute, self.level + (now - self.at) * self.per_minute / _MINUTE)
        self.at = now

    def seconds_until(self, amount: float) -> float:
        return max(0.0, (amount - self.level) * _MINUTE / self.per_minute)


@dataclass(slots=True)
class RateLimits:
    """``0`` a minute is no limit."""

    requests_per_minute: int
    tokens_per_minute: int
    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, dict[str, _Bucket]] = field(default_factory=dict)

    def admit(self, key: str, body_bytes: int) -> Mapping[str, str]:
        """Take one request from the key's buckets. Returns the ``x-ratelimit-*`` headers; raises 429 with them.

        A request that is larger than a whole bucket passes when the bucket is full, or it could never pass.
        """
        now = self.clock()
        buckets = self._of(key, now)
        wanted = {"requests": 1.0, "tokens": float(max(1, body_bytes // _BYTES_PER_TOKEN))}
        waits: dict[str, float] = {}
        for kind, bucket in buckets.items():
            bucket.fill(now)
            waits[kind] = bucket.seconds_until(min(wanted[kind], bucket.per_minute))
        seconds = max(waits.values(), default=0.0)
        if seconds > 0:
            scarce = max(waits, key=lambda kind: waits[kind])
            raise self._refusal(scarce, buckets, seconds)
        for kind, bucket in buckets.items():
            bucket.level = max(0.0, bucket.level - wanted[kind])
        return _headers(buckets)

    def _of(self, key: str, now: float) -> dict[str, _Bucket]:
        if key not in self._buckets and len(self._buckets) >= limits.RATE_LIMITED_KEYS_MAX:
            self._buckets.pop(next(iter(self._buckets)))
        configured = {"requests": self.requests_per_minute, "tokens": self.tokens_per_minute}
        made = {kind: _Bucket(rate, rate, now) for kind, rate in configured.items() if rate}
        return self._buckets.setdefault(key, made)

    def _refusal(self, scarce: str, buckets: Mapping[str, _Bucket], seconds: float) -> ApiError:
        error = rate_limited(
            f"Rate limit reached for {scarce}: {buckets[scarce].per_minute} a minute. Try again in {_duration(seconds)}.", seconds
        )
        error.headers |= _headers(buckets) | {
            "retry-after": str(math.ceil(seconds)),
            "retry-after-ms": str(math.ceil(seconds * 1000)),
        }
        return error


def _headers(buckets: Mapping[str, _Bucket]) -> dict[str, str]:
    headers = {}
    for kind, bucket in buckets.items():
        headers[f"x-ratelimit-limit-{kind}"] = str(bucket.per_minute)
        headers[f"x-ratelimit-remaining-{kind}"] = str(math.floor(bucket.level))
        headers[f"x-ratelimit-reset-{kind}"] = _duration(bucket.seconds_until(bucket.per_minute))
    return headers


def _duration(seconds: float) -> str:
    """``850ms``, ``12.3s``, as OpenAI writes them; it never exceeds a minute."""
    return f"{math.ceil(seconds * 1000)}ms" if seconds < 1 else f"{seconds:.1f}s"


class RateLimiter:
    """The limits before ``POST /v1/responses``; the WebSocket transport asks them for each frame. The Gate has run by then."""

    def __init__(self, app: ASGIApp, rate_limits: RateLimits) -> None:
        self._app = app
        self._rate_limits = rate_limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in _LIMITED:
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        try:
            headers = self._rate_limits.admit(scope["state"]["key_digest"], int(declared) if declared.isdigit() else 0)
        except ApiError as error:
            answer = JsonResponse(error.envelope(), status_code=error.status, headers=error.headers)
            await answer(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await self._app(scope, receive, send_with_headers)
