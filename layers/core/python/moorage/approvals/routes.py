"""``/v1/approvals`` and ``/v1/responses/{id}/approvals``: calls that wait for a person's word, and the decisions.

Extensions of ours, in the envelope of OpenAI's lists.
"""

from collections.abc import Sequence
from typing import Annotated

from starlette.responses import Response

from moorage import limits
from moorage.api.answers import JsonResponse
from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.queries import AnyPage, query_of
from moorage.api.routing import Router
from moorage.api.view import ResponseView
from moorage.approvals.link_store import ApprovalLinkRecord
from moorage.approvals.page_routes import PAGE as APPROVAL_PAGE
from moorage.approvals.store import Approval, ApprovalDecision
from moorage.approvals.waiting import decide, find, question_of
from moorage.errors import approval_decided, link_needs_key
from moorage.parallel import side_by_side
from moorage.store.listing import part_of
from moorage.stores import Stores
from moorage.wire.answers import ListOf
from moorage.wire.create import ApprovalLink, Verdict
from moorage.wire.operator_answers import ApprovalLinkAnswer, ResponseApproval
from moorage.wire.queries import OldestFirstPage
from moorage.wire.responses import list_object

router = Router()


@router.get("/approvals", "listApprovals", "The calls that wait for a person's word, newest first")
async def list_waiting(caller: Caller, page: AnyPage) -> ListOf[ResponseApproval]:
    """The open approvals of all responses of the tenant."""
    found = await caller.runtime.stores.approvals.waiting(caller.tenant_id, page, caller.runtime.clock())
    return list_object(await _shown(caller.runtime.stores, caller.runtime.command, found.entries), has_more=found.has_more)


@router.get(
    "/responses/{response_id}/approvals",
    "listResponseApprovals",
    "The calls of a response that needed a person's word, oldest first",
)
async def list_of_response(
    caller: Caller, response_id: str, page: Annotated[OldestFirstPage, query_of(OldestFirstPage)]
) -> ListOf[ResponseApproval]:
    """All of a response, those that have been decided too."""
    runtime = caller.runtime
    snapshot = await runtime.stores.responses.snapshot(caller.tenant_id, response_id)
    found, has_more = part_of(await runtime.stores.approvals.of(caller.tenant_id, response_id), page, lambda approval: approval.id)
    return list_object(await _shown(runtime.stores, runtime.command, found, has_ended=snapshot.is_final), has_more=has_more)


@router.post(
    "/responses/{response_id}/approvals/{approval_id}",
    "decideApproval",
    "Allow a call, or deny it; the response goes on",
    answers=ResponseApproval,
)
async def decide_approval(
    caller: Caller, response_id: str, approval_id: str, verdict: Annotated[Verdict, body_of(Verdict)]
) -> Response:
    """The call runs, or its model is told that it may not, and why."""
    decision = ApprovalDecision(verdict["approve"], caller.key_id, verdict.get("reason", ""))
    approval = await decide(caller.runtime.stores, caller.runtime.clock, caller.tenant_id, response_id, approval_id, decision)
    (shown,) = await _shown(caller.runtime.stores, caller.runtime.command, [approval])
    return JsonResponse(shown)


@router.post(
    "/responses/{response_id}/approvals/{approval_id}/link",
    "linkApproval",
    "A link by which somebody without a key decides, until it expires",
)
async def link_approval(
    caller: Caller, response_id: str, approval_id: str, wanted: Annotated[ApprovalLink, body_of(ApprovalLink)]
) -> ApprovalLinkAnswer:
    """For a person without a key. Nothing is stored: the link has its decision sealed in it."""
    runtime = caller.runtime
    if caller.subject:
        raise link_needs_key()
    approval = await find(runtime.stores, caller.tenant_id, response_id, approval_id)
    if not approval.is_waiting:
        raise approval_decided(approval_id, approval.status)
    expires_at = int(runtime.clock()) + wanted.get("expires_in_seconds", limits.APPROVAL_LINK_SECONDS_DEFAULT)
    token = runtime.approval_links.seal(ApprovalLinkRecord(caller.tenant_id, approval_id, expires_at, caller.key_id))
    return {"object": "response.approval.link", "approval_id": approval_id, "path": f"{APPROVAL_PAGE}{token}", "expires_at": expires_at}


async def _shown(stores: Stores, command: str, approvals: Sequence[Approval], *, has_ended: bool = False) -> list[ResponseApproval]:
    """As clients see them, with the whole question: nobody decides on the beginning of a command."""

    async def one(approval: Approval) -> ResponseApproval:
        step = await stores.steps.get(approval.tenant_id, approval.response_id, approval.step)
        call = question_of(approval, {} if step is None else step.items)
        return {
            "id": approval.id,
            "object": "response.approval",
            "response_id": approval.response_id,
            "created_at": approval.created_at,
            "status": "withdrawn" if has_ended and approval.is_waiting else approval.status,
            "step": approval.step,
            "call": ResponseView.of((), command).item(call) if call else {},
            "expires_at": approval.due_at or None,
            "on_timeout": approval.on_timeout if approval.due_at else None,
            "decided_at": approval.decided_at or None,
            "decided_by": approval.decided_by or None,
            "reason": approval.reason or None,
        }

    return await side_by_side(one, approvals, at_once=limits.SWEEP_AT_ONCE)
