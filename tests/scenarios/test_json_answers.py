"""Answers that have to be JSON, from servers that do not see to it, as users of the SDK's ``parse`` and ``stream`` meet them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from tests.stack import Stack
from tests.unit.model.encodings import OVER_HTTP, Kind, Said, answer
from tests.upstream import MockUpstream, Reply, said

FAULT = "The model's answer does not fit the schema at $.items[2].price: expected number, found string."


class Item(pydantic.BaseModel):
    name: str
    price: float


class Order(pydantic.BaseModel):
    items: list[Item]


GOOD = Order(items=[Item(name="tea", price=1.5)])
RIGHT = GOOD.model_dump_json()
WRONG = '{"items": [{"name": "a", "price": 1}, {"name": "b", "price": 2}, {"name": "c", "price": "3"}]}'


@pytest.fixture(scope="module")
def upstream() -> Iterator[MockUpstream]:
    with MockUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, upstream: MockUpstream) -> Iterator[Stack]:
    state_dir = Path(tmp_path_factory.mktemp("answers"))
    models = state_dir / "models.toml"
    models.write_text(
        "".join(
            f'[[models]]\nname = "{kind.name}"\nprovider = "{kind.name}"\nbase_url = "{upstream.url}"\nkey = "env:KEY_OF_MODELS"\n'
            for kind in OVER_HTTP
        )
    )
    running = Stack(state_dir, {"MOORAGE_MODELS_FILE": str(models), "KEY_OF_MODELS": "sk-models"}).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(served: Stack, upstream: MockUpstream) -> openai.OpenAI:
    upstream.forget()
    upstream.requests.clear()
    return served.client().with_options(max_retries=2)


def encoded(kind: Kind, text: str) -> Reply:
    return Reply(body=kind.encode(answer(Said((text[:9], text[9:])))), headers={"content-type": kind.content_type})


@pytest.mark.parametrize("kind", OVER_HTTP, ids=lambda kind: kind.name)
def test_a_model_of_each_provider_is_asked_once_more(client: openai.OpenAI, upstream: MockUpstream, kind: Kind) -> None:
    upstream.plays(encoded(kind, WRONG), encoded(kind, RIGHT))
    assert client.responses.parse(model=kind.name, input="order", text_format=Order).output_parsed == GOOD
    told = str(upstream.requests[1].body)
    assert "at $.items[2].price: expected number, found string" in told


@pytest.mark.parametrize("kind", OVER_HTTP, ids=lambda kind: kind.name)
def test_a_fence_around_json_is_taken_away(client: openai.OpenAI, upstream: MockUpstream, kind: Kind) -> None:
    upstream.plays(encoded(kind, f"```json\n{RIGHT}\n```"))
    assert client.responses.parse(model=kind.name, input="order", text_format=Order).output_parsed == GOOD
    assert len(upstream.requests) == 1


def test_parse_tells_a_response_that_failed(client: openai.OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(said(WRONG), said(WRONG))
    response = client.responses.parse(model="chat_completions", input="order", text_format=Order)
    assert response.error is not None
    assert (response.status, response.error.message, response.output_parsed) == ("failed", FAULT, None)


def test_a_stream_that_is_parsed_as_it_comes_ends_with_what_is_wrong(client: openai.OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(said(WRONG), said(WRONG))
    with (
        pytest.raises(openai.APIError) as caught,
        client.responses.stream(model="chat_completions", input="order", text_format=Order) as stream,
    ):
        stream.until_done()
    assert caught.value.message == FAULT


def test_a_stream_is_parsed_when_the_second_answer_fits(client: openai.OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(said(WRONG), said(RIGHT))
    with client.responses.stream(model="chat_completions", input="order", text_format=Order) as stream:
        assert stream.get_final_response().output_parsed == GOOD


def test_a_chat_completion_is_parsed_when_the_second_answer_fits(client: openai.OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(said("Sure!"), said(RIGHT))
    completion = client.chat.completions.parse(model="chat_completions", messages=[ASKED], response_format=Order)
    assert completion.choices[0].message.parsed == GOOD


ASKED: Any = {"role": "user", "content": "order"}


def test_a_chat_completion_that_does_not_fit_twice_is_an_error_that_nobody_repeats(
    client: openai.OpenAI, upstream: MockUpstream
) -> None:
    upstream.plays(said(WRONG), said(WRONG))
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.parse(model="chat_completions", messages=[ASKED], response_format=Order)
    body: Any = caught.value.body
    assert (body["message"], len(upstream.requests)) == (FAULT, 2)


def test_a_chat_stream_shows_json_and_says_at_its_end_that_it_does_not_fit(client: openai.OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(said(WRONG, deltas=9))
    pieces: list[str] = []
    with (
        pytest.raises(openai.APIError, match="does not fit the schema at"),
        client.chat.completions.stream(model="chat_completions", messages=[ASKED], response_format=Order) as stream,
    ):
        pieces += [event.delta for event in stream if event.type == "content.delta"]
    assert len(upstream.requests) == 1


def test_a_chat_stream_shows_no_words_in_place_of_json(client: openai.OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(said("Sure! Here is your order."), said(RIGHT))
    with client.chat.completions.stream(model="chat_completions", messages=[ASKED], response_format=Order) as stream:
        shown = "".join(event.delta for event in stream if event.type == "content.delta")
        completion = stream.get_final_completion()
    assert (shown, completion.choices[0].message.parsed) == (RIGHT, GOOD)
