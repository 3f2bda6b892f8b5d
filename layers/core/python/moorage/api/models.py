"""``/v1/models``: the models of this deployment."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from moorage.api.answers import JsonResponse
from moorage.errors import model_not_found
from moorage.runtime import Runtime

router = APIRouter()


@router.get("/models")
async def list_models(request: Request) -> Response:
    runtime: Runtime = request.app.state.runtime
    return JsonResponse({"object": "list", "data": runtime.catalog.listing()})


@router.get("/models/{model:path}")
async def retrieve(request: Request, model: str) -> Response:
    """Names with slashes are names too. A pattern of the catalogue serves a name that is not listed."""
    runtime: Runtime = request.app.state.runtime
    entry = runtime.catalog.resolve(model)
    listed = {shown["id"]: shown for shown in runtime.catalog.listing()}
    if entry.name not in listed:
        raise model_not_found(model)
    return JsonResponse(listed[entry.name])
