"""The words of upstreams for an end, and their ways to say a usage or a failure after a good status."""

import json
from typing import Any

import pytest
from moorage.errors import UpstreamError
from moorage.model import base
from moorage.model.stream_endings import counted, finish_reason, incomplete_reason

from tests.unit.model.encodings import CHAT, RESPONSES, Kind, hello, provider, replies

_FINISHES = [
    (None, False, "stop"),
    ("STOP", False, "stop"),
    ("tool_calls", True, "tool_calls"),
    ("end_turn", False, "stop"),
    ("tool_use", True, "tool_calls"),
    ("eos_token", False, "stop"),
    ("length", True, "max_output_tokens"),
    ("model_context_window_exceeded", False, "max_output_tokens"),
    ("refusal", False, "content_filter"),
]


@pytest.mark.parametrize(("word", "has_calls", "reason"), _FINISHES)
def test_a_known_word_is_an_end(word: str | None, has_calls: bool, reason: str) -> None:
    assert finish_reason(word, has_calls=has_calls) == reason


@pytest.mark.parametrize(("word", "is_retryable"), [("error", True), ("abort", True), ("network_error", True), ("gave_up", False)])
def test_any_other_word_is_a_failure(word: str, is_retryable: bool) -> None:
    with pytest.raises(UpstreamError, match=repr(word)) as raised:
        finish_reason(word, has_calls=False)
    assert raised.value.is_retryable == is_retryable


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        *((None, "max_output_tokens"), ("max_output_tokens", "max_output_tokens"), ("max_infer_iters", "max_output_tokens")),
        *(("content_filter", "content_filter"), ("safety", "content_filter")),
    ],
)
def test_what_is_called_incomplete_met_a_limit_or_a_filter(word: str | None, reason: str) -> None:
    assert incomplete_reason(word) == reason


def test_an_incomplete_answer_that_was_given_up_is_a_failure() -> None:
    with pytest.raises(UpstreamError, match="'error'") as raised:
        incomplete_reason("error")
    assert raised.value.is_retryable


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        *(({"n": 3}, 3), ({"n": "12"}, 12), ({"n": 12.0}, 12), ({"n": None, "m": 4}, 4)),
        *(({"n": "many"}, 0), ({"n": -1}, 0), ({"n": [1]}, 0)),
    ],
)
def test_numbers_are_read_however_they_are_written(usage: dict[str, Any], expected: int) -> None:
    assert counted(usage, "n", "m") == expected


async def said(kind: Kind, *events: Any, ends: bytes = b"") -> list[base.Delta]:
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + ends
    return [delta async for delta in provider(kind, lambda _: replies(kind, body)).stream(hello())]


def word(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def lookup(call_id: str, arguments: str = "") -> dict[str, Any]:
    called = {"index": 0, "id": call_id, "function": {"name": "look", "arguments": arguments}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [called]}}]}


FAILED = {"id": "resp_up", "status": "failed", "error": None}
_FAILURES: dict[str, tuple[Kind, tuple[Any, ...], bytes, str]] = {
    "an end without a word": (CHAT, (), b"data: [DONE]\n\n", "it ended without a word"),
    "an end inside a call": (CHAT, (lookup("call_1", '{"a'),), b"data: [DONE]\n\n", "it ended inside a call"),
    "a message beside no choices": (CHAT, ({"choices": None, "error_message": "no room"},), b"data: [DONE]\n\n", "no room"),
    "an error as the whole event": (CHAT, ({"object": "error", "message": "too hot", "code": 500},), b"", "too hot"),
    "a bare body": (CHAT, (), b'{"error": {"message": "out of memory", "code": 500}}', "out of memory"),
    "an error beside the response": (
        RESPONSES,
        ({"type": "response.failed", "response": FAILED, "error": {"message": "it fell over", "code": "server_error"}},),
        b"",
        "it fell over",
    ),
}


@pytest.mark.parametrize(("kind", "events", "ends", "words"), _FAILURES.values(), ids=_FAILURES.keys())
async def test_a_failure_after_a_good_status_is_told(kind: Kind, events: tuple[Any, ...], ends: bytes, words: str) -> None:
    with pytest.raises(UpstreamError, match=words) as raised:
        await said(kind, *events, ends=ends)
    assert raised.value.is_retryable


async def test_two_calls_without_arguments_may_share_an_index() -> None:
    deltas = await said(CHAT, lookup("call_a"), lookup("call_b"), word("", "tool_calls"))
    assert [delta.call_id for delta in deltas if isinstance(delta, base.CallStarted)] == ["call_a", "call_b"]


_USAGES = [
    ({"prompt_tokens": "12", "completion_tokens": 3.0}, (12, 3)),
    ({"input_tokens": 12, "output_tokens": 3}, (12, 3)),
    ({"completion_tokens": 3, "total_tokens": 15}, (12, 3)),
    ({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": "none"}, (12, 3)),
]


@pytest.mark.parametrize(("usage", "expected"), _USAGES)
async def test_a_usage_of_another_form_is_read(usage: dict[str, Any], expected: tuple[int, int]) -> None:
    deltas = await said(CHAT, word("Hi", "stop") | {"usage": usage}, ends=b"data: [DONE]\n\n")
    (reported,) = [delta for delta in deltas if isinstance(delta, base.UsageReported)]
    assert (reported.input_tokens, reported.output_tokens) == expected
