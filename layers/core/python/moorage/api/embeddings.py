"""``POST /v1/embeddings``: the vectors of texts, by the models that vector stores use."""

import base64
from array import array
from typing import Any

from starlette.responses import Response

from moorage import errors, limits
from moorage.api.answers import JsonResponse
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.routing import Router
from moorage.model.tokens import estimate_text
from moorage.parallel import beside
from moorage.wire.answers import EmbeddingList
from moorage.wire.embeddings import EMBEDDING

router = Router()


@router.post(
    "/embeddings",
    "createEmbedding",
    "The vectors of texts",
    answers=EmbeddingList,
    body=("CreateEmbedding", EMBEDDING),
    statuses=(404, 502, 503),
)
async def create(caller: Caller, body: RawBody) -> Response:
    wanted = await beside(len(body), lambda: EMBEDDING.body(body))
    texts: list[str] = wanted["input"]
    embeddings = caller.runtime.models.knowledge.embeddings
    embedder = embeddings.find(wanted["model"])
    dimension = wanted.get("dimensions", embedder.dimension)
    if not embedder.takes(dimension):
        raise errors.invalid_value(
            "dimensions", f"'{wanted['model']}' makes vectors of {embedder.dimension} numbers, and none of {dimension}."
        )
    if sum(map(estimate_text, texts)) > limits.EMBEDDING_TOKENS_MAX:
        raise errors.invalid_value("input", f"all texts together have at most {limits.EMBEDDING_TOKENS_MAX} tokens.")
    embedded = await embeddings.embed(
        caller.tenant_id, wanted["model"], texts, dimension, key_id=caller.key_id, draws_on=caller.draws_on
    )
    is_packed = wanted.get("encoding_format") == "base64"
    usage = {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens}

    def answered() -> Response:
        data = [
            {"object": "embedding", "index": index, "embedding": _shown(vector, is_packed=is_packed)}
            for index, vector in enumerate(embedded.vectors)
        ]
        return JsonResponse({"object": "list", "data": data, "model": wanted["model"], "usage": usage})

    return await beside(sum(map(len, embedded.vectors)), answered)


def _shown(vector: bytes, *, is_packed: bool) -> Any:
    """Both SDKs ask for base64, of float32 with the least significant byte first."""
    return base64.b64encode(vector).decode() if is_packed else array("f", vector).tolist()
