"""Chat Completions through the openai SDK: the same models, keys, limits and tools as the Responses API."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, TypeAdapter

from tests.scenarios.test_idempotency import containers_named
from tests.stack import SHELL, Stack, say, script, shell

LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}


TWO_CALLS = {"calls": [{"name": "look", "arguments": {"at": "sea"}}, {"name": "look", "arguments": {"at": "sky"}}]}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_question_is_answered(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=[user(script(say("Hello.")))])  # type: ignore[list-item]
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello.", "stop")
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_nothing_of_it_is_kept(stack: Stack, client: OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=[user("hi")])  # type: ignore[list-item]
    with stack.http() as http:
        assert http.get(f"/responses/resp_{answer.id.removeprefix('chatcmpl-')}").status_code == 404


def test_a_stream_says_the_same_in_chunks_that_the_sdk_knows(stack: Stack) -> None:
    body = {
        "model": "demo",
        "messages": [user(script({"reason": "Hm.", **say("Hello there.")}))],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with stack.http() as http:
        answer = http.post("/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    for chunk in chunks:
        TypeAdapter(ChatCompletionChunk).validate_python(chunk, strict=True)
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == "Hello there."
    assert "".join(chunk["choices"][0]["delta"].get("reasoning_content", "") for chunk in chunks[:-1]) == "Hm."
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"] > 0) == ([], True)


def test_a_function_is_called_and_its_output_goes_back(client: OpenAI) -> None:
    steps = script(
        {"calls": [{"name": "look", "arguments": {"at": "sea"}}, {"name": "look", "arguments": {"at": "sky"}}]}, say("{{output}}")
    )
    messages: list[Any] = [user(steps)]
    asked = client.chat.completions.create(model="demo", messages=messages, tools=[LOOK])
    calls = asked.choices[0].message.tool_calls
    assert calls is not None
    assert [(call.type, json.loads(call.function.arguments)) for call in calls] == [  # type: ignore[union-attr]
        ("function", {"at": "sea"}),
        ("function", {"at": "sky"}),
    ]
    assert asked.choices[0].finish_reason == "tool_calls"
    messages.append(asked.choices[0].message.to_dict())
    messages += [{"role": "tool", "tool_call_id": call.id, "content": f"a boat at {n}"} for n, call in enumerate(calls)]
    answer = client.chat.completions.create(model="demo", messages=messages, tools=[LOOK])
    assert "a boat at 1" in str(answer.choices[0].message.content)


def test_calls_come_in_pieces_in_a_stream(client: OpenAI) -> None:
    steps = script(
        {"say": "I look.", "calls": [{"name": "look", "arguments": {"at": "sea"}}, {"name": "look", "arguments": {"at": "sky"}}]}
    )
    with client.chat.completions.stream(model="demo", messages=[user(steps)], tools=[LOOK]) as stream:  # type: ignore[list-item]
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert (message.content, final.choices[0].finish_reason) == ("I look.", "tool_calls")
    assert [json.loads(call.function.arguments)["at"] for call in message.tool_calls or ()] == ["sea", "sky"]


class Boat(BaseModel):
    name: str
    masts: int


def test_a_schema_is_kept_to(client: OpenAI) -> None:
    answer = client.chat.completions.parse(model="demo", messages=[user("A boat, please.")], response_format=Boat)  # type: ignore[list-item]
    assert answer.choices[0].message.parsed == Boat(name="demo", masts=0)


PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_pictures_and_files_are_taken(client: OpenAI) -> None:
    file = client.files.create(file=("a.txt", b"words"), purpose="user_data")
    content = [
        {"type": "text", "text": script(say("seen"))},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "file", "file": {"file_id": file.id}},
    ]
    answer = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": content}])  # type: ignore[misc,list-item]
    assert answer.choices[0].message.content == "seen"


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
def test_a_hosted_shell_runs_here_and_only_the_answer_goes_out(stack: Stack, is_streamed: bool) -> None:
    steps = script({"say": "I look first.", **shell("echo made > out.txt; cat out.txt")}, say("It says {{output}}."))
    body = {"model": "demo", "messages": [user(steps)], "tools": [SHELL], "stream": is_streamed}
    with stack.http() as http:
        answer = http.post("/chat/completions", json=body)
    if is_streamed:
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        text = "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines)
    else:
        completion = TypeAdapter(ChatCompletion).validate_python(answer.json(), strict=True)
        text = str(completion.choices[0].message.content)
        assert completion.choices[0].message.tool_calls is None
    assert "made" in text
    assert "I look first." not in text


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
def test_an_answer_ends_before_a_stop_word(client: OpenAI, is_streamed: bool) -> None:
    asked: Any = {"model": "demo", "messages": [user(script(say("one two STOP three")))], "stop": ["STOP", "never"]}
    answer: Any = client.chat.completions.create(**asked, stream=is_streamed)
    if is_streamed:
        chunks = list(answer)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two "
        assert chunks[-1].choices[0].finish_reason == "stop"
    else:
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("one two ", "stop")


def test_a_short_bound_is_kept_and_told(client: OpenAI) -> None:
    """The Responses API asks for 16 tokens at least, this one for 1."""
    for bound in ({"max_tokens": 1}, {"max_completion_tokens": 2}):
        answer = client.chat.completions.create(model="demo", messages=[user("hi")], **bound)  # type: ignore[call-overload]
        assert answer.choices[0].finish_reason in ("length", "stop")


def test_a_failure_before_the_first_word_is_an_http_error_also_in_a_stream(stack: Stack) -> None:
    steps = script({"fail": {"status": 429, "times": 0}}, say("never"))
    with stack.http() as http:
        for is_streamed in (False, True):
            answer = http.post("/chat/completions", json={"model": "demo", "messages": [user(steps)], "stream": is_streamed})
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")


def test_a_key_makes_two_requests_one(stack: Stack) -> None:
    """The answer is not kept, but neither are the commands run again: whoever comes too late is told."""
    steps = script(shell("echo run >> chat-once; sleep 2; cat chat-once"), say("{{output}}"))
    body = {"model": "demo", "messages": [user(steps)], "tools": [SHELL]}
    headers = {"Idempotency-Key": "chat-once"}
    with stack.http() as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post("/chat/completions", json=body, headers=headers, timeout=1.5)
        answer = http.post("/chat/completions", json=body, headers=headers)
        while answer.status_code == 409 and answer.json()["error"]["code"] == "idempotency_key_pending":
            answer = http.post("/chat/completions", json=body, headers=headers)
    if answer.status_code == 200:
        assert answer.json()["choices"][0]["message"]["content"] == "[exit code 0]\nrun"
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_used")
    assert containers_named(stack, "chat-once") == 1


def test_what_has_no_effect_is_told(stack: Stack) -> None:
    body = {"model": "demo", "messages": [user("hi") | {"name": "ann"}], "seed": 1, "n": 1, "frequency_penalty": 0, "store": True}
    with stack.http() as http:
        answer = http.post("/chat/completions", json=body)
    assert answer.status_code == 200
    notice = answer.headers["x-moorage-notice"]
    assert [word in notice for word in ("'seed'", "'store'", "'name'", "'n'", "'frequency_penalty'")] == [
        True,
        True,
        True,
        False,
        False,
    ]


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": None}, "messages"),
    "messages that are none": ({"messages": "hi"}, "messages"),
    "an empty list": ({"messages": []}, "messages"),
    "a role that is none": ({"messages": [{"role": "narrator", "content": "x"}]}, "messages[0].role"),
    "a part that is none": ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"),
    "audio": ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
    "a call without an id": (
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": ""}}]}]},
        "messages[0].tool_calls[0].id",
    ),
    "an output of no call": ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages"),
    "several answers": ({"n": 2}, "n"),
    "old functions": ({"functions": []}, "functions"),
    "an unknown parameter": ({"foo": 1}, "foo"),
    "a parameter of the other protocol": ({"input": "x"}, "input"),
    "a bound that is none": ({"max_tokens": 0}, "max_tokens"),
    "too many stop words": ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    "a tool of no kind": ({"tools": [{"type": "hammer"}]}, "tools[0].type"),
    "a shell of the client's": ({"tools": [{"type": "shell", "environment": {"type": "local"}}]}, "tools[0].environment"),
    "a temperature beyond bounds": ({"temperature": 3}, "temperature"),
    "an effort that is none": ({"reasoning_effort": "herculean"}, "reasoning_effort"),
}


@pytest.mark.parametrize(("fields", "param"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_be_is_refused_by_its_name(stack: Stack, fields: dict[str, Any], param: str) -> None:
    with stack.http() as http:
        answer = http.post("/chat/completions", json={"model": "demo", "messages": [user("hi")]} | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_an_unknown_model_and_a_wrong_key_are_told_as_everywhere(stack: Stack, client: OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        stack.client("sk-wrong").chat.completions.create(model="demo", messages=[user("hi")])  # type: ignore[list-item]
    with stack.http() as http:
        assert http.post("/chat/completions", content=b"{").status_code == 400
