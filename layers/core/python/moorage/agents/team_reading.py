"""A turn of a session as its logs tell it, with what each agent of its team has done and used.

Nothing is stored of subagents: whoever asks for one reads the logs of the turn that it belongs to. Its id tells which turn that is.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from moorage import ids, limits
from moorage.agents.session_objects import end_of, tokens_of
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.agents.team_events import Subagent, SubagentTurn, TeamProjector, subagent_object, turn_object_of
from moorage.agents.turn_events import ITEM_ADDED, ITEM_DONE
from moorage.agents.turns import snapshot_of, standing_of
from moorage.dataclass import dataclass
from moorage.errors.agents import subagent_not_found
from moorage.loop.budget import used_of
from moorage.model.catalog import ModelCatalog
from moorage.parallel import Breath
from moorage.runtime import Runtime
from moorage.store import keys
from moorage.store.response_list import calls_by_type
from moorage.store.responses import Snapshot
from moorage.stores import Stores
from moorage.wire import events
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Event, Item

_BILLION = 1_000_000_000


@dataclass(slots=True)
class TeamOfTurn:
    turn: TurnRecord
    projector: TeamProjector
    model: str
    _items: dict[str, dict[str, Item]] = field(default_factory=dict)
    """By the turn's id, and by their own."""
    accounts: dict[tuple[str, int], Mapping[int, TokenUsage]] = field(default_factory=dict)
    """What an agent had used after each of its steps, by response and lane: one reader shows many of its turns."""

    @property
    def subagents(self) -> list[Subagent]:
        return list(self.projector.subagents.values())

    def items(self, *turn_ids: str) -> list[Item]:
        """Of these turns, as far as they have come."""
        found = [item for turn_id in turn_ids for item in self._items.get(turn_id, {}).values()]
        return [item for item in found if item["type"] not in ("message", "reasoning") or item["status"] != "in_progress"]

    def hear(self, event: Event) -> None:
        if event["type"] in (ITEM_ADDED, ITEM_DONE):
            self._items.setdefault(event["turn_id"], {})[event["item"]["id"]] = event["item"]


async def team_of(stores: Stores, session: SessionRecord, turn: TurnRecord, *, is_timed: bool = True) -> TeamOfTurn | None:
    """None without a team. One that is not ``is_timed`` is read for its items alone: from the end of a response, where there is one."""
    team: TeamOfTurn | None = None
    breath = Breath()
    for response_id in turn.responses:
        snapshot = await snapshot_of(stores, session.tenant_id, response_id)
        if snapshot is None:
            continue
        if snapshot.stored.agent is None:
            return None
        if team is None:
            projector = TeamProjector(session.id, session.agent_id, turn.id)
            team = TeamOfTurn(turn, projector, snapshot.stored.parameters.model)
        given = await stores.contents_of(session.tenant_id, frozenset()).items(snapshot.stored.own_input)
        for told in team.projector.begin(given, response_id):
            team.hear(told)
        async for event, at_ms, step in _heard(stores, snapshot, is_timed=is_timed):
            for told in team.projector.hear(event, at_ms, step):
                team.hear(told)
            await breath.taken()
    if team is not None:
        standing = await standing_of(stores, session, turn)
        if standing.is_over and standing.snapshot is not None:
            for told in team.projector.close(*end_of(standing)):
                team.hear(told)
    return team


async def _heard(stores: Stores, snapshot: Snapshot, *, is_timed: bool) -> AsyncIterator[tuple[Event, int, int | None]]:
    """The events of a response with their times (milliseconds) and steps; or what its end makes of them, without."""
    stored = snapshot.stored
    contents = stores.contents_of(stored.tenant_id, frozenset(stored.parameters.include))
    if snapshot.last is None:
        return
    if snapshot.is_final and not is_timed:
        ended = await contents.response(snapshot.final_object)
        for index, item in enumerate(ended["output"]):
            about = {"output_index": index, "item": item, "agent": item.get("agent", {})}
            for name in (events.OUTPUT_ITEM_ADDED, events.OUTPUT_ITEM_DONE):
                yield {"type": name, **about}, 0, None
        yield {**snapshot.last.events[-1], "response": ended}, 0, None
        return
    async for batches in stores.responses.log_of(stored).read_up_to(snapshot.last.following - 1):
        for batch in batches:
            for index, event in enumerate(await contents.events(batch.events)):
                yield event, batch.said_at(index), batch.writer.step


async def team_with(stores: Stores, session: SessionRecord, subagent_id: str) -> tuple[TeamOfTurn, Subagent]:
    """A subagent with its team. Raises 404 for one that the session does not have."""
    turn = await stores.agent_sessions.turn(session, ids.number_of_turn(subagent_id))
    team = None if turn is None else await team_of(stores, session, turn)
    found = None if team is None else next((each for each in team.subagents if each.id == subagent_id), None)
    if team is None or found is None:
        raise subagent_not_found(subagent_id)
    return team, found


async def turn_of_subagent(stores: Stores, session: SessionRecord, turn_id: str) -> tuple[TeamOfTurn, SubagentTurn] | None:
    """A subagent's turn with its team; None if the session has no such."""
    turn = await stores.agent_sessions.turn(session, ids.turn_number(turn_id))
    team = None if turn is None else await team_of(stores, session, turn)
    if team is None:
        return None
    turns = [each for subagent in team.subagents for each in subagent.turns]
    return next(((team, each) for each in turns if each.id == turn_id), None)


async def subagent_answer(runtime: Runtime, session: SessionRecord, team: TeamOfTurn, subagent: Subagent) -> dict[str, Any]:
    used = await _used(runtime.stores, session, team, subagent.turns)
    calls = [item for turn in subagent.turns for item in turn.called]
    return subagent_object(subagent, session.id) | _shown_use(runtime.models.catalog, team, used, calls)


async def turn_answer(runtime: Runtime, session: SessionRecord, team: TeamOfTurn, turn: SubagentTurn) -> dict[str, Any]:
    shown = turn_object_of(turn, session.id, session.agent_id)
    if turn.status == "in_progress":
        return shown
    return shown | _shown_use(runtime.models.catalog, team, await _used(runtime.stores, session, team, [turn]), turn.called)


def _shown_use(catalog: ModelCatalog, team: TeamOfTurn, used: TokenUsage, called: Sequence[Item]) -> dict[str, Any]:
    price = catalog.price_of(team.model)
    cost = used_of(catalog, team.model, used, calls_by_type(called))["usd"] / _BILLION
    return {"usage": tokens_of(used), "cost_usd": None if price is None else cost}


async def _used(stores: Stores, session: SessionRecord, team: TeamOfTurn, turns: Sequence[SubagentTurn]) -> TokenUsage:
    """By one turn of a subagent, or by several. A step that has not ended is not counted yet."""
    total = TokenUsage()
    for turn in turns:
        for response_id in turn.response_ids:
            steps = [step for of, step in turn.steps if of == response_id]
            if steps:
                total += await _used_by(stores, session.tenant_id, team, response_id, min(steps), max(steps))
    return total


async def _used_by(stores: Stores, tenant_id: str, team: TeamOfTurn, response_id: str, first: int, last: int) -> TokenUsage:
    """By these steps of one agent, the first and the last included: a step tells what its agent has used so far."""
    lane = keys.lane_of(first)
    if (response_id, lane) not in team.accounts:
        accounts = await stores.steps.accounts(tenant_id, response_id, since=lane * limits.LANE_STEPS)
        used = {account.step: account.outcome.usage for account in accounts if account.outcome is not None}
        team.accounts[response_id, lane] = used
    so_far = team.accounts[response_id, lane]

    def at(step: int) -> TokenUsage:
        return so_far[max(ended)] if (ended := [each for each in so_far if each <= step]) else TokenUsage()

    return at(last) - at(first - 1)
