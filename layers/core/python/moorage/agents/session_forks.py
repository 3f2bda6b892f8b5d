"""A fork of a session: another session, which goes on from a turn's end as if what came since had not been said.

It owns what it begins with. A response that asks no model holds what was said, and its environment is a copy, with the files as they
were when the turn ended. So the old session goes on, or is deleted, as if there were no fork. The turns of the fork are its own alone.
"""

from dataclasses import replace

from moorage import ids
from moorage.agents.session_start import container_as_asked
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.agents.settings import as_request
from moorage.agents.turns import Standing, answers_of, budget_scope, standing_of
from moorage.containers.containers import policy_of
from moorage.containers.store import ContainerRecord
from moorage.dataclass import dataclass
from moorage.errors import ContainerLost, bad_request, past_unknown
from moorage.loop.chain import chain_items
from moorage.loop.create import prepare, warm_up
from moorage.loop.forks import check_copies, moved
from moorage.loop.notes import carried, reader
from moorage.loop.past_responses import as_of
from moorage.runtime import Runtime
from moorage.store.responses import Snapshot
from moorage.stores import Stores
from moorage.vaults.choice import credentials_in
from moorage.vaults.variables import with_variables
from moorage.wire.requests import parse_create
from moorage.wire.types import Item


@dataclass(frozen=True, slots=True)
class _Place:
    """The environment of the fork."""

    container: ContainerRecord | None = None
    files: int | None = None
    """How many came along; None for one that was made anew."""


async def fork(runtime: Runtime, session: SessionRecord, turn: TurnRecord | None, *, key_id: str) -> SessionRecord:
    """The new session, stored. ``turn`` is the one to go on from, by default the last one that has ended. Raises
    :class:`~moorage.errors.ApiError`; nothing is left behind then."""
    stores = runtime.stores
    standing = await _ended(stores, session, turn)
    assert standing.turn is not None
    ended = standing.snapshot
    if ended is None:
        raise bad_request(f"The response of turn '{standing.turn.id}' was deleted: choose another one.", param="turn_id")
    new = stores.agent_sessions.new(
        session.tenant_id,
        session.settings,
        session.agent_id,
        agent_version=session.agent_version,
        vault_ids=session.vault_ids,
        metadata=session.metadata,
        budget=session.budget,
    )
    place = await _place(runtime, session, ended)
    try:
        items = await _said(stores, standing.turn, ended, place.container)
        first = await _holder(runtime, new, ended, items, key_id)
    except BaseException:
        if place.container is not None:
            await runtime.computers.containers.delete(session.tenant_id, place.container.id)
        raise
    origin = {"session_id": session.id, "turn_id": standing.turn.id, "files": place.files}
    new = replace(new, begins_with=first, forked_from=origin)
    if place.container is not None:
        new = replace(new, container_id=place.container.id, owns_container=True)
        new = await stores.agent_sessions.with_environment(new, await stores.agent_sessions.environment_of(session))
    if new.budget is not None:  # Before its session: what dies between leaves none that nothing bounds.
        await stores.budgets.put(new.tenant_id, budget_scope(new), new.budget)
    await stores.agent_sessions.create(new)
    return new


async def _ended(stores: Stores, session: SessionRecord, turn: TurnRecord | None) -> Standing:
    """The turn as it stands. Raises :class:`ApiError` if it goes on, and if there is none that has ended."""
    wanted = [turn] if turn is not None else await stores.agent_sessions.turns(session, descending=True, limit=2)
    for each in wanted:
        standing = await standing_of(stores, session, each)
        if standing.is_over:
            return standing
    message = "No turn of this session has ended yet" if turn is None else f"Turn '{turn.id}' has not ended yet"
    raise bad_request(f"{message}: wait for its end, or cancel it.", param=None if turn is None else "turn_id", code="turn_active")


async def _place(runtime: Runtime, session: SessionRecord, ended: Snapshot) -> _Place:
    """A copy of the turn's container, as its end had left it. Raises :class:`ApiError`, ``past_unknown`` where that was not kept."""
    if session.container_id is None or ended.stored.container_id is None:
        return _Place()
    try:
        source = await runtime.computers.containers.use(session.tenant_id, ended.stored.container_id)
    except ContainerLost:
        return _Place(await container_as_asked(runtime, session))
    at_ms = (await as_of(runtime, ended, None)).boundary.files_at_ms
    if at_ms is None:
        raise past_unknown(source.id)
    credentials = await credentials_in(runtime.stores, session.tenant_id, session.vault_ids)
    policy = with_variables(runtime.stores, policy_of(source), credentials)
    return _Place(*await runtime.computers.containers.copy(source, at_ms=at_ms, network_policy=policy))


async def _said(stores: Stores, turn: TurnRecord, ended: Snapshot, container: ContainerRecord | None) -> list[Item]:
    """What was said up to the end of the turn, as if its calls had run in the fork's environment."""
    stored = ended.stored
    answers = [{**item, "id": ids.new_turn_item_id("fco", turn.number)} for item in answers_of(ended, {})]
    chain = await stores.responses.chain(stored.tenant_id, stored.response_id)
    items = carried([*chain_items(chain.parts, then=answers), *answers], reader(stores, stored.tenant_id))
    if container is None or stored.container_id is None:
        return items
    check_copies(items)
    return [moved(item, stored.container_id, container.id) for item in items]


async def _holder(runtime: Runtime, new: SessionRecord, ended: Snapshot, items: list[Item], key_id: str) -> str:
    """A response of the new session that holds what was said, and asks no model; its id."""
    asked = {**as_request(new.settings), "tools": [], "input": [], "previous_response_id": ended.stored.response_id}
    request = parse_create(asked, web_search=runtime.models.web_search)
    prepared = await prepare(runtime, new.tenant_id, request, recent=items, key_id=key_id)
    assert ended.last is not None
    origin = {"response_id": ended.stored.response_id, "at": ended.last.following - 1, "container": None}
    stored = replace(prepared.stored, session_id=new.id, forked_from=ended.stored.response_id)
    stored = replace(stored, echo=stored.echo | {"forked_from": origin})
    await warm_up(runtime, replace(prepared, stored=stored))
    return stored.response_id
