"""A response as one of its agents knows it."""

from dataclasses import replace

from moorage.loop import decide
from moorage.loop.chain import load_chain
from moorage.loop.team_items import agents_in
from moorage.store.lanes import AgentLane
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.tools.room import CallRunner
from moorage.wire.types import Tool


async def seen_as(stores: Stores, stored: StoredResponse, lane: int) -> StoredResponse:
    """The same as the response of this agent: what it began with is all that came before its own items. The form of the answer is that
    of ``/root``'s, and so is a forced choice of tools."""
    if lane == stored.lane:
        return stored
    if stored.lane:  # Of the others it knows nothing.
        stored = await stores.responses.load(stored.tenant_id, stored.response_id)
    if lane == 0:
        return stored
    agent = await stores.lanes.get(stored, lane)
    beginning = await stores.lanes.beginning(stored, lane)
    if beginning is None:
        agents = await agents_in([*await load_chain(stores, stored), *stored.input_items])
        beginning = agents[agent.name].items
    text = {name: value for name, value in (stored.parameters.text or {}).items() if name != "format"} or None
    return replace(
        _in_workspace(stored, agent),
        lane=lane,
        agent=agent.name,
        parameters=replace(stored.parameters, text=text, tools=_tools(stored, agent)),
        input_items=beginning,
        recent_items=0,
        ancestors=(),
        conversation_id=None,
    )


def _in_workspace(stored: StoredResponse, agent: AgentLane) -> StoredResponse:
    if agent.workspace == "none":
        return replace(stored, container_id=None, programs="", given="", has_gated_network=False)
    return replace(stored, container_id=agent.container, pays_rent=False) if agent.container else stored


def _tools(stored: StoredResponse, agent: AgentLane) -> tuple[Tool, ...]:
    """Those of the response that the agent can use: without a workspace none that runs there."""
    if agent.workspace != "none":
        return stored.parameters.tools
    return tuple(tool for tool in stored.parameters.tools if decide.where_tool(tool) is not CallRunner.SANDBOX)
