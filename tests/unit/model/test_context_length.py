"""An input that the provider finds too long is OpenAI's ``context_length_exceeded``, whichever protocol says so, and however."""

import json
from typing import Any

import httpx
import pytest
from moorage.errors import UpstreamError
from moorage.model import http

from tests.unit.model.encodings import ANTHROPIC, CHAT, CONVERSE, OVER_HTTP, RESPONSES, Kind, aws_frame, hello, provider, replies, sse

OPENAI = {
    "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "type": "invalid_request_error",
    "param": "input",
    "code": "context_length_exceeded",
}
VLLM = {"message": "This model's maximum context length is 8192 tokens.", "type": "BadRequestError", "code": 400}
CLAUDE = {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}
BEDROCK = {"message": "Input is too long for requested model."}

REFUSALS: dict[str, tuple[Kind, httpx.Response]] = {
    "Responses, nested": (RESPONSES, httpx.Response(400, json={"error": OPENAI})),
    "Chat Completions, nested": (CHAT, httpx.Response(400, json={"error": OPENAI | {"param": "messages"}})),
    "Chat Completions, flat": (CHAT, httpx.Response(400, json={"object": "error", **VLLM})),
    "Anthropic": (ANTHROPIC, httpx.Response(400, json={"type": "error", "error": CLAUDE})),
    "Converse": (CONVERSE, httpx.Response(400, json=BEDROCK, headers={"x-amzn-errortype": "ValidationException:http://internal/"})),
}


def event(payload: dict[str, Any]) -> bytes:
    return sse([(payload.get("type"), json.dumps(payload))])


STREAMED: dict[str, tuple[Kind, bytes]] = {
    "Responses, a failed response": (
        RESPONSES,
        event({"type": "response.failed", "response": {"status": "failed", "error": {"code": OPENAI["code"], "message": "m"}}}),
    ),
    "Responses, nested": (RESPONSES, event({"type": "error", "error": OPENAI})),
    "Responses, flat": (RESPONSES, event({"type": "error", "code": OPENAI["code"], "message": "m", "param": "input"})),
    "Chat Completions": (CHAT, sse([(None, json.dumps({"error": VLLM}))])),
    "Anthropic": (ANTHROPIC, event({"type": "error", "error": CLAUDE})),
    "Converse": (CONVERSE, aws_frame(BEDROCK, message_type="exception", exception_type="validationException")),
}


async def refused(kind: Kind, answer: httpx.Response) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        async for _ in provider(kind, lambda _: answer, retries_max=1).stream(hello()):
            pass
    return caught.value


def facts(error: UpstreamError) -> tuple[str, str | None, bool]:
    return error.code, error.param, error.is_retryable


@pytest.mark.parametrize(("kind", "answer"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_refused_input_is_too_long_in_every_protocol(kind: Kind, answer: httpx.Response) -> None:
    assert facts(await refused(kind, answer)) == ("context_length_exceeded", "input", False)


@pytest.mark.parametrize(("kind", "body"), STREAMED.values(), ids=STREAMED.keys())
async def test_a_stream_that_ends_for_it_says_so_in_every_protocol(kind: Kind, body: bytes) -> None:
    assert facts(await refused(kind, replies(kind, body))) == ("context_length_exceeded", "input", False)


def test_every_protocol_is_in_both_tables() -> None:
    every = {kind.name for kind in OVER_HTTP}
    assert {kind.name for kind, _ in REFUSALS.values()} == {kind.name for kind, _ in STREAMED.values()} == every


WORDS = (
    "input length and `max_tokens` exceed context limit: 199211 + 20000 > 200000, decrease input length or `max_tokens` and try again",
    "The decoder prompt (length 12345) is longer than the maximum model length of 8192.",
    "The engine prompt length 9000 exceeds the max_model_len 8192. Please reduce prompt.",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "the input length exceeds the context length",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200 `max_new_tokens`",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "Invalid request: Your request exceeded model token limit: 8192",
)


@pytest.mark.parametrize("message", WORDS)
def test_the_words_of_providers_without_a_code_are_known(message: str) -> None:
    error = http.refusal(400, {}, {"error": {"message": message, "type": "invalid_request_error"}}, secrets=(), now=0)
    assert facts(error) == ("context_length_exceeded", "input", False)
    assert error.message == message


OTHERS: dict[str, tuple[int, dict[str, Any], str]] = {
    "Bedrock asks for patience": (429, {"message": "Too many tokens, please wait before trying again."}, "rate_limit_exceeded"),
    "a limit of tokens a minute": (
        429,
        {"error": {"message": "Request too large for gpt on tokens per min (TPM): Limit 30000, Requested 40000.", "type": "tokens"}},
        "rate_limit_exceeded",
    ),
    "an output that is too long": (
        400,
        {"error": {"message": "max_tokens is too large: 99999. This model supports at most 16384 completion tokens."}},
        "invalid_prompt",
    ),
}


@pytest.mark.parametrize(("status", "body", "code"), OTHERS.values(), ids=OTHERS.keys())
def test_other_complaints_about_tokens_are_not_taken_for_it(status: int, body: dict[str, Any], code: str) -> None:
    assert http.refusal(status, {}, body, secrets=(), now=0).code == code


def test_a_stream_that_is_throttled_may_be_asked_for_again() -> None:
    error = http.error_in_stream({"code": "throttlingException", "message": "Too many tokens, please wait before trying again."})
    assert facts(error) == ("rate_limit_exceeded", None, True)
