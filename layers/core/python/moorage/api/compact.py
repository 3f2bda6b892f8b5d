"""``POST /v1/responses/compact``: a shorter input to go on with."""

from starlette.responses import Response

from moorage import ids
from moorage.api.answers import JsonResponse
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.routing import Router
from moorage.loop.budget import first_holding, used_of
from moorage.loop.compact import compact
from moorage.loop.prepare import gather
from moorage.model.tokens import estimate_items
from moorage.parallel import beside
from moorage.store.budget_draws import BudgetDraw
from moorage.store.budgets import Scope
from moorage.wire.answers import CompactedResponse
from moorage.wire.create import COMPACT
from moorage.wire.requests import parse_compact
from moorage.wire.responses import compaction_object

router = Router()


@router.post(
    "/responses/compact",
    "compactResponse",
    "Make a shorter input to go on with",
    answers=CompactedResponse,
    body=("CompactResponse", COMPACT),
    statuses=(404, 502),
)
async def create(caller: Caller, body: RawBody) -> Response:
    runtime, tenant_id = caller.runtime, caller.tenant_id
    wanted = await beside(len(body), lambda: parse_compact(body))
    said = await gather(
        runtime,
        tenant_id,
        model=wanted.model,
        input_items=wanted.input_items,
        previous_response_id=wanted.previous_response_id,
    )
    draw = BudgetDraw(runtime.stores.budgets, tenant_id, ids.new_response_id(runtime.clock()), tuple(map(Scope.of, caller.draws_on)))
    await draw.first(
        wanted.model, first_holding(runtime.models.catalog, wanted.model, estimate_items(said.items) if draw.scopes else 0, None)
    )
    used: dict[str, int] = {}
    try:
        response_id, output, usage = await compact(runtime, tenant_id, said.entry, said.items, wanted.instructions)
        used = used_of(runtime.models.catalog, wanted.model, usage)
    finally:
        await draw.end(used)
    return JsonResponse(compaction_object(response_id, int(runtime.clock()), output, usage))
