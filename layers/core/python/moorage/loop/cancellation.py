"""Whether anybody asked for the end of a response: a look at its record about once a second, while a step works.

A look that failed says nothing: it is no cancellation, and it does not end the watch. A step goes on without sight for a while, because
tables and networks come back; after that it hands over to another run, which may see more. What it had begun is left as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import CancelRequested, LostSight
from moorage.runtime import Process
from moorage.store.responses import StoredResponse
from moorage.store.table import TABLE_ERRORS
from moorage.stores import Stores


@dataclass(frozen=True, slots=True)
class CancelWatch:
    look: Callable[[], Awaitable[bool]]
    """True when the end was asked for; each costs a read unit for each 4 KB of the response's record."""
    poll_seconds: float
    blind_seconds: float = limits.CANCEL_BLIND_SECONDS

    @classmethod
    def of(cls, stores: Stores, process: Process, stored: StoredResponse) -> Self:
        responses = stores.responses
        return cls(lambda: responses.is_cancel_requested(stored.tenant_id, stored.response_id), process.cancel_poll_seconds)

    async def requested(self) -> None:
        """Returns when the end was asked for. Raises :class:`LostSight` when that could not be told for ``blind_seconds``."""
        now = asyncio.get_running_loop().time
        seen_at = now()
        while True:
            await asyncio.sleep(self.poll_seconds)
            try:
                if await self.look():
                    return
                seen_at = now()
            except TABLE_ERRORS as error:
                if now() - seen_at >= self.blind_seconds:
                    raise LostSight from error


class Cancellable:
    """``async with Cancellable(watch):`` ends its body when the watch ends, and says which of the two it was: :class:`CancelRequested`,
    or what the watch failed of. None watches nothing."""

    def __init__(self, watch: CancelWatch | None) -> None:
        self._watch = watch
        self._watching: asyncio.Task[None] | None = None
        self._is_open = True
        self._has_stopped = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._body, self._cancelling = task, task.cancelling()
        if self._watch is not None:
            self._watching = asyncio.create_task(self._watch.requested())
            self._watching.add_done_callback(self._stop)
        return self

    def _stop(self, watching: "asyncio.Task[None]") -> None:
        failure = None if watching.cancelled() else watching.exception()
        if self._is_open:
            self._has_stopped, self._failure = True, failure
            self._body.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_open = False
        if self._watching is not None:
            self._watching.cancel()
        if not self._has_stopped:
            return
        # As in asyncio.timeout: whoever else has cancelled the task gets his way.
        if self._body.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise self._failure or CancelRequested from error
