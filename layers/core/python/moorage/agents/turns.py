"""Turns of an agent's session: how input becomes responses, one after the other.

A turn is one response, or several: after one that was steered, and after one that waits for functions of the client, the next goes on
from it. Each is an ordinary response in the background, which goes on from the last one of the session. Whether a turn is over can be
read from its last response alone, by whoever looks (:class:`Standing`).

:func:`advance` is the one place that begins responses of sessions. It is called for each input, and for each end of a response. What
it does hangs on one conditional write (``session_store.py``), so that it may run twice, or twice at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from moorage import ids, limits
from moorage.agents.session_start import make_anew
from moorage.agents.session_store import AgentSessions, ArtifactRecord, BegunResponse, SessionRecord, TurnRecord, WaitingInput
from moorage.agents.session_vaults import credentials_of, with_credentials, with_tokens
from moorage.agents.session_webhooks import tell_endpoints
from moorage.agents.settings import as_request
from moorage.approvals import waiting as approvals
from moorage.approvals.store import ApprovalDecision
from moorage.dataclass import dataclass
from moorage.errors import (
    ApiError,
    ContainerLost,
    approval_not_found,
    bad_request,
    passing_over_what_is_gone,
    rate_limited,
)
from moorage.errors.agents import agent_session_busy, unknown_tool_call
from moorage.files.store import Clock
from moorage.loop import decide
from moorage.loop.chain import chain_items
from moorage.loop.create import give_up, prepare, start, write_down
from moorage.loop.fold import fold
from moorage.loop.model_step import STEERED
from moorage.loop.notes import carried, reader
from moorage.loop.stop import erase, stop
from moorage.parallel import outweighs, side_by_side, worked
from moorage.runtime import Runtime
from moorage.store.budgets import Scope
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores
from moorage.telemetry import tell, tell_error
from moorage.webhooks.event_types import SESSION_ACTION_REQUIRED, SESSION_FAILED, SESSION_IDLE, SESSION_IN_PROGRESS
from moorage.wire.events import QUEUED
from moorage.wire.queries import PageQuery
from moorage.wire.requests import parse_create
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item

FUNCTION_CALL: Final = "function_call"
_RETRY_SECONDS: Final = 1
_PASSES: Final = "rate_limit_exceeded"
"""The code of what is refused for now; a budget that is used up is not."""
_BILLION: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Payer:
    """Whose key a response runs by, and the budgets that it draws on."""

    key_id: str
    draws_on: tuple[str, ...]

    @classmethod
    def of(cls, stored: StoredResponse) -> "Payer":
        """As of the response before; a budget of that response alone is not passed on."""
        own = str(Scope("tree", stored.response_id))
        return cls(stored.key_id, tuple(scope for scope in stored.draws_on if scope != own))

    def draws(self, session: SessionRecord) -> tuple[str, ...]:
        """The budgets that the next response of a session draws on: the session's own last, as far as it has one."""
        own = str(budget_scope(session))
        others = tuple(scope for scope in self.draws_on if scope != own)
        return others if session.budget is None else (*others, own)


def budget_scope(session: SessionRecord) -> Scope:
    """Whose budget the session's is."""
    return Scope("session", session.id)


@dataclass(frozen=True, slots=True)
class Standing:
    """A session as its records tell it at one moment."""

    session: SessionRecord
    turn: TurnRecord | None = None
    """The last one."""
    snapshot: Snapshot | None = None
    """Of that turn's current response; None if there is none, or none any more."""
    asked: tuple[str, ...] = ()
    """Ids of the approvals that agents of its team wait for: each of them stands still by itself."""

    @property
    def error(self) -> str:
        """Why the next response cannot begin; empty if it can."""
        return self.session.error if self.session.error_of == ("" if self.turn is None else self.turn.current) else ""

    @property
    def is_running(self) -> bool:
        return self.snapshot is not None and not self.snapshot.is_final

    @property
    def is_cancelled(self) -> bool:
        return self.turn is not None and (self.turn.cancelled_at > 0 or self._ended_as("cancelled"))

    @property
    def is_steered(self) -> bool:
        """Whether the current response has ended so that another one of its turn goes on."""
        if not self._ended_as("incomplete") or self.is_cancelled:
            return False
        assert self.snapshot is not None
        return (self.snapshot.final_object["incomplete_details"] or {}).get("reason") == STEERED

    @property
    def open_calls(self) -> list[Item]:
        """Calls of functions that the client has not answered."""
        if not self._ended_as("completed") or self.is_cancelled:
            return []
        assert self.snapshot is not None
        return calls_for_client(self.snapshot.final_object["output"])

    @property
    def is_over(self) -> bool:
        """Whether the last turn has ended; also if there is none."""
        return not (self.is_running or self.is_steered or self.open_calls)

    @property
    def awaits(self) -> tuple[str, ...]:
        """Ids of the approvals that it stands still for."""
        return self.snapshot.stored.awaits or self.asked if self.is_running and self.snapshot is not None else ()

    @property
    def is_queued(self) -> bool:
        return self.is_running and (
            self.snapshot is None or self.snapshot.last is None or self.snapshot.last.events[-1]["type"] == QUEUED
        )

    @property
    def used(self) -> TokenUsage:
        """By the current response, once it has ended."""
        usage = self.snapshot.final_object["usage"] if self.snapshot is not None and self.snapshot.is_final else None
        return TokenUsage() if usage is None else TokenUsage.from_json(usage)

    @property
    def cost(self) -> int | None:
        """Of the current response, once it has ended, in billionths of a dollar; None if that is not known."""
        if self.snapshot is None or not self.snapshot.is_final:
            return 0
        usage = self.snapshot.final_object["usage"]
        if usage is None:
            return 0
        return round(usage["cost"]["usd"] * _BILLION) if "cost" in usage else None

    def _ended_as(self, status: str) -> bool:
        return self.snapshot is not None and self.snapshot.is_final and self.snapshot.final_object["status"] == status


def calls_for_client(output: Sequence[Item]) -> list[Item]:
    return [item for item in output if item["type"] == FUNCTION_CALL and decide.is_for_client(item)]


def output_of(call_id: str, output: Any, *, is_failed: bool) -> Item:
    """What a model reads of a function's result; a call that failed has an output that is not whole."""
    return {
        "type": "function_call_output",
        "call_id": call_id,
        "output": output,
        "status": "incomplete" if is_failed else "completed",
    }


@dataclass(frozen=True, slots=True)
class Offer:
    """Input that is not stored yet."""

    messages: Sequence[Item] = ()
    results: Mapping[str, Item] = field(default_factory=dict)

    def marked(self, digest: str) -> "Offer":
        """With ids by which its items are known again (:func:`was_taken`)."""
        messages = [{**item, "id": ids.turn_item_mark(digest, at)} for at, item in enumerate(self.messages)]
        results = enumerate(self.results.items(), len(messages))
        return Offer(messages, {call_id: {**item, "id": ids.turn_item_mark(digest, at)} for at, (call_id, item) in results})


@dataclass(frozen=True, slots=True)
class _NextResponse:
    """What the next response of a session begins with."""

    messages: Sequence[Item]
    results: Mapping[str, Item]
    """Outputs of functions by ``call_id``, among them those for the calls of the response before."""
    is_same_turn: bool


async def stand(stores: Stores, session: SessionRecord) -> Standing:
    turn = await stores.agent_sessions.last_turn(session)
    return Standing(session) if turn is None else await standing_of(stores, session, turn)


async def standing_of(stores: Stores, session: SessionRecord, turn: TurnRecord) -> Standing:
    """A turn as it stands."""
    snapshot = await snapshot_of(stores, session.tenant_id, turn.current)
    if snapshot is None or snapshot.is_final or snapshot.stored.agent is None:
        return Standing(session, turn, snapshot)
    known = await stores.approvals.of(session.tenant_id, turn.current)
    return Standing(session, turn, snapshot, tuple(approval.id for approval in known if approval.is_waiting))


async def snapshot_of(stores: Stores, tenant_id: str, response_id: str) -> Snapshot | None:
    """None for a response that was deleted, or has expired."""
    try:
        return await stores.responses.snapshot(tenant_id, response_id)
    except ApiError:
        return None


async def advance(
    runtime: Runtime, session: SessionRecord, payer: Payer, *, offer: Offer | None = None, may_begin: bool = True
) -> None:
    """Let the session go on with what waits and what is offered: now, or when its response has ended.

    ``may_begin``: whether input that waits may begin a turn after one that was cancelled; who cancels does not ask for what he had
    asked for before. Raises :class:`ApiError`; nothing of the offer was taken then.
    """
    sessions = runtime.stores.agent_sessions
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        standing = await stand(runtime.stores, session)
        waiting = await sessions.inputs(session)
        if offer is not None:
            await check_pending(runtime.stores, standing, waiting, offer.results)
        following = _following(standing, waiting, offer or Offer(), may_begin=may_begin or not standing.is_cancelled)
        if following is not None:
            if await _begin(runtime, standing, following, waiting, payer):
                return
        elif offer is not None:
            if len(waiting) >= limits.AGENT_SESSION_INPUTS_MAX:
                raise rate_limited("Too much input waits for the next step of this session's turn. Retry later.", _RETRY_SECONDS)
            kept = await sessions.add_input(session, offer.messages, offer.results, behind=waiting[-1] if waiting else None)
            await _take_up(runtime, session, payer, kept, may_begin=may_begin)
            return
        else:
            if standing.is_running and any(each.messages for each in waiting):
                assert standing.snapshot is not None
                stored = standing.snapshot.stored
                if not stored.is_steered and stored.agent is None:  # A team is not broken off: its end begins the next turn.
                    await runtime.stores.responses.request_steering(stored)
            return
    raise rate_limited(f"Session '{session.id}' is given input faster than it can take it. Retry later.", _RETRY_SECONDS)


async def _take_up(runtime: Runtime, session: SessionRecord, payer: Payer, kept: str, *, may_begin: bool) -> None:
    """The response that input waits for takes it, or has ended meanwhile. Raises :class:`ApiError` for what passes, such as a full
    disk. The input is withdrawn then, unless it was taken. The session keeps the other errors, and the input."""
    turn = await runtime.stores.agent_sessions.last_turn(session)
    try:
        await advance(runtime, session, payer, may_begin=may_begin)
    except ApiError as error:
        if not passes(error):
            await note_error(runtime, session, error, "" if turn is None else turn.current)
        elif await runtime.stores.agent_sessions.drop_input(session, kept):
            raise


def passes(error: ApiError) -> bool:
    """Whether the same may succeed later; what a used-up budget refuses does not."""
    return error.code == _PASSES or error.status == HTTPStatus.CONFLICT or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


async def was_taken(stores: Stores, session: SessionRecord, offer: Offer, since: int) -> bool:
    """Whether a marked offer was taken, or waits, that was made at this time at the earliest (Unix seconds)."""
    marks = tuple(item["id"] for item in (*offer.messages, *offer.results.values()))
    if not marks:
        return False
    waiting = [item for each in await stores.agent_sessions.inputs(session) for item in (*each.messages, *each.results.values())]
    if any(item.get("id") in marks for item in waiting):
        return True
    beyond: int | None = None
    while turns := await stores.agent_sessions.turns(session, beyond=beyond, descending=True, limit=limits.AGENT_SESSION_TURNS_READ):
        for turn in turns:
            for response_id in reversed(turn.responses):
                snapshot = await snapshot_of(stores, session.tenant_id, response_id)
                given = [] if snapshot is None else snapshot.stored.own_input
                if any(item.get("id", "").endswith(marks) for item in given):
                    return True
        if turns[-1].created_at < since - limits.CLOCK_SKEW_SECONDS_MAX:
            return False  # Of the last few turns each was looked at: a clock that was set back makes some older than they are.
        beyond = turns[-1].number
    return False


async def note_error(runtime: Runtime, session: SessionRecord, error: ApiError, response_id: str) -> None:
    """Why a session cannot go on after a response, if nobody waits for an answer that says so."""
    tell_error(error, "a session cannot go on", session_id=session.id, tenant_id=session.tenant_id)
    await runtime.stores.agent_sessions.note_error(session, error.message, response_id)
    ended = await snapshot_of(runtime.stores, session.tenant_id, response_id)
    at_ms = session.created_at * 1000 if ended is None or ended.last is None else ended.last.at_ms
    about = f"{response_id} {error.message}"
    await tell_endpoints(runtime, session, SESSION_FAILED, about=about, at_ms=at_ms, response_id=response_id)


async def tell_end(runtime: Runtime, session: SessionRecord, response_id: str) -> None:
    """Tell the endpoints what the end of a response is to its session: that it rests, or that it waits for its client. Nothing if
    its turn has gone on. Harmless to run twice."""
    turns = await runtime.stores.agent_sessions.turns(session, descending=True, limit=2)
    turn = next((each for each in turns if each.current == response_id), None)
    if turn is None:
        return
    standing = await standing_of(runtime.stores, session, turn)
    if standing.snapshot is None or standing.snapshot.last is None:
        return
    at_ms = standing.snapshot.last.at_ms
    if standing.is_over:
        await tell_endpoints(runtime, session, SESSION_IDLE, about=turn.id, at_ms=at_ms, response_id=response_id)
    for call in standing.open_calls:
        data = {"required_action": {"type": FUNCTION_CALL}}
        await tell_endpoints(
            runtime,
            session,
            SESSION_ACTION_REQUIRED,
            about=f"{response_id} {call['call_id']}",
            at_ms=at_ms,
            response_id=response_id,
            data=data,
        )


def _following(standing: Standing, waiting: Sequence[WaitingInput], offer: Offer, *, may_begin: bool) -> _NextResponse | None:
    """What comes next; None while nothing can."""
    if standing.is_running:
        return None
    messages = _without_repeats([message for each in waiting for message in each.messages] + list(offer.messages))
    given = [*(each.results for each in waiting), offer.results]
    results = {call_id: result for each in given for call_id, result in each.items()}
    if standing.open_calls:
        is_answered = all(call["call_id"] in results for call in standing.open_calls)
        return _NextResponse(messages, results, is_same_turn=True) if is_answered else None
    if standing.is_steered:
        return _NextResponse(messages, results, is_same_turn=True)
    return _NextResponse(messages, results, is_same_turn=False) if messages and may_begin else None


def _without_repeats(messages: Sequence[Item]) -> list[Item]:
    """One of each mark: a process that was thought dead may have written too."""
    first = {message["id"]: message for message in reversed(messages) if "id" in message}
    return [message for message in messages if "id" not in message or first[message["id"]] is message]


def answers_of(previous: Snapshot | None, results: Mapping[str, Item]) -> list[Item]:
    """Outputs for the calls of the response that the next one goes on from: no model takes a call without one, also where the turn has
    ended before it had any."""
    calls = [] if previous is None else calls_for_client(previous.final_object["output"])
    unanswered = "The turn ended before this call was answered."
    return [results.get(call["call_id"]) or output_of(call["call_id"], unanswered, is_failed=True) for call in calls]


async def _previous(stores: Stores, standing: Standing) -> Snapshot | None:
    """The last response of the session that is still kept: one may have been deleted."""
    sessions, session = stores.agent_sessions, standing.session
    if standing.snapshot is not None:
        return standing.snapshot
    if standing.turn is None:
        return await snapshot_of(stores, session.tenant_id, session.begins_with) if session.begins_with else None
    earlier = await sessions.turns(session, beyond=standing.turn.number, descending=True, limit=limits.AGENT_SESSION_TURNS_READ)
    for turn in [standing.turn, *earlier]:
        for response_id in reversed(turn.responses):
            snapshot = await snapshot_of(stores, session.tenant_id, response_id)
            if snapshot is not None and snapshot.is_final:
                return snapshot
    return None


async def _begin(runtime: Runtime, standing: Standing, following: _NextResponse, waiting: Sequence[WaitingInput], payer: Payer) -> bool:
    """Begin the next response, unless somebody else has."""
    session, sessions = standing.session, runtime.stores.agent_sessions
    is_reset = False
    try:
        stored = await _written_down(runtime, standing, following, payer)
    except ApiError as error:
        if not isinstance(error, ContainerLost) or error.container_id != session.container_id:
            raise
        session, is_reset = await make_anew(runtime, session), True
        standing = replace(standing, session=session)
        stored = await _written_down(runtime, standing, following, payer)
    try:
        begun = await _recorded(sessions, standing, following, stored, waiting, is_reset=is_reset)
    except ApiError:
        await give_up(runtime, stored)
        raise
    if begun is None:
        await give_up(runtime, stored)
        return False
    await start(runtime.stores, stored)
    if begun.count == 1 or standing.open_calls:
        await tell_endpoints(
            runtime,
            session,
            SESSION_IN_PROGRESS,
            about=stored.response_id,
            at_ms=stored.created_at * 1000,
            response_id=stored.response_id,
        )
    tell("turn_goes_on", {"session_id": session.id, "turn_id": begun.id, "response_id": stored.response_id})
    return True


async def _recorded(
    sessions: AgentSessions,
    standing: Standing,
    following: _NextResponse,
    stored: StoredResponse,
    waiting: Sequence[WaitingInput],
    *,
    is_reset: bool,
) -> TurnRecord | None:
    """The response becomes its turn's; None if another one has. Raises :class:`ApiError` if the session was deleted meanwhile."""
    session, turn = standing.session, standing.turn
    begun = BegunResponse(stored.response_id, _root_of(session, turn, stored), stored.expires_at)
    if turn is not None and following.is_same_turn:
        used, cost = standing.used, standing.cost
        return await sessions.go_on(session, turn, begun, used, waiting, cost=cost, is_reset=is_reset)
    number, earlier = (1, TokenUsage()) if turn is None else (turn.number + 1, turn.earlier + turn.used + standing.used)
    return await sessions.begin_turn(session, number, begun, earlier, waiting, is_reset=is_reset)


async def _written_down(runtime: Runtime, standing: Standing, following: _NextResponse, payer: Payer) -> StoredResponse:
    """A response that nothing runs yet. Until it belongs to a turn it is nobody's: the reaper gives it up (``is_wanted``)."""
    session, previous = standing.session, await _previous(runtime.stores, standing)
    if following.is_same_turn and standing.turn is not None and standing.turn.count >= limits.AGENT_TURN_RESPONSES_MAX:
        raise bad_request(f"A turn has at most {limits.AGENT_TURN_RESPONSES_MAX} responses. Cancel it, and begin another one.")
    number = 0 if standing.turn is None else standing.turn.number
    items = [
        {**item, "id": ids.new_turn_item_id(prefix, number if following.is_same_turn else number + 1, item.get("id"))}
        for prefix, given in (("fco", answers_of(previous, following.results)), ("msg", following.messages))
        for item in given
    ]
    asked = as_request(session.settings) | {"input": items, "background": True, "approvals": {"park": True}}
    past: list[Item] | None = None
    if previous is not None:
        asked["previous_response_id"] = previous.stored.response_id
        past = await _owned_past(runtime, session, standing.turn, previous, items)
    credentials = await credentials_of(runtime.stores, session.tenant_id, session.settings, session.vault_ids)
    asked["tools"] = await with_tokens(runtime, credentials, asked["tools"])
    asked["tools"] = in_environment(session, asked["tools"])
    parse = partial(parse_create, asked, web_search=runtime.models.web_search)
    request = await worked(parse) if outweighs(items, limits.LOWERED_HERE_MAX) else parse()
    prepared = await prepare(
        runtime,
        session.tenant_id,
        replace(request, tools=with_credentials(credentials, request.tools)),
        recent=past,
        key_id=payer.key_id,
        draws_on=payer.draws(session),
        follows=None if standing.turn is None else standing.turn.current,
        session_id=session.id,
    )
    await write_down(runtime.stores, prepared.stored)
    return prepared.stored


def in_environment(session: SessionRecord, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """An agent's tools with what its session's environment brings; those that need a container have that one."""
    if session.container_id is None:
        return [dict(tool) for tool in tools]
    place = {"type": "container_reference", "container_id": session.container_id}
    own = [{**tool, "container": place} if "container" in tool else dict(tool) for tool in tools]
    return [*own, {"type": "shell", "environment": place}]


async def is_wanted(stores: Stores, stored: StoredResponse) -> bool:
    """Whether a response belongs to a turn of its session: not if the process died that had written it down."""
    assert stored.session_id is not None
    try:
        session = await stores.agent_sessions.get(stored.tenant_id, stored.session_id)
    except ApiError:
        return False
    turn = await stores.agent_sessions.last_turn(session)
    return turn is not None and stored.response_id in turn.responses


# --- What clients ask for -----------------------------------------------------------------------------------------------


def check_results(standing: Standing, results: Sequence[Mapping[str, Any]]) -> None:
    """Raises :class:`ApiError` for results that are not of the session's turn."""
    turn = standing.turn
    for result in results:
        if turn is None or not _is_of(result["turn_id"], turn):
            raise unknown_tool_call(result["call_id"])
    call_ids = [result["call_id"] for result in results]
    if len(set(call_ids)) < len(call_ids):
        raise bad_request("A call has one result: two of these are for the same.", param="events")


def _is_of(turn_id: str, turn: TurnRecord) -> bool:
    """Whether the turn is meant, or one of its subagents': the call says which."""
    return turn_id == turn.id or ids.turn_number(turn_id) == turn.number


async def check_pending(stores: Stores, standing: Standing, waiting: Sequence[WaitingInput], results: Mapping[str, Item]) -> None:
    """Raises :class:`ApiError` for the result of a call that nobody waits for, or that has one."""
    if not results:
        return
    answered = {call_id for each in waiting for call_id in each.results}
    calls = {call["call_id"] for call in await pending_calls(stores, standing)} - answered
    for call_id in results:
        if call_id not in calls:
            raise unknown_tool_call(call_id)


async def pending_calls(stores: Stores, standing: Standing) -> list[Item]:
    """The calls that the client may answer: also of a response that still runs its other calls."""
    if not standing.is_running:
        return standing.open_calls
    assert standing.snapshot is not None
    folded = fold(await stores.responses.log_of(standing.snapshot.stored).read_all())
    return calls_for_client([folded.items[index] for index in sorted(folded.done)])


async def cancel(runtime: Runtime, session: SessionRecord) -> None:
    """End the turn that has not ended. Raises :class:`ApiError` if there is none."""
    if not await _end_turn(runtime, session):
        raise bad_request("No turn of this session is active: there is nothing to cancel.", code="no_active_turn")


async def _end_turn(runtime: Runtime, session: SessionRecord) -> bool:
    """End the last turn, whatever its response does meanwhile; False if it had ended."""
    was_active = False
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        standing = await stand(runtime.stores, session)
        if standing.is_over:
            return was_active
        was_active = True
        assert standing.turn is not None
        assert standing.snapshot is not None
        if standing.is_running:
            await stop(runtime, standing.snapshot)
        elif await runtime.stores.agent_sessions.cancel(session, standing.turn):
            await tell_end(runtime, session, standing.turn.current)
    raise rate_limited(f"Session '{session.id}' goes on faster than it can be cancelled. Retry later.", _RETRY_SECONDS)


async def check_approvals(stores: Stores, session: SessionRecord, decisions: Sequence[Mapping[str, Any]]) -> None:
    """Raises :class:`ApiError` if one of these is about no question of the session, or contradicts another one."""
    request_ids = [event["request_id"] for event in decisions]
    if len(set(request_ids)) < len(request_ids):
        raise bad_request("A request has one decision: two of these are for the same.", param="events")
    for event, request_id in zip(decisions, request_ids, strict=True):
        response_id = ids.response_of(request_id) or ""
        asking = await snapshot_of(stores, session.tenant_id, response_id)
        if asking is None or asking.stored.session_id != session.id:
            raise approval_not_found(request_id)
        known = await approvals.find(stores, session.tenant_id, response_id, request_id)
        approvals.check(known, _decision(event["response"]["decision"], ""), may_decide=not asking.is_final)


async def answer_approval(stores: Stores, clock: Clock, session: SessionRecord, request_id: str, decision: str, by: str) -> None:
    """``cancel`` dismisses the question: the call does not run. Raises :class:`ApiError`."""
    response_id = ids.response_of(request_id) or ""
    await approvals.decide(stores, clock, session.tenant_id, response_id, request_id, _decision(decision, by))


def _decision(said: str, by: str) -> ApprovalDecision:
    return ApprovalDecision(said == "approve", by, "" if said != "cancel" else "The request was dismissed.")


async def delete(runtime: Runtime, session: SessionRecord, *, force: bool) -> None:
    """Delete it with its turns and their responses, and with its container. Raises :class:`ApiError` for one that is busy, unless it is
    forced. What breaks off can be repeated."""
    stores = runtime.stores
    if not force and not (await stand(stores, session)).is_over:
        raise agent_session_busy(session.id)
    await stores.agent_sessions.mark_deleted(session)
    session = await stores.agent_sessions.get(session.tenant_id, session.id, even_deleted=True)  # It may have been reset meanwhile.
    await _end_turn(runtime, session)

    async def one(response_id: str) -> None:
        snapshot = await snapshot_of(stores, session.tenant_id, response_id)
        if snapshot is not None:
            await erase(stores, snapshot.stored)

    response_ids = [each for turn in await stores.agent_sessions.turns(session) for each in turn.responses]
    response_ids += [session.begins_with] if session.begins_with else []
    await side_by_side(one, response_ids, at_once=limits.SWEEP_AT_ONCE)
    container_id = session.container_id if session.owns_container else None
    if container_id is not None and await runtime.computers.containers.peek(session.tenant_id, container_id) is not None:
        await runtime.computers.containers.delete(session.tenant_id, container_id)
    await _delete_artifacts(stores, session)
    if session.budget is not None:
        await stores.budgets.remove(session.tenant_id, budget_scope(session))
    await stores.agent_sessions.delete(session)


async def _delete_artifacts(stores: Stores, session: SessionRecord) -> None:
    page = PageQuery(limit=limits.PAGE_ITEMS_MAX, order="asc")
    has_more = True
    while has_more:
        artifacts, has_more = await stores.agent_sessions.artifacts(session, page, None)
        for artifact in artifacts:
            await delete_artifact(stores, session, artifact)


async def delete_artifact(stores: Stores, session: SessionRecord, artifact: ArtifactRecord) -> None:
    """The file first, so that a deletion that breaks off can be repeated."""
    with passing_over_what_is_gone():
        await stores.files.delete(session.tenant_id, artifact.file_id)
    await stores.agent_sessions.forget_artifact(session, artifact)


async def _owned_past(
    runtime: Runtime, session: SessionRecord, turn: TurnRecord | None, previous: Snapshot, then: Sequence[Item]
) -> list[Item] | None:
    """What was said, for a response that has it as input of its own, as a fork has. None for one that goes on from ``previous``.

    Before a chain grows long, or its oldest response expires, a response has its past itself. So a session is bounded neither by the
    length of a chain nor by the retention of its responses, and their records stay small. ``then`` is what the response brings. What a
    compaction has replaced is left out: no model would see it. Raises :class:`~moorage.errors.ApiError`.
    """
    age = runtime.clock() - _rooted_at(session, turn)
    is_young = age < runtime.settings.retention_seconds * limits.AGENT_SESSION_CHAIN_SHARE
    if is_young and len(previous.stored.ancestors) + 1 < limits.AGENT_SESSION_CHAIN_MAX:
        return None
    chain = await runtime.stores.responses.chain(session.tenant_id, previous.stored.response_id)
    return carried(chain_items(chain.parts, then=then), reader(runtime.stores, session.tenant_id))


def _root_of(session: SessionRecord, turn: TurnRecord | None, stored: StoredResponse) -> int:
    """When the chain of a session's next response began (Unix seconds)."""
    return _rooted_at(session, turn) if stored.ancestors else stored.created_at


def _rooted_at(session: SessionRecord, turn: TurnRecord | None) -> int:
    return session.created_at if turn is None or not turn.rooted_at else turn.rooted_at
