"""One foreground response and the client that waits for it, whatever the transport.

The events of the first step come from this process; after a hand-over to the state machine they come from the log. A client that
goes away cancels what has not been handed over.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Final

from moorage import limits
from moorage.errors import ApiError, MoorageError
from moorage.loop.create import Inline, Prepared
from moorage.runtime import Runtime
from moorage.store.event_log import FINAL_TYPES, Event
from moorage.store.executions import ENDED
from moorage.store.responses import StoredResponse
from moorage.tools.inputs import forget_inputs

_STATUS_OF: Final = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "model_not_found": 404,
    "server_error": 502,
    "loop_limit_exceeded": 502,
}


def status_of(code: str) -> int:
    """The HTTP status of a response that failed, by its error's code. What is neither ours nor passing lies in the request: the SDKs
    would repeat a 5xx, which helps nobody there."""
    return _STATUS_OF.get(code, 400)


def failure(code: str, message: str) -> ApiError:
    """What failed before it put anything out is answered like a request that failed."""
    status = status_of(code)
    kind = {429: "rate_limit_error", 502: "server_error"}.get(status, "invalid_request_error")
    return ApiError(status, message, type=kind, code=code)


class Foreground:
    def __init__(self, runtime: Runtime, prepared: Prepared) -> None:
        self._runtime = runtime
        self._prepared = prepared
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._inline = Inline(runtime, prepared, self._events.put_nowait)
        self._last = -1
        self._has_ended = False

    @property
    def is_handed_over(self) -> bool:
        """The state machine has it: commands may have run, and it goes on whatever happens here."""
        return self._inline.is_handed_over

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """Runs the response. Yields the events that have come, an empty list after each silence of ``KEEP_ALIVE_SECONDS``.

        Whoever iterates closes it (``aclosing``): that is how the response learns that its client has gone.
        """
        task = asyncio.create_task(self._inline.run())
        task.add_done_callback(lambda _: self._events.put_nowait(None))
        try:
            while (events := await self._next()) is not None:
                if events:
                    self._last = events[-1]["sequence_number"]
                    self._has_ended = events[-1]["type"] in FINAL_TYPES
                yield events
                if self._has_ended:
                    return
            await task
            async with aclosing(self._rest()) as rest:
                async for events in rest:
                    yield events
        finally:
            self._leave(task)

    async def final(self) -> dict[str, Any]:
        """The response object when the response has ended."""
        async with aclosing(self.batches()) as batches:
            async for events in batches:
                if events and events[-1]["type"] in FINAL_TYPES:
                    response: dict[str, Any] = events[-1]["response"]
                    return response
        raise AssertionError("a response's events ended without a final one")

    async def _next(self) -> list[Event] | None:
        """What has come, at least one event; an empty list after a silence, None when no more will come from this process."""
        if self._events.empty():
            try:
                async with asyncio.timeout(limits.KEEP_ALIVE_SECONDS):
                    first = await self._events.get()
            except TimeoutError:
                return []
        else:
            first = self._events.get_nowait()
        if first is None:
            return None
        events = [first]
        while not self._events.empty():
            event = self._events.get_nowait()
            if event is None:
                self._events.put_nowait(None)
                break
            events.append(event)
        return events

    async def _rest(self) -> AsyncGenerator[list[Event], None]:
        """The log, from where this process's events ended."""
        loop = asyncio.get_running_loop()
        quiet_since = loop.time()
        async for events in self._runtime.responses.log_of(self._prepared.stored).tail(self._last):
            if events is not None:
                quiet_since = loop.time()
                yield events
            elif loop.time() - quiet_since > limits.KEEP_ALIVE_SECONDS:
                quiet_since = loop.time()
                yield []

    def _leave(self, task: asyncio.Task[None]) -> None:
        """The stream is over or its client is gone. What has been handed over goes on; the rest is cancelled."""
        stored = self._prepared.stored
        if self._has_ended:
            self._runtime.keep(task)
            if not stored.is_stored:
                forgetting = forget_inputs(self._runtime, stored.tenant_id, stored.input_items)
                self._runtime.keep(asyncio.create_task(forgetting))
        elif not task.done() and not self._inline.is_handed_over:
            task.cancel()
            self._runtime.keep(asyncio.create_task(self._abandon(task)))
        elif not stored.is_stored and self._inline.is_handed_over:
            self._runtime.keep(asyncio.create_task(erase(self._runtime, stored)))

    async def _abandon(self, task: asyncio.Task[None]) -> None:
        with suppress(asyncio.CancelledError, MoorageError):
            await task
        if not self._inline.is_handed_over:
            await self._inline.abandon()


async def erase(runtime: Runtime, stored: StoredResponse) -> None:
    """Remove everything of a response, once nothing can write to it any more."""
    if stored.is_looping or not stored.is_stored:
        deadline = asyncio.get_running_loop().time() + limits.ERASE_WAIT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if await runtime.executions.status(stored.execution) in (None, *ENDED):
                break
            await asyncio.sleep(limits.TAIL_POLL_SECONDS_MAX)
    await runtime.responses.delete(stored.tenant_id, stored.response_id)
    if stored.conversation_id is None:  # A conversation still shows the items to its model.
        await forget_inputs(runtime, stored.tenant_id, stored.input_items)
