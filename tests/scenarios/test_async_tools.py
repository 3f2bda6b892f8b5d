"""``async`` tools: the model goes on while a call of the client's is open, and reads the output when it comes."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.stack import SHELL, Stack
from tests.upstream import MockUpstream, called, called_all, called_shell, said

WEATHER: Any = {"type": "function", "name": "get_weather", "async": True, "parameters": {"type": "object", "properties": {}}}
WAIT: Any = {"type": "function", "name": "wait_for_tasks", "parameters": {"type": "object", "properties": {}}}
NOTE: Any = {"type": "custom", "name": "note", "async": True}
OPEN = "This call is open. Its output comes later, in a message: go on without it, and do not invent it."


@pytest.fixture(scope="module")
def upstream() -> Iterator[MockUpstream]:
    with MockUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, upstream: MockUpstream) -> Iterator[Stack]:
    state_dir = Path(tmp_path_factory.mktemp("async"))
    models = state_dir / "models.toml"
    models.write_text(
        "".join(
            f'[[models]]\nname = "{provider}"\nprovider = "{provider}"\nbase_url = "{upstream.url}"\n\n'
            for provider in ("chat_completions", "openai_responses")
        )
    )
    running = Stack(state_dir, {"MOORAGE_MODELS_FILE": str(models)}).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(stack: Stack, upstream: MockUpstream) -> Iterator[OpenAI]:
    upstream.requests.clear()
    yield stack.client()
    upstream.forget()


def output(call: Any, text: Any) -> Any:
    return {"type": f"{call.type}_output", "call_id": call.call_id, "output": text}


def read(upstream: MockUpstream) -> list[Any]:
    """What the model was sent, by request. Each goes on from the one before."""
    sent = [request.body.get("messages") or request.body["input"] for request in upstream.requests]
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    return sent


@pytest.mark.parametrize("model", ["chat_completions", "openai_responses"])
def test_the_model_answers_while_a_call_is_open_and_reads_its_output_later(client: OpenAI, upstream: MockUpstream, model: str) -> None:
    """What OpenAI's guide does: other turns may come before the job has finished."""
    upstream.plays(called("get_weather", {"city": "Paris"}), said("Socks, soap, a map."), said("And a pen."), said("Take an umbrella."))
    given: Any = {"model": model, "tools": [WEATHER]}
    first = client.responses.create(input="The weather in Paris? And what shall I take?", **given)
    assert (first.status, [item.type for item in first.output], first.output_text) == (
        "completed",
        ["function_call", "message"],
        "Socks, soap, a map.",
    )
    call: Any = first.output[0]
    assert (call.async_, call.status, first.tools[0].to_dict()["async"]) == (True, "completed", True)
    second = client.responses.create(input="What else?", previous_response_id=first.id, **given)
    third = client.responses.create(input=[output(call, "rain")], previous_response_id=second.id, **given)
    assert (second.output_text, third.output_text) == ("And a pen.", "Take an umbrella.")
    sent = read(upstream)
    assert [OPEN in str(each) for each in sent] == [False, True, True, True]
    assert "rain" in str(sent[-1][-1])
    assert sent[-1][-1]["role"] == "user"
    assert "async" not in str(upstream.requests[0].body["tools"])


@pytest.mark.parametrize("model", ["chat_completions", "openai_responses"])
def test_a_wait_ends_the_response_and_brings_all_outputs(client: OpenAI, upstream: MockUpstream, model: str) -> None:
    upstream.plays(called_all(called("get_weather"), called("get_weather"), called("wait_for_tasks")), said("Both rain."))
    given: Any = {"model": model, "tools": [WEATHER, WAIT], "store": False}
    first = client.responses.create(input="Compare two cities.", **given)
    assert [(item.name, item.async_) for item in first.output if item.type == "function_call"] == [
        ("get_weather", True),
        ("get_weather", True),
        ("wait_for_tasks", None),
    ]
    items = [item.to_dict() for item in first.output]
    outputs = [output(call, f"rain {number}") for number, call in enumerate(first.output)]
    second = client.responses.create(input=[{"role": "user", "content": "Compare two cities."}, *items, *outputs], **given)
    assert second.output_text == "Both rain."
    order = {
        "chat_completions": [  # Between two messages of a user stands a word of the model.
            "user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "user", "assistant", "user",
        ],
        "openai_responses": ["user", *("function_call", "function_call_output") * 3, "user", "user"],
    }  # fmt: skip
    assert [item.get("role") or item["type"] for item in read(upstream)[-1]] == order[model]


def test_commands_run_while_a_call_of_the_client_is_open(client: OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(called("note", {"input": "look"}), called_shell("echo $((6 * 7))"), said("It is 42."), said("Noted."))
    given: Any = {"model": "chat_completions", "tools": [NOTE, SHELL]}
    with client.responses.stream(input="Note it, and compute.", **given) as stream:
        events = list(stream)
        first: Any = stream.get_final_response()
    assert [item.type for item in first.output] == ["custom_tool_call", "shell_call", "shell_call_output", "message"]
    added = next(event for event in events if event.type == "response.output_item.added")
    assert (added.item.type, added.item.to_dict()["async"]) == ("custom_tool_call", True)
    parts = [{"type": "input_text", "text": "kept"}]
    second = client.responses.create(input=[output(first.output[0], parts)], previous_response_id=first.id, **given)
    assert second.output_text == "Noted."
    assert "kept" in str(read(upstream)[-1][-1])


def test_a_response_in_the_background_goes_on_too(client: OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(called("get_weather"), called("get_weather"), said("Two are on their way."))
    response = client.responses.create(model="chat_completions", input="Twice.", tools=[WEATHER], background=True)
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert (response.status, [item.type for item in response.output]) == ("completed", ["function_call", "function_call", "message"])
    calls: Any = response.output[:2]
    assert calls[0].call_id != calls[1].call_id


def test_an_agent_of_a_team_goes_on_too(client: OpenAI, upstream: MockUpstream) -> None:
    upstream.plays(called("get_weather"), said("Socks."), said("An umbrella."))
    given: Any = {"model": "chat_completions", "tools": [WEATHER], "extra_body": {"multi_agent": {"enabled": True}}}
    first = client.responses.create(input="What shall I take?", **given)
    assert ([item.type for item in first.output], first.output_text) == (["function_call", "message"], "Socks.")
    second = client.responses.create(input=[output(first.output[0], "rain")], previous_response_id=first.id, **given)
    assert second.output_text == "An umbrella."
    assert (read(upstream)[-1][-1]["role"], "rain" in str(read(upstream)[-1][-1])) == ("user", True)


@pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no Node")
def test_a_program_waits_for_what_the_model_does_not_wait_for(client: OpenAI, upstream: MockUpstream) -> None:
    tools: Any = [{"type": "programmatic_tool_calling"}, WEATHER | {"allowed_callers": ["direct", "programmatic"]}]
    given: Any = {"model": "chat_completions", "tools": tools}
    code = "return `It will ${await tools.get_weather({})}.`"
    upstream.plays(called("get_weather"), called("run_program", {"code": code}), said("An umbrella, says the program."))
    first = client.responses.create(input="The weather?", **given)
    calls: Any = [item for item in first.output if item.type == "function_call"]
    assert [(call.async_, call.caller.type if call.caller else None) for call in calls] == [(True, None), (None, "program")]
    second = client.responses.create(input=[output(calls[1], "rain")], previous_response_id=first.id, **given)
    assert ([item.type for item in second.output], second.output_text) == (
        ["program_output", "message"],
        "An umbrella, says the program.",
    )
    assert "It will rain." in str(upstream.requests[-1].body["messages"][-1])


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (
            {"tools": [WEATHER | {"allowed_callers": ["programmatic"]}, {"type": "programmatic_tool_calling"}]},
            "tools[0].async",
        ),
        ({"tools": [NOTE | {"allowed_callers": ["programmatic"]}, {"type": "programmatic_tool_calling"}]}, "tools[0].async"),
    ],
)
def test_what_an_async_tool_cannot_be_is_refused_by_name(client: OpenAI, given: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model="chat_completions", input="x", **given)
    assert (refused.value.param, refused.value.code) == (param, "unsupported_value")
