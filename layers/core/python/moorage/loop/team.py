"""The lives of the agents of a team: how they wait, go on and end, and how the response ends with the last of them.

A waiting agent is a record without an execution. A message to it starts one, and where none comes the reaper does. Everything here is
harmless to run twice, or twice at once.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from moorage import ids, limits
from moorage.containers.containers import Containers
from moorage.errors import ConditionFailed, Superseded
from moorage.files.store import Clock
from moorage.loop import decide, finish, paused, team_outputs, tool_step
from moorage.loop.chain import load_chain
from moorage.loop.egress_approvals import open_allowed
from moorage.loop.lanes import seen_as
from moorage.loop.team_calls import message_of, news, ran_ms, wait_ms
from moorage.loop.team_items import FAILED, SILENT, KnownAgent, agents_in, goes_on
from moorage.runtime import Runtime
from moorage.state import StepOutcome
from moorage.store.event_log import EventBatch, LogWriterId
from moorage.store.executions import ENDED
from moorage.store.lanes import AgentLane, LaneStatus
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.tools.function_items import parsed
from moorage.tools.multi_agent.room import is_task
from moorage.tools.registry import ROOMS
from moorage.wire.events import IN_PROGRESS
from moorage.wire.types import Item

WAITS_FOR: Final = "Messages of its agents."
_CUT: Final = "\n[The rest was left out: it is too long for a message.]"


async def wake(runtime: Runtime, stored: StoredResponse, numbers: Iterable[int]) -> None:
    """Let agents begin or go on, if they do not run."""
    stores = runtime.stores
    for number in dict.fromkeys(numbers):
        lane = await stores.lanes.get(stored, number)
        if lane.status == "waiting" or (lane.status == "held" and lane.is_interrupted):
            await paused.let_go(stores, stored, lane)
        elif lane.status == "held":  # It was interrupted, and has a further task: nobody decides about its calls any more.
            await paused.wake(stores, runtime.clock, await stores.responses.load(stored.tenant_id, stored.response_id))
        elif lane.status == "running":
            await paused.begin(stores, stored, lane)
        elif lane.status == "asking" and lane.is_interrupted:
            seen = await seen_as(stores, stored, number)
            step, _ = await stores.steps.last(seen)
            await end(runtime, seen, step, status="interrupted")


async def must_wait(runtime: Runtime, stored: StoredResponse, step: int, until_ms: int, own: Mapping[int, Item]) -> bool:
    """Whether an agent that waits for messages before this step has none yet: then it stands still from now on, and its execution ends.
    An agent that nobody could send anything to goes on. Of a run that comes late the wait has ended: the step was begun, or the agent
    itself has ended."""
    stores = runtime.stores
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        lanes = await stores.lanes.all(stored)
        me = next(lane for lane in lanes if lane.number == stored.lane)
        if not me.is_active:
            await settle(runtime, stored)
            return True
        is_over = me.is_interrupted or ran_ms(runtime.clock, stored) >= until_ms or not _others_may_send(lanes, me)
        is_over = is_over or (await stores.steps.last(stored))[0] >= step
        is_over = is_over or bool(await team_outputs.unread(stores, stored, own.values(), is_late=True))
        if is_over or await news(stores, stored, own.values()):
            if me.status != "waiting":
                return False
            if await stores.lanes.change(stored, replace(me, status="running", due_at_ms=0), as_of=me) is not None:
                return False
        else:
            waiting = replace(me, status="waiting", due_at_ms=until_ms, mail_seen=me.mail)
            if me.status == "waiting" or await stores.lanes.change(stored, waiting, as_of=me) is not None:
                await settle(runtime, stored)
                return True
    raise Superseded(f"agent {stored.agent} of {stored.response_id} gets messages faster than it reads them")


def _others_may_send(lanes: Iterable[AgentLane], me: AgentLane) -> bool:
    return any(lane.status in ("running", "asking", "held") for lane in lanes if lane.number != me.number)


async def take_up(runtime: Runtime, stored: StoredResponse) -> bool:
    """Before the first step of ``/root``: the agents of the responses before are there again, and those that their client has answered
    go on. True if ``/root`` itself has nothing to do yet. Harmless to run twice."""
    stores = runtime.stores
    items = [*await load_chain(stores, stored), *stored.input_items]
    known = list((await agents_in(items)).values())
    if len(known) == 1:
        return False
    await open_allowed(runtime.computers.egress, stored, stored.own_input, items)
    is_on, numbers = goes_on(known), {agent.name: number for number, agent in enumerate(known)}
    for number, agent in enumerate(known):
        standing = agent.standing() if is_on else "completed" if number else "running"
        lane = AgentLane(
            number,
            name=agent.name,
            parent=numbers.get(agent.parent, 0),
            called_by=f"earlier-{number}" if number else "",
            task=agent.task,
            status=standing,
            execution=f"{stored.response_id}-l{number}" if number else "",
            due_at_ms=_due(stored, agent) if standing == "waiting" else 0,
            turn=number * limits.LANE_STEPS,
            touched_at_ms=runtime.now_ms() if number else 0,
            workspace=agent.workspace,
            container=agent.container,
        )
        if number:
            await stores.lanes.resume(stored, lane)
        elif standing != "running":
            await stores.lanes.change(stored, lane, as_of=AgentLane(0))
    await _tell_beginning(stores, runtime.clock, stored)
    lanes = await stores.lanes.all(stored)
    for lane in lanes[1 : len(known)]:
        if lane.status == "running":
            await paused.begin(stores, stored, lane)
    if lanes[0].status == "running":
        return False
    await settle(runtime, stored)  # All may have ended, and the process that ran the last of them may have died.
    return True


async def _tell_beginning(stores: Stores, clock: Clock, stored: StoredResponse) -> None:
    """In the background a response with agents of earlier ones is in progress before ``/root`` is, which may wait for its client. Once:
    the event has its place right behind the opening ones."""
    if not stored.is_background:
        return
    first = len(finish.opening_events(stored))
    response = finish.object_of(stored, status="in_progress", now=int(clock()))
    event = {"type": IN_PROGRESS, "response": response, "sequence_number": first}
    with suppress(ConditionFailed):
        await stores.responses.log_of(stored).append(EventBatch(first, (event,), LogWriterId(-1, 1)))


def _due(stored: StoredResponse, agent: KnownAgent) -> int:
    """When an agent does not wait any longer that waits on in this response."""
    call = agent.open_wait()
    wait = None if call is None else wait_ms(parsed(call["arguments"]))
    return stored.created_at * 1000 + (limits.TEAM_WAIT_MS if wait is None else wait)


async def end(
    runtime: Runtime,
    stored: StoredResponse,
    step: int,
    *,
    status: LaneStatus = "completed",
    text: str = "",
    error: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> bool:
    """The turn of an agent ends at this step. False if it has a new task, or a late output of its client: then it goes on. A parent is
    told what a child has to say. Where ``/root`` did not complete its turn, the response ends with it; otherwise it ends with its last
    agent."""
    stores = runtime.stores
    if stored.lane == 0 and status != "completed":
        await _end_all(runtime, stored, status=status, error=error, reason=reason)
        return True
    parent: AgentLane | None = None
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        me = await stores.lanes.get(stored, stored.lane)
        if not me.is_active or me.turn > step:
            break  # It has ended, and may be in its next turn.
        if status == "interrupted" and not me.is_interrupted:  # A further task has come: its turn goes on, or another one has begun.
            if parent is not None and await stores.lanes.change(stored, replace(me, turns=me.turns + 1), as_of=me) is None:
                continue
            await _wake_waiting(runtime, stored, parent)
            return False
        if status in ("completed", "incomplete"):
            made = (await stores.steps.read(stored.tenant_id, stored.response_id, since=step, lane=stored.lane)).items.values()
            has_task = any(is_task(item) for item in await news(stores, stored, made))
            if has_task or (status == "completed" and await team_outputs.unread(stores, stored, made, is_late=True)):
                # Its parent may have been told of the end already, and is told of the next one too.
                if await stores.lanes.change(stored, replace(me, turns=me.turns + 1), as_of=me) is None:
                    continue
                await _wake_waiting(runtime, stored, parent)
                return False
        parent = await _tell_parent(stores, runtime.clock, stored, me, text or _words(status, error))
        ended = replace(me, status=status, due_at_ms=0, is_interrupted=False, incomplete_reason=reason, turn=step + 1)
        if await stores.lanes.change(stored, ended, as_of=me) is not None:
            break
    else:
        raise Superseded(f"agent {stored.agent} of {stored.response_id} gets messages faster than it reads them")
    await _wake_waiting(runtime, stored, parent)  # Not before: its parent would find an agent that runs.
    await settle(runtime, stored)
    return True


async def _wake_waiting(runtime: Runtime, stored: StoredResponse, lane: AgentLane | None) -> None:
    """The reaper wakes it if this process dies before (:func:`tend`)."""
    if lane is not None and lane.status == "waiting":
        await wake(runtime, stored, [lane.number])


def _words(status: LaneStatus, error: Mapping[str, Any] | None) -> str:
    if error is not None:
        return f"{FAILED} {error['message']}"
    return f"{SILENT} {status}."


async def _tell_parent(stores: Stores, clock: Clock, stored: StoredResponse, me: AgentLane, text: str) -> AgentLane | None:
    """Once for each turn: of two executions that end it the first has told. Answers how the parent stands afterwards."""
    if me.number == 0:
        return None
    parent = await stores.lanes.get(stored, me.parent)
    mark = ids.mark_of_item(me.number, 0x800000 + me.turns)
    told = text if len(text) <= limits.TEAM_MESSAGE_CHARS_MAX else text[: limits.TEAM_MESSAGE_CHARS_MAX] + _CUT
    message = message_of(clock, stored, parent, "FINAL_ANSWER", told, mark)
    return await stores.lanes.send(stored, parent.number, message, mark)


async def settle(runtime: Runtime, stored: StoredResponse) -> None:
    """Look whether the response ends, because all of its agents have ended or wait for their client. Where all that are left wait for
    each other, they go on."""
    stores = runtime.stores
    lanes = await stores.lanes.all(stored)
    standings = {lane.status for lane in lanes}
    if {"running", "held"} & standings:
        return
    if "waiting" in standings and "asking" not in standings:
        await wake(runtime, stored, [lane.number for lane in lanes if lane.status == "waiting"])
        return
    if stored.takes_outputs and not stored.has_all_outputs:
        now = await stores.responses.load(stored.tenant_id, stored.response_id)
        if "asking" in standings and not now.has_all_outputs:
            return  # Its client may send them.
        await stores.responses.end_outputs(stored)
    sent = await asyncio.gather(*(stores.lanes.messages(stored, lane.number) for lane in lanes))
    mail = sorted((message for box in sent for message in box), key=lambda message: message.sent_at_ms)
    unread = [(message.recipient, message.item()) for message in mail]
    if stored.takes_outputs:
        given = await asyncio.gather(*(stores.lanes.outputs(stored, lane.number) for lane in lanes))
        unread += [(lane.name, item) for lane, items in zip(lanes, given, strict=True) for item in items]
    root = await seen_as(stores, stored, 0)
    await finish.end_from_outside(runtime, root, status="completed", unread=unread)


async def _ask(runtime: Runtime, stored: StoredResponse, step: int, made: Sequence[Item]) -> bool:
    """An agent waits for its client from this step on. False if the client has answered already: then it goes on."""
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        me = await runtime.stores.lanes.get(stored, stored.lane)
        if me.is_interrupted:
            return await end(runtime, stored, step, status="interrupted")
        if me.status != "running" or me.turn > step:
            break
        if await team_outputs.has_all(runtime.stores, stored, made):
            return False
        due_at_ms = runtime.now_ms() + limits.TEAM_OUTPUTS_MS if stored.takes_outputs else 0
        if await runtime.stores.lanes.change(stored, replace(me, status="asking", due_at_ms=due_at_ms), as_of=me) is not None:
            break
    else:
        raise Superseded(f"agent {stored.agent} of {stored.response_id} gets messages faster than it reads them")
    if stored.takes_outputs and any(ROOMS.of_question(item["type"]) is not None for item in made):
        await end_outputs(runtime, stored)  # A question is answered with the next request.
    else:
        await settle(runtime, stored)
    return True


async def answer(stores: Stores, stored: StoredResponse, outputs: Mapping[str, Sequence[Item]]) -> bool:
    """Outputs for calls of agents, by their names, come while the response runs: all are kept, or none. False if it takes none any
    more. Raises :class:`ConditionFailed` if one of the calls has its output."""
    numbers = {lane.name: lane.number for lane in await stores.lanes.all(stored)}
    by_lane = {numbers[name]: [{"status": "completed", **item} for item in items] for name, items in outputs.items()}
    if not await stores.lanes.answer(stored, by_lane):
        return False
    for number in by_lane:
        lane = await stores.lanes.get(stored, number)
        if lane.status == "waiting":
            await paused.let_go(stores, stored, lane)
        elif lane.status == "completed":
            await _begin_again(stores, stored, lane)
        else:
            await _go_on(stores, stored, number)
    return True


async def _begin_again(stores: Stores, stored: StoredResponse, lane: AgentLane) -> None:
    """Let an agent that has ended its turn go on with an output that it did not wait for. If this process dies before, the output
    stands at the end of the response, and the next one goes on with it."""
    seen = await seen_as(stores, stored, lane.number)
    step, _ = await stores.steps.last(seen)
    made = (await stores.steps.read(stored.tenant_id, stored.response_id, since=step, lane=lane.number)).items
    if not await team_outputs.unread(stores, seen, made.values(), is_late=True):
        return
    name = f"{stored.response_id}-l{lane.number}-{lane.starts + 1}"
    going = replace(stores.lanes.started(lane, name), turn=step + 1, turns=lane.turns + 1)
    begun = await stores.lanes.change(stored, going, as_of=lane)
    if begun is not None:
        await paused.begin(stores, stored, begun)


async def end_outputs(runtime: Runtime, stored: StoredResponse) -> None:
    """No more outputs come while the response runs: it ends as soon as all its agents have ended or wait for their client. Harmless to
    run twice."""
    await runtime.stores.responses.end_outputs(stored)
    for lane in await runtime.stores.lanes.all(stored):
        await _go_on(runtime.stores, stored, lane.number)
    await settle(runtime, replace(stored, has_all_outputs=True))


async def _go_on(stores: Stores, stored: StoredResponse, number: int) -> bool:
    """Let an agent go on that waits for its client, if it has all its outputs. One that runs looks for them before it waits."""
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        lane = await stores.lanes.get(stored, number)
        if lane.status != "asking":
            return False
        seen = await seen_as(stores, stored, number)
        step, ended = await stores.steps.last(seen)
        if ended is None or not await team_outputs.has_all(stores, seen, list(ended.items.values())):
            return False
        name = f"{stored.response_id}-l{number}-{lane.starts + 1}"
        going = await stores.lanes.change(stored, replace(stores.lanes.started(lane, name), turn=step + 1), as_of=lane)
        if going is not None:
            await paused.begin(stores, stored, going)
            return True
    return False  # The reaper looks again.


async def _end_all(
    runtime: Runtime, stored: StoredResponse, *, status: LaneStatus, error: Mapping[str, Any] | None, reason: str | None
) -> None:
    await finish.end_from_outside(
        runtime,
        stored,
        status="failed" if status == "failed" else "incomplete",
        error=None if error is None else dict(error),
        incomplete_reason=reason,
    )
    await kill_all(runtime.stores, runtime.computers.containers, stored)


async def kill_all(stores: Stores, containers: Containers, stored: StoredResponse) -> None:
    """Kill what the agents run in the container."""

    async def one(lane: AgentLane) -> None:
        seen = await seen_as(stores, stored, lane.number)
        step, _ = await stores.steps.last(seen)
        await tool_step.kill_running(stores, containers, seen, step)

    await asyncio.gather(*(one(lane) for lane in await stores.lanes.all(stored) if lane.is_active))


def answer_of(made: Iterable[Item]) -> str:
    """What an agent has said last in a step that has ended."""
    messages = [item for item in made if item["type"] == "message"]
    parts = messages[-1]["content"] if messages else []
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


async def follow(runtime: Runtime, stored: StoredResponse, step: int, outcome: StepOutcome) -> bool:
    """What a step of an agent with this outcome, which is its last, leads to; False if it goes on."""
    status: LaneStatus = "failed" if outcome.status == "failed" else "incomplete" if outcome.status == "incomplete" else "completed"
    ended = await runtime.stores.steps.get(stored.tenant_id, stored.response_id, step)
    made = [] if ended is None else [item for _, item in sorted(ended.items.items())]
    if status == "completed" and any(map(decide.is_for_client, made)):
        return await _ask(runtime, stored, step, made)
    said = "" if status == "failed" else answer_of(made)
    return await end(runtime, stored, step, status=status, text=said, error=outcome.error, reason=outcome.incomplete_reason)


async def tend(runtime: Runtime, stored: StoredResponse) -> bool:
    """Of the reaper: agents that have waited long enough or have got a message go on, and those that have lost their execution get
    another. True if one did. While all that are left wait for a person, no wait ends by its time."""
    lanes, now = await runtime.stores.lanes.all(stored), runtime.now_ms()
    standings, begun = {lane.status for lane in lanes}, False
    is_open = stored.takes_outputs and not stored.has_all_outputs
    asking = [lane for lane in lanes if lane.status == "asking"]
    for lane in asking if is_open else ():
        begun |= await _go_on(runtime.stores, stored, lane.number)
    if begun:
        return True
    if asking and is_open and all(now >= lane.due_at_ms for lane in asking):
        await end_outputs(runtime, stored)
        return False
    if not {"running", "held"} & standings and ((asking and not is_open) or not {"waiting", "asking"} & standings):
        await settle(runtime, stored)
        return False
    waits_for_a_person = "held" in standings and "running" not in standings
    for lane in lanes:
        is_due = ran_ms(runtime.clock, stored) >= lane.due_at_ms and not waits_for_a_person
        if lane.status == "waiting" and (is_due or lane.mail > lane.mail_seen):
            begun |= await paused.let_go(runtime.stores, stored, lane)
        elif lane.status == "running":
            begun |= await _recover(runtime, stored, lane, now)
    return begun


async def _recover(runtime: Runtime, stored: StoredResponse, lane: AgentLane, now: int) -> bool:
    touched = lane.touched_at_ms or stored.heartbeat_at_ms
    if abs(now - touched) <= limits.RECOVERY_SECONDS * 1000:
        return False
    if await runtime.stores.executions.status(lane.execution_of(stored.response_id)) not in (None, *ENDED):
        return False
    if lane.restarts >= limits.RECOVERIES_MAX:
        seen = await seen_as(runtime.stores, stored, lane.number)
        step, _ = await runtime.stores.steps.last(seen)
        error = {"code": "server_error", "message": "It was interrupted too often to go on."}
        await end(runtime, seen, max(step, lane.turn), status="failed", error=error)
        return False
    return await paused.let_go(runtime.stores, stored, lane, is_lost=True)
