"""``/v1/agents/sessions/{session_id}/subagents``: the agents that a session's agent has started, with their turns and items."""

from typing import cast

from moorage import ids
from moorage.agents.session_shapes import SubagentOfSession, Turn
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.agents.team_events import Subagent, SubagentTurn
from moorage.agents.team_reading import TeamOfTurn, subagent_answer, team_of, team_with, turn_answer
from moorage.agents.turn_pages import page_of_turns
from moorage.api.caller import Caller
from moorage.api.queries import AnyPage
from moorage.api.routing import Router
from moorage.errors.agents import turn_not_found
from moorage.runtime import Runtime
from moorage.store.listing import page_of
from moorage.wire.answers import ListOf
from moorage.wire.types import Item

router = Router()
_ALL = "/agents/sessions/{session_id}/subagents"
_ONE = f"{_ALL}/{{subagent_id}}"
_TURN = f"{_ONE}/turns/{{turn_id}}"


@router.get(_ALL, "listAgentSessionSubagents", "The subagents of a session, the closed ones too")
async def list_subagents(caller: Caller, session_id: str, page: AnyPage) -> ListOf[SubagentOfSession]:
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)

    async def of_turn(turn: TurnRecord) -> list[SubagentOfSession]:
        team = await team_of(runtime.stores, session, turn)
        return [] if team is None else [await _shown(runtime, session, team, each) for each in team.subagents]

    return await page_of_turns(runtime.stores, session, page, of_turn, ids.number_of_turn)


@router.get(_ONE, "retrieveAgentSessionSubagent", "A subagent of a session")
async def retrieve(caller: Caller, session_id: str, subagent_id: str) -> SubagentOfSession:
    session, team, subagent = await _found(caller, session_id, subagent_id)
    return await _shown(caller.runtime, session, team, subagent)


@router.get(f"{_ONE}/items", "listAgentSessionSubagentItems", "The items of a subagent, of all its turns")
async def list_items(caller: Caller, session_id: str, subagent_id: str, page: AnyPage) -> ListOf[Item]:
    _, team, subagent = await _found(caller, session_id, subagent_id)
    return page_of(team.items(*(turn.id for turn in subagent.turns)), page)


@router.get(f"{_ONE}/turns", "listAgentSessionSubagentTurns", "The turns of a subagent")
async def list_turns(caller: Caller, session_id: str, subagent_id: str, page: AnyPage) -> ListOf[Turn]:
    session, team, subagent = await _found(caller, session_id, subagent_id)
    return page_of([cast("Turn", await turn_answer(caller.runtime, session, team, turn)) for turn in subagent.turns], page)


@router.get(_TURN, "retrieveAgentSessionSubagentTurn", "A turn of a subagent")
async def retrieve_turn(caller: Caller, session_id: str, subagent_id: str, turn_id: str) -> Turn:
    session, team, subagent = await _found(caller, session_id, subagent_id)
    return cast("Turn", await turn_answer(caller.runtime, session, team, _turn(subagent, turn_id)))


@router.get(f"{_TURN}/items", "listAgentSessionSubagentTurnItems", "The items of a subagent's turn")
async def list_turn_items(caller: Caller, session_id: str, subagent_id: str, turn_id: str, page: AnyPage) -> ListOf[Item]:
    _, team, subagent = await _found(caller, session_id, subagent_id)
    return page_of(team.items(_turn(subagent, turn_id).id), page)


async def _found(caller: Caller, session_id: str, subagent_id: str) -> tuple[SessionRecord, TeamOfTurn, Subagent]:
    session = await caller.runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    return session, *await team_with(caller.runtime.stores, session, subagent_id)


async def _shown(runtime: Runtime, session: SessionRecord, team: TeamOfTurn, subagent: Subagent) -> SubagentOfSession:
    return cast("SubagentOfSession", await subagent_answer(runtime, session, team, subagent))


def _turn(subagent: Subagent, turn_id: str) -> SubagentTurn:
    for turn in subagent.turns:
        if turn.id == turn_id:
            return turn
    raise turn_not_found(turn_id)
