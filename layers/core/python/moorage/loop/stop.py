"""Ending a response from outside, and removing it."""

import asyncio
from typing import Any

from moorage import limits
from moorage.loop import finish, team, tool_step
from moorage.runtime import Runtime
from moorage.store.executions import ENDED
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores


async def stop(runtime: Runtime, snapshot: Snapshot) -> dict[str, Any]:
    """Flag it, kill what runs, end it as cancelled if nobody has ended it, stop the execution: each works without the next. Returns
    the ended response object."""
    stores = runtime.stores
    stored = snapshot.stored
    await stores.responses.request_cancel(stored)
    if stored.agent is not None:
        await team.kill_all(stores, runtime.computers.containers, stored)
    elif snapshot.last is not None:
        await tool_step.kill_running(stores, runtime.computers.containers, stored, snapshot.last.writer.step)
    ended = await finish.end_from_outside(runtime, stored, status="cancelled")
    if stored.is_looping:
        for execution in await _executions(stores, stored):
            await stores.executions.stop(execution)
    return ended


async def _executions(stores: Stores, stored: StoredResponse) -> list[str]:
    """That run it: one, or one for each agent of its team."""
    if stored.agent is None:
        return [stored.execution]
    lanes = await stores.lanes.all(stored)
    return list(dict.fromkeys([stored.execution, *(lane.execution_of(stored.response_id) for lane in lanes)]))


async def erase(stores: Stores, stored: StoredResponse) -> None:
    """Remove everything of a response, once nothing can write to it any more."""
    if stored.is_looping or not stored.is_stored:
        deadline = asyncio.get_running_loop().time() + limits.ERASE_WAIT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            states = [await stores.executions.status(name) for name in await _executions(stores, stored)]
            if all(state in (None, *ENDED) for state in states):
                break
            await asyncio.sleep(limits.TAIL_POLL_SECONDS_MAX)
    await finish.forget(stores, stored)
