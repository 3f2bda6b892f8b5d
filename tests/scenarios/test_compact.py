"""Compaction in its three forms: a request of its own, a trigger, and a threshold."""

from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.stack import SHELL, Stack, assert_well_formed, raw_events, say, script, shell

LONG: Any = [{"role": "assistant", "content": "word " * 1_000}] * 4
"""5,000 tokens by the estimate."""

PARSED: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)

NOTES: Any = script(say("The launch is on Tuesday."))


def test_the_output_is_the_users_messages_and_one_sealed_item(client: OpenAI) -> None:
    history: list[Any] = [
        {"role": "user", "content": "When do we launch?"},
        {"role": "assistant", "content": "On Tuesday."},
        {"role": "user", "content": NOTES},
    ]
    compacted = client.responses.compact(model="demo", input=history)
    assert (compacted.object, compacted.id.startswith("resp_")) == ("response.compaction", True)
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    questions = [getattr(item.content[0], "text", None) for item in compacted.output if item.type == "message"]
    assert questions == ["When do we launch?", NOTES]
    sealed = compacted.output[-1]
    assert sealed.type == "compaction"
    assert "Tuesday" not in sealed.encrypted_content
    assert compacted.usage.total_tokens > 0


def test_the_next_request_goes_on_from_it(stack: Stack, client: OpenAI) -> None:
    first = client.responses.create(model="demo", input=NOTES)
    with stack.http() as http:
        compacted = http.post("/responses/compact", json={"model": "demo", "previous_response_id": first.id}).json()
    items: list[Any] = compacted["output"]
    question: Any = {"role": "user", "content": "go on"}
    with_notes = client.responses.input_tokens.count(model="demo", input=[*items, question]).input_tokens
    without = client.responses.input_tokens.count(model="demo", input=[*items[:-1], question]).input_tokens
    assert with_notes > without
    followed = client.responses.create(model="demo", input=[*items, question])
    assert followed.status == "completed"
    assert client.responses.create(model="demo", input="more", previous_response_id=followed.id).status == "completed"


def test_what_another_deployment_sealed_is_refused(client: OpenAI) -> None:
    items: list[Any] = [{"type": "compaction", "encrypted_content": "gAAAA"}, {"role": "user", "content": "go on"}]
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(model="demo", input=items)
    assert (refusal.value.code, refusal.value.param) == ("invalid_encrypted_content", "input[0].encrypted_content")


@pytest.mark.parametrize(
    ("what", "body", "param"),
    [
        ("no model", {"input": "x"}, "model"),
        ("no input", {"model": "demo"}, "input"),
        ("tools", {"model": "demo", "input": "x", "tools": []}, "tools"),
    ],
)
def test_a_bad_request_is_refused(stack: Stack, what: str, body: dict[str, Any], param: str) -> None:
    with stack.http() as http:
        answer = http.post("/responses/compact", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), what


def test_a_trigger_is_answered_with_one_item_that_carries_the_conversation(stack: Stack, client: OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": NOTES}, {"role": "assistant", "content": "word " * 2_000}]
    body = {"model": "demo", "input": [*history, {"type": "compaction_trigger"}], "stream": True, "store": False}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    (item,) = events[-1]["response"]["output"]
    assert [PARSED.validate_python(event).to_dict() for event in events[2:-1]] == [
        {
            "type": "response.output_item.added",
            "sequence_number": 2,
            "output_index": 0,
            "item": {"id": item["id"], "type": "compaction", "encrypted_content": ""},
        },
        {"type": "response.compaction.compacting", "sequence_number": 3, "output_index": 0, "item_id": item["id"]},
        {"type": "response.output_item.done", "sequence_number": 4, "output_index": 0, "item": item},
    ]
    assert (item["type"], set(item)) == ("compaction", {"id", "type", "encrypted_content"})
    followed = client.responses.create(model="demo", input=[item, {"role": "user", "content": "go on"}])
    assert followed.usage is not None
    assert followed.usage.input_tokens < 200


def test_a_chain_goes_on_from_a_trigger_without_what_it_stands_for(client: OpenAI) -> None:
    first = client.responses.create(model="demo", input=[{"role": "user", "content": "hello"}, *LONG])
    trigger: Any = [{"type": "compaction_trigger"}]
    second = client.responses.create(model="demo", input=trigger, previous_response_id=first.id)
    assert [item.type for item in second.output] == ["compaction"]
    third = client.responses.create(model="demo", input="go on", previous_response_id=second.id)
    assert third.usage is not None
    assert third.usage.input_tokens < 1_000
    listed = client.responses.input_items.list(third.id)
    assert len(listed.data) == 1


def test_a_prompt_over_the_threshold_is_compacted_and_the_response_goes_on(stack: Stack, client: OpenAI) -> None:
    first = client.responses.create(model="demo", input=[{"role": "user", "content": "hello"}, *LONG])
    body = {
        "model": "demo",
        "input": script(say("still here")),
        "previous_response_id": first.id,
        "context_management": [{"type": "compaction", "compact_threshold": 4_000}],
        "stream": True,
    }
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    final = events[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["compaction", "message"]
    assert final["output"][1]["content"][0]["text"] == "still here"
    count = client.responses.input_tokens.count(model="demo", input="more", previous_response_id=final["id"])
    assert count.input_tokens < 3_000


def test_under_the_threshold_nothing_happens(client: OpenAI) -> None:
    context: Any = [{"type": "compaction", "compact_threshold": 100_000}]
    made = client.responses.create(
        model="demo",
        input=script(shell("echo one"), say("done")),
        tools=[SHELL],  # type: ignore[list-item]
        context_management=context,
    )
    assert [item.type for item in made.output] == ["shell_call", "shell_call_output", "message"]


def test_a_loop_that_grows_over_the_threshold_is_compacted_between_its_steps(client: OpenAI) -> None:
    made = client.responses.create(
        model="demo",
        input=script({"say": "Counting.", **shell("seq 3000")}, say("done")),
        tools=[SHELL],  # type: ignore[list-item]
        context_management=[{"type": "compaction", "compact_threshold": 2_000}],
        max_tool_calls=1,
    )
    assert [item.type for item in made.output][:4] == ["message", "shell_call", "shell_call_output", "compaction"]
    assert (made.status, made.output[-1].type) == ("completed", "message")
