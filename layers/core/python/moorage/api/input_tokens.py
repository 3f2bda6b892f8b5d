"""``POST /v1/responses/input_tokens``: how long a request's input would be, by the estimate of ``model/tokens.py``."""

from moorage import limits
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.routing import Router
from moorage.loop.notes import model_view, reader
from moorage.loop.prepare import check_tools, conceal, gather
from moorage.model.base import ModelRequest
from moorage.model.tokens import estimate_request, estimate_text
from moorage.parallel import beside, outweighs, worked
from moorage.runtime import Runtime
from moorage.tools.lowering import lower
from moorage.wire.answers import InputTokens
from moorage.wire.create import COUNT
from moorage.wire.requests import CountRequest, parse_input_tokens
from moorage.wire.responses import input_tokens_object

router = Router()


@router.post(
    "/responses/input_tokens",
    "countInputTokens",
    "How long a prompt would be, by estimate",
    body=("CountInputTokens", COUNT),
    statuses=(404,),
)
async def count(caller: Caller, body: RawBody) -> InputTokens:
    wanted = await beside(len(body), lambda: parse_input_tokens(body, web_search=caller.runtime.models.web_search))
    return input_tokens_object(await input_tokens(caller.runtime, caller.tenant_id, wanted))


async def input_tokens(runtime: Runtime, tenant_id: str, wanted: CountRequest) -> int:
    """Of the prompt as the model of this request would get it, with everything that it refers to. Raises :class:`ApiError`, as a
    response of this request would."""
    conceal(runtime, tenant_id, wanted.tools)
    said = await gather(
        runtime,
        tenant_id,
        model=wanted.model,
        input_items=wanted.input_items,
        previous_response_id=wanted.previous_response_id,
        conversation_id=wanted.conversation_id,
        tools=wanted.tools,
        tool_choice=wanted.tool_choice,
    )
    await check_tools(runtime, tenant_id, said, wanted.tools)
    shown = await runtime.stores.contents_of(tenant_id).pictured(await model_view(said.items, reader(runtime.stores, tenant_id)))
    async with runtime.attachments(tenant_id, said.entry) as attachments:
        resolved = await runtime.inputs.resolve(tenant_id, shown, attachments=attachments)

    def counted() -> int:
        lowered = lower(
            tuple(resolved),
            wanted.tools,
            wanted.tool_choice,
            said.native_tools,
            programs=runtime.settings.sandbox_programs,
            view=said.entry.view,
        )
        model = said.entry.upstream_model
        prompt = ModelRequest(model=model, items=lowered.items, instructions=wanted.instructions, tools=lowered.tools)
        schema = ((wanted.text or {}).get("format") or {}).get("schema")
        return estimate_request(prompt) + (0 if schema is None else estimate_text(str(schema)))

    is_long = outweighs([*resolved, *wanted.tools, wanted.text], limits.LOWERED_HERE_MAX)
    return await worked(counted) if is_long else counted()
