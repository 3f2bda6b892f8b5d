"""The event log of a response: the truth that everything else is derived from.

Events are numbered 0, 1, 2 ... without gap or repeat and never edited. They are stored in batches, one record each, with the number of
the *first* event as sort key. Appending is compare-and-set on the next number: a put that asks for the key to be absent. Two writers
always aim at the same slot, so one wins; keying by the last number would let batches of different length overlap.

A batch names its writer, ``(step, call, attempt)``. The loser of a race reads the batches written since and decides (:func:`meet`):

* a later step, a final batch, or its own step and call with a higher attempt: it is superseded, and stops;
* another call of the same step, or a step of another lane: a peer; it goes on at the new number;
* its own step and call with a lower attempt: a dead predecessor wrote late. It folds that in, then goes on. The predecessor's next
  put finds the slot taken, and it stops in turn.

No transaction, no lock, one write for each batch.
"""

import asyncio
import struct
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, Superseded
from moorage.store import keys, object_keys
from moorage.store.bell import Bell
from moorage.store.blobs import Blobs
from moorage.store.packing import packed, unpacked, unpacked_with_size
from moorage.store.table import Record, Table, Write
from moorage.wire.events import FINAL, OUTPUT_ITEM_ADDED
from moorage.wire.types import Event

FINAL_TYPES: Final = FINAL
"""The last event of every log is one of these; that of a cancelled response is ``response.incomplete``."""

STEP_OF_THE_END: Final = 1_000_000_000
"""Cancel and the reaper write as this step: later than any of the loop's, so that every running step is superseded."""


@dataclass(frozen=True, slots=True)
class LogWriterId:
    step: int
    attempt: int
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class EventBatch:
    first: int
    events: tuple[Event, ...]
    writer: LogWriterId
    offsets: dict[str, int] = field(default_factory=dict)
    """Of a tool step: command index -> number of the last exec event that is in the log, this batch included."""
    at_ms: int = 0
    """When it was written; given only for one that was written elsewhere before."""
    times: tuple[int, ...] = ()
    """When each event was said (milliseconds); empty where only the batch's own time is known."""
    request_id: str | None = None
    """What the model's upstream calls the request that made these events, in one batch of them at least."""
    next_output: int | None = None
    """Of a response with a team: the output index of the next item after this batch."""

    def said_at(self, position: int) -> int:
        """When the event at a position of the batch was said, in milliseconds."""
        return self.times[position] if self.times else self.at_ms

    def without_first(self, count: int) -> "EventBatch":
        """The rest of it behind so many of its events."""
        return self if count <= 0 else replace(self, first=self.first + count, events=self.events[count:], times=self.times[count:])

    @property
    def following(self) -> int:
        """The number of the next event after this batch."""
        return self.first + len(self.events)

    @property
    def is_final(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in FINAL_TYPES


class WriterConflict(StrEnum):
    SUPERSEDED = "superseded"
    PEER = "peer"
    PREDECESSOR = "predecessor"
    MYSELF = "myself"


def meet(mine: LogWriterId, other: EventBatch) -> WriterConflict:
    """A writer's decision about a batch that it did not expect."""
    theirs = other.writer
    if theirs == mine:
        return WriterConflict.MYSELF
    if other.is_final or theirs.step == STEP_OF_THE_END:
        return WriterConflict.SUPERSEDED
    if keys.lane_of(theirs.step) != keys.lane_of(mine.step):
        return WriterConflict.PEER
    if theirs.step > mine.step:
        return WriterConflict.SUPERSEDED
    if theirs.step < mine.step or theirs.call_id != mine.call_id:
        return WriterConflict.PEER
    return WriterConflict.SUPERSEDED if theirs.attempt > mine.attempt else WriterConflict.PREDECESSOR


def taken_over(mine: LogWriterId, batches: Sequence[EventBatch]) -> int:
    """The number after a fully read log, for its next writer.

    Raises :class:`Superseded` if an entry ends its work: behind the read part it would meet no other writer any more.
    """
    for batch in batches:
        if meet(mine, batch) is WriterConflict.SUPERSEDED:
            raise Superseded(f"{mine} found {batch.writer} at {batch.first}")
    return batches[-1].following if batches else 0


@dataclass(frozen=True, slots=True)
class TimestampedEvent:
    """An event with its time (milliseconds). Streams never show the time; the pages of the log do."""

    event: Event
    at_ms: int


class EventLog:
    """One response's log."""

    def __init__(
        self,
        table: Table,
        blobs: Blobs,
        tenant_id: str,
        response_id: str,
        *,
        expires_at: int,
        now_ms: Callable[[], int],
        listed: Callable[[dict[str, Any]], Record] | None = None,
        bell: Bell | None = None,
    ) -> None:
        """``listed`` makes the row of the final batch in the list of responses from the response object.

        Without a ``bell`` the followers of the log poll.
        """
        self.table = table
        self._blobs = blobs
        self._tenant_id = tenant_id
        self._response_id = response_id
        self._pk = keys.response(tenant_id, response_id)
        self._expires_at = expires_at
        self.now_ms = now_ms
        self._listed = listed
        self._bell = bell

    async def append(self, batch: EventBatch) -> int:
        """Put a batch into its slot and return its time there, in milliseconds; raises :class:`ConditionFailed` if it is taken."""
        at_ms, _ = await self.append_with(batch, ())
        return at_ms

    async def append_with(self, batch: EventBatch, behind: Sequence[Write]) -> tuple[int, bool]:
        """The same, and behind it writes that tell of it: the log comes first. Answers whether they were all made too; not if the
        condition of one of them failed."""
        record = await self.record(batch)
        put = Write.put(record, if_absent=True)
        if behind:
            made = await self.table.write_in_turn([put, *behind])
            if made == 0:
                raise ConditionFailed
        else:
            made = 1
            await self.table.write(put)
        if self._bell is not None:
            self._bell.ring(self._response_id)
        return int(record["at_ms"]), made > len(behind)

    async def record(self, batch: EventBatch, *, is_listed: bool = True) -> Record:
        """The record of a batch; a large body has gone to S3 by then. The final one lists its response, unless ``is_listed`` says that
        another record does."""
        assert batch.events, f"empty batch at {batch.first}"
        # The final batch says everything again, and is often just too large for one write unit; the others come too often for that.
        body = await packed(batch.events, 4 if batch.is_final else 1)
        record: Record = {
            "PK": self._pk,
            "SK": keys.event(batch.first),
            "count": len(batch.events),
            "step": batch.writer.step,
            "attempt": batch.writer.attempt,
            "at_ms": batch.at_ms or self.now_ms(),
            "ttl": self._expires_at,
        }
        if batch.request_id is not None:
            record["request"] = batch.request_id
        if batch.next_output is not None:
            record["next_output"] = batch.next_output
        if batch.times:
            record["times"] = _packed_times(batch.times)
        if batch.is_final and is_listed and self._listed is not None:
            record |= self._listed(batch.events[-1]["response"])
        if batch.writer.call_id is not None:
            record["call"] = batch.writer.call_id
        if batch.offsets:
            record["offsets"] = batch.offsets
        if len(body) > limits.ITEM_INLINE_BYTES_MAX:
            key = object_keys.response_blob(self._tenant_id, self._response_id, f"ev-{batch.first}-{batch.writer.attempt}")
            await self._blobs.put_bytes(key, body)
            record["blob"] = key
        else:
            record["body"] = body
        return record

    async def read_after(self, sequence_number: int, *, limit: int | None = None) -> list[EventBatch]:
        """Batches that hold events after this number (-1 for all), strongly consistent. The first may begin before it."""
        pk = self._pk
        start = await self.table.query(pk, prefix=keys.event.prefix, up_to=keys.event(sequence_number + 1), descending=True, limit=1)
        if not start:
            return []
        begin = start[0]["SK"]
        rest = await self.table.query(pk, prefix=keys.event.prefix, after=begin, limit=limit)
        return [batch for batch in await self.batches([start[0], *rest]) if batch.following > sequence_number + 1]

    async def read_from(self, first: int) -> list[EventBatch]:
        """Batches at and after the slot ``first``; an empty list when nothing is there yet."""
        records = await self.table.query(self._pk, prefix=keys.event.prefix, after=keys.event(first - 1) if first else None)
        return await self.batches(records)

    async def read_up_to(self, sequence_number: int) -> AsyncIterator[list[EventBatch]]:
        """Batches that hold events up to this number, some at a time; the last may go on behind it."""
        after: str | None = None
        while True:
            records = await self.table.query(self._pk, prefix=keys.event.prefix, after=after, limit=limits.EVENTS_FOLD_BATCHES)
            wanted = [record for record in records if record["SK"] <= keys.event(sequence_number)]
            if wanted:
                yield await self.batches(wanted)
            if len(wanted) < limits.EVENTS_FOLD_BATCHES:
                return
            after = wanted[-1]["SK"]

    async def read_all(self) -> list[Event]:
        """Every event so far, in order."""
        return [event for batch in await self.read_from(0) for event in batch.events]

    async def batch(self, record: Record) -> tuple[EventBatch, int]:
        """A record as a batch, and how many bytes of JSON its events are."""
        (body,) = await self._blobs.inlined([record], "body")
        events, size = await unpacked_with_size(body)
        return _batch(record, events), size

    async def batches(self, records: Sequence[Record]) -> list[EventBatch]:
        """Records as batches."""
        bodies = await self._blobs.inlined(records, "body")
        return [_batch(record, await unpacked(body)) for record, body in zip(records, bodies, strict=True)]

    async def page(
        self, *, after: int | None, limit: int, descending: bool, types: frozenset[str]
    ) -> tuple[list[TimestampedEvent], int | None]:
        """Up to ``limit`` events beyond number ``after``, those of ``types`` alone if there are any; and the number to go on from, None
        if there are no more. Looks at a bounded number of batches: a page may be short, and even empty, before the end."""
        found: list[TimestampedEvent] = []
        looked_at = 0
        while looked_at < limits.EVENTS_PAGE_BATCHES_MAX:
            batches = await self._beyond(after, descending=descending)
            looked_at += len(batches)
            for told in _told(batches, after, descending=descending):
                if len(found) == limit:
                    return found, after
                after = told.event["sequence_number"]
                if not types or told.event["type"] in types:
                    found.append(told)
            if len(batches) < limits.EVENTS_READ_BATCHES:
                return found, None
        return found, after

    async def _beyond(self, after: int | None, *, descending: bool) -> list[EventBatch]:
        """The next batches that hold events beyond number ``after``."""
        if not descending:
            return (await self.read_after(-1 if after is None else after, limit=limits.EVENTS_READ_BATCHES))[
                : limits.EVENTS_READ_BATCHES
            ]
        if after == 0:
            return []
        up_to = None if after is None else keys.event(after - 1)
        records = await self.table.query(
            self._pk, prefix=keys.event.prefix, up_to=up_to, descending=True, limit=limits.EVENTS_READ_BATCHES
        )
        return await self.batches(records)

    async def tail(self, after: int, *, is_alive: Callable[[], bool] = lambda: True) -> AsyncIterator[list[Event] | None]:
        """Follow the log from the event after this number to its end.

        Yields the events that have come, or None at each empty poll, so that the caller can keep its client awake. Polls every
        20 ms while events flow and backs off to 500 ms while nothing comes. If a bell is heard, it is read for each ring, and every
        500 ms. The log's continuity is verified.
        """
        async with aclosing(self.tail_batches(after, is_alive=is_alive)) as followed:
            async for batches in followed:
                yield None if batches is None else [event for batch in batches for event in batch.events]

    async def tail_batches(
        self, after: int, *, is_alive: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[list[EventBatch] | None, None]:
        """The same with the batches as they were written, without the events up to ``after``."""
        expected = after + 1
        pause = limits.TAIL_POLL_SECONDS_MIN
        bell = self._bell if self._bell is not None and self._bell.is_heard else None
        with nullcontext() if bell is None else bell.awaited(self._response_id) as woken:
            batches = await self.read_after(after)
            while is_alive():
                come: list[EventBatch] = []
                for batch in batches:
                    assert batch.first <= expected, f"gap in the log of {self._response_id}: {expected} to {batch.first}"
                    fresh = batch.without_first(expected - batch.first)
                    come += [fresh] if fresh.events else []
                    expected += len(fresh.events)
                if come:
                    pause = limits.TAIL_POLL_SECONDS_MIN
                    yield come
                    if come[-1].is_final:
                        return
                else:
                    yield None
                if woken is None:
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.2, limits.TAIL_POLL_SECONDS_MAX)
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(limits.TAIL_POLL_SECONDS_MAX):
                            await woken.wait()
                    woken.clear()
                batches = await self.read_from(expected)


def _batch(record: Record, events: Sequence[Event]) -> EventBatch:
    return EventBatch(
        first=keys.event.read(record["SK"]),
        events=tuple(events),
        writer=LogWriterId(record["step"], record["attempt"], record.get("call")),
        offsets=record.get("offsets", {}),
        at_ms=record["at_ms"],
        times=_unpacked_times(record["times"]) if "times" in record else (),
        request_id=record.get("request"),
        next_output=record.get("next_output"),
    )


def _told(batches: Sequence[EventBatch], after: int | None, *, descending: bool) -> list[TimestampedEvent]:
    """The events of these batches beyond number ``after``, in order."""
    told = [
        TimestampedEvent(event, batch.said_at(position))
        for batch in batches
        for position, event in (reversed(list(enumerate(batch.events))) if descending else enumerate(batch.events))
    ]
    if after is None:
        return told
    return [one for one in told if (one.event["sequence_number"] < after if descending else one.event["sequence_number"] > after)]


def _packed_times(times: Sequence[int]) -> bytes:
    """The first one, and how much later each is: small numbers, and so they shrink well."""
    return zlib.compress(struct.pack(f">Q{len(times)}i", times[0], *(at - times[0] for at in times)), 1)


def _unpacked_times(packed: bytes) -> tuple[int, ...]:
    body = zlib.decompress(packed)
    first, *later = struct.unpack(f">Q{(len(body) - 8) // 4}i", body)
    return tuple(first + each for each in later)


class PendingEvent(NamedTuple):
    """An event that has no number yet."""

    event: Event
    offset: dict[str, int]
    at_ms: int


def weight(event: Event) -> int:
    """About how many bytes an event adds to a batch: those of its delta (text, or a command's output by stream) and its frame."""
    delta = event.get("delta", "")
    return 64 + (len(delta) if isinstance(delta, str) else sum(map(len, delta.values())))


@dataclass(slots=True)
class OutputPlaces:
    """The places of an agent's items among those of its response.

    A step counts the items of its own lane. An item gets its index in the response when it is written, as an event gets its number:
    a peer may be faster."""

    agent: str
    """Whose items they are: clients read the name on each item and event."""
    next_output: int
    """The index of the next item of the response."""
    known: dict[int, int] = field(default_factory=dict)
    """Index in the response of the items of the lane that the step writes about."""

    def placed(self, events: Sequence[Event]) -> tuple[list[Event], "OutputPlaces"]:
        """Events as clients read them, and the places after them."""
        after = OutputPlaces(self.agent, self.next_output, dict(self.known))
        return [after._take(event) for event in events], after

    def _take(self, event: Event) -> Event:
        own = event.get("output_index")
        if own is None:
            return event
        if event["type"] == OUTPUT_ITEM_ADDED and own not in self.known:
            self.known[own] = self.next_output
            self.next_output += 1
        agent = {"agent": {"agent_name": self.agent}}
        item = {"item": event["item"] | agent} if "item" in event else {}
        return event | item | agent | {"output_index": self.known[own]}

    def unplaced(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """Events that an earlier run of the step has written, with the indexes of the lane; those of items that this run does not know
        have none."""
        own = {place: {"output_index": index} for index, place in self.known.items()}
        return tuple(
            {name: value for name, value in event.items() if name != "output_index"} | own.get(event.get("output_index", -1), {})
            for event in events
        )


WriteBehind = Callable[[int, OutputPlaces | None], Write]
"""Makes a write that tells of events in the log: of the number of the next one, and the places of the items behind them."""


class LogWriter:
    """Appends one step's events, in batches, and deals with other writers.

    Numbers are given at the flush, because a peer may take the slot first. ``on_predecessor`` is called with the late batch of a
    dead predecessor and returns the events that are still to be written (``None`` keeps them all).
    """

    def __init__(
        self,
        log: EventLog,
        writer: LogWriterId,
        next_number: int,
        *,
        on_predecessor: Callable[[EventBatch, list[PendingEvent]], list[PendingEvent]] | None = None,
        places: OutputPlaces | None = None,
    ) -> None:
        """``places`` are given in a response with a team."""
        self._log = log
        self.places = places
        self.writer = writer
        self.next_number = next_number
        self.request_id: str | None = None
        """For the next batch to tell."""
        self.written_at_ms = 0
        """The time of its last batch in the log."""
        self._pending: list[PendingEvent] = []
        self._pending_bytes = 0
        self._offsets: dict[str, int] = {}
        self._on_predecessor = on_predecessor
        self._lock = asyncio.Lock()

    def add(self, event: Event, *, offset: tuple[int, int] | None = None) -> None:
        """Queue an event; ``offset`` is (command index, exec event number) for events that stand for command output."""
        self._pending.append(PendingEvent(event, {} if offset is None else {str(offset[0]): offset[1]}, self._log.now_ms()))
        self._pending_bytes += weight(event)

    def now_ms(self) -> int:
        return self._log.now_ms()

    @property
    def is_due(self) -> bool:
        return self._pending_bytes >= limits.BATCH_EVENTS_BYTES_MAX

    async def flush(self) -> None:
        """Write the queue. Raises :class:`Superseded` when another attempt or step has taken over."""
        async with self._lock:
            while self._pending:
                pending, self._pending, self._pending_bytes = self._pending, [], 0
                await self._write(pending)

    async def conclude(self, behind: WriteBehind) -> bool:
        """Write the queue, and behind it what tells of it. Nothing is added meanwhile. Answers whether the condition of that one held.

        Raises :class:`Superseded`, and has not made it then.
        """
        async with self._lock:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            is_made = await self._write(pending, behind)
            if is_made is None:
                is_made = await self._log.table.write_in_turn([behind(self.next_number, self.places)]) == 1
            return is_made

    async def _write(self, pending: list[PendingEvent], behind: WriteBehind | None = None) -> bool | None:
        """Answers whether ``behind`` was made; None if that was not tried."""
        while pending:
            offsets = dict(self._offsets)
            for each in pending:
                offsets |= each.offset
            said, places = [each.event for each in pending], self.places
            if self.places is not None:
                said, places = self.places.placed(said)
            events = tuple(event | {"sequence_number": self.next_number + i} for i, event in enumerate(said))
            times = tuple(each.at_ms for each in pending)
            batch = EventBatch(
                self.next_number,
                events,
                self.writer,
                offsets,
                times=times,
                request_id=self.request_id,
                next_output=None if places is None else places.next_output,
            )
            others = () if behind is None else (behind(batch.following, places),)
            try:
                self.written_at_ms, is_made = await self._log.append_with(batch, others)
            except ConditionFailed:
                pending = await self._yield_slot(pending, events, places)
            else:
                if self.request_id == batch.request_id:
                    self.request_id = None
                self.next_number += len(events)
                self._offsets, self.places = offsets, places
                return None if behind is None else is_made
        return None

    async def _yield_slot(self, pending: list[PendingEvent], mine: Sequence[Event], places: OutputPlaces | None) -> list[PendingEvent]:
        for batch in await self._log.read_from(self.next_number):
            match meet(self.writer, batch):
                case WriterConflict.SUPERSEDED:
                    raise Superseded(f"{self.writer} met {batch.writer} at {batch.first}")
                case WriterConflict.MYSELF:
                    # A put that was applied although its answer was lost; the SDK sent it again.
                    assert list(batch.events) == list(mine), f"{self.writer} found other events of its own at {batch.first}"
                    pending, self.written_at_ms, self.places = [], batch.at_ms, places
                case WriterConflict.PREDECESSOR if self._on_predecessor is not None:
                    own = batch if self.places is None else replace(batch, events=self.places.unplaced(batch.events))
                    pending = self._on_predecessor(own, pending)
                case _:
                    pass
            self.next_number = batch.following
            if self.places is not None and batch.next_output is not None:
                self.places.next_output = batch.next_output
        return pending
