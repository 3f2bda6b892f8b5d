"""Servers that pass over what they were asked: calls that must not be, and JSON in a fence."""

import json
from dataclasses import replace
from typing import Any

import pytest
from moorage.model import base
from moorage.model.base import Delta, ModelRequest
from moorage.model.chat_completions import decoder_for

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
ASK = ModelRequest("m", ({"role": "user", "content": "hi"},), tools=(LOOK,))
JSON = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}


def stream(*deltas: dict[str, Any], finish: str = "stop") -> list[bytes]:
    choices = [{"index": 0, "delta": delta} for delta in deltas]
    ends = [{"index": 0, "delta": {}, "finish_reason": finish}]
    return [b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n" for choice in choices + ends] + [b"data: [DONE]\n\n"]


def called(*names: str) -> list[bytes]:
    calls = [{"index": n, "id": f"c{n}", "function": {"name": name, "arguments": "{}"}} for n, name in enumerate(names)]
    return stream({"content": "I look."}, *({"tool_calls": [call]} for call in calls), finish="tool_calls")


def heard(request: ModelRequest, pieces: list[bytes]) -> tuple[str, int, str]:
    """The text, the number of calls, and how it ended."""
    decoder = decoder_for(request)
    deltas: list[Delta] = [delta for piece in pieces for delta in decoder.feed(piece)]
    text = "".join(delta.text for delta in deltas if isinstance(delta, base.TextDelta))
    (finished,) = [delta for delta in deltas if isinstance(delta, base.StreamFinished)]
    starts = sum(isinstance(delta, base.CallStarted | base.MessageStarted) for delta in deltas)
    assert starts == sum(isinstance(delta, base.ItemDone) for delta in deltas), "what opens is closed"
    return text, sum(isinstance(delta, base.CallStarted) for delta in deltas), finished.reason


CALLS: dict[str, tuple[ModelRequest, tuple[str, int, str]]] = {
    "as many as it wants": (ASK, ("I look.", 2, "tool_calls")),
    "one at a time": (replace(ASK, parallel_tool_calls=False), ("I look.", 1, "tool_calls")),
    "none": (replace(ASK, tool_choice="none"), ("I look.", 0, "stop")),
}


@pytest.mark.parametrize(("request_", "expected"), CALLS.values(), ids=CALLS.keys())
def test_calls_are_kept_to_what_was_asked(request_: ModelRequest, expected: tuple[str, int, str]) -> None:
    assert heard(request_, called("look", "look")) == expected


ANSWERS: dict[str, tuple[str, str]] = {
    "bare": ('{"a": 1}', '{"a": 1}'),
    "fenced": ('```json\n{"a": 1}\n```', '{"a": 1}'),
    "fenced without a language": ('\n```\n{"a": "``` `"}\n```\n', '{"a": "``` `"}'),
    "fenced and cut off": ('```json\n{"a": 1', '{"a": 1'),
    "a string": ('"```"', '"```"'),
    "no JSON": ("I cannot.", "I cannot."),
}


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(("text", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
def test_a_fence_around_the_json_that_was_asked_for_goes(text: str, expected: str, step: int) -> None:
    pieces = stream(*({"content": text[start : start + step]} for start in range(0, len(text), step)))
    assert heard(replace(ASK, tools=(), text=JSON), pieces)[0] == expected


def test_a_fence_that_nobody_asked_to_leave_out_stays() -> None:
    assert heard(ASK, stream({"content": '```json\n{"a": 1}\n```'}))[0] == '```json\n{"a": 1}\n```'
