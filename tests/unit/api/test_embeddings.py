"""``POST /v1/embeddings``: what the SDK asks and reads, and what is refused."""

import base64
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import openai
import pytest
from moorage import limits

from tests.unit.api.served import KEY_A, Served
from tests.unit.knowledge.embedders import Counted, FakeEmbedder, embeddings_of
from tests.unit.loop.lab import Lab


class Asked:
    def __init__(self) -> None:
        self.model = FakeEmbedder()
        lab = Lab()
        self.counted = Counted()
        knowledge = cast("Any", SimpleNamespace(embeddings=embeddings_of(self.model, meter=self.counted)))
        lab.runtime.models = replace(lab.runtime.models, knowledge=knowledge)
        self.served = Served.of(lab)

    async def refused(self, body: Any) -> tuple[int, str | None, str]:
        answer = await self.served.post("/embeddings", body)
        error = answer.json()["error"]
        return answer.status_code, error["param"], error["message"]


async def test_texts_become_vectors_in_their_order() -> None:
    asked = Asked()
    answer = await asked.served.post("/embeddings", {"model": "pairs", "input": ["a cat", "the tide rises"], "user": "u"})
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": 0, "embedding": [1.0, 0.0, 0.0, 0.0]},
                {"object": "embedding", "index": 1, "embedding": [0.0, 0.0, 1.0, 0.0]},
            ],
            "model": "pairs",
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        },
    )


async def test_one_text_packed_and_shortened_is_what_the_sdk_unpacks() -> None:
    asked = Asked()
    body = {"model": "pairs", "input": "a cat", "encoding_format": "base64", "dimensions": 2}
    (row,) = (await asked.served.post("/embeddings", body)).json()["data"]
    assert struct.unpack("<2f", base64.b64decode(row["embedding"])) == (1.0, 0.0)


async def test_the_sdk_reads_it() -> None:
    asked = Asked()
    transport = httpx2.ASGITransport(asked.served.app)
    async with openai.AsyncOpenAI(
        api_key="key-a", base_url="http://api/v1", http_client=openai.DefaultAsyncHttpxClient(transport=transport)
    ) as client:
        made = await client.embeddings.create(model="pairs", input=["a cat"])
    assert (made.data[0].embedding, made.usage.total_tokens) == ([1.0, 0.0, 0.0, 0.0], 2)


REFUSED: dict[str, tuple[dict[str, Any], int, str | None, str]] = {
    "no input": ({"model": "pairs"}, 400, "input", "Missing required parameter: 'input'."),
    "no model": ({"input": "a"}, 400, "model", "Missing required parameter: 'model'."),
    "an empty text": ({"model": "pairs", "input": ""}, 400, "input", "it is empty"),
    "an empty text among others": ({"model": "pairs", "input": ["a", ""]}, 400, "input[1]", "it is empty"),
    "no text": ({"model": "pairs", "input": []}, 400, "input", "it holds 1 to 2048 texts."),
    "too many": ({"model": "pairs", "input": ["a"] * 2_049}, 400, "input", "it holds 1 to 2048 texts."),
    "tokens": ({"model": "pairs", "input": [1, 2]}, 400, "input", "send the text"),
    "lists of tokens": ({"model": "pairs", "input": [[1, 2]]}, 400, "input", "send the text"),
    "an object": ({"model": "pairs", "input": {}}, 400, "input", "expected a string or an array, but got an object"),
    "a boolean": ({"model": "pairs", "input": ["a", True]}, 400, "input[1]", "expected a string, but got a boolean"),
    "too much text": ({"model": "pairs", "input": ["word " * limits.EMBEDDING_TOKENS_MAX] * 2}, 400, "input", "at most 300000 tokens"),
    "another model": ({"model": "gone", "input": "a"}, 404, "model", "This deployment has 'pairs'; 'embedding' in models.toml"),
    "too long a vector": ({"model": "pairs", "input": "a", "dimensions": 5}, 400, "dimensions", "vectors of 4 numbers, and none of 5"),
    "no vector": ({"model": "pairs", "input": "a", "dimensions": 0}, 400, "dimensions", "Expected a value >= 1"),
    "another encoding": ({"model": "pairs", "input": "a", "encoding_format": "int8"}, 400, "encoding_format", "'int8'"),
    "another field": ({"model": "pairs", "input": "a", "input_type": "query"}, 400, "input_type", "Unknown parameter"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_embedded_is_refused(name: str) -> None:
    body, status, param, message = REFUSED[name]
    asked = Asked()
    found = await asked.refused(body)
    assert found[:2] == (status, param)
    assert message in found[2]
    assert asked.model.asked == []


async def test_a_model_that_is_down_is_an_error_that_clients_retry() -> None:
    asked = Asked()
    asked.model.is_down = True
    status, _, message = await asked.refused({"model": "pairs", "input": "a"})
    assert (status >= 500, message) == (True, "The model upstream is down.")


async def test_a_request_counts_as_its_keys() -> None:
    asked = Asked()
    await asked.served.post("/embeddings", {"model": "pairs", "input": ["a cat", "the tide rises"]})
    assert asked.counted.requests == [("t", "pairs", KEY_A, 5, 10_000)]


async def test_embedding_models_are_listed_behind_those_that_answer() -> None:
    served = Served.of(Lab())
    own = {"id": "static-256", "object": "model", "created": 0, "owned_by": "moorage-embeddings"}
    assert (await served.get("/models")).json() == {"object": "list", "data": [{"id": "m"}, own]}
    assert (await served.get("/models/static-256")).json() == own
