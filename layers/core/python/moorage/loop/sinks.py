"""Where a step's events go.

``LogSink`` serves the steps of the state machine: the log comes first, and clients read the log. ``InlineSink`` serves a foreground
response's first step inside the API process: the client comes first, and the log is written behind.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

from moorage import limits
from moorage.errors import ConditionFailed, Superseded
from moorage.store.event_log import EventBatch, EventLog, LogWriter, LogWriterId, WriteBehind
from moorage.wire.events import OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE
from moorage.wire.types import Event

_BOUNDARIES: Final = frozenset({OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE})


class Sink(Protocol):
    @property
    def takes_back(self) -> bool:
        """Whether its client learns that an item broke off, and is said anew: chat completions have no word for that."""
        ...

    def emit(self, event: Event) -> None:
        """Take one event; it has no number yet."""
        ...

    def note_request(self, request_id: str) -> None:
        """The upstream's id of the request that it answers: the log keeps it beside the next events."""
        ...

    async def flush(self) -> None:
        """Return when everything that was emitted is in the log. Raises :class:`Superseded`."""
        ...

    async def end(self, event: Event) -> int:
        """Take the final event, and return its time in the log, in milliseconds. The client sees it only when it is in the log: what
        it asks next must find the response ended."""
        ...


class LogSink:
    """Writes batches while the step goes on: at item boundaries, when enough has come, and 80 ms after the first of a batch.

    A timer begins each write, so that a step that says little makes no task for it. A failure of a write that nobody awaits
    (superseded, throttled to death) cancels ``owner``, so that a step that nobody listens to any more stops paying for its model.
    """

    takes_back: Final = True

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer
        self.first_output_at_ms: int | None = None
        self.request_id: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._owner: asyncio.Task[Any] | None = None
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._disarm()
        if self._writing is not None:
            self._writing.cancel()
            with suppress(asyncio.CancelledError):
                await self._writing
        if self._failure is not None and isinstance(error, asyncio.CancelledError):
            assert self._owner is not None
            self._owner.uncancel()
            raise self._failure from None

    def emit(self, event: Event, *, offset: tuple[int, int] | None = None) -> None:
        self.writer.add(event, offset=offset)
        if self.first_output_at_ms is None and event["type"] == OUTPUT_ITEM_ADDED:
            self.first_output_at_ms = self.writer.now_ms()
        is_due = event["type"] in _BOUNDARIES or self.writer.is_due
        self._arm(limits.BATCH_GATHER_SECONDS if is_due else limits.BATCH_SECONDS_MAX)

    def note_request(self, request_id: str) -> None:
        self.request_id = self.writer.request_id = request_id

    async def flush(self) -> None:
        self._disarm()
        await self.writer.flush()

    async def conclude(self, behind: WriteBehind) -> bool:
        """As :meth:`LogWriter.conclude`: the last events of the step, and its record."""
        self._disarm()
        return await self.writer.conclude(behind)

    async def end(self, event: Event) -> int:
        self.writer.add(event)
        await self.flush()
        return self.writer.written_at_ms

    def _arm(self, seconds: float) -> None:
        """A write begins then, unless one begins before."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._timer is None or at < self._timer.when():
            self._disarm()
            self._timer = loop.call_at(at, self._begin)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        if self._writing is None or self._writing.done():  # A write that goes on takes what has come meanwhile.
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            await self.writer.flush()
        except Exception as error:
            self._failure = error
            assert self._owner is not None
            self._owner.cancel()


class InlineSink:
    """Numbers events at once, hands them to the client, and keeps them for the log.

    Nothing is ever written of a response that is not stored, unless a hand-over makes it known (:meth:`keep`). Nobody else writes
    before the hand-over, so a taken slot means that the reaper has declared this process dead.
    """

    def __init__(self, listener: Callable[[Event], None], now_ms: Callable[[], int], *, takes_back: bool = True) -> None:
        self.takes_back = takes_back
        self.next_number = 0
        self.first_output_at_ms: int | None = None
        self.request_id: str | None = None
        self._listener = listener
        self._now_ms = now_ms
        self._pending: list[Event] = []
        self._times: list[int] = []
        self._writer = LogWriterId(step=0, attempt=1)
        self._lock = asyncio.Lock()
        self._log: EventLog | None = None
        self._create: Callable[[EventBatch | None], Awaitable[None]] | None = None
        self._recording: asyncio.Future[None] | None = None
        self._end: asyncio.Task[None] | None = None

    def keep(self, log: EventLog, create: Callable[[EventBatch | None], Awaitable[None]]) -> None:
        """Write from now on, everything so far included. ``create`` writes the response's record, with its first batch if it is given
        one; it is called once."""
        self._log, self._create = log, create

    @property
    def has_record(self) -> bool:
        """Whether the record is there, or on its way."""
        return self._recording is not None

    async def record(self, first: EventBatch | None = None) -> None:
        """Return when the response's record is there. Raises its writer's error."""
        if self._recording is None:
            assert self._create is not None, "no record for what is not stored"
            self._recording = asyncio.ensure_future(self._create(first))
        await asyncio.shield(self._recording)

    def emit(self, event: Event) -> None:
        numbered = event | {"sequence_number": self.next_number}
        self.next_number += 1
        self._hold(numbered)
        self._listener(numbered)

    def note_request(self, request_id: str) -> None:
        self.request_id = request_id

    def _hold(self, numbered: Event) -> None:
        self._pending.append(numbered)
        self._times.append(self._now_ms())
        if self.first_output_at_ms is None and numbered["type"] == OUTPUT_ITEM_ADDED:
            self.first_output_at_ms = self._times[-1]

    @property
    def unwritten(self) -> tuple[Event, ...]:
        """Events that are in no log: all of them, if there is none."""
        return tuple(self._pending)

    async def flush(self) -> None:
        async with self._lock:  # One after the other, and nothing is forgotten before it is written: the log has no gap.
            if self._log is None or not self._pending:
                return
            first, times = self._pending[0]["sequence_number"], tuple(self._times)
            batch = EventBatch(first, tuple(self._pending), self._writer, times=times, request_id=self.request_id)
            try:
                if self._recording is None:
                    await self.record(batch)
                else:
                    await asyncio.shield(self._recording)
                    await self._log.append(batch)
            except ConditionFailed as error:
                raise Superseded("the log of a foreground response has another writer") from error
            del self._pending[: len(batch.events)], self._times[: len(batch.events)]

    async def end(self, event: Event) -> int:
        self._end = asyncio.create_task(self._write_end(event))
        await asyncio.shield(self._end)
        return self._now_ms()

    async def has_ended(self) -> bool:
        """Whether the final event was given; returns when it is in the log. Raises its writer's error."""
        if self._end is not None:
            await self._end
        return self._end is not None

    async def _write_end(self, event: Event) -> None:
        numbered = event | {"sequence_number": self.next_number}
        self.next_number += 1
        self._hold(numbered)
        await self.flush()
        self._listener(numbered)
