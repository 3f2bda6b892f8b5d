"""The prompt only grows at its end: what prompt caching lives on. Every provider, over a run of twenty steps."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from moorage.model import anthropic_messages, bedrock_converse, chat_completions, openai_responses
from moorage.model.base import ItemRelayed, ModelRequest, ReasoningStarted, StreamFinished, SummaryDelta, UsageReported

from tests.unit.loop.lab import SHELL_TOOL, Lab, Turn, broken, say, shell

STEPS = 20
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}


def native_shell(number: int) -> Turn:
    action = {"commands": [f"step {number}"]}
    item = ItemRelayed({"type": "shell_call", "call_id": f"call_{number}", "action": action})
    return [ReasoningStarted(), SummaryDelta("hm"), item, UsageReported(10, 2), StreamFinished("tool_calls")]


def lowered_shell(number: int) -> Turn:
    return shell(f"step {number}", f"again {number}", call_id=f"call_{number}")


@pytest.mark.parametrize(
    ("provider", "render", "key", "native", "turn"),
    [
        ("openai_responses", openai_responses.request_body, "input", {"function", "shell"}, native_shell),
        ("openai_responses without a shell", openai_responses.request_body, "input", {"function"}, lowered_shell),
        ("chat_completions", chat_completions.request_body, "messages", {"function"}, lowered_shell),
        ("anthropic_messages", anthropic_messages.request_body, "messages", {"function"}, lowered_shell),
        ("bedrock_converse", bedrock_converse.request_body, "messages", {"function"}, lowered_shell),
    ],
)
async def test_each_prompt_begins_with_the_one_before_it(
    provider: str,
    render: Callable[[ModelRequest], dict[str, Any]],
    key: str,
    native: set[str],
    turn: Callable[[int], Turn],
) -> None:
    turns = [turn(number) for number in range(STEPS)]
    turns.insert(7, broken("This is cut off"))
    lab = Lab(*turns, say("Done."), native_tools=frozenset(native))
    stored = await lab.background(tools=[SHELL_TOOL, FUNCTION])
    await lab.run(stored)
    bodies = [_without_cache_marks(render(request)) for request in lab.model.requests]
    assert len(bodies) == STEPS + 2
    for earlier, later in itertools.pairwise(bodies):
        head = later[key][: len(earlier[key])]
        assert head == earlier[key], provider
        assert _frame(later, key) == _frame(earlier, key), provider
    assert len(json.dumps(bodies[-1][key])) > len(json.dumps(bodies[0][key]))


def _frame(body: dict[str, Any], key: str) -> str:
    """Everything but the conversation, in the order in which it is rendered: tools, instructions, options."""
    return json.dumps({name: value for name, value in body.items() if name != key})


def _without_cache_marks(value: Any) -> Any:
    """A cache mark says where the cached prefix ends. It moves on with each step and is no part of the prompt."""
    if isinstance(value, dict):
        return {name: _without_cache_marks(one) for name, one in value.items() if name != "cache_control"}
    if isinstance(value, list):
        return [_without_cache_marks(one) for one in value if one != {"cachePoint": {"type": "default"}}]
    return value
