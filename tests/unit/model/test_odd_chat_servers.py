"""Chat Completions servers with habits of their own, through the provider: what they send, and what is made of it."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest
from moorage.errors import UpstreamError
from moorage.model import base
from moorage.model.base import Delta, ModelRequest
from moorage.model.chat_completions import ChatCompletions, ChatDecoder, decoder_for
from moorage.model.http import Upstream
from moorage.wire.types import Item

ASK = ModelRequest("m", ({"role": "user", "content": "hi"},), instructions="Be brief.")
CALLED: tuple[Item, ...] = (
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "I look."},
    {"type": "function_call", "call_id": "aaaaaaaa1", "name": "look", "arguments": "{}"},
    {"type": "function_call", "call_id": "aaaaaaaa2", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "aaaaaaaa1", "output": "1"},
    {"type": "function_call_output", "call_id": "aaaaaaaa2", "output": "2"},
)
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def chunk(delta: dict[str, Any], **choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, **choice}]}).encode() + b"\n\n"


DONE = chunk({}, finish_reason="stop") + b"data: [DONE]\n\n"


def decoded(*pieces: bytes, starts_thinking: bool = False) -> list[Delta]:
    decoder = decoder_for(ASK, starts_thinking=starts_thinking)
    return [delta for piece in (*pieces, DONE) for delta in decoder.feed(piece)]


def said(deltas: list[Delta]) -> dict[str, str]:
    return {
        "reasoning": "".join(delta.text for delta in deltas if isinstance(delta, base.ReasoningTextDelta)),
        "text": "".join(delta.text for delta in deltas if isinstance(delta, base.TextDelta)),
    }


# --- streams ------------------------------------------------------------------------------------------------------------------------


def test_a_byte_order_mark_before_the_first_event_is_passed_over() -> None:
    assert said(decoded(b"\xef\xbb\xbf" + chunk({"content": "hello"})))["text"] == "hello"
    assert said(decoded(b"\xef", b"\xbb\xbfda", chunk({"content": "hello"})[2:]))["text"] == "hello"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_a_character_in_two_halves_is_put_together(field: str) -> None:
    halves = [b'data: {"choices":[{"delta":{"%s":"%s"}}]}\n\n' % (field.encode(), text) for text in (b"a\\ud83d", b"\\ude00b")]
    assert said(decoded(*halves))["text" if field == "content" else "reasoning"] == "a\N{GRINNING FACE}b"


def test_a_half_without_its_other_half_is_shown_as_unreadable() -> None:
    pieces = [b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % text for text in (b"a\\ude00", b"b\\ud83d", b"c")]
    text = said(decoded(*pieces))["text"]
    assert text == "a\ufffdb\ufffdc"
    orjson.dumps(text)


def test_an_only_choice_without_a_number_is_read_to_its_end() -> None:
    pieces = chunk({"content": "He"}, index=None), chunk({"content": "llo"}, index=None, finish_reason="length")
    decoder = decoder_for(ASK)
    deltas = [delta for piece in (*pieces, b"data: [DONE]\n\n") for delta in decoder.feed(piece)]
    assert (said(deltas)["text"], deltas[-1]) == ("Hello", base.StreamFinished("max_output_tokens"))


def test_logprobs_get_the_bytes_and_numbers_that_clients_parse() -> None:
    entry = '{"token":"ü","logprob":-Infinity,"bytes":null,"top_logprobs":[{"token":"x","logprob":NaN,"bytes":null}]}'
    event = 'data: {"choices":[{"delta":{"content":"ü"},"logprobs":{"content":[' + entry + "]}}]}\n\n"
    deltas = decoded(event.encode())
    assert [delta.logprobs for delta in deltas if isinstance(delta, base.TextDelta)] == [
        (
            {
                "token": "ü",
                "logprob": -9999.0,
                "bytes": [195, 188],
                "top_logprobs": [{"token": "x", "logprob": None, "bytes": [120], "top_logprobs": []}],
            },
        )
    ]


@pytest.mark.parametrize("garbage", [b"data: {'a': 1}\n\n", b"data: [1, NaN]\n\n", b"data: {\n\n"])
def test_what_is_no_json_object_breaks_the_stream(garbage: bytes) -> None:
    with pytest.raises(UpstreamError, match=r"not JSON|not a JSON object"):
        ChatDecoder().feed(garbage)


# --- thinking without an opening tag ------------------------------------------------------------------------------------------------

THOUGHTS: dict[str, tuple[list[bytes], dict[str, str]]] = {
    "the template has opened the tag": (
        [chunk({"content": "hmm "}), chunk({"content": "ok</th"}), chunk({"content": "ink>\n\nanswer"})],
        {"reasoning": "hmm ok", "text": "answer"},
    ),
    "the model opens it all the same": ([chunk({"content": "<think>hm</think>answer"})], {"reasoning": "hm", "text": "answer"}),
    "the server sends reasoning apart": (
        [chunk({"reasoning_content": "hm"}), chunk({"content": "answer"})],
        {"reasoning": "hm", "text": "answer"},
    ),
    "it never ends": ([chunk({"content": "hm"})], {"reasoning": "hm", "text": ""}),
}


@pytest.mark.parametrize(("pieces", "expected"), THOUGHTS.values(), ids=THOUGHTS.keys())
def test_an_answer_that_starts_within_its_thinking_is_told_apart(pieces: list[bytes], expected: dict[str, str]) -> None:
    assert said(decoded(*pieces, starts_thinking=True)) == expected


def test_other_models_answers_are_text_from_the_start() -> None:
    assert said(decoded(chunk({"content": "a </think> b"})))["text"] == "a </think> b"


# --- templates that complain --------------------------------------------------------------------------------------------------------


class Server:
    """Answers with what its template says to the messages, or with "ok"."""

    def __init__(self, complaint: Callable[[list[dict[str, Any]]], str | None], status: int = 400) -> None:
        self._complaint = complaint
        self._status = status
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(json.loads(request.content))
        complaint = self._complaint(self.asked[-1]["messages"])
        if complaint is not None:
            return httpx.Response(self._status, json={"error": {"message": complaint, "type": "BadRequestError", "code": 400}})
        return httpx.Response(200, content=chunk({"content": "ok"}) + DONE, headers={"content-type": "text/event-stream"})


async def answered(server: Server, request: ModelRequest) -> str:
    chat = ChatCompletions(Upstream(httpx.MockTransport(server), "http://local/v1/chat/completions", retries_max=0))
    return said([delta async for delta in chat.stream(request)])["text"]


def alternates(messages: list[dict[str, Any]]) -> str | None:
    roles = [m["role"] for m in messages if m["role"] != "system" and m["role"] != "tool" and "tool_calls" not in m]
    wrong = any(role != ("user", "assistant")[index % 2] for index, role in enumerate(roles))
    return "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..." if wrong else None


def counts_everything(messages: list[dict[str, Any]]) -> str | None:
    if messages[0]["role"] == "system":
        return "System role not supported"
    wrong = any(m["role"] != ("user", "assistant")[index % 2] for index, m in enumerate(messages))
    return "Conversation roles must alternate user/assistant/user/assistant/..." if wrong else None


def takes_one_call(messages: list[dict[str, Any]]) -> str | None:
    return "This model only supports single tool-calls at once!" if any(len(m.get("tool_calls", [])) > 1 for m in messages) else None


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(
    ("template", "tries"),
    [(alternates, 2), (counts_everything, 4), (takes_one_call, 2)],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_template_that_complains_is_asked_as_it_wants(
    template: Callable[[list[dict[str, Any]]], str | None], tries: int, status: int
) -> None:
    server = Server(template, status)
    request = ModelRequest("m", (*CALLED, {"role": "user", "content": "and?"}), instructions="Be brief.", tools=(LOOK,))
    assert await answered(server, request) == "ok"
    assert len(server.asked) == tries
    for word in ("Be brief.", "I look.", "look", "and?"):
        assert word in json.dumps(server.asked[-1])


async def test_a_template_that_cannot_be_satisfied_says_so_once_all_was_tried() -> None:
    server = Server(lambda messages: "Conversation roles must alternate user/assistant/user/assistant/...")
    with pytest.raises(UpstreamError, match="roles must alternate"):
        await answered(server, ASK)
    assert len(server.asked) == 3


async def test_another_refusal_is_passed_on_at_once() -> None:
    server = Server(lambda messages: "This model does not support images.")
    with pytest.raises(UpstreamError, match="does not support images"):
        await answered(server, ASK)
    assert len(server.asked) == 1


# --- addresses that are none --------------------------------------------------------------------------------------------------------

PLACES: dict[str, tuple[int, bytes, str, str]] = {
    "created": (201, b"{}", "server_error", "HTTP 201, which is no model's answer. Check its base URL"),
    "nothing": (204, b"", "server_error", "HTTP 204, which is no model's answer. Check its base URL"),
    "elsewhere": (307, b"", "server_error", "HTTP 307, which is no model's answer. Check its base URL"),
    "a page that is not there": (
        404,
        b"<html>Not Found</html>",
        "server_error",
        "HTTP 404, which is no model's answer. Check its base",
    ),
    "a model that is not there": (404, b'{"error":{"message":"The model x does not exist"}}', "model_not_found", "x does not exist"),
    "too much": (413, b"<html></html>", "invalid_prompt", "larger than the model upstream takes"),
}


@pytest.mark.parametrize(("status", "body", "code", "words"), PLACES.values(), ids=PLACES.keys())
async def test_an_answer_that_is_none_says_what_to_check(status: int, body: bytes, code: str, words: str) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=body))
    chat = ChatCompletions(Upstream(transport, "http://local/chat/completions", retries_max=0))
    with pytest.raises(UpstreamError, match=words) as caught:
        [delta async for delta in chat.stream(ASK)]
    assert (caught.value.code, caught.value.is_retryable) == (code, False)
