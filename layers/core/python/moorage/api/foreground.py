"""One foreground response and the client that waits for it, for any transport.

The events of the first step come from this process; after a hand-over to the state machine they come from the log. A client that goes
away cancels work that was not handed over. If the process may not run for ever (``until``), a stored response is handed over at that
time and the events end without a final one; one that is not stored fails.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final

from moorage import limits
from moorage.api.idempotency import IdempotentCreate
from moorage.errors import ApiError, MoorageError, time_over, type_of
from moorage.loop import finish
from moorage.loop.create import InlineFirstStep, PreparedResponse
from moorage.loop.paused import stands_still
from moorage.loop.stop import erase, stop
from moorage.runtime import Runtime
from moorage.store.event_log import FINAL_TYPES
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.wire.types import Event

_STATUS_OF: Final = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "model_not_found": 404,
    "server_error": 502,
    "loop_limit_exceeded": 502,
    "container_unavailable": 503,
}


def status_of(code: str) -> int:
    """The HTTP status of a response that failed, by its error's code.

    An error of the request itself is a 4xx: the SDKs would repeat a 5xx, without effect there.
    """
    return _STATUS_OF.get(code, 400)


def failure(
    code: str, message: str, param: str | None, retry_after_seconds: float | None, *, is_worth_repeating: bool = True
) -> ApiError:
    """A failure before the first output is answered like a failed request."""
    headers = {} if retry_after_seconds is None else {"retry-after": str(math.ceil(retry_after_seconds))}
    if not is_worth_repeating:
        headers["x-should-retry"] = "false"
    return ApiError(status_of(code), message, type=type_of(code), param=param, code=code, headers=headers)


class Foreground:
    def __init__(
        self,
        runtime: Runtime,
        prepared: PreparedResponse,
        *,
        until: float | None = None,
        attempt: IdempotentCreate | None = None,
        takes_back: bool = True,
    ) -> None:
        """``until`` in the event loop's time; ``takes_back`` as in :class:`~moorage.loop.sinks.Sink`."""
        self._runtime = runtime
        self._prepared = prepared
        self._attempt = attempt if attempt is not None and attempt.may_return else None
        self._events: list[Event] = []
        """Those that have come and were not passed on yet."""
        self._waiter: asyncio.Future[None] | None = None
        self._inline = InlineFirstStep(runtime, prepared, self._hear, takes_back)
        self._task: asyncio.Task[None] | None = None
        self._last = -1
        self._has_ended = False
        """In this process."""
        self._has_told_end = False
        """It ended elsewhere, and whoever iterates knows."""
        self._until = until

    @property
    def is_handed_over(self) -> bool:
        """The state machine has it: commands may have run, and it goes on in any case."""
        return self._inline.is_handed_over

    @property
    def retry_after_seconds(self) -> float | None:
        """Of a response that failed: how long the model's provider asked to be left alone."""
        return self._inline.retry_after_seconds

    @property
    def is_worth_repeating(self) -> bool:
        """Of a response that failed: whether the SDKs may send it again by themselves."""
        return self._inline.is_worth_repeating

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """Runs the response. Yields the events that have come, an empty list after each silence of ``KEEP_ALIVE_SECONDS``.

        Without a final event it ended because its time is over, and the response goes on without this process.
        The caller closes the iterator (``aclosing``): so the response learns that its client has gone.
        """
        task = self._task = asyncio.create_task(self._inline.run())
        task.add_done_callback(lambda _: self._wake())
        is_broken_off = False
        if self._attempt is not None:
            self._attempt.entered()
        try:
            while (events := await self._next(task, may_wait_long=is_broken_off)) is not None:
                if self._is_time_over() and not is_broken_off:
                    self._inline.break_off()
                    is_broken_off = True
                if events:
                    self._last = events[-1]["sequence_number"]
                    self._has_ended = events[-1]["type"] in FINAL_TYPES
                yield events
                if self._has_ended:
                    return
            await task
            async with aclosing(self._rest()) as rest:
                async for events in rest:
                    self._has_told_end = bool(events) and events[-1]["type"] in FINAL_TYPES
                    yield events
        finally:
            self._leave(task)

    async def final(self) -> dict[str, Any] | None:
        """The response object when the response has ended; None when its time is over before."""
        return await final_of(self.batches())

    async def interrupt(self, reason: str) -> None:
        """End the response as ``incomplete`` for this reason, without half items.

        Its final event comes as ever. One that has ended stays as it is.
        """
        if self._task is None or self._inline.interrupt(reason):
            return
        await asyncio.wait({self._task})
        if not self._inline.is_handed_over or self._has_told_end:
            return
        stored = self._prepared.stored
        snapshot = await self._runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id)
        # Before it is stopped: a step that sees the flag ends the response as cancelled.
        await finish.end_from_outside(self._runtime, snapshot.stored, status="incomplete", incomplete_reason=reason, drops_partial=True)
        await stop(self._runtime, snapshot)

    def _is_time_over(self) -> bool:
        return self._until is not None and asyncio.get_running_loop().time() >= self._until

    def _hear(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _next(self, task: "asyncio.Task[None]", *, may_wait_long: bool) -> list[Event] | None:
        """The new events, at least one; an empty list after a silence, None when no more will come from this process."""
        loop = asyncio.get_running_loop()
        wake_at = self._wake_at(may_wait_long=may_wait_long)
        while not self._has_news(task):
            if loop.time() >= wake_at:
                return []
            self._waiter = loop.create_future()
            timer = loop.call_at(wake_at, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
        events, self._events = self._events, []
        return events or None

    def _has_news(self, task: "asyncio.Task[None]") -> bool:
        """The end is passed on when the task has said its last word to the operator, too: after it the process may be stopped."""
        return task.done() or (bool(self._events) and self._events[-1]["type"] not in FINAL_TYPES)

    def _wake_at(self, *, may_wait_long: bool) -> float:
        usual = asyncio.get_running_loop().time() + limits.KEEP_ALIVE_SECONDS
        return usual if self._until is None or may_wait_long else min(usual, self._until)

    async def _rest(self) -> AsyncGenerator[list[Event], None]:
        """The log, from the end of this process's events."""
        stored, is_stopped = self._prepared.stored, False
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        async for events in self._runtime.stores.responses.log_of(self._prepared.stored).tail(self._last):
            if events is not None:
                quiet_since = loop.time()
                yield events
            elif loop.time() - quiet_since > limits.KEEP_ALIVE_SECONDS:
                quiet_since = loop.time()
                yield []
            has_ended = events is not None and events[-1]["type"] in FINAL_TYPES
            if self._is_time_over() and not is_stopped and not has_ended:
                if stored.is_stored:
                    return
                error = finish.error_of(time_over(self._runtime.settings.stream_seconds_max or 0))
                snapshot = await self._runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id)
                # Before it is stopped: a step that sees the flag ends the response as cancelled.
                await finish.end_from_outside(self._runtime, snapshot.stored, status="failed", error=error)
                await stop(self._runtime, snapshot)
                is_stopped = True

    def _leave(self, task: asyncio.Task[None]) -> None:
        """The stream is over or its client is gone. Handed-over work, and work that is about to be, goes on; the rest is cancelled."""
        stored, attempt = self._prepared.stored, self._attempt
        is_going_on = self._inline.is_handing_over and not self._has_ended
        if attempt is not None:
            has_ended = self._has_ended or self._has_told_end
            left = attempt.left(stored, has_ended=has_ended, is_handed_over=self._handed_over(task))
            self._runtime.process.keep(asyncio.create_task(left))
        if self._has_ended or (stored.is_stored and attempt is not None and attempt.outlives_client and not task.done()):
            self._runtime.process.keep(task)
            if not stored.is_stored:
                self._runtime.process.keep(asyncio.create_task(finish.forget_own_inputs(self._runtime.stores, stored)))
        elif not task.done() and not is_going_on:
            task.cancel()
            self._runtime.process.keep(asyncio.create_task(self._abandon(task)))
        elif is_going_on:
            self._runtime.process.keep(task)
            if not stored.is_stored and (self._has_told_end or attempt is None):
                self._runtime.process.keep(asyncio.create_task(self._erase(task)))

    async def _handed_over(self, task: asyncio.Task[None]) -> bool:
        """Whether the state machine has it; known when a hand-over that is under way has come to its end."""
        if self._inline.is_handing_over:
            await asyncio.wait({task})
        return self._inline.is_handed_over

    async def _erase(self, task: asyncio.Task[None]) -> None:
        await self._handed_over(task)
        await erase(self._runtime.stores, self._prepared.stored)

    async def _abandon(self, task: asyncio.Task[None]) -> None:
        with suppress(asyncio.CancelledError, MoorageError):
            await task
        if not self._inline.is_handed_over:
            await self._inline.abandon()


class AttachedStream:
    """A response that an earlier request has begun, given to a repeat of that request. As :class:`Foreground` to its readers. It reads
    the log, from its beginning."""

    is_handed_over: Final = True
    retry_after_seconds: Final = None
    is_worth_repeating: Final = True

    def __init__(self, attempt: IdempotentCreate, stored: StoredResponse, *, until: float | None = None) -> None:
        """``until`` in the event loop's time."""
        self._attempt = attempt
        self._stored = stored
        self._until = until

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """All events; an empty list after each silence. Without a final one its time was over."""
        loop = asyncio.get_running_loop()
        quiet_since, has_ended = loop.time(), False
        self._attempt.entered()
        try:
            async for events in self._attempt.runtime.stores.responses.log_of(self._stored).tail(-1):
                if events is not None:
                    quiet_since, has_ended = loop.time(), events[-1]["type"] in FINAL_TYPES
                    yield events
                elif loop.time() - quiet_since > limits.KEEP_ALIVE_SECONDS:
                    quiet_since = loop.time()
                    yield []
                if self._until is not None and loop.time() >= self._until:
                    return
        finally:
            left = self._attempt.left(self._stored, has_ended=has_ended, is_handed_over=_surely())
            self._attempt.runtime.process.keep(asyncio.create_task(left))

    async def final(self) -> dict[str, Any] | None:
        """The response object when the response has ended; None when its time is over before."""
        return await final_of(self.batches())


async def _surely() -> bool:
    return True


class ContinuedStream:
    """As :class:`Foreground` to the waiters for the end of the response that goes on."""

    is_handed_over: Final = True
    retry_after_seconds: Final = None
    is_worth_repeating: Final = True

    def __init__(self, stores: Stores, stored: StoredResponse, *, until: float | None) -> None:
        """``until`` in the event loop's time."""
        self._stores = stores
        self._stored = stored
        self._until = until

    async def final(self) -> dict[str, Any] | None:
        """The response object when the response has ended; None when it waits for a person again, or the time is over before."""
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        async for events in self._stores.responses.log_of(self._stored).tail(-1):
            if events is not None and events[-1]["type"] in FINAL_TYPES:
                response: dict[str, Any] = events[-1]["response"]
                return response
            if self._until is not None and loop.time() >= self._until:
                return None
            if events is None and loop.time() - looked_at >= limits.TAIL_POLL_SECONDS_MAX:
                looked_at = loop.time()
                if await self._stands_still():
                    return None
        return None

    async def _stands_still(self) -> bool:
        try:
            stored = await self._stores.responses.load(self._stored.tenant_id, self._stored.response_id)
        except ApiError:  # It was deleted meanwhile: whoever asks next is told.
            return True
        return stands_still(stored)


async def final_of(batches: AsyncGenerator[list[Event], None]) -> dict[str, Any] | None:
    """The response object at the end of these events; None if their time was over before."""
    async with aclosing(batches):
        async for events in batches:
            if events and events[-1]["type"] in FINAL_TYPES:
                response: dict[str, Any] = events[-1]["response"]
                return response
    return None
