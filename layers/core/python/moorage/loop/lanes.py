"""A response as one of its agents knows it."""

from dataclasses import replace

from moorage.loop.chain import load_chain
from moorage.loop.team_items import agents_of
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
    beginning = await runtime.lanes.beginning(stored, lane)
    if beginning is None:
        beginning = agents_of([*await load_chain(runtime, stored), *stored.input_items])[agent.name].items
    text = {name: value for name, value in (stored.parameters.text or {}).items() if name != "format"} or None
    return replace(
        stored,
        lane=lane,
        agent=agent.name,
        parameters=replace(stored.parameters, text=text),
        input_items=beginning,
        recent_items=0,
        ancestors=(),
        conversation_id=None,
    )
