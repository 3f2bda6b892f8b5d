"""Paused responses, without an execution, and their resumption."""

from dataclasses import replace

from moorage import limits
from moorage.files.store import Clock
from moorage.loop.lanes import seen_as
from moorage.state import LoopState, Next
from moorage.store.lanes import AgentLane
from moorage.store.responses import StoredResponse
from moorage.stores import Stores


async def resume(stores: Stores, clock: Clock, stored: StoredResponse) -> None:
    """Let a response go on that was to stand still. Harmless to run twice: one of the two starts its execution, and if that one dies
    before it has, the reaper does."""
    await _start(stores, clock, await stores.responses.unpark(stored))


async def wake(stores: Stores, clock: Clock, stored: StoredResponse) -> bool:
    """Let a response go on that stood still for approvals, if one has been decided since; not if it was also told to stand still.
    Harmless to run twice, as above."""
    if stored.agent is not None:
        return not stored.is_pause_requested and await _wake_held(stores, clock, stored)
    if not stored.awaits or stored.decisions == stored.decisions_seen or stored.is_pause_requested:
        return False
    return await _start(stores, clock, await stores.responses.unpark(stored, stays_paused=True))


def stands_still(stored: StoredResponse) -> bool:
    """Whether it waits for somebody: no step of it runs, and none will by itself."""
    return bool(stored.parked_at) and (stored.is_pause_requested or stored.decisions == stored.decisions_seen)


async def _start(stores: Stores, clock: Clock, stood: StoredResponse) -> bool:
    """An execution for a response that stood so, or for each agent of its team that ran; False if it needs none."""
    if not stood.parked_at:
        return False
    if stood.agent is not None:
        for lane in await stores.lanes.all(stood):
            if lane.status == "running":
                await let_go(stores, stood, lane)
        await _wake_held(stores, clock, stood)
        return True
    name = f"{stood.response_id}-p{stood.pauses}"
    if await stores.executions.start_soon(name, (await state_of(stores, stood)).to_json(), stood.trace):
        await stores.responses.set_execution(stood, name, instead_of=stood.execution)
    return True


async def hold(stores: Stores, clock: Clock, stored: StoredResponse, reason: str, *, due_at: int) -> bool:
    """An agent of a team stands still from now on, until something is decided. False if it got a message at this moment: look again."""
    me = await stores.lanes.get(stored, stored.lane)
    if me.status == "running":
        held = replace(me, status="held", decisions_seen=stored.decisions, due_at_ms=due_at * 1000, touched_at_ms=int(clock() * 1000))
        changed = await stores.lanes.change(stored, held, as_of=me)
        if changed is None:
            return False
        me = changed
    await stores.responses.note_wait(stored, reason)
    # A decision that came before this agent was seen to stand still has woken nobody. An execution of its own goes on then.
    await _wake_held(stores, clock, await stores.responses.load(stored.tenant_id, stored.response_id))
    return True


async def _wake_held(stores: Stores, clock: Clock, stored: StoredResponse) -> bool:
    """Let agents of a team look for a decision, if one has come since they stand still."""
    lanes = await stores.lanes.all(stored)
    held = [lane for lane in lanes if lane.status == "held"]
    going = [lane for lane in held if lane.decisions_seen != stored.decisions]
    if going and not any(lane.status == "running" for lane in lanes):  # For so long the whole team has stood still.
        still_ms = int(clock() * 1000) - max(lane.touched_at_ms for lane in held)
        await stores.responses.note_pause(stored, still_ms // 1000)
    return any([await let_go(stores, stored, lane) for lane in going])


async def state_of(stores: Stores, stored: StoredResponse) -> LoopState:
    """The loop's position by the records."""
    step, ended = await stores.steps.last(stored)
    state = LoopState(stored.response_id, stored.tenant_id, stored.container_id, step=step, from_step=step)
    if ended is None:
        return state
    if ended.outcome.next is Next.DONE and await _has_ended(stores, stored, step):
        return state  # An agent of a team, which has something to say of its end.
    if ended.outcome.next is Next.TOOLS:
        # An empty round: the model step that follows it looks which calls are unfinished.
        return replace(state, next=Next.TOOLS)
    return replace(state, step=step + 1, from_step=step + 1)


async def _has_ended(stores: Stores, stored: StoredResponse, step: int) -> bool:
    """Whether the last step of an agent is the end of its present turn."""
    return (await stores.lanes.get(stored, stored.lane)).turn <= step


async def let_go(stores: Stores, stored: StoredResponse, lane: AgentLane, *, is_lost: bool = False) -> bool:
    """Give an agent of a team an execution where it has none, or has lost it (``is_lost``). False if somebody else has let it go on
    meanwhile; of two callers that read the same one does it. A message or an interruption at this moment makes no difference. Where it
    cannot be started now the reaper does that."""
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        name = f"{stored.response_id}-l{lane.number}-{lane.starts + 1}"
        started = replace(stores.lanes.started(lane, name), restarts=lane.restarts + is_lost)
        going = await stores.lanes.change(stored, started, as_of=lane)
        if going is not None:
            await begin(stores, stored, going)
            return True
        now = await stores.lanes.get(stored, lane.number)
        if (now.status, now.starts) != (lane.status, lane.starts):
            return False
        lane = now
    return False


async def begin(stores: Stores, stored: StoredResponse, lane: AgentLane) -> None:
    """Start the execution that the record of an agent names. Harmless to run twice."""
    state = await state_of(stores, await seen_as(stores, stored, lane.number))
    await stores.executions.start_soon(lane.execution_of(stored.response_id), state.to_json(), stored.trace)
