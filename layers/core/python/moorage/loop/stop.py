"""Ending a response from outside, and removing it."""

import asyncio
from typing import Any

from moorage import limits
from moorage.loop import finish, tool_step
from moorage.runtime import Runtime
from moorage.store.executions import ENDED
from moorage.store.responses import Snapshot, StoredResponse


async def stop(runtime: Runtime, snapshot: Snapshot) -> dict[str, Any]:
    """Flag it, kill what runs, end it as cancelled if nobody has ended it, stop the execution: each works without the next. Returns
    the ended response object."""
    stored = snapshot.stored
    await runtime.responses.request_cancel(stored)
    if snapshot.last is not None:
        await tool_step.kill_running(runtime, stored, snapshot.last.writer.step)
    ended = await finish.end_from_outside(runtime, stored, status="cancelled")
    if stored.is_looping:
        await runtime.executions.stop(stored.execution)
    return ended


async def erase(runtime: Runtime, stored: StoredResponse) -> None:
    """Remove everything of a response, once nothing can write to it any more."""
    if stored.is_looping or not stored.is_stored:
        deadline = asyncio.get_running_loop().time() + limits.ERASE_WAIT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            if await runtime.executions.status(stored.execution) in (None, *ENDED):
                break
            await asyncio.sleep(limits.TAIL_POLL_SECONDS_MAX)
    await finish.forget(runtime, stored)
