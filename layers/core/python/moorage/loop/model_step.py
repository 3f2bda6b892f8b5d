"""One model step as a task of the state machine: its state is read from the records, the model is asked (``loop/ask.py``), and the
outcome is stored for the next task.

Running twice is harmless: each run takes a higher attempt. It finds a stored outcome, or takes over at the end of the log, and its
predecessor's next write finds the slot taken.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from moorage import limits, tracing
from moorage.approvals import waiting as approvals
from moorage.errors import ApiError, CancelRequested, SandboxHostAway, StorageFull, Superseded
from moorage.inputs import has_files
from moorage.loop import documents, egress_approvals, finish, team
from moorage.loop.ask import ModelAsk
from moorage.loop.budget import reached
from moorage.loop.call_places import placed
from moorage.loop.cancellation import CancelWatch
from moorage.loop.chain import load_chain
from moorage.loop.fold import FoldedState, fold, of_lane
from moorage.loop.lanes import seen_as
from moorage.loop.prewarm import SandboxPrewarm, have_sandbox
from moorage.loop.prompt import StepPosition, for_a_last_answer
from moorage.loop.sinks import LogSink
from moorage.loop.waiting import PAUSED
from moorage.runtime import Runtime
from moorage.state import SERVICE, LoopState, Next, StepOutcome
from moorage.store import keys
from moorage.store.budget_draws import LimitReached
from moorage.store.event_log import EventBatch, LogWriter, LogWriterId, OutputPlaces, taken_over
from moorage.store.responses import Snapshot, StoredResponse
from moorage.store.steps import Progress, StepAttempt, superseded
from moorage.stores import Stores
from moorage.telemetry import Metric, tell
from moorage.tools.registry import ROOMS
from moorage.tools.room import HostedTool
from moorage.vector_stores.attachments import DocumentsUnread
from moorage.webhooks import delivery as webhooks
from moorage.wire.events import IN_PROGRESS, QUEUED
from moorage.wire.types import Item

BUDGET_REACHED: Final = "budget_reached"
STEERED: Final = "steered"


async def model_step(runtime: Runtime, state: LoopState) -> LoopState:
    """The task ``ModelStep``. Raises only errors that a retry may mend."""
    # The two reads do not wait for each other. What the second finds was true at some moment of this run, and more is not needed: an
    # outcome is written once, and a call that ends in between is sent round once more and found finished.
    snapshot, progress = await asyncio.gather(
        runtime.stores.responses.snapshot(state.tenant_id, state.response_id), _progress(runtime.stores, state)
    )
    with tracing.within(snapshot.stored.trace):
        try:
            return await _of(runtime, snapshot, state, progress)
        finally:
            if await has_files(snapshot.stored.input_items):  # Their URLs may have been fetched after the response was erased.
                await documents.put_nothing_back(runtime.stores, snapshot.stored)


async def _of(runtime: Runtime, snapshot: Snapshot, state: LoopState, progress: Progress) -> LoopState:
    stored = snapshot.stored
    refusal = (
        await documents.come_back(runtime.stores, runtime.computers.containers, snapshot, state) if state.next is Next.READ else None
    )
    if snapshot.is_final:
        await webhooks.settle(runtime, stored, webhooks.ResponseEnd.of(snapshot))
        return state.done()
    if refusal is not None:
        await finish.end_from_outside(runtime, stored, status="failed", error=refusal)
        return state.done()
    if stored.is_cancel_requested:
        await finish.end_from_outside(runtime, stored, status="cancelled")
        return state.done()
    if stored.is_pause_requested and await runtime.stores.responses.park(stored, PAUSED):
        return state.done()  # The execution ends; another begins when it may go on.
    stored = await seen_as(runtime.stores, stored, keys.lane_of(state.step))
    snapshot = replace(snapshot, stored=stored)
    if state.next is Next.TOOLS:
        return await _after_tools(runtime, snapshot, state, progress)
    return await _run(runtime, snapshot, state, progress)


async def _progress(stores: Stores, state: LoopState) -> Progress:
    """How the round stands that this run goes on from, and all that was made before; before the first step there is nothing."""
    if state.next is not Next.TOOLS and _is_first(state):
        return Progress()
    since = state.step if state.next is Next.TOOLS else state.step - 1
    return await stores.steps.read(state.tenant_id, state.response_id, since=since, lane=keys.lane_of(state.step))


def _is_first(state: LoopState) -> bool:
    """Whether the step is the first one of its agent (the only one without a team)."""
    return state.step % limits.LANE_STEPS == 0


async def _fail(runtime: Runtime, stored: StoredResponse, state: LoopState, error: dict[str, Any]) -> LoopState:
    """The response fails, or the agent of its team that cannot go on."""
    if stored.agent is None:
        await finish.end_from_outside(runtime, stored, status="failed", error=error)
    else:
        await team.end(runtime, stored, state.step, status="failed", error=error)
    return state.done()


async def _after_tools(runtime: Runtime, snapshot: Snapshot, state: LoopState, progress: Progress) -> LoopState:
    """The calls of ``state.step`` have been sent round: send the unfinished ones again, or go on to the next step."""
    unfinished = progress.unfinished(state.step)
    if unfinished:
        calls = [call for call in progress.outcomes[state.step].calls if call.call_id in unfinished]
        admitted = await approvals.admitted(runtime, snapshot.stored, state.step, calls)
        if not admitted:
            return state.done()
        # An execution that begins after a pause has not been told where calls run.
        services = tuple(call.call_id for call in calls if call.where == SERVICE)
        return await _send_again(runtime, snapshot.stored, replace(state, services=services), admitted)
    may_wait = not progress.outcomes[state.step].is_last and not await _is_interrupted(runtime.stores, snapshot.stored)
    if may_wait and await egress_approvals.stands_still(runtime, snapshot.stored, state.step):
        return state.done()
    following = replace(state, step=state.step + 1, next=Next.MODEL, calls=())
    if progress.outcomes[state.step].is_last:
        return await _end(runtime, snapshot, following, progress)
    return await _run(runtime, snapshot, following, progress)


async def _is_interrupted(stores: Stores, stored: StoredResponse) -> bool:
    """Whether an agent of a team ends its turn before its next step."""
    return stored.lane > 0 and (await stores.lanes.get(stored, stored.lane)).is_interrupted


async def _send_again(runtime: Runtime, stored: StoredResponse, state: LoopState, unfinished: tuple[str, ...]) -> LoopState:
    """The calls that have not ended, once more, unless that leads nowhere; after a pause if sandboxes cannot be had for now."""
    sent = await asyncio.gather(*(runtime.stores.steps.send_again(stored, state.step, call_id) for call_id in unfinished))
    refusal = _over_time(runtime.clock, stored)
    if max(call.fruitless for call in sent) > limits.CALL_ROUNDS_MAX:
        refusal = {"code": "server_error", "message": f"A tool call failed in {limits.CALL_ROUNDS_MAX} rounds in a row."}
    if refusal is not None:
        return await _fail(runtime, stored, state, refusal)
    away = [call.waits for call in sent if call.is_host_away]
    if away:
        await runtime.stores.responses.note_wait(stored, SandboxHostAway().message)
        seconds = min(2 ** (min(away) - 1), limits.SANDBOX_HOST_PAUSE_SECONDS_MAX)
        # The step has its outcome: after the pause it sends all its calls, and those that are finished return at once.
        return state.waiting(seconds)
    await have_sandbox(runtime.computers.containers, stored)
    return await placed(runtime, stored, replace(state, next=Next.TOOLS, calls=unfinished))


async def _end(runtime: Runtime, snapshot: Snapshot, state: LoopState, progress: Progress) -> LoopState:
    """The response ends although no model was asked: the client has calls to answer. An agent of a team waits for that."""
    if snapshot.stored.agent is not None:
        is_over = await team.follow(runtime, snapshot.stored, state.step - 1, progress.outcomes[state.step - 1])
        return state.done() if is_over else state
    attempt = await runtime.stores.steps.begin(snapshot.stored, state.step)
    async with _sink(runtime.stores, snapshot, state.step, attempt.attempt) as sink:
        await finish.conclude(runtime, snapshot.stored, sink, progress.outcomes[state.step - 1], progress.items)
    finish.tell_end(snapshot.stored, progress.outcomes[state.step - 1].status)
    return state.done()


async def _over_budget(
    runtime: Runtime, snapshot: Snapshot, state: LoopState, progress: Progress, over: LimitReached
) -> LoopState | None:
    """Its budget's rule after its end; None if one last answer is to be asked for."""
    stored, before = snapshot.stored, progress.outcomes[state.step - 1]
    if over.on_limit == "pause" and stored.is_background:
        await runtime.stores.responses.request_pause(stored)
        reason = f"{over.what} {over.remedy}"
        if await runtime.stores.responses.park(stored, reason):
            return state.done()
    # A step that followed no call was the last answer already, or one whose calls were refused for the limit of the response alone.
    if over.on_limit == "finish" and (before.next is Next.TOOLS or before.had_no_calls_left):
        return None
    if stored.agent is not None:
        await team.end(runtime, stored, state.step, status="incomplete", text=f"I cannot go on. {over.what}", reason=BUDGET_REACHED)
        return state.done()
    if _has_died_here(snapshot, state):
        await finish.end_from_outside(runtime, stored, status="incomplete", incomplete_reason=BUDGET_REACHED)
        return state.done()
    return await _end(runtime, snapshot, state, _cut(progress, state, BUDGET_REACHED))


async def _steered(runtime: Runtime, snapshot: Snapshot, state: LoopState, progress: Progress) -> LoopState:
    """The response ends at this boundary, and its session goes on with the input that waits (``agents/turns.py``)."""
    if _has_died_here(snapshot, state):
        await finish.end_from_outside(runtime, snapshot.stored, status="incomplete", incomplete_reason=STEERED, drops_partial=True)
        return state.done()
    return await _end(runtime, snapshot, state, _cut(progress, state, STEERED))


def _has_died_here(snapshot: Snapshot, state: LoopState) -> bool:
    """Whether a run of this step has died in the middle: its items stand in the log alone."""
    return snapshot.last is not None and snapshot.last.writer.step == state.step


def _cut(progress: Progress, state: LoopState, reason: str) -> Progress:
    """As if the step before had ended the response. The response is not complete."""
    cut = replace(progress.outcomes[state.step - 1], next=Next.DONE, status="incomplete", incomplete_reason=reason)
    return replace(progress, outcomes={**progress.outcomes, state.step - 1: cut})


async def _run(runtime: Runtime, snapshot: Snapshot, state: LoopState, progress: Progress) -> LoopState:
    stores = runtime.stores
    stored, over = snapshot.stored, None
    if not _is_first(state) and stored.is_steered:
        return await _steered(runtime, snapshot, state, progress)
    if stored.agent is not None:
        if await _stands_still(runtime, stored, state, progress):
            return state.done()
        if state.step == 0:  # Agents of earlier responses may have begun.
            snapshot = replace(await stores.responses.snapshot(state.tenant_id, state.response_id), stored=stored)
    if not _is_first(state):
        number = state.step % limits.LANE_STEPS
        over = await reached(runtime, stored, progress.outcomes[state.step - 1], progress.items, number)
    if over is not None:
        ended = await _over_budget(runtime, snapshot, state, progress, over)
        if ended is not None:
            return ended
        snapshot = replace(snapshot, stored=for_a_last_answer(snapshot.stored, progress.outcomes[state.step - 1]))
        stored = snapshot.stored
    if state.step - state.from_step >= limits.EXECUTION_ROUNDS_MAX:
        return replace(state, next=Next.CONTINUE, calls=())
    try:
        attempt, chain = await asyncio.gather(
            stores.steps.begin(stored, state.step, is_last_answer=over is not None), load_chain(stores, stored), return_exceptions=True
        )
        if isinstance(attempt, BaseException):
            raise attempt
        if attempt.outcome is not None:
            await stores.responses.note_wait(stored, None)
            return await _following(runtime, stored, state, attempt.outcome)
        refusal = _bound(runtime.clock, stored, state.step % limits.LANE_STEPS, attempt)
        if refusal is not None:
            return await _fail(runtime, stored, state, refusal)
        async with stores.steps.forgiving(stored, state.step):
            if isinstance(chain, BaseException):
                raise chain
            return await _attempt(runtime, snapshot, state, attempt, progress, chain)
    except Superseded:
        return await _superseded(stores, stored, state)
    except CancelRequested:
        if await stores.responses.is_gone(stored.tenant_id, stored.response_id):
            await finish.forget(stores, stored)  # What this run has written since it was erased.
        else:
            await finish.end_from_outside(runtime, stored, status="cancelled")
        return state.done()
    except StorageFull:
        raise  # There will be room again.
    except ApiError as error:  # What the request refers to is gone: no retry will mend that.
        return await _fail(runtime, stored, state, finish.error_of(error))


async def _stands_still(runtime: Runtime, stored: StoredResponse, state: LoopState, progress: Progress) -> bool:
    """Whether an agent of a team takes no step now: it waits for messages, its turn was ended by another one, or it has ended. An
    execution that was started late, beside another of the same agent, may come after its end."""
    if state.step == 0 and await team.take_up(runtime, stored):
        return True
    until_ms = 0 if _is_first(state) else progress.outcomes[state.step - 1].waits_until_ms
    if until_ms and await team.must_wait(runtime, stored, state.step, until_ms, progress.items):
        if stored.lane == 0:
            await runtime.stores.responses.note_wait(stored, team.WAITS_FOR)
        return True
    if state.step == 0:
        return False
    me = await runtime.stores.lanes.get(stored, stored.lane)
    if not me.is_active:
        await team.settle(runtime, stored)
        return True
    if not me.is_interrupted:
        return False
    # A step with an outcome has calls that wait for a sandbox: the turn ends behind it.
    has_outcome = await runtime.stores.steps.get(stored.tenant_id, stored.response_id, state.step) is not None
    return await team.end(runtime, stored, state.step + has_outcome, status="interrupted")


def _bound(clock: Callable[[], float], stored: StoredResponse, step: int, attempt: StepAttempt) -> dict[str, Any] | None:
    """Why this response must not go on, if so."""
    if attempt.crashes >= limits.STEP_ATTEMPTS_MAX:
        return {"code": "server_error", "message": f"The model step failed {limits.STEP_ATTEMPTS_MAX} times in a row."}
    if attempt.yields >= limits.WAITS_MAX:
        return {"code": "server_error", "message": f"The model's provider gave no answer after {limits.WAITS_MAX} pauses."}
    if step >= limits.ROUNDS_MAX:
        return {"code": "loop_limit_exceeded", "message": f"The response reached its limit of {limits.ROUNDS_MAX} model steps."}
    return _over_time(clock, stored)


def _over_time(clock: Callable[[], float], stored: StoredResponse) -> dict[str, Any] | None:
    if clock() - stored.created_at - stored.paused_seconds <= limits.RESPONSE_SECONDS_MAX:
        return None
    hours = limits.RESPONSE_SECONDS_MAX // 3600
    return {"code": "loop_limit_exceeded", "message": f"The response ran for its limit of {hours} hours."}


async def _superseded(stores: Stores, stored: StoredResponse, state: LoopState) -> LoopState:
    """Another attempt took over, or the response was ended. Either way this run's answer must fit the log."""
    snapshot = await stores.responses.snapshot(state.tenant_id, state.response_id)
    if snapshot.is_final:
        return state.done()
    raise Superseded(f"step {state.step} of {stored.response_id} is being run by a later attempt")


def _sink(stores: Stores, snapshot: Snapshot, step: int, attempt: int) -> LogSink:
    """A sink at the end of the log as the snapshot saw it; if the log has grown since, the first write finds out."""
    log = stores.responses.log_of(snapshot.stored)
    following, agent = 0 if snapshot.last is None else snapshot.last.following, snapshot.stored.agent
    next_output = None if snapshot.last is None else snapshot.last.next_output
    places = None if agent is None else OutputPlaces(agent, next_output or 0)
    return LogSink(LogWriter(log, LogWriterId(step, attempt), following, on_predecessor=_look_again, places=places))


def _look_again(late: EventBatch, pending: Any) -> Any:
    """A run that was taken for dead wrote after this one had looked: its items are not known here, and theirs are the next indexes."""
    raise Superseded(f"{late.writer} wrote late, at {late.first}: the next attempt takes that up")


async def _attempt(
    runtime: Runtime, snapshot: Snapshot, state: LoopState, begun: StepAttempt, progress: Progress, chain: list[Item]
) -> LoopState:
    stores = runtime.stores
    stored, began, attempt = snapshot.stored, time.perf_counter(), begun.attempt
    results = {call_id: item for (step, call_id), item in progress.results.items() if step == state.step - 1}
    is_first = _is_first(state)
    position = StepPosition(state.step) if is_first else StepPosition.after(progress.outcomes[state.step - 1], state.step)
    async with _sink(stores, snapshot, state.step, attempt) as sink:
        if snapshot.last is None:
            for event in finish.opening_events(stored):
                sink.emit(event)
        if state.step == 0 and stored.is_background and snapshot.last is not None and snapshot.last.events[-1]["type"] == QUEUED:
            response = finish.object_of(stored, status="in_progress", now=int(runtime.clock()))
            sink.emit({"type": IN_PROGRESS, "response": response})
        watch = CancelWatch.of(stores, runtime.process, stored)
        ask = ModelAsk(runtime, stored, position, sink, chain, done=progress.items, results=results, watch=watch)
        ask.pauses = begun.yields
        if attempt > 1:
            ask.items, ask.announced, ask.position = await _take_over(stores, stored, sink, position)
        standby = SandboxPrewarm.begin(runtime.computers.containers, stored) if state.step == 0 else None
        try:
            try:
                outcome = await ask.run()
            except DocumentsUnread as unread:
                await sink.flush()
                await stores.steps.postpone(stored, state.step, documents.WAITS_FOR)
                return await documents.send(runtime, stored, state, unread.documents)
            if outcome.next is Next.WAIT:
                await sink.flush()
                await stores.steps.postpone(stored, state.step, ask.waits_for)
                await stores.responses.note_wait(stored, ask.waits_for)
            elif outcome.next is not Next.DONE or stored.agent is not None:
                ending = await stores.steps.ending(
                    stored,
                    state.step,
                    attempt,
                    outcome,
                    ask.items | ask.orders,
                    first_output_at_ms=sink.first_output_at_ms,
                    request_id=sink.request_id,
                )
                if not await sink.conclude(ending):
                    raise superseded(stored, state.step, attempt)
            else:  # The final event holds the items, and no step follows that would look for them.
                await sink.flush()
            if outcome.next is not Next.WAIT:
                await stores.responses.note_wait(stored, None)
            if standby is not None and outcome.next is Next.TOOLS:
                await standby.ready()
        finally:
            if standby is not None:
                await standby.give_up()
    tell_step(stored, position, outcome, attempt=attempt, began=began)
    return await _following(runtime, stored, state, outcome)


async def _following(runtime: Runtime, stored: StoredResponse, state: LoopState, outcome: StepOutcome) -> LoopState:
    """The state that follows a step with this outcome. Calls that wait for a person's word are left out; if there are no others the
    execution ends, and another begins when there is one."""
    if stored.agent is not None and outcome.next is not Next.WAIT:
        await team.wake(runtime, stored, outcome.wakes)
        if outcome.next is Next.DONE:
            is_over = await team.follow(runtime, stored, state.step, outcome)
            return state.done() if is_over else replace(state, step=state.step + 1, next=Next.MODEL, calls=())
    if outcome.next is not Next.TOOLS:
        return state.after(outcome)
    admitted = await approvals.admitted(runtime, stored, state.step, outcome.calls)
    return await placed(runtime, stored, replace(state.after(outcome), calls=admitted)) if admitted else state.done()


def tell_step(
    stored: StoredResponse,
    position: StepPosition,
    outcome: StepOutcome,
    *,
    attempt: int,
    began: float,
    first_output_ms: int | None = None,
) -> None:
    """The line and the metrics of a model step that began at ``began`` (``time.perf_counter``)."""
    counts = {
        Metric.INPUT_TOKENS: outcome.usage.input_tokens - position.usage.input_tokens,
        Metric.OUTPUT_TOKENS: outcome.usage.output_tokens - position.usage.output_tokens,
        Metric.CACHED_TOKENS: outcome.usage.cached_tokens - position.usage.cached_tokens,
        Metric.TOOL_CALLS: len(outcome.calls),
        Metric.ROUNDS: 1,
    }
    if first_output_ms is not None:
        counts[Metric.TIME_TO_FIRST_TOKEN] = first_output_ms
    if outcome.next is Next.DONE and outcome.status == "failed":
        counts[Metric.ERRORS] = 1
    tell(
        "model_step",
        {
            "response_id": stored.response_id,
            "tenant_id": stored.tenant_id,
            "step": position.step,
            "attempt": attempt,
            "duration_ms": round((time.perf_counter() - began) * 1000),
            "next": outcome.next.value,
            "status": outcome.status if outcome.next is Next.DONE else None,
            "wait_seconds": outcome.wait_seconds or None,
        },
        counts,
    )


def _is_result(item: Item) -> bool:
    """Whether a tool step fills this item, or the attempt that takes over: the notes that a trigger asks for."""
    if item["type"] == "compaction":
        return True
    room = ROOMS.of_item(item["type"])
    return isinstance(room, HostedTool) and room.result_type == item["type"]


async def _take_over(
    stores: Stores, stored: StoredResponse, sink: LogSink, position: StepPosition
) -> tuple[dict[int, Item], dict[str, Item], StepPosition]:
    """Take over from a dead predecessor: its finished items count, its open one is closed as ``incomplete``.

    The outputs of hosted calls that it had announced stay open (by call id): this attempt goes on with them. Raises
    :class:`Superseded` if it was not dead, and has ended the response meanwhile.
    """
    log = stores.responses.log_of(stored)
    batches = await log.read_from(0)
    sink.writer.next_number = max(sink.writer.next_number, taken_over(sink.writer.writer, batches))
    events, places = of_lane(batches, None if stored.agent is None else stored.lane)
    if stored.agent is not None:
        next_output = next((batch.next_output for batch in reversed(batches) if batch.next_output is not None), 0)
        sink.writer.places = OutputPlaces(stored.agent, next_output, places)
    folded = fold(events)
    outputs: dict[str, Item] = {
        str(folded.items[index].get("call_id", folded.items[index]["id"])): folded.items[index] | {"output_index": index}
        for index in folded.open
        if _is_result(folded.items[index])
    }
    kept = {item["output_index"] for item in outputs.values()}
    rest = FoldedState(items=folded.items, done=folded.done | kept)
    for event in finish.closing_events(rest, is_said_anew=True):
        sink.emit(event)
    await sink.flush()
    made = {
        index: item
        for index, item in folded.items.items()
        if index >= position.next_index and not (index in kept and ROOMS.of_call(item["type"]) is None)
    }
    next_index = max(folded.items, default=-1) + 1
    return made, outputs, replace(position, next_index=max(next_index, position.next_index))
