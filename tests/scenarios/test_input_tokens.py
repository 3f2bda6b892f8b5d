"""Counting tokens, and inputs that are longer than the model's window."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.stack import Stack, say, script

WEATHER: Any = {"type": "function", "name": "get_weather", "description": "The weather.", "parameters": {"type": "object"}}
_LONG = "word " * 800
"""1,000 tokens by the estimate."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A stack whose model has a window of 2,000 tokens."""
    folder: Path = tmp_path_factory.mktemp("small")
    models = folder / "models.toml"
    models.write_text('[[models]]\nname = "demo"\nprovider = "demo"\ncontext_window_tokens = 2000\n')
    stack = Stack(folder / "state", {"MOORAGE_MODELS_FILE": str(models)}).start()
    try:
        yield stack.client()
    finally:
        stack.stop()


def test_a_count_equals_the_usage_that_follows(client: OpenAI) -> None:
    request: dict[str, Any] = {"model": "demo", "input": "hello there", "instructions": "Be brief.", "tools": [WEATHER]}
    counted = client.responses.input_tokens.count(**request)
    made = client.responses.create(**request)
    assert made.usage is not None
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", made.usage.input_tokens)
    assert counted.input_tokens > 10


def test_a_count_includes_the_chain_and_the_conversation(client: OpenAI) -> None:
    first = client.responses.create(model="demo", input="a rather long beginning of it all")
    conversation = client.conversations.create(items=[{"role": "user", "content": "a rather long beginning of it all"}])
    alone = client.responses.input_tokens.count(model="demo", input="and on").input_tokens
    chained = client.responses.input_tokens.count(model="demo", input="and on", previous_response_id=first.id).input_tokens
    talked = client.responses.input_tokens.count(model="demo", input="and on", conversation=conversation.id).input_tokens
    followed = client.responses.create(model="demo", input="and on", previous_response_id=first.id)
    assert followed.usage is not None
    assert chained == followed.usage.input_tokens
    assert alone < talked < chained


def test_a_count_refuses_what_a_request_would(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.input_tokens.count(model="demo", input="x", previous_response_id="resp_0")
    assert refusal.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError, match="Unknown parameter"):
        client.responses.input_tokens.count(model="demo", input="x", extra_body={"colour": "red"})


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search"},
        {"type": "image_generation"},
        {"type": "file_search", "vector_store_ids": ["vs_0"]},
        {"type": "mcp", "server_label": "nobody"},
    ],
    ids=lambda tool: tool["type"],
)
def test_a_count_refuses_tools_as_a_request_would(client: OpenAI, tool: Any) -> None:
    refusals: list[Any] = []
    for ask in (client.responses.input_tokens.count, client.responses.create):
        with pytest.raises(openai.APIStatusError) as refusal:
            ask(model="demo", input="x", tools=[tool])
        refusals.append((refusal.value.status_code, refusal.value.body))
    assert refusals[0] == refusals[1]


def test_an_input_beyond_the_window_is_refused_with_both_numbers(small: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="2000 tokens") as refusal:
        small.responses.create(model="demo", input=_LONG * 3)
    assert refusal.value.code == "context_length_exceeded"


def test_with_truncation_auto_the_oldest_are_left_out(small: OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": f"{_LONG} {number}"} for number in range(5)]
    made = small.responses.create(model="demo", input=[*items, {"role": "user", "content": script(say("heard"))}], truncation="auto")
    assert (made.output_text, made.truncation) == ("heard", "auto")
    assert made.usage is not None
    assert 1000 < made.usage.input_tokens < 2000


def test_a_last_message_beyond_the_window_is_refused_even_so(small: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        small.responses.create(model="demo", input=_LONG * 3, truncation="auto")
    assert refusal.value.code == "context_length_exceeded"
