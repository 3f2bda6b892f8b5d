"""One tool call: it runs, and its output goes to the log as it appears.

The call's room decides its content (``tools/room.py``). Here is the part common to every call: the fence of attempts, the results of
earlier runs, the watch for cancellations, the bounds of time and size, the flushing, and the line in the log.

Running twice is harmless, in one of three ways that the room names. It *attaches*: a second run continues the begun call, or says that
it is gone. It *repeats*: a call that only reads is run anew. Or it is run *once*: a second run says that the call may have run, and
does nothing else.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import aclosing, suppress
from dataclasses import field, replace
from functools import partial

import orjson

from moorage import limits, tracing
from moorage.approvals.waiting import denial_of
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.dataclass import dataclass
from moorage.errors import ApiError, ConditionFailed, LostSight, SandboxError, SandboxHostAway, SandboxStarting, Superseded
from moorage.loop.call_containers import CallCleanup, bring_files, container_of
from moorage.loop.cancellation import CancelWatch
from moorage.loop.chain import load_chain
from moorage.loop.fold import fold, of_lane
from moorage.loop.lanes import seen_as
from moorage.loop.prompt_stage import outside
from moorage.loop.sinks import LogSink
from moorage.runtime import Runtime
from moorage.sandbox.exec_client import FileListing
from moorage.state import PendingCall
from moorage.store import keys
from moorage.store.event_log import EventBatch, LogWriter, LogWriterId, OutputPlaces, PendingEvent, taken_over
from moorage.store.responses import StoredResponse
from moorage.store.steps import CallAttempt, Step
from moorage.store.table import Record, Write
from moorage.stores import Stores
from moorage.telemetry import tell
from moorage.tools.calls import CallEnd, CallEvent, CallFinished, KnownCall, Piece
from moorage.tools.registry import ROOMS
from moorage.tools.room import CallRunner, HostedTool, RerunPolicy
from moorage.tools.run import CallLeftovers, Run, StoppingPlace, Workplace
from moorage.wire.events import OUTPUT_ITEM_DONE
from moorage.wire.types import Event, Item


async def tool_step(runtime: Runtime, *, tenant_id: str, response_id: str, step: int, call_id: str, container_id: str | None) -> None:
    """The tasks ``ToolStep`` and ``ServiceStep``. Returns when the call is finished, or when another run must go on with it; the model
    step looks."""
    stored, made_by, container = await _look(runtime.stores, tenant_id, response_id, step, container_id)
    stored = await seen_as(runtime.stores, stored, keys.lane_of(step))
    if stored.is_cancel_requested or stored.is_pause_requested:
        return
    call = next(call for call in made_by.outcome.calls if call.call_id == call_id)
    denial: str | None = None
    if call.approval:
        approval = await runtime.stores.approvals.get(tenant_id, response_id, call.approval)
        if approval is None or approval.is_waiting:
            return
        denial = denial_of(approval)
    with tracing.within(stored.trace):
        await _take(_Attempt(runtime, stored, step, made_by, call, container, runtime.now_ms(), denial))


async def _take(run: "_Attempt") -> None:
    """Run it, and write its result into the log."""
    began = time.perf_counter()
    with suppress(Superseded):  # Another attempt goes on, or the response was ended: nothing is left to do here.
        await run.run()
    tell(
        "tool_step",
        {
            "response_id": run.stored.response_id,
            "tenant_id": run.stored.tenant_id,
            "step": run.step,
            "call_id": run.call.call_id,
            "call_type": run.call.type,
            "container_id": run.stored.container_id,
            **run.counts,
            "duration_ms": round((time.perf_counter() - began) * 1000),
        },
    )


async def _look(
    stores: Stores, tenant_id: str, response_id: str, step: int, container_id: str | None
) -> tuple[StoredResponse, Step, Record | None]:
    """The response, the step that made the call, and the container's record, by one request."""
    pk = keys.response(tenant_id, response_id)
    places = [(pk, keys.META), (pk, keys.attempt(step))]
    if container_id is not None:
        places.append((keys.container(tenant_id, container_id), keys.META))
    there = {(record["PK"], record["SK"]): record for record in await stores.table.get_many(places, consistent=True)}
    meta, attempt = there.get(places[0]), there.get(places[1])
    container = there.get(places[2]) if container_id is not None else None
    stored = await stores.responses.of_record(tenant_id, response_id, meta)
    made_by = None if attempt is None else await stores.steps.of_record(attempt)
    assert made_by is not None, f"a tool step before the outcome of step {step} of {response_id}"
    return stored, made_by, container


async def kill_running(stores: Stores, containers: Containers, stored: StoredResponse, step: int) -> None:
    """Kill the processes of a step's calls in the container: the response is being cancelled."""
    made_by = await stores.steps.get(stored.tenant_id, stored.response_id, step)
    if made_by is None or stored.container_id is None:
        return
    live = await containers.sandboxes.running(stored.tenant_id, stored.container_id)
    if live is None:
        return
    place = StoppingPlace(live, containers.sandboxes)
    async with live:
        for call in made_by.outcome.calls:
            room, item = _room(call), made_by.items[call.call_index]
            if room.call_runner(item) is CallRunner.SANDBOX:
                await room.stop(place, _known(stored, call, item))


def _room(call: PendingCall) -> HostedTool:
    room = ROOMS.hosted(call.type)
    assert room is not None, f"nobody knows how to run a {call.type}"
    return room


def _known(stored: StoredResponse, call: PendingCall, item: Item) -> KnownCall:
    return KnownCall(stored.response_id, call.call_id, item, call.output_index, call.output_item_id)


@dataclass(slots=True)
class _Attempt:
    runtime: Runtime
    stored: StoredResponse
    step: int
    made_by: Step
    """The model step that made the call."""
    call: PendingCall
    container: Record | None
    """Its record as this run found it."""
    began_at_ms: int
    denial: str | None = None
    """Why a person did not allow it, in a sentence or none; None if it may run."""
    counts: dict[str, int] = field(default_factory=dict)
    files_at_ms: int = 0
    """As of when it has stored the files of the container."""
    bringing: "asyncio.Task[None] | None" = None
    """Brings files that clients add while it runs."""

    @property
    def room(self) -> HostedTool:
        return _room(self.call)

    @property
    def item(self) -> Item:
        """The call's own."""
        return self.made_by.items[self.call.call_index]

    async def run(self) -> None:
        if self.denial is not None:
            await self._attend(await self._begin(None), None, ends=(CallEnd.DENIED, self.denial))
            return
        if self.room.call_runner(self.item) is CallRunner.SERVICE:
            await self._attend(await self._begin(None), None)
            return
        try:
            live = await container_of(self.runtime.computers.containers, self.stored, self.container)
        except SandboxStarting as error:
            await self._wait(error)
            return
        except (SandboxError, ApiError) as error:
            await self._unreachable(error.message)
            return
        async with live:
            await self._attend(await self._begin(live.record.incarnation), live)

    async def _begin(self, incarnation: int | None) -> CallAttempt:
        return await self.runtime.stores.steps.begin_call(self.stored, self.step, self.call.call_id, incarnation)

    async def _wait(self, reason: SandboxStarting) -> None:
        """The state machine sends the call round again, by way of the model step (that one can start sandboxes everywhere); but not for
        ever.
        """
        now, is_host_away = int(self.runtime.clock()), isinstance(reason, SandboxHostAway)
        since = await self.runtime.stores.steps.await_container(
            self.stored, self.step, self.call.call_id, now=now, is_host_away=is_host_away, why=reason.message
        )
        if now - since > limits.SANDBOX_PATIENCE_SECONDS:
            await self._unreachable(reason.message)

    async def _unreachable(self, message: str) -> None:
        """No container can be had: the model is told, and may answer without."""
        attempt = await self._begin(None)
        how = CallEnd.GAVE_UP if attempt.sandbox is None else CallEnd.LOST
        await self._attend(attempt, None, ends=(how, message))

    async def _attend(self, attempt: CallAttempt, live: LiveContainer | None, *, ends: tuple[CallEnd, str] | None = None) -> None:
        """Run the call, or go on with it; ``ends`` is an end that needs no run."""
        if attempt.is_finished:
            return
        async with self.runtime.stores.steps.forgiving(self.stored, self.step, self.call.call_id):
            await self._go_on(attempt, live, ends)

    async def _go_on(self, attempt: CallAttempt, live: LiveContainer | None, ends: tuple[CallEnd, str] | None) -> None:
        log = self.runtime.stores.responses.log_of(self.stored)
        batches = await log.read_from(0) if attempt.attempt > 1 else []
        known, closed = self._recall(batches)
        if closed is not None:
            await self._note_end(closed)
            return
        me = LogWriterId(self.step, attempt.attempt, self.call.call_id)
        # If other calls have written since, the first write finds out where the log goes on.
        following = taken_over(me, batches) if batches else self.made_by.following
        writer = LogWriter(log, me, following, on_predecessor=_fold_in, places=self._places(batches))
        async with LogSink(writer) as sink:
            ends = ends or await self._must_end(attempt)
            if ends is not None:
                whole: CallFinished | None = _emit(sink, self.room.end(known, *ends))
            else:
                whole = await self._work(sink, self._given(known, attempt, live), live)
            if whole is not None:
                await self._done(sink, whole)
                return
            await sink.flush()
            await self.runtime.stores.steps.postpone_call(self.stored, self.step, self.call.call_id)

    def _places(self, batches: list[EventBatch]) -> OutputPlaces | None:
        if self.stored.agent is None or self.made_by.places is None:
            return None
        next_output = next((batch.next_output for batch in reversed(batches) if batch.next_output is not None), None)
        return OutputPlaces(
            self.stored.agent, self.made_by.next_output if next_output is None else next_output, dict(self.made_by.places)
        )

    def _recall(self, batches: list[EventBatch]) -> tuple[KnownCall, Item | None]:
        """The log's items from earlier runs of this call; the whole item if they have closed it."""
        known, index = _known(self.stored, self.call, self.item), self.call.output_index
        if not batches:
            return known, None
        folded = fold(of_lane(batches, None if self.stored.agent is None else self.stored.lane)[0])
        if index in folded.done:
            return known, folded.items[index]
        offsets: dict[int, int] = {}
        for batch in batches:
            if batch.writer.step == self.step and batch.writer.call_id == self.call.call_id:
                for stream, offset in batch.offsets.items():
                    offsets[int(stream)] = max(offsets.get(int(stream), -1), offset)
        return replace(known, so_far=folded.items.get(index), offsets=offsets), None

    async def _must_end(self, attempt: CallAttempt) -> tuple[CallEnd, str] | None:
        """The reason that the call does not run any more, if there is one. A call that attaches finds lost output by itself."""
        if attempt.attempt <= 1 or self.room.rerun_policy is RerunPolicy.ATTACH:
            return None
        again = await self.room.rerun_policy_of(self.item, self._earlier())
        if again is RerunPolicy.ONCE:
            return CallEnd.LOST, "An earlier run of it did not come to its end."
        if attempt.crashes >= limits.CALL_ATTEMPTS_MAX:
            return CallEnd.GAVE_UP, f"It failed {limits.CALL_ATTEMPTS_MAX} times in a row."
        return None

    def _given(self, known: KnownCall, attempt: CallAttempt, live: LiveContainer | None) -> Run:
        sandbox = None
        if live is not None:
            is_lost = attempt.sandbox != live.record.incarnation or attempt.crashes >= limits.CALL_ATTEMPTS_MAX
            has_failed = attempt.crashes >= limits.STORING_ATTEMPTS_MAX - 1
            leaving = CallCleanup(
                self.runtime, self.stored.container_id or "", live, self.began_at_ms, has_failed, self.stored.files_at_ms
            )
            contents = self.runtime.stores.contents_of(self.stored.tenant_id)
            sandbox = Workplace(live, self.runtime.computers.containers.sandboxes, is_lost, partial(self._leave, leaving), contents)
        return Run(
            known=known,
            tools=tuple(tool for tool in self.stored.parameters.tools if ROOMS.of_tool(tool["type"]) is self.room),
            offered=self.stored.parameters.tools,
            tenant_id=self.stored.tenant_id,
            settings=self.runtime.settings,
            now=self.runtime.clock,
            earlier=self._earlier,
            is_resumed=attempt.attempt > 1,
            sandbox=sandbox,
            service=outside(self.runtime, self.stored) if live is None else None,
            counts=self.counts,
        )

    async def _leave(self, leaving: CallCleanup, listing: FileListing | None = None) -> CallLeftovers:
        if self.bringing is not None:  # What came in from now on would be stored as the command's own.
            self.bringing.cancel()
        left = await leaving.leave(listing)
        self.files_at_ms = left.files_at_ms
        return left

    async def _earlier(self) -> AsyncIterator[Item]:
        """The latest first."""
        progress = await self.runtime.stores.steps.read(self.stored.tenant_id, self.stored.response_id, lane=self.stored.lane)
        first = min(call.call_index for call in self.made_by.outcome.calls if call.call_index >= 0)
        for index in sorted(progress.items, reverse=True):
            if index < first:
                yield progress.items[index]
        for item in reversed([*await load_chain(self.runtime.stores, self.stored), *self.stored.input_items]):
            yield item

    async def _work(self, sink: LogSink, run: Run, live: LiveContainer | None) -> CallFinished | None:
        """The result of the call; None when time is up and another run must go on."""
        progress = _CallProgress(self.room, run, sink)
        watch = asyncio.create_task(CancelWatch.of(self.runtime.stores, self.runtime.process, self.stored).requested())
        work = asyncio.create_task(progress.follow())
        self.bringing = None if live is None else asyncio.create_task(bring_files(self.runtime.computers.containers, live))
        others = [watch] if self.bringing is None else [watch, self.bringing]
        try:
            seconds = min(limits.TOOL_STEP_SECONDS_MAX, self.room.call_limits.seconds or limits.TOOL_STEP_SECONDS_MAX)
            await asyncio.wait({watch, work}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if watch.done():
                watch.result()
                await kill_running(self.runtime.stores, self.runtime.computers.containers, self.stored, self.step)
                raise Superseded(f"{self.stored.response_id} was cancelled")
        except LostSight:
            return None
        finally:
            for task in (*others, work):
                task.cancel()
            await asyncio.gather(*others, work, return_exceptions=True)
        if self.room.rerun_policy is RerunPolicy.ATTACH:
            return None
        return progress.end(CallEnd.TIME_OVER, f"It took longer than {seconds:g} seconds.")

    async def _done(self, sink: LogSink, whole: CallFinished) -> None:
        """The log gets the end of the call, and behind it its record."""
        if self.call.output_index >= 0:
            for event in whole.events:
                sink.emit(event)
            sink.emit({"type": OUTPUT_ITEM_DONE, "output_index": self.call.output_index, "item": whole.item})
        ending = await self._ending(whole.item)
        if not await sink.conclude(lambda _following, _places: ending):
            raise ConditionFailed

    async def _note_end(self, closed: Item) -> None:
        """The log has the end of the call: now its record gets it."""
        await self.runtime.stores.table.write(await self._ending(closed))

    async def _ending(self, closed: Item) -> Write:
        return await self.runtime.stores.steps.ending_call(
            self.stored, self.step, self.call.call_id, self.call.output_index, closed, files_at_ms=self.files_at_ms
        )


@dataclass(slots=True)
class _CallProgress:
    """A run's output, within its limits."""

    room: HostedTool
    run: Run
    sink: LogSink
    bytes: int = 0
    so_far: Item | None = None
    """The item that the run fills, as it grows; kept where the run may have to be ended in the middle."""

    def __post_init__(self) -> None:
        if self.room.rerun_policy is not RerunPolicy.ATTACH:
            known = self.run.known
            begun = known.item if self.room.output_type is None else self.room.empty_output(known.item, known.output_item_id)
            self.so_far = orjson.loads(orjson.dumps(known.so_far or begun))

    async def follow(self) -> CallFinished:
        """Emit its output; returns its item at the end."""
        async with aclosing(self.room.run(self.run)) as pieces:
            async for piece in pieces:
                if self._is_over(piece):
                    return self.end(CallEnd.TOO_LARGE, f"It said more than {self.room.call_limits.bytes} bytes.")
                if isinstance(piece, CallFinished):
                    return piece
                self._say(piece)
        raise AssertionError(f"a run of {self.run.known.item['type']} said no end")

    def end(self, how: CallEnd, detail: str) -> CallFinished:
        """Break it off."""
        return _emit(self.sink, self.room.end(replace(self.run.known, so_far=self.so_far), how, detail))

    def _say(self, said: CallEvent) -> None:
        self.sink.emit(said.event, offset=said.offset)
        if self.so_far is not None:
            self.room.apply_event(self.so_far, said.event["type"].removeprefix("response."), said.event)

    def _is_over(self, piece: Piece) -> bool:
        if self.room.call_limits.bytes is None:
            return False
        self.bytes += len(orjson.dumps(piece.item if isinstance(piece, CallFinished) else piece.event))
        return self.bytes > self.room.call_limits.bytes


def _emit(sink: LogSink, pieces: Iterable[Piece]) -> CallFinished:
    """The end of a call, from its room."""
    whole: CallFinished | None = None
    for piece in pieces:
        if isinstance(piece, CallFinished):
            whole = piece
        else:
            sink.emit(piece.event, offset=piece.offset)
    assert whole is not None
    return whole


def _fold_in(batch: EventBatch, pending: list[PendingEvent]) -> list[PendingEvent]:
    """A dead predecessor wrote late: its events need not be written again. Raises :class:`Superseded` if it has ended the call: nothing
    may follow that."""
    if any(event["type"] == OUTPUT_ITEM_DONE for event in batch.events):
        raise Superseded(f"{batch.writer} was not dead, and has ended its call at {batch.first}")
    said = {_identity(event) for event in batch.events} - {None}
    return [
        each
        for each in pending
        if _identity(each.event) not in said and all(n > batch.offsets.get(stream, -1) for stream, n in each.offset.items())
    ]


def _identity(event: Event) -> Hashable | None:
    """The key of an event that comes once for the call, or for one of its parts; None for a delta: there are many."""
    if event["type"].endswith(".delta"):
        return None
    return event["type"], *sorted((key, value) for key, value in event.items() if key.endswith("_index"))
