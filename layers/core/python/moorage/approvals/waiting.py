"""Calls that wait for a person's word.

A response in the background stands still for them in place: as a record, without an execution, for a minute or a month. A decision lets
it go on. Of the calls of a round those that need no word run first; then each decision sends its own call round. The tool step looks
for the word once more (``tool_step.py``): nothing runs that nobody allowed, whoever sends it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from moorage import ids, limits
from moorage.approvals.store import Approval, ApprovalDecision
from moorage.egress.policy import EgressOpening
from moorage.errors import Superseded, approval_decided, approval_not_found, approval_not_needed, bad_request, invalid_length
from moorage.files.store import Clock
from moorage.loop import finish, paused
from moorage.loop.lanes import seen_as
from moorage.runtime import Runtime
from moorage.state import PendingCall
from moorage.store import keys
from moorage.store.audit import AuditKind
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores
from moorage.telemetry import tell
from moorage.tools.calls import CallApproval
from moorage.tools.capabilities import HasApprovalItems
from moorage.tools.mcp import network
from moorage.tools.registry import ROOMS
from moorage.webhooks import delivery as webhooks
from moorage.webhooks.event_types import APPROVAL_REQUESTED, SESSION_ACTION_REQUIRED
from moorage.webhooks.store import WebhookEvent
from moorage.wire.requests import CreateRequest
from moorage.wire.types import Item

_HAS_A_SAY: Final = frozenset(
    {"previous_response_id", "conversation", "input", "model", "stream", "stream_options", "background", "include"}
)
"""Parameters of such a request that say something: where the decision goes, and how it is answered."""
BY_TIMEOUT: Final = "timeout"
BY_INTERRUPT: Final = "interrupt"
"""Who has decided where nobody did."""


async def admitted(runtime: Runtime, stored: StoredResponse, step: int, calls: Sequence[PendingCall]) -> tuple[str, ...]:
    """Ids of those of a round's calls that may be sent round; none if all wait for a person, and the response stands still from now on.

    Harmless to run twice: approvals are asked for once, and whoever comes second finds it standing still.
    """
    if not any(call.approval for call in calls):
        return tuple(call.call_id for call in calls)
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        waiting = await _waiting(runtime.stores, runtime.clock, stored, step, [call for call in calls if call.approval])
        await announce(runtime, stored, waiting)
        ready = tuple(call.call_id for call in calls if call.approval not in {approval.id for approval in waiting})
        if ready or await stand_still(runtime.stores, runtime.clock, stored, waiting):
            return ready
        stored = await seen_as(runtime.stores, await runtime.stores.responses.load(stored.tenant_id, stored.response_id), stored.lane)
    raise Superseded(f"the approvals of {stored.response_id} are decided faster than they are read")


async def _waiting(stores: Stores, clock: Clock, stored: StoredResponse, step: int, held: Sequence[PendingCall]) -> list[Approval]:
    """The undecided approvals of the calls; a missing question is asked now."""
    known = await stores.approvals.those(stored, [call.approval for call in held])
    missing = [_approval(clock, stored, step, call) for call in held if call.approval not in known]
    if missing:
        await stores.approvals.ask(stored, missing)
    return [approval for approval in (*known.values(), *missing) if approval.is_waiting]


async def announce(runtime: Runtime, stored: StoredResponse, waiting: Sequence[Approval]) -> None:
    """Tell the endpoints that ask for it. Called before the response stands still for these: a process that dies in between leaves it
    to the next run of the step. Harmless to run twice."""
    if not waiting:
        return
    endpoints = await runtime.stores.webhooks.endpoints(stored.tenant_id)
    for approval in (
        waiting if any({APPROVAL_REQUESTED, SESSION_ACTION_REQUIRED}.intersection(each.event_types) for each in endpoints) else ()
    ):
        event = WebhookEvent(
            ids.approval_event_id(approval.id, approval.created_at),
            APPROVAL_REQUESTED,
            stored.response_id,
            approval.created_at,
            {"id": approval.id, "response_id": stored.response_id},
        )
        await webhooks.tell_endpoints(runtime, endpoints, event)
        if stored.session_id is not None:
            await webhooks.tell_endpoints(runtime, endpoints, _of_session(event, stored.session_id))


def _of_session(event: WebhookEvent, session_id: str) -> WebhookEvent:
    """The same, as a session of an agent says it."""
    asked = {"id": session_id, "required_action": {"type": "mcp_approval_request"}}
    return replace(event, id=f"{event.id[:-1]}s", type=SESSION_ACTION_REQUIRED, data=asked, session_id=session_id)


def _approval(clock: Callable[[], float], stored: StoredResponse, step: int, call: PendingCall) -> Approval:
    return approval_of(clock, stored, step, call.approval, call_id=call.call_id, call_index=call.call_index, call_type=call.type)


def approval_of(clock: Callable[[], float], stored: StoredResponse, step: int, approval_id: str, **about: Any) -> Approval:
    """An undecided one, with the request's words about its time."""
    asked = stored.parameters.approvals or {}
    now = int(clock())
    return Approval(
        id=approval_id,
        response_id=stored.response_id,
        tenant_id=stored.tenant_id,
        created_at=now,
        step=step,
        **about,
        due_at=now + asked["timeout_seconds"] if "timeout_seconds" in asked else 0,
        on_timeout=asked.get("on_timeout", "deny"),
    )


async def stand_still(stores: Stores, clock: Clock, stored: StoredResponse, waiting: Sequence[Approval]) -> bool:
    """The response waits for these from now on; False if one was decided since it was read."""
    due = [approval.due_at for approval in waiting if approval.due_at]
    if stored.agent is not None:
        return await paused.hold(stores, clock, stored, reason(waiting), due_at=min(due, default=0))
    return await stores.responses.park_for(stored, [approval.id for approval in waiting], reason(waiting), due_at=min(due, default=0))


def reason(waiting: Sequence[Approval]) -> str:
    """The view of clients and operators."""
    named = ", ".join(approval.id for approval in waiting)
    return f"It waits for approval {named}: POST /v1/responses/{{id}}/approvals/{{approval_id}}, or 'moorage approvals', decides."


async def find(stores: Stores, tenant_id: str, response_id: str, approval_id: str) -> Approval:
    """Raises an :class:`~moorage.errors.ApiError` for an unknown or foreign one, and for one that is gone with its response."""
    await stores.responses.load(tenant_id, response_id)
    approval = await stores.approvals.get(tenant_id, response_id, approval_id)
    if approval is None:
        raise approval_not_found(approval_id)
    return approval


async def decide(
    stores: Stores, clock: Clock, tenant_id: str, response_id: str, approval_id: str, decision: ApprovalDecision
) -> Approval:
    """Note a decision and let the response go on. The same decision again is answered alike, and makes up for one whose process died
    before the response went on. Raises an :class:`~moorage.errors.ApiError` for another one, and for what nobody waits for."""
    snapshot = await stores.responses.snapshot(tenant_id, response_id)
    approval = await stores.approvals.get(tenant_id, response_id, approval_id)
    if approval is None:
        raise approval_not_found(approval_id)
    if approval.is_waiting and not snapshot.is_final:
        approval = await _decided(stores, clock, approval, decision)
    check(approval, decision, may_decide=False)
    if not snapshot.is_final:
        await paused.wake(stores, clock, await stores.responses.load(tenant_id, response_id))
    return approval


def check(approval: Approval, decision: ApprovalDecision, *, may_decide: bool) -> None:
    """Raises an :class:`~moorage.errors.ApiError` for a decision that another one contradicts, and for one that can decide nothing any
    more."""
    if approval.is_waiting and not may_decide:
        raise approval_not_needed(approval.id)
    if not approval.is_waiting and approval.status != decision.status:
        raise approval_decided(approval.id, approval.status)


async def _decided(stores: Stores, clock: Clock, approval: Approval, decision: ApprovalDecision) -> Approval:
    standing_now = await stores.approvals.decide(approval, decision, int(clock()))
    tell(
        "approval",
        {
            "response_id": approval.response_id,
            "tenant_id": approval.tenant_id,
            "approval_id": approval.id,
            "call_type": approval.call_type,
            "status": standing_now.status,
            "waited_seconds": int(clock()) - approval.created_at,
        },
    )
    if standing_now.decided_by == decision.by:  # else somebody was faster
        await _note(stores, approval, standing_now.status, decision.by)
    return standing_now


async def _note(stores: Stores, approval: Approval, status: str, by: str) -> None:
    answered = {"approval_id": approval.id, "response_id": approval.response_id, "status": status}
    await stores.audit.note(AuditKind.APPROVAL_ANSWERED, answered, who=by, tenant_id=approval.tenant_id)


def question_of(approval: Approval, items: Mapping[int, Item]) -> Item:
    """The subject of a question to a person: the call, among its step's items, or a way out of the container."""
    if approval.opens:
        return network.question(EgressOpening.of_key(approval.opens))
    return items.get(approval.call_index, {})


def denial_of(approval: Approval) -> str | None:
    """The model's text for a call that does not run; None if it may."""
    if approval.status != "denied":
        return None
    return approval.reason if approval.decided_by == BY_TIMEOUT or not approval.reason else f"They say: {approval.reason}"


async def tend(runtime: Runtime, stored: StoredResponse) -> bool:
    """See to a response that stands still: a decision whose process died before it went on, and approvals that nobody waits for any
    more. Called once a minute; True if it goes on. Harmless to run twice."""
    stores = runtime.stores
    if await paused.wake(stores, runtime.clock, stored):
        return True
    due_at = await _due_at(stores, stored)
    if not due_at or runtime.clock() < due_at:
        return False
    over = [
        approval for approval in await stores.approvals.of(stored.tenant_id, stored.response_id) if _is_over(runtime.clock, approval)
    ]
    if any(approval.on_timeout == "cancel" for approval in over):
        await finish.end_from_outside(runtime, stored, status="cancelled")
        for approval in over:
            await _note(stores, approval, "cancelled", BY_TIMEOUT)
        return False
    await _deny(stores, runtime.clock, over)
    return await paused.wake(stores, runtime.clock, await stores.responses.load(stored.tenant_id, stored.response_id))


async def _due_at(stores: Stores, stored: StoredResponse) -> int:
    """When the first of its approvals is waited for no longer; 0 for never."""
    if stored.agent is None:
        return stored.approvals_due_at
    held = [lane.due_at_ms // 1000 for lane in await stores.lanes.all(stored) if lane.status == "held" and lane.due_at_ms]
    return min(held, default=0)


async def withdraw(stores: Stores, clock: Clock, stored: StoredResponse, lane: int) -> None:
    """Nobody decides any more about the calls of an agent of a team that is interrupted: none of them runs."""
    for approval in await stores.approvals.of(stored.tenant_id, stored.response_id):
        if approval.is_waiting and not approval.opens and keys.lane_of(approval.step) == lane:
            await _decided(stores, clock, approval, ApprovalDecision(False, BY_INTERRUPT, "The agent was interrupted."))


def _is_over(clock: Callable[[], float], approval: Approval) -> bool:
    return approval.is_waiting and 0 < approval.due_at <= clock()


async def _deny(stores: Stores, clock: Clock, over: Iterable[Approval]) -> None:
    for approval in over:
        said = f"Nobody decided within {approval.due_at - approval.created_at} seconds."
        await _decided(stores, clock, approval, ApprovalDecision(False, BY_TIMEOUT, said))


async def decide_by_request(stores: Stores, clock: Clock, tenant_id: str, key_id: str, wanted: CreateRequest) -> Snapshot | None:
    """Make the decisions of a request that brings nothing else. Returns the response that they are about, or None for another request.

    Clients answer a question so in OpenAI's form, with ``previous_response_id`` (or the conversation) of the response that asked. No
    other response is begun: the one that waited goes on as it was begun. Raises :class:`~moorage.errors.ApiError`. Nothing is decided
    then, unless somebody else decides in the same moment.
    """
    verdicts = _verdicts(wanted)
    if not verdicts:
        return None
    response_id = ids.response_of(next(iter(verdicts)))
    if response_id is None or not await _is_meant(stores, tenant_id, wanted, response_id):
        return None
    if len(verdicts) < len(wanted.input_items):
        raise bad_request(
            "An approval that a running response waits for is answered by a request of its own: send no other items beside it, and "
            "each answer once.",
            param="input",
        )
    await _check_verdicts(stores, tenant_id, wanted, response_id, verdicts)
    for verdict in verdicts.values():
        decision = ApprovalDecision(verdict.approve, key_id, verdict.reason)
        await decide(stores, clock, tenant_id, response_id, verdict.approval_id, decision)
    return await stores.responses.snapshot(tenant_id, response_id)


def _verdicts(wanted: CreateRequest) -> dict[str, CallApproval]:
    """The request's decisions on calls that wait in their place, by the ids of their approvals."""
    found: dict[str, CallApproval] = {}
    for item in wanted.input_items:
        room = ROOMS.of_item(item["type"])
        verdict = room.approval_decision(item) if isinstance(room, HasApprovalItems) else None
        if verdict is not None and ids.is_approval(verdict.approval_id):
            found[verdict.approval_id] = verdict
    return found


async def _is_meant(stores: Stores, tenant_id: str, wanted: CreateRequest, response_id: str) -> bool:
    """Whether the request goes on from the response of its approval."""
    if wanted.previous_response_id is not None:
        return wanted.previous_response_id == response_id
    if wanted.conversation_id is None:
        return False
    stored = await stores.responses.load(tenant_id, response_id)
    return stored.conversation_id == wanted.conversation_id


async def _check_verdicts(
    stores: Stores, tenant_id: str, wanted: CreateRequest, response_id: str, verdicts: dict[str, CallApproval]
) -> None:
    stored = await stores.responses.load(tenant_id, response_id)
    if wanted.model != stored.parameters.model:
        raise bad_request(
            f"The response goes on as it was begun, with the model '{stored.parameters.model}': name that one.",
            param="model",
        )
    for index, verdict in enumerate(verdicts.values()):
        param, most = f"input[{index}]", limits.APPROVAL_REASON_CHARS_MAX
        if len(verdict.reason) > most:
            raise invalid_length(f"{param}.reason", "string", len(verdict.reason), 0, most)
        if ids.response_of(verdict.approval_id) != response_id:
            raise bad_request("One request answers approvals of one response.", param=f"{param}.approval_request_id")
        approval = await find(stores, tenant_id, response_id, verdict.approval_id)
        if not approval.is_waiting and (approval.status == "approved") != verdict.approve:
            raise approval_decided(approval.id, approval.status)


def notice(body: bytes) -> str:
    """The ignored parts of the request, for the ``x-moorage-notice`` header; empty if there are none."""
    given = sorted(name for name, value in orjson.loads(body).items() if value is not None and name not in _HAS_A_SAY)
    named = ", ".join(f"'{name}'" for name in given)
    return f"The response goes on as it was begun; this request changes nothing of it by {named}." if given else ""
