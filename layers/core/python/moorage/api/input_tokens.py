"""``POST /v1/responses/input_tokens``: how long a request's input would be, by the estimate of ``model/tokens.py``."""

from fastapi import APIRouter
from starlette.responses import Response

from moorage.api.answers import JsonResponse
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.inputs import admit_inputs, resolve_inputs
from moorage.loop.chain import chain_items
from moorage.loop.compact import check_readable, opener, visible
from moorage.loop.create import ancestors, resolve_references
from moorage.model.base import ModelRequest
from moorage.model.tokens import estimate_request, estimate_text
from moorage.runtime import Runtime
from moorage.tools.lowering import lower
from moorage.wire.choices import check_choice
from moorage.wire.requests import CountRequest, parse_input_tokens
from moorage.wire.responses import input_tokens_object

router = APIRouter()


@router.post("/responses/input_tokens")
async def count(caller: Caller, body: RawBody) -> Response:
    wanted = parse_input_tokens(body, web_search=caller.runtime.settings.web_search)
    return JsonResponse(input_tokens_object(await input_tokens(caller.runtime, caller.tenant_id, wanted)))


async def input_tokens(runtime: Runtime, tenant_id: str, wanted: CountRequest) -> int:
    """Of the prompt as the model of this request would get it, with everything that it refers to. Raises :class:`ApiError`."""
    entry = runtime.catalog.resolve(wanted.model)
    if wanted.conversation_id is not None:
        earlier = await runtime.conversations.load_items(tenant_id, wanted.conversation_id)
    else:
        earlier = chain_items(await ancestors(runtime, tenant_id, wanted.previous_response_id))
    items = await resolve_references(runtime, tenant_id, wanted.input_items, earlier)
    check_choice(wanted.tool_choice, wanted.tools, [*earlier, *items])
    native_tools = runtime.catalog.provider(entry, runtime.http).native_tools
    check_readable(runtime, tenant_id, items, native_tools)
    await admit_inputs(runtime, tenant_id, items)
    resolved = await resolve_inputs(runtime, tenant_id, visible([*earlier, *items]))
    lowered = lower(tuple(resolved), wanted.tools, wanted.tool_choice, native_tools, compaction_text=opener(runtime, tenant_id))
    prompt = ModelRequest(model=entry.upstream_model, items=lowered.items, instructions=wanted.instructions, tools=lowered.tools)
    schema = ((wanted.text or {}).get("format") or {}).get("schema")
    return estimate_request(prompt) + (0 if schema is None else estimate_text(str(schema)))
