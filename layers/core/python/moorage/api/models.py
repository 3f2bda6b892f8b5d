"""``/v1/models``: the models of this deployment."""

from fastapi import APIRouter
from starlette.responses import Response

from moorage.api.answers import JsonResponse
from moorage.api.caller import Caller
from moorage.errors import model_not_found

router = APIRouter()


@router.get("/models")
async def list_models(caller: Caller) -> Response:
    return JsonResponse({"object": "list", "data": caller.runtime.catalog.listing()})


@router.get("/models/{model:path}")
async def retrieve(caller: Caller, model: str) -> Response:
    """Names with slashes are names too. A pattern of the catalogue serves a name that is not listed."""
    entry = caller.runtime.catalog.resolve(model)
    listed = {shown["id"]: shown for shown in caller.runtime.catalog.listing()}
    if entry.name not in listed:
        raise model_not_found(model)
    return JsonResponse(listed[entry.name])
