"""``/approve/<token>``: what a person sees who got a link, and decides by it. The address bears its own key, and no other is asked for.

Looking decides nothing: programs that fetch the links of a message in advance do not press buttons. What would run is shown whole, with
everything in it that could hide something made visible.
"""

import html
from typing import Final
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from starlette.responses import Response

from moorage import limits
from moorage.api.bodies import read_body
from moorage.api.view import ResponseView
from moorage.approvals.link_store import ApprovalLinkRecord
from moorage.approvals.store import Approval, ApprovalDecision
from moorage.approvals.waiting import decide, find, question_of
from moorage.egress.policy import EgressOpening
from moorage.errors import ApiError, approval_link_not_valid, approval_not_needed, bad_request
from moorage.ids import response_of
from moorage.runtime import Runtime
from moorage.stores import Stores
from moorage.terminal import printable
from moorage.tools.approval_text import asked
from moorage.tools.mcp import network

PAGE: Final = "/approve/"

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_WHOLE: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><title>Approval</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: #eee; color: #000; padding: 1rem }}
input {{ width: 100%; box-sizing: border-box }} button, input {{ font: inherit; padding: .5rem 1rem; margin: .5rem .5rem .5rem 0 }}
:root {{ color-scheme: light dark }}</style></head>
<body><h1>{title}</h1>
<p>Response <code>{response_id}</code> {wants}:</p>
{calls}
{rest}</body></html>
"""
_FORM: Final = f"""\
<form method="post"><label>Reason, which the model reads if you deny
<input name="reason" maxlength="{limits.APPROVAL_REASON_CHARS_MAX}" autocomplete="off"></label>
<button name="decision" value="approve">Allow</button> <button name="decision" value="deny">Deny</button></form>
"""
_DECISIONS: Final = {"approve": True, "deny": False}


def add_approval_page(app: FastAPI) -> None:
    app.add_api_route(f"{PAGE}{{token}}", _look, methods=["GET", "HEAD"])
    app.add_api_route(f"{PAGE}{{token}}", _decide, methods=["POST"])


async def _look(request: Request, token: str) -> Response:
    runtime: Runtime = request.app.state.runtime
    link, response_id = await _opened(runtime, token)
    approval = await find(runtime.stores, link.tenant_id, response_id, link.approval_id)
    has_ended = (await runtime.stores.responses.snapshot(link.tenant_id, response_id)).is_final
    return await _page(runtime.stores, runtime.command, approval, refusal=approval_not_needed(approval.id).message if has_ended else "")


async def _decide(request: Request, token: str) -> Response:
    runtime: Runtime = request.app.state.runtime
    link, response_id = await _opened(runtime, token)
    said = parse_qs((await read_body(request, limits.APPROVAL_FORM_BYTES_MAX)).decode("utf-8", "replace"))
    words, reason = said.get("decision", []), " ".join(said.get("reason", [])).strip()
    if len(words) != 1 or words[0] not in _DECISIONS or len(reason) > limits.APPROVAL_REASON_CHARS_MAX:
        raise bad_request("Send 'decision' as 'approve' or 'deny', and a 'reason' of at most 4000 characters if you like.")
    decision = ApprovalDecision(_DECISIONS[words[0]], f"link of {link.key_id}", reason)
    try:
        approval = await decide(runtime.stores, runtime.clock, link.tenant_id, response_id, link.approval_id, decision)
    except ApiError as error:
        if error.status != 409:
            raise
        approval = await find(runtime.stores, link.tenant_id, response_id, link.approval_id)
        return await _page(runtime.stores, runtime.command, approval, refusal=error.message, status=error.status)
    return await _page(runtime.stores, runtime.command, approval)


async def _opened(runtime: Runtime, token: str) -> tuple[ApprovalLinkRecord, str]:
    """With the response that it is about. A link ends with the key that made it: a revoked key takes its links along."""
    link = runtime.approval_links.open(token, runtime.clock())
    response_id = None if link is None else response_of(link.approval_id)
    if link is None or response_id is None or not await runtime.identity.api_keys.is_known(link.key_id):
        raise approval_link_not_valid()
    return link, response_id


async def _page(stores: Stores, command: str, approval: Approval, *, refusal: str = "", status: int = 200) -> Response:
    step = await stores.steps.get(approval.tenant_id, approval.response_id, approval.step)
    call = ResponseView.of((), command).item(question_of(approval, {} if step is None else step.items))
    texts = [network.what(EgressOpening.of_key(approval.opens))] if approval.opens else asked(call)
    calls = "\n".join(f"<pre>{html.escape(printable(text))}</pre>" for text in texts)
    is_open = approval.is_waiting and not refusal
    question, wants = ("May it have this?", "wants") if approval.opens else ("May this run?", "wants to run")
    title = {"waiting": question, "approved": "This was allowed.", "denied": "This was denied."}[approval.status]
    rest = _FORM if is_open else f"<p>{html.escape(refusal or 'It has been decided, and nothing is left to do.')}</p>"
    whole = _WHOLE.format(title=title, response_id=approval.response_id, wants=wants, calls=calls, rest=rest)
    return Response(whole, status, _HEADERS, "text/html; charset=utf-8")
