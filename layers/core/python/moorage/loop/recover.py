"""Taking up what was left lying: loops without an execution, foreground responses without their process.

Called once a minute by the reaper, and every few seconds on one machine.
Every part is harmless to run twice, or by two reapers at once.
"""

from dataclasses import replace

from moorage import limits, tracing
from moorage.approvals import waiting as approvals
from moorage.errors import ApiError, passing_over_what_is_gone
from moorage.loop import finish, team
from moorage.loop.create import give_up
from moorage.loop.lanes import seen_as
from moorage.loop.paused import state_of
from moorage.parallel import side_by_side
from moorage.runtime import Runtime
from moorage.state import LoopState, Next
from moorage.store import keys
from moorage.store.executions import ENDED
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores
from moorage.telemetry import Metric, tell, tell_error
from moorage.webhooks import delivery as webhooks


async def recover(runtime: Runtime) -> int:
    """Settle or restart every loop that has lost its execution, and the reading of vector stores' files if that has; answers how
    many were restarted. What stops one does not stop the other."""
    return sum(await side_by_side(lambda part: part(runtime), (_recover_responses, _recover_indexing), at_once=2))


async def _recover_indexing(runtime: Runtime) -> int:
    return await runtime.vector_stores.jobs.recover()


async def _recover_responses(runtime: Runtime) -> int:

    async def one(place: tuple[str, str]) -> bool:
        tenant_id, response_id = place
        try:
            with passing_over_what_is_gone():
                return await _recover(runtime, await runtime.stores.responses.snapshot(tenant_id, response_id))
        except ApiError as error:  # Such as a full disk: the next round looks again.
            tell_error(error, "response_not_taken_up", tenant_id=tenant_id, response_id=response_id)
        return False

    return sum(await side_by_side(one, await runtime.stores.responses.inflight(), at_once=limits.SWEEP_AT_ONCE))


async def _recover(runtime: Runtime, snapshot: Snapshot) -> bool:
    stored = snapshot.stored
    # A sign of life from the future was given before the clock was set back, and says nothing.
    is_quiet = abs(runtime.now_ms() - _last_sign(snapshot)) > limits.RECOVERY_SECONDS * 1000
    if snapshot.is_final:
        if stored.is_stored:
            await webhooks.settle(runtime, stored, webhooks.ResponseEnd.of(snapshot))
        elif is_quiet:
            await finish.forget(runtime.stores, stored)
        return False
    if stored.parked_at:
        return await approvals.tend(runtime, stored)
    if stored.agent is not None:
        return await approvals.tend(runtime, stored) or await team.tend(runtime, stored)
    if not is_quiet or await runtime.stores.executions.status(stored.execution) not in (None, *ENDED):
        return False
    if stored.session_id is not None:
        assert runtime.sessions is not None, "this process takes up responses, and hears of no session"
        if not await runtime.sessions.wants(stored):
            await give_up(runtime, stored)
            return False
    return await restart(runtime, stored)


def _last_sign(snapshot: Snapshot) -> int:
    """Milliseconds of the last sign of life."""
    return max(snapshot.stored.heartbeat_at_ms, 0 if snapshot.last is None else snapshot.last.at_ms)


async def restart(runtime: Runtime, stored: StoredResponse) -> bool:
    """Start a successor if the records say that the loop stood; False if somebody else did."""
    number = int(stored.execution.rpartition("-r")[2]) + 1 if "-r" in stored.execution else 1
    if number > limits.RECOVERIES_MAX:
        error = {"code": "server_error", "message": "The response was interrupted too often to go on."}
        await finish.end_from_outside(runtime, stored, status="failed", error=error)
        return False
    name = f"{stored.response_id}-r{number}"
    await runtime.stores.executions.start(name, (await state_of(runtime.stores, stored)).to_json(), stored.trace)
    return await runtime.stores.responses.set_execution(stored, name, instead_of=stored.execution)


async def continue_loop(stores: Stores, state: LoopState) -> LoopState:
    """The task ``ContinueStep``: hand over to a successor before the history grows too long.

    Running twice is harmless: the successor's name follows from the step.
    """
    name = f"{state.response_id}-c{state.step}"
    successor = replace(state, next=Next.MODEL, calls=(), from_step=state.step)
    stored = await stores.responses.load(state.tenant_id, state.response_id)
    await stores.executions.start(name, successor.to_json(), stored.trace)
    if stored.agent is None:
        await stores.responses.set_execution(stored, name)
    else:
        await stores.lanes.set_execution(stored, keys.lane_of(state.step), name)
    return state.done()


async def declare_lost(runtime: Runtime, snapshot: Snapshot) -> Snapshot:
    """A foreground response ends as ``failed`` if its API process has gone silent before the handover."""
    stored = snapshot.stored
    silent_ms = runtime.now_ms() - _last_sign(snapshot)
    if snapshot.is_final or stored.is_looping or silent_ms < limits.INLINE_STALE_SECONDS * 1000:
        return snapshot
    error = {"code": "server_error", "message": "The process that ran this response was lost. Send the request again."}
    await finish.end_from_outside(runtime, stored, status="failed", error=error)
    return await runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id)


async def fail_response(runtime: Runtime, state: LoopState) -> None:
    """The task ``FailResponse``: a step could not be run at all. Harmless to run twice: a response ends once."""
    stored = await runtime.stores.responses.load(state.tenant_id, state.response_id)
    with tracing.within(stored.trace):
        ids = {"response_id": state.response_id, "tenant_id": state.tenant_id, "step": state.step}
        tell("response_failed", ids, {Metric.ERRORS: 1})
    error = finish.error_of(RuntimeError("a step could not be run"))
    if stored.agent is not None:
        seen = await seen_as(runtime.stores, stored, keys.lane_of(state.step))
        await team.end(runtime, seen, state.step, status="failed", error=error)
        return
    await finish.end_from_outside(runtime, stored, status="failed", error=error)
