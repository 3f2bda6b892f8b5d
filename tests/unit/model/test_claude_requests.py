"""What Claude is asked: its generations think in their own ways, and it takes no conversation as it comes."""

from dataclasses import replace
from typing import Any

import pytest
from moorage.model import anthropic_messages, bedrock_converse
from moorage.model.base import ModelRequest

from tests.unit.model.test_requests import EPHEMERAL, ITEMS, REQUEST, text

GENERATIONS: dict[str, dict[str, Any]] = {
    "claude-3-7-sonnet-20250219": {"thinking": {"type": "enabled", "budget_tokens": 8_192}},
    "claude-sonnet-4-20250514": {"thinking": {"type": "enabled", "budget_tokens": 8_192}},
    "claude-opus-4-1-20250805": {"thinking": {"type": "enabled", "budget_tokens": 8_192}},
    "us.anthropic.claude-haiku-4-5-20251001-v1:0": {"thinking": {"type": "enabled", "budget_tokens": 8_192}},
    "claude-opus-4-6": {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "medium"}},
    "claude-sonnet-5": {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "medium"}},
}


@pytest.mark.parametrize(("model", "fields"), GENERATIONS.items(), ids=GENERATIONS.keys())
def test_each_generation_of_claude_is_asked_to_think_in_its_own_way(model: str, fields: dict[str, Any]) -> None:
    request = ModelRequest(model, ({"role": "user", "content": "hi"},), reasoning={"effort": "medium"})
    assert anthropic_messages.thinking_fields(request, 16_384, is_possible=True) == fields


def test_a_thinking_claude_is_given_no_sampling_and_no_forced_tool() -> None:
    request = replace(REQUEST, reasoning={"effort": "high"}, temperature=0.2, top_p=0.5, tool_choice="required")
    body = anthropic_messages.request_body(request)
    assert "thinking" in body
    assert not {"temperature", "top_p", "tool_choice"} & set(body)


def test_a_budget_that_leaves_no_room_for_an_answer_is_no_thinking() -> None:
    request = ModelRequest(
        "claude-sonnet-4-5", ({"role": "user", "content": "hi"},), reasoning={"effort": "high"}, max_output_tokens=1_500
    )
    assert "thinking" not in anthropic_messages.request_body(request)


def test_claude_does_not_begin_to_think_in_the_middle_of_a_turn_without_thought() -> None:
    items = tuple(item for item in ITEMS if item.get("type") != "reasoning")
    request = replace(REQUEST, items=items, reasoning={"effort": "high"})
    assert "thinking" not in anthropic_messages.request_body(request)


def test_earlier_calls_name_their_tools_even_if_none_is_offered_now() -> None:
    request = replace(REQUEST, tools=())
    empty = {"type": "object", "properties": {}}
    body = anthropic_messages.request_body(request)
    assert (body["tools"], body["tool_choice"]) == ([{"name": "look", "description": "", "input_schema": empty}], {"type": "none"})
    assert bedrock_converse.request_body(request)["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "look", "description": "look", "inputSchema": {"json": empty}}}]
    }


def test_a_conversation_that_the_assistant_begins_is_given_a_first_word() -> None:
    request = ModelRequest("m", ({"role": "assistant", "content": [text("Hello!", "output_text")]}, {"role": "user", "content": "hi"}))
    roles = [message["role"] for message in anthropic_messages.request_body(request)["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_a_text_file_is_shown_to_claude_as_text() -> None:
    part = {"type": "input_file", "filename": "a.csv", "file_data": "data:text/csv;base64,YSxiCg=="}
    (message,) = anthropic_messages.request_body(ModelRequest("m", ({"role": "user", "content": [part]},)))["messages"]
    assert message["content"] == [{"type": "text", "text": "[file a.csv]\na,b\n", "cache_control": EPHEMERAL}]
