"""``/v1/models``: the models of this deployment, those that answer first, and those that embed behind them."""

from typing import Final

from moorage.api.caller import Caller
from moorage.api.routing import Router
from moorage.errors import model_not_found
from moorage.knowledge import embeddings
from moorage.model.catalog import ModelCatalog
from moorage.wire.answers import Model, ModelList

_EMBEDDERS: Final = "moorage-embeddings"
"""``owned_by`` of embedding models: nothing else of the API's object tells them from others."""

router = Router()


@router.get("/models", "listModels", "The models of this deployment")
async def list_models(caller: Caller) -> ModelList:
    return {"object": "list", "data": [*caller.runtime.models.catalog.listing(), *_embedders(caller.runtime.models.catalog)]}


@router.get("/models/{model:path}", "retrieveModel", "One model")
async def retrieve(caller: Caller, model: str) -> Model:
    """Names with slashes are names too. A pattern of the catalogue serves a name that is not listed."""
    embedder = next((shown for shown in _embedders(caller.runtime.models.catalog) if shown["id"] == model), None)
    if embedder is not None:
        return embedder
    entry = caller.runtime.models.catalog.resolve(model)
    listed = {shown["id"]: shown for shown in caller.runtime.models.catalog.listing()}
    if entry.name not in listed:
        raise model_not_found(model)
    return listed[entry.name]


def _embedders(catalog: ModelCatalog) -> list[Model]:
    """Without those that share the name of one that answers."""
    taken = {shown["id"] for shown in catalog.listing()}
    names = (name for name in embeddings.names(catalog) if name not in taken)
    return [{"id": name, "object": "model", "created": 0, "owned_by": _EMBEDDERS} for name in names]
