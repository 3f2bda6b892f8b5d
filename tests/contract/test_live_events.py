"""Every event and response of a run, read by the newest openai SDK's own types: strictly, and with nothing left over.

The SDK itself takes whatever comes; here its models are validated, and what they have no field for is listed.
"""

from typing import Any

import orjson
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.stack import SHELL, Stack, assert_well_formed, raw_events, say, script, shell

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FUNCTION: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
CALL = {"call": {"name": "get_weather", "arguments": {"city": "Bergen"}}}

STORIES: dict[str, dict[str, Any]] = {
    "a message": {"input": script(say("one two three"))},
    "reasoning, then a message": {"input": script({"reason": "Hm. Hm.", "say": "Well."})},
    "a function call": {"input": script(CALL), "tools": [FUNCTION]},
    "two function calls": {"input": script({"calls": [CALL["call"], CALL["call"]]}), "tools": [FUNCTION]},
    "a custom tool call": {
        "input": script({"call": {"name": "note", "arguments": {"input": "remember"}}}),
        "tools": [{"type": "custom", "name": "note"}],
    },
    "a local shell call": {
        "input": script(shell("ls")),
        "tools": [{"type": "shell", "environment": {"type": "local"}}],
    },
    "the hosted shell": {
        "input": script(shell("echo out; echo err >&2", "exit 3"), shell("date > /mnt/data/now.txt"), say("Made /mnt/data/now.txt")),
        "tools": [SHELL],
    },
    "the code interpreter": {
        "input": script({"python": "print(6 * 7)"}, say("done")),
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
        "include": ["code_interpreter_call.outputs"],
    },
    "an answer cut short": {"input": script(say("word " * 200)), "max_output_tokens": 16},
    "a JSON answer": {
        "input": "a town",
        "text": {"format": {"type": "json_schema", "name": "town", "schema": {"type": "object"}, "strict": False}},
    },
    "a failure": {"input": script({"fail": {"status": 500, "times": 0}}, say("never"))},
    "everything that a request may say": {
        "input": "hello",
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "top_p": 0.5,
        "user": "someone",
        "safety_identifier": "someone",
        "prompt_cache_key": "key",
        "service_tier": "default",
        "truncation": "auto",
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "store": False,
    },
    "a compaction": {"input": [{"role": "user", "content": script(say("notes"))}, {"type": "compaction_trigger"}]},
    "a background response": {"input": script(say("later")), "background": True},
}

_RECORDED = "stands in every recorded live response, and the Open Responses schema demands it"

LEFT_OVER_IS_FINE = {
    ("Response", "store"): _RECORDED,
    ("Response", "frequency_penalty"): _RECORDED,
    ("Response", "presence_penalty"): _RECORDED,
    ("ResponseFunctionCallArgumentsDoneEvent", "name"): "the OpenAPI document demands it, and so did older SDKs",
    ("ResponseCustomToolCall", "status"): "listed items have it, and live streams send it",
}
"""Fields that the SDK's class does not have, each with the reason why it is sent."""


@pytest.mark.parametrize("story", STORIES)
def test_every_event_is_one_of_the_sdk(stack: Stack, story: str) -> None:
    events = told(stack, story)
    assert_well_formed(events)
    for event in events:
        if event["type"] == "error":
            assert set(event["error"]) == {"type", "code", "message", "param"}
            continue
        parsed = EVENTS.validate_json(orjson.dumps(event), strict=True)
        assert parsed.type == event["type"]
        assert left_over(parsed) == set(), event["type"]


@pytest.mark.parametrize("story", STORIES)
def test_every_response_is_one_of_the_sdk(stack: Stack, story: str) -> None:
    final = told(stack, story)[-1]["response"]
    parsed = Response.model_validate_json(orjson.dumps(final), strict=True)
    assert left_over(parsed) == set()
    if STORIES[story].get("store", True):
        with stack.http() as http:
            assert http.get(f"/responses/{final['id']}", params={"include[]": STORIES[story].get("include", [])}).json() == final


def told(stack: Stack, story: str) -> list[dict[str, Any]]:
    with stack.http() as http, http.stream("POST", "/responses", json={"model": "demo", "stream": True} | STORIES[story]) as answer:
        assert answer.status_code == 200, answer.read()
        return raw_events(answer.iter_lines())


def is_fine(kind: str, name: str) -> bool:
    """Deltas are padded, and only some of the SDK's events have the field for it."""
    return (kind, name) in LEFT_OVER_IS_FINE or (name == "obfuscation" and kind.endswith("DeltaEvent"))


def left_over(value: Any, path: str = "") -> set[str]:
    """Paths of the fields that the SDK's models do not know, and that have no reason to be there."""
    if isinstance(value, BaseModel):
        kind = type(value).__name__
        extra = {f"{path}{name}" for name in value.model_extra or {} if not is_fine(kind, name)}
        return extra.union(*(left_over(getattr(value, name), f"{path}{name}.") for name in type(value).model_fields))
    if isinstance(value, list):
        return set().union(*(left_over(entry, path) for entry in value))
    return set()
