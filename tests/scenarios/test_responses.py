"""The everyday requests, through the OpenAI SDK."""

import gzip
import json
import zlib
from typing import Any

import httpx
import openai
import pytest
from moorage import limits
from openai import OpenAI

from tests.stack import Stack, assert_well_formed, raw_events, say, script

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def test_a_plain_request_is_answered_and_can_be_read_back(client: OpenAI) -> None:
    made = client.responses.create(model="demo", input=script(say("The answer is 42.")), metadata={"run": "7"})
    assert made.output_text == "The answer is 42."
    assert (made.status, made.error, made.metadata, made.model) == ("completed", None, {"run": "7"}, "demo")
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens > 0
    assert client.responses.retrieve(made.id) == made


def test_a_stream_has_the_recorded_order_and_adds_up_to_the_response(stack: Stack) -> None:
    body = {"model": "demo", "input": script(say("one two")), "stream": True, "stream_options": {"include_obfuscation": False}}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    with stack.http() as http:
        assert http.get(f"/responses/{events[0]['response']['id']}").json() == events[-1]["response"]


def test_the_sdk_stream_helper_understands_the_stream(client: OpenAI) -> None:
    with client.responses.stream(model="demo", input=script({"reason": "Hm.", "say": "Well."})) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_text == "Well."


def test_deltas_are_padded_unless_the_client_declines(stack: Stack) -> None:
    body = {"model": "demo", "input": "hello", "stream": True}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        deltas = [event for event in raw_events(answer.iter_lines()) if event["type"].endswith("text.delta")]
    assert deltas
    assert all((len(delta["delta"]) + len(delta["obfuscation"])) % 16 == 0 for delta in deltas)


def test_a_function_call_goes_to_the_client_and_its_output_back_to_the_model(client: OpenAI) -> None:
    first = client.responses.create(
        model="demo",
        input=script({"call": {"name": "get_weather", "arguments": {"city": "Bergen"}}}, say("It says: {{output}}")),
        tools=[WEATHER],  # type: ignore[list-item]
    )
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments), call.status) == ("get_weather", {"city": "Bergen"}, "completed")
    second = client.responses.create(
        model="demo",
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain, 9 degrees"}],
        tools=[WEATHER],  # type: ignore[list-item]
    )
    assert second.output_text == "It says: rain, 9 degrees"
    assert second.previous_response_id == first.id


def test_parallel_function_calls_come_together(client: OpenAI) -> None:
    calls = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Bergen", "Oslo")]
    response = client.responses.create(
        model="demo",
        input=script({"calls": calls}),
        tools=[WEATHER],  # type: ignore[list-item]
    )
    assert [json.loads(call.arguments)["city"] for call in response.output if call.type == "function_call"] == ["Bergen", "Oslo"]


def test_a_chain_of_two_hundred_responses_remembers_its_beginning(client: OpenAI) -> None:
    previous = client.responses.create(model="demo", input="The word is mooring.")
    for number in range(199):
        previous = client.responses.create(model="demo", input=f"turn {number}", previous_response_id=previous.id)
    last = client.responses.create(model="demo", input="end", previous_response_id=previous.id)
    assert last.usage is not None
    assert previous.usage is not None
    assert last.usage.input_tokens > previous.usage.input_tokens > 199 * 4


def test_input_items_are_listed_in_pages(client: OpenAI) -> None:
    made = client.responses.create(
        model="demo",
        input=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"}],
    )
    newest_first = list(client.responses.input_items.list(made.id, limit=1))
    assert [item.role for item in newest_first if item.type == "message"] == ["user", "developer"]
    oldest_first = client.responses.input_items.list(made.id, order="asc")
    assert [item.id for item in oldest_first.data] == [item.id for item in reversed(newest_first)]


def test_a_deleted_response_is_gone(client: OpenAI) -> None:
    made = client.responses.create(model="demo", input="hello")
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(made.id)
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(model="demo", input="more", previous_response_id=made.id)
    assert refusal.value.code == "previous_response_not_found"


def test_an_item_reference_finds_an_item_of_an_earlier_response(client: OpenAI) -> None:
    first = client.responses.create(model="demo", input=script(say("The word is capstan.")))
    plain = client.responses.create(model="demo", input="hello")
    referring: Any = [{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "hello"}]
    with_item = client.responses.create(model="demo", input=referring)
    assert plain.usage is not None
    assert with_item.usage is not None
    assert with_item.usage.input_tokens > plain.usage.input_tokens
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.create(model="demo", input=[{"type": "item_reference", "id": "msg_" + "0" * 48}])


@pytest.mark.parametrize(
    ("what", "body", "status", "code", "param"),
    [
        ("no JSON", b"{", 400, None, None),
        ("not an object", b"[]", 400, None, None),
        ("an unknown parameter", b'{"model":"demo","input":"x","colour":"red"}', 400, "unknown_parameter", "colour"),
        ("a wrong type", b'{"model":7,"input":"x"}', 400, "invalid_type", "model"),
        ("no input", b'{"model":"demo"}', 400, "missing_required_parameter", "input"),
        (
            "an unknown previous response",
            b'{"model":"demo","input":"x","previous_response_id":"resp_0"}',
            400,
            "previous_response_not_found",
            "previous_response_id",
        ),
        (
            "an output without its call",
            b'{"model":"demo","input":[{"type":"function_call_output","call_id":"call_1","output":"x"}]}',
            400,
            None,
            "input",
        ),
    ],
)
def test_bad_input_is_refused_with_a_sentence(
    stack: Stack, what: str, body: bytes, status: int, code: str | None, param: str | None
) -> None:
    with stack.http() as http:
        answer = http.post("/responses", content=body, headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert answer.status_code == status, what
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], len(error["message"]) > 10) == (param, True)
    assert code is None or error["code"] == code


def test_an_oversized_body_is_refused(stack: Stack) -> None:
    with stack.http() as http:
        answer = http.post("/responses", content=b" " * (limits.REQUEST_BODY_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


def test_a_gzip_body_is_unpacked_within_the_same_bound(stack: Stack) -> None:
    said = json.dumps({"model": "demo", "input": "hi"}).encode()
    packed = gzip.compress(said)
    bodies = {
        "whole": (packed, "gzip"),
        "in two members": (gzip.compress(said[:9]) + gzip.compress(said[9:]), "GZIP"),
        "cut": (packed[:-9], "gzip"),
        "not gzip": (said, "gzip"),
        "too large unpacked": (gzip.compress(b" " * (limits.REQUEST_BODY_BYTES_MAX + 1)), "gzip"),
        "packed in another way": (zlib.compress(said), "deflate"),
    }
    with stack.http() as http:
        answers = {
            what: http.post("/responses", content=body, headers={"content-encoding": encoding}).json()
            for what, (body, encoding) in bodies.items()
        }
    assert {what: answer.get("status") or answer["error"]["code"] for what, answer in answers.items()} == {
        "whole": "completed",
        "in two members": "completed",
        "cut": "invalid_body",
        "not gzip": "invalid_body",
        "too large unpacked": "request_too_large",
        "packed in another way": "unsupported_content_encoding",
    }


def test_an_unknown_path_and_a_wrong_method_are_refused_in_the_same_form(stack: Stack) -> None:
    with stack.http() as http:
        assert http.get("/nothing").json()["error"]["code"] == "unknown_url"
        assert http.post("/responses/", json={}).json()["error"]["code"] == "unknown_url", "not sent elsewhere"
        assert http.put("/responses").json()["error"]["code"] == "method_not_supported"


def test_pages_of_other_origins_are_not_let_in(stack: Stack) -> None:
    page = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    with stack.http() as http:
        answers = [
            http.options("/responses", headers=page | {"access-control-request-method": "POST"}),
            http.get("/models", headers=page),
            http.post("/responses", headers=page | {"content-type": "text/plain"}, content='{"model": "demo", "input": "hello"}'),
            http.get("/models", headers={"host": "rebound.evil.example"}),
        ]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert [name for answer in answers for name in answer.headers if name.startswith("access-control-")] == []


def test_no_key_no_request(stack: Stack) -> None:
    for headers in ({}, {"authorization": "Bearer sk-wrong"}, {"authorization": "Basic abc"}):
        answer = httpx.get(f"{stack.url}/responses/resp_0", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.headers["x-request-id"].startswith("req_")
