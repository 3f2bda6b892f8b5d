"""The prompt only grows at its end: what a step showed the model stands unchanged at the beginning of the next step's prompt."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.model import anthropic_messages, bedrock_converse, chat_completions, openai_responses, reasoning
from moorage.model.base import ModelRequest
from moorage.model.chat_messages import MessageStyle
from moorage.model.turns import THINKING
from moorage.tools.lowering import LoweredInput, lower
from moorage.wire.types import Item, Tool

TOOLS: tuple[Tool, ...] = (
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "exec"},
    {"type": "apply_patch"},
    {"type": "namespace", "name": "crm", "description": "d", "tools": [{"type": "function", "name": "get"}]},
)
STEPS = 20

texts = st.text(alphabet='abcé \n"\\{', min_size=1, max_size=12).filter(lambda text: text.strip() != "")
objects = st.dictionaries(st.sampled_from(["b", "a", "é"]), st.integers(0, 9) | texts, max_size=3)


def said(role: str, text: str) -> Item:
    part = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part, "text": text}]}


def thought(kind: str, text: str) -> Item:
    sealed = "opaque" if kind == "openai" else reasoning.pack(THINKING, {"type": "thinking", "thinking": text, "signature": "s"})
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": sealed}


@st.composite
def calls(draw: st.DrawFn, call_id: str) -> tuple[Item, Item]:
    """A call and its output, of any kind."""
    text = draw(texts)
    match draw(st.sampled_from(["function", "namespaced", "shell", "custom", "apply_patch"])):
        case "shell":
            output = {"stdout": text, "stderr": draw(texts), "outcome": {"type": "exit", "exit_code": 1}}
            return (
                {"type": "shell_call", "id": "sh", "call_id": call_id, "action": {"commands": [text], "timeout_ms": None}},
                {"type": "shell_call_output", "id": "sho", "call_id": call_id, "output": [output]},
            )
        case "custom":
            return (
                {"type": "custom_tool_call", "call_id": call_id, "name": "exec", "input": text},
                {"type": "custom_tool_call_output", "call_id": call_id, "output": text},
            )
        case "apply_patch":
            operation = {"type": "create_file", "path": "p", "diff": f"+{text}"}
            return (
                {"type": "apply_patch_call", "call_id": call_id, "status": "completed", "operation": operation},
                {"type": "apply_patch_call_output", "call_id": call_id, "status": "completed", "output": text},
            )
        case "namespaced":
            call = {
                "type": "function_call",
                "call_id": call_id,
                "name": "get",
                "namespace": "crm",
                "arguments": json.dumps(draw(objects)),
            }
            return call, {"type": "function_call_output", "call_id": call_id, "output": text}
    picture = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA"}
    output_parts = [{"type": "input_text", "text": text}, picture]
    return (
        {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": json.dumps(draw(objects))},
        {"type": "function_call_output", "call_id": call_id, "output": draw(st.sampled_from([text, output_parts]))},
    )


@st.composite
def runs(draw: st.DrawFn) -> list[list[Item]]:
    """The items of each of 20 steps' prompts; each begins with those of the one before."""
    items: list[Item] = [said("developer", draw(texts)), said("user", draw(texts))]
    prompts = [list(items)]
    for step in range(STEPS - 1):
        if draw(st.booleans()):
            items.append(thought(draw(st.sampled_from(["openai", "claude"])), draw(texts)))
        if draw(st.booleans()):
            items.append(said("assistant", draw(texts)))
        made = [draw(calls(f"call_{step}_{n}")) for n in range(draw(st.integers(0, 3)))]
        items += [call for call, _ in made]
        items += draw(st.permutations([output for _, output in made]))
        if not made:
            items += [said("assistant", draw(texts)), said(draw(st.sampled_from(["user", "developer"])), draw(texts))]
        prompts.append(list(items))
    return prompts


def request(lowered: LoweredInput) -> ModelRequest:
    return ModelRequest(model="anthropic.claude-sonnet-5", instructions="Be brief.", items=lowered.items, tools=lowered.tools)


def responses_prompt(lowered: LoweredInput) -> list[Any]:
    body = openai_responses.request_body(request(lowered))
    return [body["tools"], body["instructions"], *body["input"]]


def chat_prompt(lowered: LoweredInput) -> list[Any]:
    body = chat_completions.request_body(request(lowered), MessageStyle(replays_reasoning=True))
    return [body["tools"], *body["messages"]]


def anthropic_prompt(lowered: LoweredInput) -> list[Any]:
    body = anthropic_messages.request_body(request(lowered))
    return [body["tools"], body["system"], *_blocks(body["messages"], lambda block: _without(block, "cache_control"))]


def converse_prompt(lowered: LoweredInput) -> list[Any]:
    body = bedrock_converse.request_body(request(lowered))
    return [body["toolConfig"], body["system"], *_blocks(body["messages"], lambda block: None if "cachePoint" in block else block)]


def _blocks(messages: list[dict[str, Any]], kept: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """Messages as the model reads them: blocks with their side. Marks for the cache are no part of the prompt."""
    return [(m["role"], block) for m in messages for raw in m["content"] if (block := kept(raw)) is not None]


def _without(block: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != key}


PROMPTS: dict[str, Callable[[LoweredInput], list[Any]]] = {
    "openai_responses": responses_prompt,
    "chat_completions": chat_prompt,
    "anthropic_messages": anthropic_prompt,
    "bedrock_converse": converse_prompt,
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS.keys())
@given(run=runs())
@settings(max_examples=40, deadline=None)
def test_a_steps_prompt_is_an_exact_prefix_of_the_next(prompt: Callable[[LoweredInput], list[Any]], run: list[list[Item]]) -> None:
    rendered = [prompt(lower(items, TOOLS, "auto", frozenset({"function"}))) for items in run]
    for before, after in pairwise(rendered):
        assert after[: len(before)] == before
        assert json.dumps(after[: len(before)]) == json.dumps(before)


@given(run=runs(), native=st.sampled_from([frozenset({"function"}), openai_responses.NATIVE_TO_OPENAI]))
@settings(max_examples=40, deadline=None)
def test_the_lowered_form_of_some_items_is_a_prefix_of_the_lowered_form_of_more(run: list[list[Item]], native: frozenset[str]) -> None:
    items = run[-1]
    whole = lower(items, TOOLS, "auto", native)
    for count in range(len(items)):
        part = lower(items[:count], TOOLS, "auto", native)
        assert whole.items[: len(part.items)] == part.items
        assert whole.tools[: len(part.tools)] == part.tools
        assert part.names.items() <= whole.names.items()


@given(run=runs())
@settings(max_examples=20, deadline=None)
def test_every_call_is_followed_by_its_output_before_anything_else_is_said(run: list[list[Item]]) -> None:
    """Strict chat servers refuse anything else."""
    waiting: set[str] = set()
    for message in chat_prompt(lower(run[-1], TOOLS, "auto", frozenset({"function"})))[1:]:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting = {call["id"] for call in message.get("tool_calls", [])}
    assert not waiting
