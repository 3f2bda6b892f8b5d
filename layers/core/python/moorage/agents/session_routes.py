"""``/v1/agents/sessions``: sessions, their turns, items and events."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, cast

from fastapi import Request
from starlette.responses import Response

from moorage import ids, limits
from moorage.agents.session_forks import fork
from moorage.agents.session_objects import actions_of, environment_object, session_object, turn_object
from moorage.agents.session_shapes import (
    CREATE_SESSION,
    CREATE_SESSION_EVENTS,
    FORK_SESSION,
    UPDATE_SESSION,
    AgentSession,
    SessionDelete,
    SessionsPage,
    SessionStream,
    SessionTrace,
    Turn,
)
from moorage.agents.session_start import (
    check_agent,
    check_place,
    give_up_container,
    messages_of,
    new_session,
    set_back,
    tell_beginning,
    with_nulls,
)
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.agents.session_stream import Cursor, SessionReader
from moorage.agents.settings import team_of as team_setting
from moorage.agents.team_events import SubagentTurn
from moorage.agents.team_reading import TeamOfTurn, team_of, turn_answer, turn_of_subagent
from moorage.agents.turn_events import OBFUSCATED
from moorage.agents.turn_items import items_of_turn
from moorage.agents.turn_pages import page_of_turns
from moorage.agents.turns import (
    Offer,
    Payer,
    Standing,
    advance,
    answer_approval,
    budget_scope,
    cancel,
    check_approvals,
    check_pending,
    check_results,
    delete,
    output_of,
    snapshot_of,
    stand,
    standing_of,
    was_taken,
)
from moorage.api import sse
from moorage.api.answers import BodyPiece, JsonResponse
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.idempotency import MADE, MARK, SINCE
from moorage.api.queries import AnyPage, query_of
from moorage.api.responses import until_of
from moorage.api.routing import EVENTS, Router
from moorage.errors import ApiError, bad_request, invalid_value, missing_parameter, rate_limited, unsupported_parameter
from moorage.errors.agents import turn_not_found
from moorage.files.store import Clock
from moorage.loop import paused
from moorage.loop.budget import check_budget
from moorage.loop.step_history import unroll
from moorage.loop.traces import whole_document
from moorage.model.catalog import ModelCatalog
from moorage.parallel import Breath, as_json, beside, side_by_side
from moorage.runtime import Runtime
from moorage.store.listing import page_of, unknown_after
from moorage.stores import Stores
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.events import filled, one_line
from moorage.wire.queries import PageQuery
from moorage.wire.responses import deleted, list_object
from moorage.wire.types import Event, Item
from moorage.wire.validation import parse_object

router = Router()
_ONE: Final = "/agents/sessions/{session_id}"
_KEEP_ALIVE: Final = BodyPiece(b": keep-alive\n")
"""Without an empty line: behind an event with an id, openai-python takes that for an event without data, and fails."""


@router.post(
    "/agents/sessions",
    "createAgentSession",
    "Begin a session of an agent, with or without a first turn",
    answers=AgentSession,
    sends=EVENTS,
    body=("CreateAgentSession", CREATE_SESSION),
    statuses=(404,),
)
async def create(request: Request, caller: Caller, body: RawBody) -> Response:
    sent = await beside(len(body), lambda: parse_object(body))
    given = await beside(len(body), lambda: CREATE_SESSION(sent))
    if "agent" in given:
        given["agent"] = with_nulls(given["agent"], sent["agent"])
    runtime, sessions = caller.runtime, caller.runtime.stores.agent_sessions
    messages = messages_of(given.get("input"))
    if not messages and (given["environment"]["type"] == "none" or given.get("stream")):
        raise missing_parameter("input")
    if "stream_options" in given and not given.get("stream"):
        raise invalid_value("stream_options", "it is only allowed together with 'stream': true.")
    obfuscates = given.get("stream_options", {}).get("include_obfuscation", True)
    if (made := getattr(request.state, MADE, None)) is not None:
        return await _first_turn(runtime, await sessions.get(caller.tenant_id, made), obfuscates=obfuscates)
    budget = _budget(given, sent) or None
    session = replace(await new_session(runtime, caller.tenant_id, given, size=len(body)), budget=budget)
    try:
        _check_budget(runtime.models.catalog, session.settings, budget)
        if budget is not None:  # Before its session: what dies between leaves none that nothing bounds.
            await runtime.stores.budgets.put(caller.tenant_id, budget_scope(session), budget)
        await sessions.create(session)
    except BaseException:
        await give_up_container(runtime, session)
        raise
    if messages:
        try:
            await advance(runtime, session, _payer(caller), offer=Offer(messages))
        except ApiError:
            await delete(runtime, session, force=True)
            raise
    await tell_beginning(runtime, session)
    if not given.get("stream"):
        return JsonResponse(await _as_object(runtime, session))
    setattr(request.state, MADE, session.id)
    return await _first_turn(runtime, session, obfuscates=obfuscates)


async def _first_turn(runtime: Runtime, session: SessionRecord, *, obfuscates: bool) -> Response:
    """The events of a session from its beginning to the end of its first turn."""
    reader = SessionReader(runtime, session, await environment_object(runtime, session), Cursor(0, 0), ends=True)
    return sse.stream(_pieces(reader, obfuscates=obfuscates, until=until_of(runtime.settings)))


@router.get(
    "/agents/sessions",
    "listAgentSessions",
    "Sessions of agents, newest first",
)
async def list_sessions(caller: Caller, page: Annotated[SessionsPage, query_of(SessionsPage)]) -> ListOf[AgentSession]:
    def keep(record: Mapping[str, Any]) -> bool:
        wants_agent = page.agent_id is None or record["agent_id"] == page.agent_id
        return wants_agent and all(record["metadata"].get(name) == value for name, value in page.metadata.items())

    found, has_more = await caller.runtime.stores.agent_sessions.page(caller.tenant_id, page, keep)

    async def shown(session: SessionRecord) -> AgentSession:
        return await _as_object(caller.runtime, session)

    return list_object(await side_by_side(shown, found, at_once=limits.RECORDS_UNPACKED_AT_ONCE), has_more=has_more)


@router.get(_ONE, "retrieveAgentSession", "A session, as it stands")
async def retrieve(caller: Caller, session_id: str) -> AgentSession:
    return await _as_object(caller.runtime, await caller.runtime.stores.agent_sessions.get(caller.tenant_id, session_id))


@router.post(_ONE, "updateAgentSession", "Change a session, for the turns to come", body=("UpdateAgentSession", UPDATE_SESSION))
async def update(caller: Caller, session_id: str, body: RawBody) -> AgentSession:
    sent = await beside(len(body), lambda: parse_object(body))
    given = await beside(len(body), lambda: UPDATE_SESSION(sent))
    runtime = caller.runtime
    metadata, budget = given.get("metadata", {} if "metadata" in sent else None), _budget(given, sent)
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
        settings = None
        if "agent" in given:
            settings = _changed(session.settings, given["agent"], sent["agent"])
            await check_agent(runtime, caller.tenant_id, settings, len(body))
            check_place(settings, has_environment=session.container_id is not None)
        _check_budget(runtime.models.catalog, settings or session.settings, budget)
        if settings is None and metadata is None and budget is None:
            return await _as_object(runtime, session)
        changed = await runtime.stores.agent_sessions.update(session, settings=settings, metadata=metadata, budget=budget)
        if changed is not None:
            if budget is not None:
                await _set_budget(runtime.stores, runtime.clock, changed, budget)
            return await _as_object(runtime, changed)
    raise rate_limited(f"Session '{session_id}' is changed by others again and again. Retry later.", 1)


async def _set_budget(stores: Stores, clock: Clock, session: SessionRecord, budget: Mapping[str, Any]) -> None:
    """What was used so far stays counted. A turn that stands still for want of it goes on."""
    await stores.budgets.put(session.tenant_id, budget_scope(session), budget)
    standing = await stand(stores, session)
    if standing.is_running and standing.snapshot is not None and standing.snapshot.stored.is_pause_requested:
        await paused.resume(stores, clock, standing.snapshot.stored)


@router.delete(_ONE, "deleteAgentSession", "Delete a session with its turns, their responses, and its container")
async def remove(
    caller: Caller, session_id: str, wanted: Annotated[SessionDelete, query_of(SessionDelete)]
) -> Deleted[Literal["agent.session.deleted"]]:
    session = await caller.runtime.stores.agent_sessions.get(caller.tenant_id, session_id, even_deleted=True)
    await delete(caller.runtime, session, force=wanted.force)
    return deleted(session_id, "agent.session.deleted")


@router.post(
    f"{_ONE}/fork",
    "forkAgentSession",
    "Another session that goes on from the end of a turn, with its environment as it was then",
    answers=AgentSession,
    body=("ForkAgentSession", FORK_SESSION),
    statuses=(404, 409),
)
async def fork_session(caller: Caller, session_id: str, body: RawBody) -> AgentSession:
    """An extension."""
    runtime, given = caller.runtime, FORK_SESSION.body(body or b"{}")
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    turn = await _turn(runtime.stores, session, given["turn_id"], param="turn_id") if "turn_id" in given else None
    forked = await fork(runtime, session, turn, key_id=caller.key_id)
    await tell_beginning(runtime, forked)
    return await _as_object(runtime, forked)


# --- Events -------------------------------------------------------------------------------------------------------------


@router.post(
    f"{_ONE}/events",
    "createAgentSessionEvents",
    "Give a session input: messages, results of functions, decisions, or the end of its turn",
    answers=dict[str, Any],
    body=("CreateAgentSessionEvents", CREATE_SESSION_EVENTS),
    statuses=(404, 429),
)
async def create_events(request: Request, caller: Caller, session_id: str, body: RawBody) -> Response:
    """Accepted is not done: the stream tells of that. Messages and results of one request are taken together, or not at all. All of
    it is looked at before a decision counts."""
    given: Sequence[Mapping[str, Any]] = (await beside(len(body), lambda: CREATE_SESSION_EVENTS.body(body)))["events"]
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    by_type: dict[str, list[Mapping[str, Any]]] = {}
    for event in given:
        by_type.setdefault(event["type"].removeprefix("agent.session.input."), []).append(event)
    results, decisions = by_type.get("tool_result", []), by_type.get("mcp_approval_request_result", [])
    outputs = {event["call_id"]: _output(index, event) for index, event in enumerate(given) if event in results}
    messages = [message for event in by_type.get("message", []) for message in messages_of(event["input"])]
    offer = Offer(messages, outputs)
    if (mark := getattr(request.state, MARK, None)) is not None:
        offer = offer.marked(mark)
        since = getattr(request.state, SINCE, None)
        if since is not None and await was_taken(runtime.stores, session, offer, since):
            await advance(runtime, session, _payer(caller))  # Its process may have died before it could do that.
            return JsonResponse({}, status_code=202)
    if results:
        if "cancel" in by_type:
            raise bad_request("A turn that is cancelled takes no results: send one of the two.", param="events")
        standing = await stand(runtime.stores, session)
        check_results(standing, results)
        if decisions:
            await check_pending(runtime.stores, standing, await runtime.stores.agent_sessions.inputs(session), outputs)
    await check_approvals(runtime.stores, session, decisions)
    for event in decisions:
        await answer_approval(runtime.stores, runtime.clock, session, event["request_id"], event["response"]["decision"], caller.key_id)
    if "cancel" in by_type:
        await cancel(runtime, session)
    if messages or results:
        await advance(runtime, session, _payer(caller), offer=offer)
    return JsonResponse({}, status_code=202)


@router.get(
    f"{_ONE}/events",
    "streamAgentSessionEvents",
    "The events of a session, from now on or from one of them on",
    answers=dict[str, Any],
    sends=EVENTS,
)
async def stream_events(
    request: Request, caller: Caller, session_id: str, wanted: Annotated[SessionStream, query_of(SessionStream)]
) -> Response:
    """``Last-Event-ID`` and ``after`` go on behind an event; ``after=0`` tells all from the beginning, and a turn's id all from the
    beginning of the turn. Extensions of ours."""
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    last = request.headers.get("last-event-id")
    after = wanted.after if last is None else last
    cursor = None
    if after is not None and after.startswith("turn_"):
        cursor = Cursor((await _turn(runtime.stores, session, after)).number, 0)
    elif after is not None:
        cursor = Cursor.of(after, "after")
    reader = SessionReader(runtime, session, await environment_object(runtime, session), cursor)
    return sse.stream(_pieces(reader, obfuscates=wanted.include_obfuscation, until=until_of(runtime.settings)))


async def _pieces(reader: SessionReader, *, obfuscates: bool, until: float | None) -> AsyncGenerator[BodyPiece, None]:
    """``until`` (event loop time) breaks it off after a whole event; clients go on with ``Last-Event-ID``."""
    now = asyncio.get_running_loop().time
    quiet_since = now()
    yield _KEEP_ALIVE  # Its client learns at once that what comes from now on will be told.
    async with aclosing(reader.batches()) as batches:
        async for events in batches:
            if events:
                quiet_since = now()
                written, breath = list[bytes](), Breath()
                for event in events:  # As many at once as a reader has missed.
                    written.append(_written(event, obfuscates=obfuscates))
                    await breath.taken()
                yield BodyPiece(b"".join(written))
            elif now() - quiet_since > limits.KEEP_ALIVE_SECONDS:
                quiet_since = now()
                yield _KEEP_ALIVE
            if until is not None and now() >= until:
                return


def _written(event: Event, *, obfuscates: bool) -> bytes:
    if obfuscates and event["type"] in OBFUSCATED:
        event = filled(event)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event["event_id"].encode(), event["type"].encode(), one_line(event))


# --- Turns and items ----------------------------------------------------------------------------------------------------


@router.get(f"{_ONE}/turns", "listAgentSessionTurns", "The turns of a session")
async def list_turns(caller: Caller, session_id: str, page: AnyPage) -> ListOf[Turn]:
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    beyond = await _number_behind(runtime.stores, session, page)
    turns = await runtime.stores.agent_sessions.turns(session, beyond=beyond, descending=page.order == "desc", limit=page.limit + 1)

    async def shown(turn: TurnRecord) -> Turn:
        return turn_object(await standing_of(runtime.stores, session, turn), turn)

    found = await side_by_side(shown, turns[: page.limit], at_once=limits.RECORDS_UNPACKED_AT_ONCE)
    return list_object(found, has_more=len(turns) > page.limit)


@router.get(f"{_ONE}/turns/{{turn_id}}", "retrieveAgentSessionTurn", "A turn of a session")
async def retrieve_turn(caller: Caller, session_id: str, turn_id: str) -> Turn:
    """Also of a subagent."""
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    if (found := await _turn_of_subagent(runtime.stores, session, turn_id)) is not None:
        return cast("Turn", await turn_answer(runtime, session, *found))
    turn = await _turn(runtime.stores, session, turn_id)
    return turn_object(await standing_of(runtime.stores, session, turn), turn)


@router.get(f"{_ONE}/turns/{{turn_id}}/items", "listAgentSessionTurnItems", "The items of a turn")
async def list_turn_items(caller: Caller, session_id: str, turn_id: str, page: AnyPage) -> ListOf[Item]:
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    if (found := await _turn_of_subagent(runtime.stores, session, turn_id)) is not None:
        return page_of(found[0].items(turn_id), page)
    return page_of(await _items(runtime.stores, session, await _turn(runtime.stores, session, turn_id)), page)


@router.get(f"{_ONE}/items", "listAgentSessionItems", "The items of a session, of all its turns")
async def list_items(caller: Caller, session_id: str, page: AnyPage) -> ListOf[Item]:
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    number = 0 if page.after is None else await _turn_of(runtime.stores, session, page.after)

    async def of_turn(turn: TurnRecord) -> list[Item]:
        return await _items(runtime.stores, session, turn)

    return await page_of_turns(runtime.stores, session, page, of_turn, lambda _: number)


@router.get(f"{_ONE}/traces", "listAgentSessionTraces", "The traces of a session's turns that have ended, as OTLP's JSON")
async def list_traces(caller: Caller, session_id: str, page: AnyPage) -> ListOf[SessionTrace]:
    """``after`` is a turn's id. A page is shorter than asked for if its traces are long."""
    runtime = caller.runtime
    session = await runtime.stores.agent_sessions.get(caller.tenant_id, session_id)
    beyond = await _number_behind(runtime.stores, session, page)
    turns = await runtime.stores.agent_sessions.turns(session, beyond=beyond, descending=page.order == "desc", limit=page.limit + 1)
    found: list[SessionTrace] = []
    size, taken = 0, 0
    for turn in turns[: page.limit]:
        trace = await _trace(runtime, session, turn)
        size += 0 if trace is None else len(await as_json(trace["otlp"]))
        if found and size > limits.AGENT_SESSION_TRACES_BYTES_MAX:
            break
        found += [] if trace is None else [trace]
        taken += 1
    return list_object(found, has_more=taken < len(turns))


async def _trace(runtime: Runtime, session: SessionRecord, turn: TurnRecord) -> SessionTrace | None:
    """Those of a turn's responses together; None as long as it has not ended."""
    if not (await standing_of(runtime.stores, session, turn)).is_over:
        return None
    spans: list[Any] = []
    for response_id in turn.responses:
        snapshot = await snapshot_of(runtime.stores, session.tenant_id, response_id)
        if snapshot is not None and snapshot.is_final:
            whole = await whole_document(runtime.settings, snapshot, await unroll(runtime, snapshot))
            spans += whole["resourceSpans"]
    otlp = {"resourceSpans": spans}
    return {"id": turn.id, "object": "agent.session.trace", "session_id": session.id, "created_at": turn.created_at, "otlp": otlp}


async def _items(stores: Stores, session: SessionRecord, turn: TurnRecord) -> list[Item]:
    """All items of a turn, as far as they have come; of one with a team, those of its root agent."""
    if team_setting(session.settings)["enabled"] and (team := await team_of(stores, session, turn, is_timed=False)) is not None:
        return team.items(turn.id)
    has_ended = False

    async def one(response_id: str) -> tuple[Sequence[Item], Sequence[Item], bool]:
        nonlocal has_ended
        snapshot = await snapshot_of(stores, session.tenant_id, response_id)
        if response_id == turn.current:
            has_ended = Standing(session, turn, snapshot).is_over
        if snapshot is None:
            return (), (), False
        stored = snapshot.stored
        contents = stores.contents_of(session.tenant_id, frozenset(stored.parameters.include))
        given = await contents.items(stored.own_input)
        if snapshot.is_final:
            ended = await contents.response(snapshot.final_object)
            has_answered = ended["status"] == "completed" and not Standing(session, turn, snapshot).open_calls
            return given, ended["output"], has_answered
        done = (await stores.steps.read(stored.tenant_id, stored.response_id)).items
        return given, await contents.items([done[index] for index in sorted(done)]), False

    found = await side_by_side(one, turn.responses, at_once=limits.RECORDS_UNPACKED_AT_ONCE)
    return items_of_turn(turn.id, found, has_ended=has_ended)


async def _turn_of(stores: Stores, session: SessionRecord, item_id: str) -> int:
    """The number of the turn that an item is of; 0 if that is not known. Its id tells of the turn that it was said in, or of its
    response, and what that was given tells of its turn."""
    if item_id.startswith("cmd_"):
        item_id = item_id.rpartition("_")[0]
    said_in, response_id = [item_id], ids.response_of(item_id)
    if response_id is not None:
        with suppress(ApiError):
            said_in = [item["id"] for item in (await stores.responses.load(session.tenant_id, response_id)).own_input]
    for each in said_in:
        turn = await stores.agent_sessions.turn(session, ids.number_of_turn(each))
        if turn is not None and (said_in == [item_id] or response_id in turn.responses):
            return turn.number
    return 0


async def _turn_of_subagent(stores: Stores, session: SessionRecord, turn_id: str) -> tuple[TeamOfTurn, SubagentTurn] | None:
    """None for a turn of the session's own agent, and for what is none."""
    if not team_setting(session.settings)["enabled"]:
        return None
    turn = await stores.agent_sessions.turn(session, ids.turn_number(turn_id))
    return None if turn is None or turn.id == turn_id else await turn_of_subagent(stores, session, turn_id)


async def _number_behind(stores: Stores, session: SessionRecord, page: PageQuery) -> int | None:
    """Of the turn that a page begins behind. Raises :class:`ApiError` for what is none of the session's."""
    if page.after is None:
        return None
    turn = await stores.agent_sessions.turn(session, ids.turn_number(page.after))
    if turn is None or turn.id != page.after:
        raise unknown_after(page.after)
    return turn.number


async def _turn(stores: Stores, session: SessionRecord, turn_id: str, *, param: str | None = None) -> TurnRecord:
    turn = await stores.agent_sessions.turn(session, ids.turn_number(turn_id))
    if turn is None or turn.id != turn_id:
        raise turn_not_found(turn_id, param)
    return turn


# --- What bodies say ----------------------------------------------------------------------------------------------------


def _output(index: int, result: Mapping[str, Any]) -> Item:
    """What the model is told of a result; of a call that failed, the reason and what there was nevertheless."""
    if result["success"]:
        if "error" in result:
            raise invalid_value(f"events[{index}].error", "a call that succeeded has none.")
        return output_of(result["call_id"], result.get("output", ""), is_failed=False)
    error, output = result.get("error"), result.get("output")
    if error is None or output is None:
        return output_of(result["call_id"], error or output or "The function failed.", is_failed=True)
    parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
    return output_of(result["call_id"], [{"type": "input_text", "text": error}, *parts], is_failed=True)


def _changed(settings: Mapping[str, Any], change: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """Settings after a change, of which null sets back what it names."""
    following = {**settings, **with_nulls(change, sent)}
    if following["model"] is None:
        raise invalid_value("agent.model", "an agent needs one.")
    if "reasoning" in sent:
        effort = {"effort": None} if sent["reasoning"] is None else with_nulls(change["reasoning"], sent["reasoning"])
        following["reasoning"] = set_back({**settings.get("reasoning", {}), **effort})
    return set_back(following)


def _budget(given: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any] | None:
    """The budget that a body sets, by one of its two names; empty for none, and None if the body says nothing of it."""
    if "spend_control" in sent:
        if "budget" in sent:
            raise invalid_value("spend_control", "it is another name of 'budget': give one of the two.")
        cents = given.get("spend_control", {}).get("limit")
        return {} if cents is None else {"usd": cents / 100, "on_limit": "stop"}
    return given.get("budget", {}) if "budget" in sent else None


def _check_budget(catalog: ModelCatalog, settings: Mapping[str, Any], budget: Mapping[str, Any] | None) -> None:
    """Raises :class:`ApiError` for one that nothing could hold."""
    check_budget(catalog, settings["model"], budget)
    if team_setting(settings)["enabled"] and "wall_seconds" in (budget or {}):
        raise unsupported_parameter("budget.wall_seconds", "The agents of a team work at the same time: limit 'usd' or tokens.")


def _payer(caller: Caller) -> Payer:
    return Payer(caller.key_id, caller.draws_on)


async def _as_object(runtime: Runtime, session: SessionRecord) -> AgentSession:
    standing = await stand(runtime.stores, session)
    actions = await actions_of(runtime.stores, standing)
    if standing.open_calls:
        answered = {call_id for each in await runtime.stores.agent_sessions.inputs(session) for call_id in each.results}
        actions = [action for action in actions if action.get("call_id") not in answered]
    budget = None if session.budget is None else await runtime.stores.budgets.standing(session.tenant_id, budget_scope(session))
    environment = await environment_object(runtime, session)
    return session_object(standing, environment, actions, used=None if budget is None else budget.used)
