"""``POST /v1/responses/{id}/fork``: a new response from an event of an old one. An extension of ours; it answers as a create does."""

from fastapi import Request
from starlette.responses import Response

from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.responses import begin
from moorage.api.routing import EVENTS, Router
from moorage.errors import bad_request
from moorage.loop import forks, recover
from moorage.loop.create import PreparedResponse
from moorage.wire.answers import Response as ResponseObject
from moorage.wire.create import FORK
from moorage.wire.requests import parse_fork

router = Router()


@router.post(
    "/responses/{response_id}/fork",
    "forkResponse",
    "A new response from an event of an old one, with the files of its container as they were then",
    answers=ResponseObject,
    sends=EVENTS,
    body=("ForkResponse", FORK),
    statuses=(502, 503),
)
async def fork(request: Request, caller: Caller, response_id: str, body: RawBody) -> Response:
    runtime = caller.runtime
    snapshot = await recover.declare_lost(runtime, await runtime.stores.responses.snapshot(caller.tenant_id, response_id))
    old = snapshot.stored
    if not old.is_stored:
        raise bad_request("This response is not stored ('store': false): there is nothing to begin another one with.")
    wanted = parse_fork(
        body,
        old.parameters,
        background=old.is_background,
        metadata=old.echo.get("metadata") or {},
        web_search=runtime.models.web_search,
    )

    async def prepared() -> PreparedResponse:
        return await forks.fork(runtime, snapshot, wanted, key_id=caller.key_id, draws_on=caller.draws_on)

    return await begin(request, caller, body, wanted.request, prepared)
