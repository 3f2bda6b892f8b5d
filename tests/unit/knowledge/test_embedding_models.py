"""Embedding models over HTTP: what they are asked, what their answers become, and what of models.toml is refused."""

from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from botocore.credentials import Credentials
from moorage.errors import ApiError, SettingsConflict, UpstreamError
from moorage.knowledge.embeddings import Embeddings
from moorage.knowledge.static_model import StaticEmbedder
from moorage.model.catalog import ModelCatalog
from moorage.model.embedding_models import EmbeddedTexts, OpenAIEmbedder, TitanEmbedder
from moorage.net.sigv4 import AwsAuth
from moorage.store.budgets import Scope

from tests.unit.knowledge.embedders import Counted, FakeEmbedder, no_budgets

OPENAI = """
[[embedding]]
name = "small"
provider = "openai"
aliases = ["text-embedding-3-small"]
upstream_model = "text-embedding-3-small"
base_url = "https://models.example/v1/"
key = "env:EMBEDDING_KEY"
dimension = 3
"""
TITAN = """
[[embedding]]
name = "titan"
provider = "bedrock_titan"
region = "eu-west-1"
dimension = 256
"""
ENVIRON = {"EMBEDDING_KEY": "sk-secret"}
CREDENTIALS = Credentials("AKIA", "secret")

Answer = Callable[[httpx.Request], httpx.Response]


class Upstreams:
    """It answers by what a test says, and keeps what it was asked."""

    def __init__(self, toml: str, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.counted = Counted()
        self.budgets = no_budgets()
        catalog = ModelCatalog.load(f"\n{toml}", ENVIRON)
        self.embeddings = Embeddings.of(catalog, httpx.MockTransport(self._answer), self.counted, self.budgets)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(request)

    @property
    def bodies(self) -> list[Any]:
        return [orjson.loads(request.content) for request in self.requests]


def numbers(*rows: tuple[float, ...]) -> Answer:
    """Rows in the wrong order, as the protocol allows."""
    data = [{"object": "embedding", "index": number, "embedding": list(row)} for number, row in enumerate(rows)]
    return lambda _: httpx.Response(200, json={"data": data[::-1], "usage": {"prompt_tokens": 7, "total_tokens": 7}})


def packed(*row: float) -> bytes:
    return array("f", row).tobytes()


async def test_a_server_that_speaks_like_openai_is_asked_and_read() -> None:
    upstreams = Upstreams(OPENAI, numbers((1, 2, 3), (4, 5, 6)))
    found = upstreams.embeddings.find("text-embedding-3-small")
    assert isinstance(found, OpenAIEmbedder)
    assert upstreams.embeddings.default is upstreams.embeddings.find("small") is found
    embedded = await found.embed(["a", "b"], 3)
    assert (embedded.vectors, embedded.tokens) == ([packed(1, 2, 3), packed(4, 5, 6)], 7)
    (request,) = upstreams.requests
    assert (str(request.url), request.headers["authorization"]) == ("https://models.example/v1/embeddings", "Bearer sk-secret")
    assert upstreams.bodies == [{"model": "text-embedding-3-small", "input": ["a", "b"], "encoding_format": "float"}]
    assert "sk-secret" not in repr(found)
    assert [found.takes(size) for size in (2, 3, 4)] == [False, True, False]


async def test_a_model_that_shortens_is_told_how_much_each_time() -> None:
    upstreams = Upstreams(OPENAI + "shortens = true\n", numbers((1, 2)))
    found = upstreams.embeddings.default
    assert [found.takes(size) for size in (2, 3, 4)] == [True, True, False]
    assert (await found.embed(["a"], 2)).vectors == [packed(1, 2)]
    assert upstreams.bodies[0]["dimensions"] == 2


async def test_many_texts_are_several_requests_in_their_order() -> None:
    def counted(request: httpx.Request) -> httpx.Response:
        texts = orjson.loads(request.content)["input"]
        return numbers(*((float(text), 0, 0) for text in texts))(request)

    upstreams = Upstreams(OPENAI, counted)
    embedded = await upstreams.embeddings.default.embed([str(number) for number in range(130)], 3)
    assert embedded.vectors == [packed(number, 0, 0) for number in range(130)]
    assert ([len(body["input"]) for body in upstreams.bodies], embedded.tokens) == ([64, 64, 2], 21)


async def test_titan_is_asked_text_by_text_with_a_signature() -> None:
    def counted(request: httpx.Request) -> httpx.Response:
        text = orjson.loads(request.content)["inputText"]
        return httpx.Response(200, json={"embedding": [float(len(text)), *([0.0] * 255)], "inputTextTokenCount": 2})

    upstreams = Upstreams(TITAN, counted)
    found = upstreams.embeddings.default
    assert isinstance(found, TitanEmbedder)
    assert isinstance(found.upstream.auth, AwsAuth)
    assert (found.upstream.auth.service, found.upstream.auth.region) == ("bedrock", "eu-west-1")
    found = replace(found, upstream=replace(found.upstream, auth=replace(found.upstream.auth, credentials=lambda: CREDENTIALS)))
    embedded = await found.embed(["a", "bb", "x" * 60_000], 256)
    assert [array("f", vector)[0] for vector in embedded.vectors] == [1, 2, 50_000]
    assert embedded.tokens == 6
    request = next(request for request in upstreams.requests if orjson.loads(request.content)["inputText"] == "a")
    assert str(request.url) == "https://bedrock-runtime.eu-west-1.amazonaws.com/model/amazon.titan-embed-text-v2%3A0/invoke"
    assert "/eu-west-1/bedrock/aws4_request" in request.headers["authorization"]
    assert orjson.loads(request.content) == {"inputText": "a", "dimensions": 256, "normalize": True}
    assert [found.takes(size) for size in (128, 256, 512, 1024)] == [False, True, True, True]


FAILING: dict[str, tuple[Answer, str]] = {
    "a vector of another length": (numbers((1, 2)), "gave a vector of 2 numbers in place of 3"),
    "a vector too few": (lambda _: httpx.Response(200, json={"data": []}), "it holds 0 vectors for 1 texts"),
    "no vectors": (lambda _: httpx.Response(200, json={"object": "list"}), "broke off"),
    "no JSON": (lambda _: httpx.Response(200, text="hello"), "something that is not JSON"),
    "a page": (lambda _: httpx.Response(200, html="<p>hello"), "is not a model's answer"),
    "a refusal": (lambda _: httpx.Response(401, json={"error": {"message": "key sk-secret"}}), "refused this deployment's credentials"),
    "no such model": (lambda _: httpx.Response(404, json={"error": {"message": "no such model"}}), "no such model"),
}


@pytest.mark.parametrize("name", FAILING)
async def test_an_answer_that_is_none_is_an_error_that_says_so(name: str) -> None:
    answer, message = FAILING[name]
    upstreams = Upstreams(OPENAI, answer)
    found = upstreams.embeddings.default
    assert isinstance(found, OpenAIEmbedder)
    hasty = OpenAIEmbedder(found.name, found.upstream_model, 3, False, without_retries(found))
    with pytest.raises(UpstreamError, match=message) as failed:
        await hasty.embed(["a"], 3)
    assert "sk-secret" not in str(failed.value)


def without_retries(found: OpenAIEmbedder) -> Any:
    return replace(found.upstream, retries_max=0)


async def test_titan_that_refuses_a_text_is_one_error_and_not_a_group_of_them() -> None:
    found = Upstreams(TITAN, lambda _: httpx.Response(400, json={"message": "too long"})).embeddings.default
    assert isinstance(found, TitanEmbedder)
    found = replace(found, upstream=replace(found.upstream, auth=None))
    with pytest.raises(UpstreamError, match="too long"):
        await found.embed(["a", "b"], 256)


async def test_an_upstream_that_is_busy_is_asked_again() -> None:
    upstreams = Upstreams(OPENAI, lambda _: httpx.Response(429, headers={"retry-after": "0"}), numbers((1, 2, 3)))
    assert (await upstreams.embeddings.default.embed(["a"], 3)).vectors == [packed(1, 2, 3)]
    assert len(upstreams.requests) == 2


def test_without_a_configuration_the_model_that_comes_along_serves() -> None:
    embeddings = Upstreams("", numbers()).embeddings
    assert isinstance(embeddings.default, StaticEmbedder)
    assert embeddings.find("static-256") is embeddings.default
    assert set(Upstreams(OPENAI, numbers()).embeddings.by_name) == {"static-256", "small", "text-embedding-3-small"}


REFUSED = {
    "no address": (OPENAI.replace("https://models.example/v1/", ""), "base_url is not an http or https URL"),
    "an address with a query": (OPENAI.replace("/v1/", "/v1?a=b"), "base_url is not"),
    "no dimension": (OPENAI.replace("dimension = 3", ""), "dimension is missing"),
    "a key that stands there": (OPENAI.replace("env:EMBEDDING_KEY", "sk-1"), "must be a reference"),
    "a variable that is not set": (OPENAI.replace("EMBEDDING_KEY", "NOTHING"), "NOTHING, which is not set"),
    "a name twice": (OPENAI + TITAN.replace('"titan"', '"text-embedding-3-small"'), "names more than one embedding model"),
    "a length that Titan has not": (TITAN.replace("256", "300"), "256, 512 or 1024 numbers, not of 300"),
    "another provider": (TITAN.replace("bedrock_titan", "cohere"), "models.toml is wrong at 'embedding.0.provider'"),
    "another field": (TITAN + "batch = 3\n", "models.toml is wrong at 'embedding.0.batch'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_with_models_toml_is_said(name: str) -> None:
    toml, message = REFUSED[name]
    with pytest.raises(SettingsConflict, match=message):
        ModelCatalog.load(f"\n{toml}", ENVIRON)


# --- What they cost -------------------------------------------------------------------------------------------------------------------


def told(*vectors: list[float], tokens: int) -> Answer:
    body = {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)], "usage": {"prompt_tokens": tokens}}
    return lambda request: httpx.Response(200, json=body)


PAID = """
[[embedding]]
name = "paid"
provider = "openai"
base_url = "http://127.0.0.1:9/v1"
dimension = 3
price = { input = 3.5 }
"""
KEY_BUDGET, TENANT_BUDGET = Scope("key", "key_1"), Scope("tenant", "ten_a")


class Failing(FakeEmbedder):
    """What a test does while it is asked, and then it is away."""

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        super().__init__("paid", 3)
        self.is_down = True
        self._look = look

    async def embed(self, texts: Sequence[str], dimension: int) -> EmbeddedTexts:
        await self._look()
        return await super().embed(texts, dimension)


PRICED: dict[str, tuple[str, int | None]] = {
    "as it is configured": ("price = { input = 3.5 }\n", 3_500_000),
    "as its own provider lists it": ('base_url = "https://api.openai.com/v1"\n', 20_000),
    "unknown elsewhere": ("", None),
}


@pytest.mark.parametrize("what", PRICED)
async def test_each_request_is_counted_with_what_it_has_cost(what: str) -> None:
    line, cost = PRICED[what]
    lines = [each for each in OPENAI.splitlines() if not line or not each.startswith(line.split()[0])]
    upstreams = Upstreams("\n".join(lines) + f"\n{line}", told([1.0, 0.0, 0.0], tokens=1_000))
    await upstreams.embeddings.embed("ten_a", "text-embedding-3-small", ["a"], 3, key_id="key_1")
    assert upstreams.counted.requests == [("ten_a", "small", "key_1", 1_000, cost)]


async def test_the_model_that_comes_along_costs_nothing() -> None:
    upstreams = Upstreams("")
    embedded = await upstreams.embeddings.embed("ten_a", "static-256", ["two words"], 8)
    assert upstreams.counted.requests == [("ten_a", "static-256", "", embedded.tokens, 0)]


async def test_what_an_upstream_refuses_is_not_counted() -> None:
    upstreams = Upstreams(OPENAI, lambda request: httpx.Response(400, json={}))
    with pytest.raises(UpstreamError):
        await upstreams.embeddings.embed("ten_a", "small", ["a"], 3)
    assert upstreams.counted.requests == []


async def test_what_is_embedded_is_taken_from_the_budgets_in_dollars_of_who_asked() -> None:
    upstreams = Upstreams(PAID, told([1.0, 0.0, 0.0], tokens=1_000))
    budgets = upstreams.budgets
    await budgets.put("ten_a", KEY_BUDGET, {"usd": 0.004})
    await budgets.put("ten_a", TENANT_BUDGET, {"total_tokens": 1})
    draws_on = (str(KEY_BUDGET), str(TENANT_BUDGET))
    for _ in range(2):  # the step in which a limit is reached is the last one
        await upstreams.embeddings.embed("ten_a", "paid", ["a"], 3, draws_on=draws_on)
    with pytest.raises(ApiError, match="of the API key 'key_1' is used up: usd 0") as refused:
        await upstreams.embeddings.embed("ten_a", "paid", ["a"], 3, draws_on=draws_on)
    assert (refused.value.status, refused.value.code, len(upstreams.requests)) == (429, "budget_reached", 2)
    standing = await budgets.standing("ten_a", KEY_BUDGET)
    tokens = await budgets.standing("ten_a", TENANT_BUDGET)
    assert standing is not None
    assert tokens is not None
    assert (standing.used["usd"], standing.held["usd"], standing.used["total_tokens"], tokens.used["total_tokens"]) == (0.007, 0, 0, 0)


async def test_an_embedding_holds_its_cost_and_gives_it_back_on_failure() -> None:
    held: list[float] = []
    upstreams = Upstreams(PAID, told([1.0, 0.0, 0.0], tokens=1))
    budgets = upstreams.budgets
    await budgets.put("ten_a", KEY_BUDGET, {"usd": 1})

    async def look() -> None:
        standing = await budgets.standing("ten_a", KEY_BUDGET)
        assert standing is not None
        held.append(standing.held["usd"])

    asked = replace(upstreams.embeddings, by_name={"paid": Failing(look)})
    with pytest.raises(UpstreamError):
        await asked.embed("ten_a", "paid", ["word " * 1_000], 3, draws_on=(str(KEY_BUDGET),))
    standing = await budgets.standing("ten_a", KEY_BUDGET)
    assert standing is not None
    assert (held[0] > 0.001, standing.used["usd"], standing.held["usd"]) == (True, 0, 0)


async def test_a_budget_in_dollars_takes_no_model_whose_price_is_not_known() -> None:
    upstreams = Upstreams(PAID.replace("price =", "# price ="), told([1.0, 0.0, 0.0], tokens=1))
    await upstreams.budgets.put("ten_a", KEY_BUDGET, {"usd": 1})
    with pytest.raises(ApiError, match="The price of the model 'paid' is not known") as refused:
        await upstreams.embeddings.embed("ten_a", "paid", ["a"], 3, draws_on=(str(KEY_BUDGET),))
    assert (refused.value.code, upstreams.requests) == ("model_not_budgetable", [])


async def test_what_costs_nothing_is_embedded_with_a_budget_that_is_not_used_up() -> None:
    upstreams = Upstreams("")
    await upstreams.budgets.put("ten_a", KEY_BUDGET, {"usd": 1})
    assert (await upstreams.embeddings.embed("ten_a", "static-256", ["tide"], 8, draws_on=(str(KEY_BUDGET),))).tokens > 0
