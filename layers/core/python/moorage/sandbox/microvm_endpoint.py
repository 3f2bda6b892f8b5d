"""A MicroVM's public endpoint: AWS's token for it, and the answers that it gives in the exec server's place.

The endpoint answers 403, 429, 500 and 502 itself
(https://docs.aws.amazon.com/lambda/latest/dg/microvms-networking.html). A new VM's first request is answered 502 about one time in
three, after three seconds, while the VM is well (300 launches, reported; not measured here). So such an answer is never the end of a
VM: the request is repeated, and what AWS says of the VM decides. It decides after a torn connection too.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Protocol

import httpx

from moorage.errors import SandboxError, SandboxGone, SandboxStarting, SandboxUnreachable
from moorage.sandbox.provisioner import SandboxStatus

EXEC_PORT: Final = 8080
MAY_WAKE: Final = "may_wake"
"""The extension of a request that only looks has False here."""

_TOKEN_RENEWED_SECONDS: Final = 50 * 60
_ENDPOINT_SECONDS: Final = 30.0
_PAUSE_SECONDS_MIN: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 4.0
"""Repeats are below httpx's 20 redirects, which it counts them among."""
_BREAK_SECONDS: Final = 1.0
_STATUSES: Final = frozenset({403, 429, 500, 502, 503, 504})


class MicrovmOwner(Protocol):
    async def proxy_token(self, sandbox_id: str) -> str: ...
    async def describe(self, sandbox_id: str) -> SandboxStatus: ...


class MicrovmAuth(httpx.Auth):
    """What an HTTP client of one VM adds to each request: AWS's token and the port. The exec server's own token stays as it is.

    Repeats what the endpoint has answered itself, for half a minute. Then it raises :class:`SandboxUnreachable`, or
    :class:`SandboxGone` if the VM has ended.
    """

    def __init__(
        self, owner: MicrovmOwner, sandbox_id: str, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._owner = owner
        self._sandbox_id = sandbox_id
        self._clock = clock
        self._sleep = sleep
        self._token = ""
        self._renewed_at = float("-inf")

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        deadline, pause, answers, has_renewed = self._clock() + _ENDPOINT_SECONDS, _PAUSE_SECONDS_MIN, 0, False
        if not request.extensions.get(MAY_WAKE, True) and await self._owner.describe(self._sandbox_id) is not SandboxStatus.RUNNING:
            raise SandboxError("The container sleeps, and keeps its processes. Its next command wakes it.")
        # Content that is read while it goes out is there once.
        is_kept = isinstance(request.stream, httpx.ByteStream)
        while True:
            if self._clock() - self._renewed_at > _TOKEN_RENEWED_SECONDS:
                self._token, self._renewed_at = await self._owner.proxy_token(self._sandbox_id), self._clock()
            request.headers["X-aws-proxy-auth"] = self._token
            request.headers["X-aws-proxy-port"] = str(EXEC_PORT)
            response = yield request
            if not await _is_of_endpoint(response):
                return
            answers += 1
            if answers > 1 and await self._has_ended():
                raise SandboxGone("The container's sandbox has ended.")
            needs_token = response.status_code == httpx.codes.FORBIDDEN and not has_renewed
            if needs_token:
                has_renewed, self._renewed_at = True, float("-inf")
            pause = max(pause, _retry_after(response))
            if not is_kept or self._clock() + pause > deadline:
                raise SandboxUnreachable
            if not needs_token:
                await self._sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def after_break(self) -> SandboxError:
        """What to raise after a connection that was refused or torn on the way through the internet. A VM that has not ended is asked
        again."""
        await self._sleep(_BREAK_SECONDS)
        return SandboxGone("The container's sandbox has ended.") if await self._has_ended() else SandboxUnreachable()

    async def _has_ended(self) -> bool:
        try:
            return await self._owner.describe(self._sandbox_id) is SandboxStatus.STOPPED
        except SandboxStarting:
            return False


async def _is_of_endpoint(response: httpx.Response) -> bool:
    """The exec server's errors have an envelope with a code (``functions/sandbox/server/request_errors.py``)."""
    if response.status_code not in _STATUSES:
        return False
    await response.aread()
    try:
        return not isinstance(response.json()["error"]["code"], str)
    except (ValueError, KeyError, TypeError):
        return True


def _retry_after(response: httpx.Response) -> float:
    told = response.headers.get("retry-after", "")
    return float(told) if told.isdecimal() else 0.0
