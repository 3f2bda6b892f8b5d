"""``POST /v1/responses/compact``: a shorter input, and what the model knows from it."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.stack import Stack, say, script

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
