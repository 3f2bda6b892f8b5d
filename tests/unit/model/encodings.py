"""One answer of a model, written in the five ways in which upstreams say it, and deltas folded back into something to compare."""

import base64
import binascii
import json
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from moorage.errors import UpstreamError
from moorage.loop.assemble import Assembler
from moorage.model import base
from moorage.model.anthropic_messages import AnthropicMessages
from moorage.model.base import Delta, ModelRequest, Provider
from moorage.model.bedrock_converse import BedrockConverse
from moorage.model.chat_completions import ChatCompletions
from moorage.model.demo import Demo
from moorage.model.http import Upstream
from moorage.model.openai_responses import OpenAIResponses
from moorage.tools.lowering import OriginalTool

# --- what is said -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Thought:
    pieces: tuple[str, ...]
    signature: str = "c2lnbmVk"


@dataclass(frozen=True)
class Called:
    name: str
    pieces: tuple[str, ...]
    call_id: str = "call_1"


@dataclass(frozen=True)
class Usage:
    """``input`` holds the cached and the newly written tokens, ``output`` the reasoning ones."""

    input: int = 100
    cached: int = 60
    written: int = 20
    output: int = 30
    reasoning: int = 10


@dataclass(frozen=True)
class Answer:
    parts: tuple[Said | Thought | Called, ...]
    finish: str = "stop"
    """The canonical reason."""
    usage: Usage = Usage()


def answer(*parts: Said | Thought | Called, finish: str | None = None) -> Answer:
    has_calls = any(isinstance(part, Called) for part in parts)
    return Answer(parts, finish or ("tool_calls" if has_calls else "stop"))


# --- what is understood -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Understood:
    """Deltas, folded: items in order, usage, and the reason of the end."""

    items: tuple[tuple[str, ...], ...]
    usage: base.UsageReported | None = None
    finish: str | None = None


def folded(deltas: list[Delta], *, with_call_ids: bool = True) -> Understood:
    """Items as ``("message", text)``, ``("reasoning", text)``, ``("call", name, call_id, arguments)``."""
    items: list[list[str]] = []
    usage, finish, is_open = None, None, False
    for delta in deltas:
        match delta:
            case base.MessageStarted() | base.ReasoningStarted() | base.CallStarted():
                assert not is_open, "an item was opened while another was open"
                is_open = True
                items.append(_opened(delta, with_call_ids))
            case base.TextDelta(text) | base.SummaryDelta(text) | base.ReasoningTextDelta(text) | base.CallDelta(text):
                assert is_open, "a delta without an open item"
                assert text, "an empty delta"
                items[-1][-1] += text
            case base.RefusalDelta(text):
                items[-1][-1] += f"[refusal]{text}"
            case base.ItemDone():
                assert is_open, "an end without an open item"
                is_open = False
            case base.UsageReported():
                usage = delta
            case base.StreamFinished(reason):
                finish = reason
    assert finish is None or not is_open, "the end came while an item was open"
    return Understood(tuple(tuple(item) for item in items), usage, finish)


def _opened(delta: Delta, with_call_ids: bool) -> list[str]:
    match delta:
        case base.MessageStarted():
            return ["message", ""]
        case base.CallStarted(name, call_id):
            return ["call", name, (call_id or "") if with_call_ids else "", ""]
    return ["reasoning", ""]


def expected(said: Answer, kind: "Kind") -> Understood:
    """What each kind of provider must make of an answer."""
    items: list[tuple[str, ...]] = []
    for part in said.parts:
        text = "".join(part.pieces)
        match part:
            case Said():
                items.append(("message", text))
            case Thought():
                items.append(("reasoning", text))
            case Called(name, _, call_id):
                items.append(("call", name, call_id if kind.has_call_ids else "", text or "{}"))
    usage = said.usage
    reported = base.UsageReported(
        usage.input,
        usage.output,
        usage.cached,
        usage.written if kind.has_cache_writes else 0,
        usage.reasoning if kind.has_reasoning_tokens else 0,
    )
    return Understood(tuple(items), reported if kind.has_usage else None, said.finish)


# --- the five encodings --------------------------------------------------------------------------------------------------------------


def sse(events: Sequence[tuple[str | None, str]], newline: str = "\n") -> bytes:
    lines: list[str] = []
    for name, data in events:
        lines += [f"event: {name}"] if name else []
        lines += [f"data: {data}", ""]
    return (newline.join(lines) + newline).encode()


def responses_stream(said: Answer) -> bytes:
    """In the recorded order of the live API."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "resp_up", "status": "in_progress"}}]
    output = []
    for index, part in enumerate(said.parts):
        place = {"item_id": f"item_{index}", "output_index": index}
        whole = "".join(part.pieces)
        match part:
            case Said(pieces):
                item: dict[str, Any] = {"id": f"msg_{index}", "type": "message", "role": "assistant"}
                content = [{"type": "output_text", "text": whole, "annotations": [], "logprobs": []}]
                done = item | {"status": "completed", "content": content}
                added = item | {"status": "in_progress", "content": []}
                deltas = [{"type": "response.output_text.delta", "content_index": 0, "delta": p, "logprobs": []} for p in pieces]
                deltas.append({"type": "response.output_text.done", "content_index": 0, "text": whole})
            case Thought(pieces, signature):
                item = {"id": f"rs_{index}", "type": "reasoning"}
                done = item | {"summary": [{"type": "summary_text", "text": whole}], "encrypted_content": signature}
                added = item | {"summary": [], "encrypted_content": "part"}
                deltas = [{"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": p} for p in pieces]
                deltas.append({"type": "response.reasoning_summary_text.done", "summary_index": 0, "text": whole})
            case Called(name, pieces, call_id):
                item = {"id": f"fc_{index}", "type": "function_call", "name": name, "call_id": call_id}
                done = item | {"status": "completed", "arguments": whole or "{}"}
                added = item | {"status": "in_progress", "arguments": ""}
                deltas = [{"type": "response.function_call_arguments.delta", "delta": p} for p in pieces]
                deltas.append({"type": "response.function_call_arguments.done", "arguments": whole or "{}"})
        if said.finish in ("max_output_tokens", "content_filter") and part is said.parts[-1] and "status" in done:
            done["status"] = "incomplete"
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        events += [delta | place for delta in deltas]
        events.append({"type": "response.output_item.done", "output_index": index, "item": done})
        output.append(done)
    status, details = {
        "max_output_tokens": ("incomplete", {"reason": "max_output_tokens"}),
        "content_filter": ("incomplete", {"reason": "content_filter"}),
    }.get(said.finish, ("completed", None))
    usage = said.usage
    final = {
        "id": "resp_up",
        "status": status,
        "incomplete_details": details,
        "output": output,
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.written},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }
    events.append({"type": f"response.{status}", "response": final})
    numbered = [event | {"sequence_number": number} for number, event in enumerate(events)]
    return sse([(event["type"], json.dumps(event)) for event in numbered])


def chat_stream(said: Answer) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    calls = 0
    for part in said.parts:
        match part:
            case Said(pieces):
                deltas += [{"content": piece} for piece in pieces]
            case Thought(pieces):
                deltas += [{"reasoning_content": piece} for piece in pieces]
            case Called(name, pieces, call_id):
                head = {"index": calls, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
                deltas.append({"tool_calls": [head]})
                deltas += [{"tool_calls": [{"index": calls, "function": {"arguments": p}}]} for p in pieces or ("{}",)]
                calls += 1
    frame = {"id": "chatcmpl-up", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    reason = {"max_output_tokens": "length"}.get(said.finish, said.finish)
    chunks: list[dict[str, Any]] = [frame | {"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    chunks.append(frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    usage = said.usage
    counted = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
    chunks.append(frame | {"choices": [], "usage": counted})
    return sse([(None, json.dumps(chunk)) for chunk in chunks] + [(None, "[DONE]")])


def anthropic_stream(said: Answer) -> bytes:
    usage = said.usage
    counted = {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.written,
        "output_tokens": 1,
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_up", "role": "assistant", "content": [], "usage": counted}},
        {"type": "ping"},
    ]
    for index, part in enumerate(said.parts):
        match part:
            case Said(pieces):
                block: dict[str, Any] = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
            case Thought(pieces, signature):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
                deltas.append({"type": "signature_delta", "signature": signature})
            case Called(name, pieces, call_id):
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = {"stop": "end_turn", "tool_calls": "tool_use", "max_output_tokens": "max_tokens", "content_filter": "refusal"}
    last = {"stop_reason": reason[said.finish], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": last, "usage": {"output_tokens": usage.output}}, {"type": "message_stop"}]
    return sse([(event["type"], json.dumps(event)) for event in events])


def aws_frame(payload: dict[str, Any], **headers: str) -> bytes:
    """One message of AWS's binary event stream, with its two checksums."""
    named = {":message-type": "event", **{f":{name.replace('_', '-')}": value for name, value in headers.items()}}
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in named.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(packed) + len(body), len(packed))
    message = prelude + struct.pack("!I", binascii.crc32(prelude)) + packed + body
    return message + struct.pack("!I", binascii.crc32(message))


def converse_stream(said: Answer) -> bytes:
    frames = [aws_frame({"role": "assistant"}, event_type="messageStart")]
    for index, part in enumerate(said.parts):
        place = {"contentBlockIndex": index}
        match part:
            case Said(pieces):
                deltas: list[dict[str, Any]] = [{"text": piece} for piece in pieces]
            case Thought(pieces, signature):
                deltas = [{"reasoningContent": {"text": piece}} for piece in pieces]
                deltas.append({"reasoningContent": {"signature": signature}})
            case Called(name, pieces, call_id):
                start = {"toolUse": {"toolUseId": call_id, "name": name}}
                frames.append(aws_frame({"start": start, **place}, event_type="contentBlockStart"))
                deltas = [{"toolUse": {"input": piece}} for piece in pieces]
        frames += [aws_frame({"delta": delta, **place}, event_type="contentBlockDelta") for delta in deltas]
        frames.append(aws_frame(place, event_type="contentBlockStop"))
    reason = {"stop": "end_turn", "tool_calls": "tool_use", "max_output_tokens": "max_tokens", "content_filter": "content_filtered"}
    frames.append(aws_frame({"stopReason": reason[said.finish]}, event_type="messageStop"))
    usage = said.usage
    counted = {
        "inputTokens": usage.input - usage.cached - usage.written,
        "outputTokens": usage.output,
        "cacheReadInputTokens": usage.cached,
        "cacheWriteInputTokens": usage.written,
    }
    return b"".join([*frames, aws_frame({"usage": counted, "metrics": {"latencyMs": 1}}, event_type="metadata")])


def demo_script(said: Answer) -> dict[str, Any]:
    """One step of a script that says the same."""
    step: dict[str, Any] = {"calls": []}
    for part in said.parts:
        text = "".join(part.pieces)
        match part:
            case Said():
                step["say"] = text
            case Thought():
                step["reason"] = text
            case Called(name):
                step["calls"].append({"name": name, "arguments": text or "{}"})
    return step


# --- the five kinds of provider -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """How one kind of provider is built over a client, and what its upstream can tell."""

    name: str
    content_type: str
    encode: Callable[[Answer], bytes]
    build: Callable[[Upstream], Provider]
    has_cache_writes: bool = True
    has_reasoning_tokens: bool = True
    has_call_ids: bool = True
    has_usage: bool = True


RESPONSES = Kind("openai_responses", "text/event-stream", responses_stream, OpenAIResponses)
CHAT = Kind("chat_completions", "text/event-stream; charset=utf-8", chat_stream, ChatCompletions, has_cache_writes=False)
ANTHROPIC = Kind("anthropic_messages", "text/event-stream", anthropic_stream, AnthropicMessages, has_reasoning_tokens=False)
CONVERSE = Kind("bedrock_converse", "application/vnd.amazon.eventstream", converse_stream, BedrockConverse, has_reasoning_tokens=False)
DEMO = Kind("demo", "", lambda said: b"", lambda upstream: Demo(), has_call_ids=False, has_usage=False)
OVER_HTTP = (RESPONSES, CHAT, ANTHROPIC, CONVERSE)
ALL = (*OVER_HTTP, DEMO)


class Pieces(httpx.AsyncByteStream):
    """A body that arrives in given pieces, and ends in an error if told so."""

    def __init__(self, *pieces: bytes, failure: Exception | None = None) -> None:
        self.pieces = pieces
        self.failure = failure
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.failure is not None:
            raise self.failure

    async def aclose(self) -> None:
        self.is_closed = True


def replies(kind: Kind, *pieces: bytes) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": kind.content_type}, stream=Pieces(*pieces))


async def unhurried(seconds: float) -> None:
    """Takes the place of a sleep."""


def provider(kind: Kind, handler: Callable[[httpx.Request], httpx.Response], **fields: Any) -> Provider:
    """A provider whose upstream is a function."""
    transport = httpx.MockTransport(handler)
    settings: dict[str, Any] = {"retries_max": 0, "sleep": unhurried, "jitter": lambda: 0.5} | fields
    return kind.build(
        Upstream(transport, "http://upstream.test", {"authorization": "Bearer sk-secret"}, secrets=("sk-secret",), **settings)
    )


def hello(**fields: Any) -> ModelRequest:
    return ModelRequest(model="m", items=({"type": "message", "role": "user", "content": "hello"},), **fields)


def scripted(step: dict[str, Any]) -> ModelRequest:
    text = f"```moorage-script\n{json.dumps([step])}\n```"
    return ModelRequest(model="demo", items=({"type": "message", "role": "user", "content": text},))


async def understood(kind: Kind, said: Answer) -> Understood:
    """What a provider of this kind makes of an answer in its upstream's words."""
    request = scripted(demo_script(said)) if kind is DEMO else hello()
    served = provider(kind, lambda _: replies(kind, kind.encode(said)))
    result = folded([delta async for delta in served.stream(request)], with_call_ids=kind.has_call_ids)
    return result if kind.has_usage else Understood(result.items, None, result.finish)


async def hear(kind: Kind, asked: ModelRequest, pieces: list[bytes]) -> None:
    """Ask a provider whose upstream answers with these pieces, and put together what it says, as the loop does."""
    assembler = Assembler("resp_" + "a" * 48, lambda event: None, 0, lambda name: OriginalTool("function", name), summarises=True)
    try:
        async for delta in provider(kind, lambda _: replies(kind, *pieces)).stream(asked):
            assembler.feed(delta)
    except UpstreamError as error:
        assembler.abandon(is_said_anew=error.is_retryable)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
