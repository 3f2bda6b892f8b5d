"""``/v1/models``: the models of this deployment, those that answer first, and those that embed behind them."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from moorage.api.answers import JsonResponse
from moorage.api.caller import Caller
from moorage.errors import model_not_found
from moorage.knowledge import embeddings
from moorage.runtime import Runtime

_EMBEDDERS: Final = "moorage-embeddings"
"""``owned_by`` of embedding models: nothing else of the API's object tells them from others."""

router = APIRouter()


@router.get("/models")
async def list_models(caller: Caller) -> Response:
    return JsonResponse({"object": "list", "data": [*caller.runtime.catalog.listing(), *_embedders(caller.runtime)]})


@router.get("/models/{model:path}")
async def retrieve(caller: Caller, model: str) -> Response:
    """Names with slashes are names too. A pattern of the catalogue serves a name that is not listed."""
    embedder = next((shown for shown in _embedders(caller.runtime) if shown["id"] == model), None)
    if embedder is not None:
        return JsonResponse(embedder)
    entry = caller.runtime.catalog.resolve(model)
    listed = {shown["id"]: shown for shown in caller.runtime.catalog.listing()}
    if entry.name not in listed:
        raise model_not_found(model)
    return JsonResponse(listed[entry.name])


def _embedders(runtime: Runtime) -> list[dict[str, Any]]:
    """Without those that share the name of one that answers."""
    taken = {shown["id"] for shown in runtime.catalog.listing()}
    names = (name for name in embeddings.names(runtime.catalog) if name not in taken)
    return [{"id": name, "object": "model", "created": 0, "owned_by": _EMBEDDERS} for name in names]
