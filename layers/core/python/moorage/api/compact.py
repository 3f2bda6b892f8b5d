"""``POST /v1/responses/compact``: a shorter input to go on with."""

from fastapi import APIRouter
from starlette.responses import Response

from moorage.api.answers import JsonResponse
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.foreground import failure
from moorage.errors import UpstreamError
from moorage.inputs import admit_inputs
from moorage.loop import context
from moorage.loop.chain import chain_items
from moorage.loop.compact import check_readable, compact
from moorage.loop.create import ancestors, resolve_references
from moorage.wire.requests import parse_compact
from moorage.wire.responses import compaction_object

router = APIRouter()


@router.post("/responses/compact")
async def create(caller: Caller, body: RawBody) -> Response:
    runtime, tenant_id = caller.runtime, caller.tenant_id
    wanted = parse_compact(body)
    entry = runtime.catalog.resolve(wanted.model)
    earlier = chain_items(await ancestors(runtime, tenant_id, wanted.previous_response_id))
    items = [*earlier, *await resolve_references(runtime, tenant_id, wanted.input_items, earlier)]
    context.check_calls(items)
    check_readable(runtime, tenant_id, items, runtime.catalog.provider(entry, runtime.http).native_tools)
    await admit_inputs(runtime, tenant_id, items)
    try:
        response_id, output, usage = await compact(runtime, tenant_id, wanted.model, items, wanted.instructions)
    except UpstreamError as error:
        raise failure(error.code, error.message, error.param, error.retry_after_seconds) from error
    return JsonResponse(compaction_object(response_id, int(runtime.clock()), output, usage))
