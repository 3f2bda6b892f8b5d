"""A response as one of its agents knows it."""

from dataclasses import replace

from moorage.runtime import Runtime
from moorage.store.responses import StoredResponse


async def seen_as(runtime: Runtime, stored: StoredResponse, lane: int) -> StoredResponse:
    """The same as the response of this agent: what it began with is all that came before its own items. The form of the answer is that
    of ``/root``'s, and so is a forced choice of tools."""
    if lane == stored.lane:
        return stored
    if stored.lane:  # Of the others it knows nothing.
        stored = await runtime.responses.load(stored.tenant_id, stored.response_id)
    if lane == 0:
        return stored
    agent = await runtime.lanes.get(stored, lane)
    text = {name: value for name, value in (stored.parameters.text or {}).items() if name != "format"} or None
    return replace(
        stored,
        lane=lane,
        agent=agent.name,
        parameters=replace(stored.parameters, text=text),
        input_items=await runtime.lanes.beginning(stored, lane),
        recent_items=0,
        ancestors=(),
    )
