"""``/v1/agents``: saved agents, and their versions."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from starlette.convertors import StringConvertor, register_url_convertor

from moorage.agents.session_start import check_settings
from moorage.agents.settings import as_answer, team_of
from moorage.agents.shapes import CREATE_AGENT, UPDATE_AGENT, AgentQuery, SavedAgent
from moorage.agents.store import AgentRecord
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.queries import AnyPage, query_of
from moorage.api.routing import Router
from moorage.errors import invalid_value
from moorage.parallel import as_json, beside
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.responses import deleted
from moorage.wire.validation import Fields, parse_object


class _AgentId(StringConvertor):
    """Not what stands beside agents: a path that is not served is no agent of that name."""

    regex = "(?!(?:automations|environments|import|sessions)(?:/|$))[^/]+"


register_url_convertor("agent", _AgentId())
router = Router()
_ONE: Final = "/agents/{agent_id:agent}"


@router.post("/agents", "createAgent", "Save an agent", body=("CreateAgent", CREATE_AGENT), statuses=(404,))
async def create(caller: Caller, body: RawBody) -> SavedAgent:
    settings = await beside(len(body), lambda: CREATE_AGENT.body(body))
    await check_settings(caller.runtime, caller.tenant_id, settings, len(body))
    return as_object(await caller.runtime.stores.agents.create(caller.tenant_id, _kept(settings)))


@router.get("/agents", "listAgents", "Saved agents, newest first")
async def list_agents(caller: Caller, page: AnyPage) -> ListOf[SavedAgent]:
    return (await caller.runtime.stores.agents.page(caller.tenant_id, page)).shown(as_object)


@router.get(_ONE, "retrieveAgent", "An agent, as it is or in an earlier version")
async def retrieve(caller: Caller, agent_id: str, wanted: Annotated[AgentQuery, query_of(AgentQuery)]) -> SavedAgent:
    return as_object(await caller.runtime.stores.agents.get(caller.tenant_id, agent_id, version=wanted.version))


@router.post(_ONE, "updateAgent", "Change an agent", body=("UpdateAgent", UPDATE_AGENT), statuses=(409,))
async def update(caller: Caller, agent_id: str, body: RawBody) -> SavedAgent:
    """What is left out stays, and null sets it back. A session keeps the version that it began with."""
    given = await beside(len(body), lambda: parse_object(body))
    if given.get("model", "") is None:
        raise invalid_value("model", "an agent needs one.")
    changes = _kept(await beside(len(body), lambda: UPDATE_AGENT(given)))
    reset = {name for name, value in given.items() if value is None or name not in changes}

    async def change(settings: Mapping[str, Any]) -> Mapping[str, Any]:
        following = {name: value for name, value in settings.items() if name not in reset} | changes
        await check_settings(caller.runtime, caller.tenant_id, following, len(await as_json(following)))
        return following

    return as_object(await caller.runtime.stores.agents.update(caller.tenant_id, agent_id, change))


@router.delete(_ONE, "deleteAgent", "Delete an agent with its versions")
async def delete(caller: Caller, agent_id: str) -> Deleted[Literal["agent.deleted"]]:
    await caller.runtime.stores.agents.delete(caller.tenant_id, agent_id)
    return deleted(agent_id, "agent.deleted")


def _kept(settings: Fields) -> Fields:
    """Without what has one value only, and without a team that is switched off."""
    left_out = ("compaction", "experimental") if team_of(settings)["enabled"] else ("multi_agent", "compaction", "experimental")
    return {name: value for name, value in settings.items() if name not in left_out}


def as_object(agent: AgentRecord) -> SavedAgent:
    said = {
        "id": agent.id,
        "object": "agent",
        "created_at": agent.created_at,
        "updated_at": agent.updated_at,
        "version": agent.version,
        **as_answer(agent.settings),
        "metadata": dict(agent.settings.get("metadata", {})),
    }
    return cast("SavedAgent", said)
