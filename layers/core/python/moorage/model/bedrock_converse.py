"""Bedrock's ConverseStream: one form for Claude, Nova, Llama, Mistral and others, with IAM in place of keys.

The API is called over httpx like every other upstream (the request signed by ``sigv4.py``, the answer's binary event stream parsed
by botocore), so that time-outs, retries and closing work in one way.
"""

import base64
import re
import struct
import zlib
from collections.abc import AsyncGenerator
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import quote

import orjson
from botocore.eventstream import EventStreamBuffer, ParserError

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import UpstreamError
from moorage.model import base, content, reasoning
from moorage.model.anthropic_messages import thinking_fields, tool_id
from moorage.model.base import Delta, ModelRequest
from moorage.model.http import Upstream, broken, error_in_stream, says_much
from moorage.model.output_checks import unfenced
from moorage.model.stream_endings import counted, finish_reason
from moorage.model.text_tool_calls import chosen_tools
from moorage.model.turns import (
    THINKING,
    Block,
    ConversationTurns,
    FileContent,
    ImageContent,
    ReasoningContent,
    TextContent,
    ToolResult,
    ToolUse,
)

_IMAGE_FORMATS: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENT_FORMATS: Final = frozenset({"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"})
_CACHE_POINT: Final = {"cachePoint": {"type": "default"}}
_WITH_CACHE: Final = re.compile(r"anthropic\.claude|amazon\.nova")
"""Other models refuse cache points."""

GUARDRAIL: Final = re.compile(r"([a-z0-9]+|arn:aws:bedrock:[a-z0-9-]{1,20}:[0-9]{12}:guardrail/[a-z0-9]+):([1-9][0-9]{0,7}|DRAFT)")
"""``id:version`` (Bedrock API reference, ``GuardrailStreamConfiguration``)."""

_PRELUDE: Final = struct.Struct("!I4xI")
"""Of a message in AWS's event stream: its length with all that it holds, and the checksum of ..."""
_CHECKED_BYTES: Final = 8
"""... so many bytes before it."""

_JSON_PLEASE: Final = "Answer with one JSON object and nothing else."
_OUTPUT_TOKENS_THINKING: Final = 16_384
"""The bound of a thinking Claude that was given none: a budget has to fit under it."""


@dataclass(frozen=True, slots=True)
class BedrockConverse:
    upstream: Upstream
    """``url`` is the endpoint; the model's path is added."""
    native_tools: frozenset[str] = frozenset({"function"})
    output_tokens_max: int | None = None
    guardrail: str | None = None
    """As ``GUARDRAIL`` has it."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        url = f"{self.upstream.url.rstrip('/')}/model/{quote(request.model, safe='')}/converse-stream"
        body = partial(request_body, request, output_tokens_max=self.output_tokens_max, guardrail=self.guardrail)
        return replace(self.upstream, url=url).stream(body, lambda: unfenced(ConverseDecoder(), request), is_long=says_much(request))


# --- the request ----------------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest, *, output_tokens_max: int | None = None, guardrail: str | None = None) -> dict[str, Any]:
    turns = ConversationTurns.of(request.instructions, request.items)
    is_claude = "anthropic" in request.model
    has_cache = _WITH_CACHE.search(request.model) is not None
    format_ = (request.text or {}).get("format") or {}
    if format_.get("type") == "json_object":
        turns.system.append(_JSON_PLEASE)
    bound = request.max_output_tokens or output_tokens_max
    thinking = thinking_fields(request, bound or _OUTPUT_TOKENS_THINKING, is_possible=not turns.lacks_thought) if is_claude else {}
    if thinking and bound is None:
        bound = _OUTPUT_TOKENS_THINKING
    inference = {
        "maxTokens": bound,
        # Converse's scale ends at 1, OpenAI's at 2.
        "temperature": None if thinking or request.temperature is None else min(request.temperature, 1.0),
        "topP": None if thinking else request.top_p,
    }
    body: dict[str, Any] = {"messages": _messages(turns, is_claude=is_claude)}
    if has_cache:
        for message in [m for m in body["messages"] if m["role"] == "user"][-2:]:
            message["content"].append(_CACHE_POINT)
    if turns.system:
        body["system"] = [{"text": text} for text in turns.system] + ([_CACHE_POINT] if has_cache else [])
    if any(value is not None for value in inference.values()):
        body["inferenceConfig"] = {key: value for key, value in inference.items() if value is not None}
    if format_.get("type") == "json_schema":
        schema = {"name": format_["name"], "schema": orjson.dumps(format_["schema"]).decode()}
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
    if thinking:
        body["additionalModelRequestFields"] = thinking
    if guardrail is not None:
        identifier, _, version = guardrail.rpartition(":")
        # Words come when they have been looked at: async would show first what is taken back then.
        mode = {"streamProcessingMode": "sync"}
        body["guardrailConfig"] = {"guardrailIdentifier": identifier, "guardrailVersion": version, **mode}
    return body | _tools(request, turns, is_thinking=bool(thinking))


def _messages(turns: ConversationTurns, *, is_claude: bool) -> list[dict[str, Any]]:
    """Thinking goes back to the models that signed it; to the others it is not theirs."""
    messages = []
    for turn in turns.turns:
        blocks = [_block(block) for block in turn.blocks if is_claude or not isinstance(block, ReasoningContent)]
        if blocks:
            messages.append({"role": turn.role, "content": blocks})
    return messages


def _tools(request: ModelRequest, turns: ConversationTurns, *, is_thinking: bool) -> dict[str, Any]:
    """Converse has no ``none``: the tools are left out, unless earlier calls demand that tools are named."""
    tools, choice = chosen_tools(request)
    if choice == "none" and not turns.stand_ins():
        return {}
    tools = tools or turns.stand_ins()
    if not tools:
        return {}
    specs = [
        {
            "toolSpec": {
                "name": tool["name"],
                "description": tool.get("description") or tool["name"],
                "inputSchema": {"json": tool.get("parameters") or {"type": "object", "properties": {}}},
            }
        }
        for tool in tools
    ]
    config: dict[str, Any] = {"tools": specs}
    if choice == "required" and not is_thinking:
        config["toolChoice"] = {"any": {}}
    elif isinstance(choice, dict) and not is_thinking:
        config["toolChoice"] = {"tool": {"name": choice["name"]}}
    return {"toolConfig": config}


def _block(block: Block) -> dict[str, Any]:
    match block:
        case TextContent(text):
            return {"text": text}
        case ImageContent(url):
            return _image(url)
        case FileContent(name, source):
            return _document(name, source)
        case ToolUse(call_id, name, input_):
            return {"toolUse": {"toolUseId": tool_id(call_id), "name": name, "input": input_}}
        case ToolResult(call_id, parts):
            result = [_block(part) for part in parts] or [{"text": "(no output)"}]
            return {"toolResult": {"toolUseId": tool_id(call_id), "content": result, "status": "success"}}
        case ReasoningContent(thought):
            return {"reasoningContent": _reasoning_content(thought)}


def _reasoning_content(thought: dict[str, Any]) -> dict[str, Any]:
    if thought["type"] == "redacted_thinking":
        return {"redactedContent": thought["data"]}
    text = {"text": thought.get("thinking", "")}
    return {"reasoningText": text | ({"signature": thought["signature"]} if thought.get("signature") else {})}


def _image(url: str) -> dict[str, Any]:
    """Converse takes bytes; it fetches nothing."""
    data = content.data_of(url)
    if data is None or data.media_type not in _IMAGE_FORMATS:
        return {"text": f"[image {url}]" if data is None else f"[image of type {data.media_type}]"}
    return {"image": {"format": _IMAGE_FORMATS[data.media_type], "source": {"bytes": data.base64}}}


def _document(name: str, source: str) -> dict[str, Any]:
    data = content.data_of(source)
    if data is None and source.startswith(("http://", "https://")):
        return {"text": f"[file {name}: {source}]"}
    stem, _, ending = name.rpartition(".")
    format_ = ending.lower() if ending.lower() in _DOCUMENT_FORMATS else "txt"
    # Names may hold letters, digits, single spaces, hyphens, brackets (DocumentBlock.name).
    clean = re.sub(r"\s+", " ", re.sub(r"[^a-zA-Z0-9\s()\[\]-]", " ", stem or name)).strip() or "file"
    return {"document": {"format": format_, "name": clean, "source": {"bytes": data.base64 if data else source}}}


# --- the stream -------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ConverseDecoder:
    is_finished: bool = False
    _buffer: EventStreamBuffer = field(default_factory=EventStreamBuffer)
    _waiting: list[bytes] = field(default_factory=list)
    """Pieces of a message that is not whole: botocore's buffer would copy it at each of them."""
    _waiting_bytes: int = 0
    _wanted_bytes: int = 0
    """How many of them to wait for."""
    _open: Literal["text", "thinking", "tool"] | None = None
    _thought: list[str] = field(default_factory=list)
    _signature: str = ""
    _redacted: list[bytes] = field(default_factory=list)
    _has_arguments: bool = False
    _calls: int = 0
    _reason: str | None = None

    def feed(self, piece: bytes) -> list[Delta]:
        self._waiting.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes < self._wanted_bytes:
            return []
        deltas: list[Delta] = []
        self._buffer.add_data(self._whole_messages())
        messages: Any = self._buffer
        try:
            for message in messages:
                deltas += self._message(message.headers, message.payload)
        except (ParserError, struct.error) as error:
            raise broken("its event stream is damaged") from error
        return deltas

    def _whole_messages(self) -> bytes:
        """Messages that have come whole; a damaged one as it is, for the parser says so."""
        data = b"".join(self._waiting)
        end, self._wanted_bytes = 0, _PRELUDE.size
        while len(data) - end >= _PRELUDE.size:
            size, checksum = _PRELUDE.unpack_from(data, end)
            if checksum != zlib.crc32(data[end : end + _CHECKED_BYTES]) or not _PRELUDE.size < size <= limits.UPSTREAM_EVENT_BYTES_MAX:
                end = len(data)
            elif end + size > len(data):
                self._wanted_bytes = size
                break
            else:
                end += size
        self._waiting, self._waiting_bytes = [data[end:]], len(data) - end
        return data[:end]

    def end(self) -> list[Delta]:
        if self.is_finished:
            return []
        if self._reason is None:
            raise broken("it ended without messageStop")
        # The usage event is lost, the answer is not.
        return self._finish({})

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        deltas: list[Delta] = []
        for block in body["output"]["message"]["content"]:
            if "toolUse" in block:
                use = block["toolUse"]
                deltas += self._start({"toolUse": use})
                deltas += self._delta({"toolUse": {"input": orjson.dumps(use["input"]).decode()}})
            elif "reasoningContent" in block:
                thought = block["reasoningContent"].get("reasoningText") or {}
                deltas += self._delta({"reasoningContent": {"text": thought.get("text", "")}})
                deltas += self._delta({"reasoningContent": {"signature": thought.get("signature", "")}})
            else:
                deltas += self._delta(block)
            deltas += self._stop()
        self._reason = body.get("stopReason")
        return deltas + self._finish(body.get("usage") or {})

    def _message(self, headers: dict[str, Any], payload: bytes) -> list[Delta]:
        kind = headers.get(":message-type")
        value = orjson.loads(payload) if payload else {}
        if kind in ("exception", "error"):
            raise _failure(str(headers.get(":exception-type") or headers.get(":error-code")), value, headers)
        match headers.get(":event-type"):
            case "contentBlockStart":
                return self._start(value["start"])
            case "contentBlockDelta":
                return self._delta(value["delta"])
            case "contentBlockStop":
                return self._stop()
            case "messageStop":
                self._reason = value["stopReason"]
                return self._close(is_cut=self._finished.is_cut)
            case "metadata":
                return self._finish(value.get("usage") or {})
        return []

    def _start(self, start: dict[str, Any]) -> list[Delta]:
        if "toolUse" not in start:
            return []
        closed = self._close()
        self._open, self._has_arguments = "tool", False
        self._calls += 1
        return [*closed, base.CallStarted(start["toolUse"]["name"], start["toolUse"]["toolUseId"])]

    def _delta(self, delta: dict[str, Any]) -> list[Delta]:
        if delta.get("text"):  # Some models say nothing before their words, or behind a call.
            opened = [] if self._open == "text" else [*self._close(), base.MessageStarted()]
            self._open = "text"
            return [*opened, base.TextDelta(delta["text"])]
        if "toolUse" in delta and delta["toolUse"].get("input"):
            if self._open != "tool":
                raise broken("it goes on with a call that has not begun")
            self._has_arguments = True
            return [base.CallDelta(delta["toolUse"]["input"])]
        if "reasoningContent" in delta:
            return self._thinking(delta["reasoningContent"])
        return []

    def _thinking(self, delta: dict[str, Any]) -> list[Delta]:
        opened: list[Delta] = []
        if self._open != "thinking":
            opened = [*self._close(), base.ReasoningStarted()]
            self._open, self._thought, self._signature, self._redacted = "thinking", [], "", []
        if delta.get("redactedContent"):
            self._redacted.append(base64.b64decode(delta["redactedContent"]))
        if delta.get("signature"):
            self._signature += delta["signature"]
        text = delta.get("text") or ""
        self._thought.append(text)
        return [*opened, *([base.SummaryDelta(text)] if text else [])]

    @property
    def _finished(self) -> base.StreamFinished:
        return base.StreamFinished(finish_reason(self._reason, has_calls=self._calls > 0))

    def _stop(self) -> list[Delta]:
        """The end of a block. Text and calls stay open: only the message's end says whether they were cut."""
        return self._close() if self._open == "thinking" else []

    def _close(self, *, is_cut: bool = False) -> list[Delta]:
        open_, self._open = self._open, None
        match open_:
            case None:
                return []
            case "thinking":
                thought = {"type": "thinking", "thinking": "".join(self._thought)}
                if self._signature:
                    thought["signature"] = self._signature
                if self._redacted:
                    thought = {"type": "redacted_thinking", "data": base64.b64encode(b"".join(self._redacted)).decode()}
                return [base.ItemDone(reasoning.pack(THINKING, thought))]
            case "tool" if not self._has_arguments and not is_cut:
                return [base.CallDelta("{}"), base.ItemDone()]
        return [base.ItemDone(is_cut=is_cut)]

    def _finish(self, usage: dict[str, Any]) -> list[Delta]:
        deltas = self._close(is_cut=self._finished.is_cut)
        self.is_finished = True
        cached, written = counted(usage, "cacheReadInputTokens"), counted(usage, "cacheWriteInputTokens")
        reported = base.UsageReported(
            input_tokens=counted(usage, "inputTokens") + cached + written,
            output_tokens=counted(usage, "outputTokens"),
            cached_tokens=cached,
            cache_write_tokens=written,
        )
        return [*deltas, reported, self._finished]


def _failure(kind: str, value: dict[str, Any], headers: dict[str, Any]) -> UpstreamError:
    """``modelStreamErrorException`` is the model's own trouble; it passes as a server error."""
    message = value.get("message") or headers.get(":error-message") or kind
    code = "server_error" if kind == "modelStreamErrorException" else kind
    return error_in_stream({"code": code, "message": message})
