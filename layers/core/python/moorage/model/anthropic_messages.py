"""Anthropic's Messages API.

Thinking blocks travel with their signatures in ``encrypted_content`` and go back unchanged, as tool use with thinking demands.
Prompt caching is asked for at the end of the instructions and of the last two user turns, so that each step reads what the step
before it wrote.
"""

import re
from collections.abc import AsyncGenerator, Collection
from dataclasses import field
from functools import partial
from typing import Any, Final, Literal

import orjson

from moorage.dataclass import dataclass
from moorage.model import anthropic_computer, base, content, reasoning
from moorage.model.anthropic_computer import HOSTED_COMPUTER
from moorage.model.base import Delta, ModelRequest
from moorage.model.http import Decoder, Upstream, broken, error_in_stream, json_event, says_much
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
from moorage.net.sse import SseParser

VERSION: Final = "2023-06-01"
OUTPUT_TOKENS_DEFAULT: Final = 16_384
"""The API wants a bound; models.toml's max_output_tokens changes it."""

_BUDGETS: Final = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_768}
"""Thinking tokens for models before 4.6, which take a budget instead of an effort."""

_WITH_BUDGET: Final = re.compile(r"claude-3|claude-(?:opus|sonnet|haiku)-4(?:-[015](?!\d)|-2\d|@|$)")
_WITH_TOOLSETS: Final = re.compile(r"claude-(?:opus|sonnet|haiku|fable|mythos)-[5-9]|claude-opus-4-8")
"""Models that take the toolset for computers (Anthropic's guide "Computer use tool"); older ones take another tool, or none."""
_EFFORTS: Final = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_ANSWER_TOKENS_MIN: Final = 1_024
_EPHEMERAL: Final = {"type": "ephemeral"}
_JSON_PLEASE: Final = "Answer with one JSON object and nothing else."


@dataclass(frozen=True, slots=True)
class AnthropicMessages:
    upstream: Upstream
    native_tools: frozenset[str] = frozenset({"function"})
    output_tokens_max: int = OUTPUT_TOKENS_DEFAULT

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        body = partial(request_body, request, output_tokens_max=self.output_tokens_max)
        return self.upstream.stream(body, lambda: unfenced(self._decoder(request), request), is_long=says_much(request))

    def _decoder(self, request: ModelRequest) -> Decoder:
        decoder = MessagesDecoder(self.upstream.secrets)
        if HOSTED_COMPUTER not in self.native_tools:
            return decoder
        return anthropic_computer.ToolsetDecoder(decoder, anthropic_computer.pointer_of(request.items))


# --- the request ----------------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest, *, output_tokens_max: int = OUTPUT_TOKENS_DEFAULT) -> dict[str, Any]:
    items = anthropic_computer.expanded(request.items)
    turns = ConversationTurns.of(request.instructions, items)
    format_ = (request.text or {}).get("format") or {}
    if format_.get("type") == "json_object":
        turns.system.append(_JSON_PLEASE)
    bound = min(request.max_output_tokens or output_tokens_max, output_tokens_max)
    thinking = thinking_fields(request, bound, is_possible=not turns.lacks_thought)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": bound,
        "messages": _cached([{"role": turn.role, "content": [_block(b) for b in turn.blocks]} for turn in turns.turns]),
        "stream": True,
    }
    if turns.system:
        body["system"] = [{"type": "text", "text": text} for text in turns.system]
        body["system"][-1] |= {"cache_control": _EPHEMERAL}
    if format_.get("type") == "json_schema":
        body["output_config"] = {"format": {"type": "json_schema", "schema": format_["schema"]}}
    if not thinking:
        # A thinking model takes neither; Anthropic's scale of temperature ends at 1, OpenAI's at 2.
        sampling = {"temperature": request.temperature, "top_p": request.top_p}
        body |= {key: min(value, 1.0) for key, value in sampling.items() if value is not None}
    user = request.safety_identifier or request.user
    if user:
        body["metadata"] = {"user_id": user}
    output_config = body.get("output_config", {}) | thinking.pop("output_config", {})
    return (
        body
        | _tools(request, turns, is_thinking=bool(thinking), has_used_toolset=anthropic_computer.is_used(items))
        | thinking
        | ({"output_config": output_config} if output_config else {})
    )


def natives_of(model: str, *, is_anthropics: bool, asked: str | None) -> frozenset[str]:
    """The tools that a model takes as they are; ``asked`` is ``computer`` of models.toml. Other servers than Anthropic's own may not
    know the newest."""
    has_toolset = asked == "native" or (asked is None and is_anthropics and _WITH_TOOLSETS.match(model) is not None)
    return frozenset({"function", HOSTED_COMPUTER} if has_toolset else {"function"})


def thinking_fields(request: ModelRequest, output_tokens: int, *, is_possible: bool) -> dict[str, Any]:
    """``thinking`` and the effort, for the model's generation; empty when it should not, or cannot, think."""
    effort = (request.reasoning or {}).get("effort")
    if effort in (None, "none") or not is_possible:
        return {}
    if not _WITH_BUDGET.search(request.model):
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": _EFFORTS.get(effort, "high")}}
    budget = min(_BUDGETS.get(effort, 8_192), output_tokens - _ANSWER_TOKENS_MIN)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _BUDGETS["minimal"] else {}


def _tools(request: ModelRequest, turns: ConversationTurns, *, is_thinking: bool, has_used_toolset: bool) -> dict[str, Any]:
    tools, choice = chosen_tools(request)
    has_toolset = any(tool["type"] == anthropic_computer.FAMILY for tool in request.tools)
    if not tools and not has_toolset:
        tools, choice = turns.stand_ins(), "none"
        has_toolset = has_used_toolset
    if not tools and not has_toolset:
        return {}
    named = [
        {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "input_schema": tool.get("parameters") or {"type": "object", "properties": {}},
        }
        for tool in tools
    ]
    named += [anthropic_computer.TOOLSET] if has_toolset else []
    chosen: dict[str, Any] = {"type": choice if isinstance(choice, str) else "tool"}
    if chosen["type"] == "required":
        chosen["type"] = "any"
    if isinstance(choice, dict):
        chosen["name"] = choice["name"]
    if is_thinking and chosen["type"] in ("any", "tool"):
        chosen = {"type": "auto"}  # A thinking model cannot be forced.
    if not request.parallel_tool_calls and chosen["type"] != "none":
        chosen["disable_parallel_tool_use"] = True
    return {"tools": named} | ({"tool_choice": chosen} if chosen != {"type": "auto"} else {})


def _block(block: Block) -> dict[str, Any]:
    match block:
        case TextContent(text):
            return {"type": "text", "text": text}
        case ImageContent(url):
            return {"type": "image", "source": _source(url)}
        case FileContent(name, source):
            return _document(name, source)
        case ToolUse(call_id, name, input_, toolset):
            family = {"toolset_name": toolset} if toolset else {}
            return {"type": "tool_use", "id": tool_id(call_id), "name": name, "input": input_, **family}
        case ToolResult(call_id, parts):
            return {"type": "tool_result", "tool_use_id": tool_id(call_id), "content": [_block(part) for part in parts]}
        case ReasoningContent(thought):
            return thought


def tool_id(call_id: str) -> str:
    """Call ids that clients made may hold characters that the upstream refuses."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)


def _source(url: str) -> dict[str, Any]:
    data = content.data_of(url)
    if data is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": data.media_type, "data": data.base64}


def _document(name: str, source: str) -> dict[str, Any]:
    data = content.data_of(source)
    if data is not None and data.media_type.startswith("text/"):
        return {"type": "text", "text": f"[file {name}]\n{content.text_of_data(data)}"}
    if data is None and not source.startswith(("http://", "https://")):
        data = content.InlineData("application/pdf", source)
    where = _source(source) if data is None else {"type": "base64", "media_type": data.media_type, "data": data.base64}
    return {"type": "document", "source": where, "title": name}


def _cached(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cache points at the end of the last two user turns: this step writes the later one and reads the earlier."""
    users = [message for message in messages if message["role"] == "user"]
    for message in users[-2:]:
        message["content"][-1] = message["content"][-1] | {"cache_control": _EPHEMERAL}
    return messages


# --- the stream -------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MessagesDecoder:
    secrets: Collection[str] = field(default=(), repr=False)
    is_finished: bool = False
    _sse: SseParser = field(default_factory=SseParser)
    _open: Literal["text", "thinking", "tool_use", "other"] | None = None
    _thought: dict[str, Any] = field(default_factory=dict)
    _pieces: dict[str, list[str]] = field(default_factory=dict)
    """What came of the open thought, by the name of the text that it belongs to."""
    _has_text: bool = False
    """The open message has begun: before its first word it is none, for some blocks stay empty."""
    _has_arguments: bool = False
    _calls: int = 0
    _reason: str | None = None
    _usage: dict[str, int] = field(default_factory=dict)

    def feed(self, piece: bytes) -> list[Delta]:
        return self._events([event.data for event in self._sse.feed(piece)])

    def end(self) -> list[Delta]:
        deltas = self._events([event.data for event in self._sse.end()])
        if not self.is_finished:
            raise broken("it ended without message_stop")
        return deltas

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        """A message that came at once, read as the stream that it stands for."""
        deltas = self._event({"type": "message_start", "message": body | {"content": []}})
        for index, block in enumerate(body["content"]):
            deltas += self._event({"type": "content_block_start", "index": index, "content_block": block})
            if block["type"] == "tool_use":
                deltas += self._delta({"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()})
            deltas += self._stop()
        self._reason = body.get("stop_reason") or "end_turn"
        return deltas + self._finish()

    def _events(self, payloads: list[str]) -> list[Delta]:
        deltas: list[Delta] = []
        for data in payloads:
            if self.is_finished:
                break
            deltas += self._event(json_event(data))
        return deltas

    def _event(self, event: dict[str, Any]) -> list[Delta]:
        match event.get("type"):
            case "message_start":
                self._count(event["message"].get("usage") or {})
            case "content_block_start":
                return self._start(event["content_block"])
            case "content_block_delta":
                return self._delta(event["delta"])
            case "content_block_stop":
                return self._stop()
            case "message_delta":
                self._reason = event["delta"].get("stop_reason") or self._reason
                self._count(event.get("usage") or {})
            case "message_stop":
                return self._finish()
            case "error":
                raise error_in_stream(event["error"], secrets=self.secrets)
        return []

    def _count(self, usage: dict[str, Any]) -> None:
        """Later figures replace earlier ones; servers that say 0 first and the truth at the end are understood."""
        self._usage |= {key: value for key in usage if (value := counted(usage, key))}

    def _start(self, block: dict[str, Any]) -> list[Delta]:
        match block["type"]:
            case "text":
                # Text with citations comes in several blocks of one message.
                closed = [] if self._open == "text" else self._close()
                self._open = "text"
                return [*closed, *self._text(block.get("text") or "")]
            case "thinking" | "redacted_thinking":
                closed = self._close()
                self._open = "thinking"
                self._thought, self._pieces = dict(block), {}
                text = block.get("thinking")
                return [*closed, base.ReasoningStarted(), *([base.SummaryDelta(text)] if text else [])]
            case "tool_use":
                closed = self._close()
                self._open, self._has_arguments = "tool_use", False
                self._calls += 1
                return [*closed, base.CallStarted(block["name"], block["id"], namespace=block.get("toolset_name"))]
        closed = self._close()
        self._open = "other"
        return closed

    def _delta(self, delta: dict[str, Any]) -> list[Delta]:
        match delta["type"]:
            case "text_delta":
                return self._text(delta["text"])
            case "thinking_delta":
                self._pieces.setdefault("thinking", []).append(delta["thinking"])
                return [base.SummaryDelta(delta["thinking"])] if delta["thinking"] else []
            case "signature_delta":
                self._pieces.setdefault("signature", []).append(delta["signature"])
            case "input_json_delta" if self._open == "tool_use" and delta["partial_json"]:
                self._has_arguments = True
                return [base.CallDelta(delta["partial_json"])]
        return []

    def _text(self, text: str) -> list[Delta]:
        if not text:
            return []
        begun: list[Delta] = [] if self._has_text else [base.MessageStarted()]
        self._has_text = True
        return [*begun, base.TextDelta(text)]

    def _stop(self) -> list[Delta]:
        """The end of a block. Text and calls stay open: more text may follow, and only the message's end says whether it was cut."""
        return [] if self._open in ("text", "tool_use") else self._close()

    def _close(self, *, is_cut: bool = False) -> list[Delta]:
        open_, self._open = self._open, None
        has_text, self._has_text = self._has_text, False
        match open_:
            case None | "other":
                return []
            case "text" if not has_text:
                return []
            case "thinking":
                grown = {name: "".join([self._thought.get(name) or "", *pieces]) for name, pieces in self._pieces.items()}
                return [base.ItemDone(reasoning.pack(THINKING, self._thought | grown))]
            case "tool_use" if not self._has_arguments and not is_cut:
                return [base.CallDelta("{}"), base.ItemDone()]
        return [base.ItemDone(is_cut=is_cut)]

    def _finish(self) -> list[Delta]:
        finished = base.StreamFinished(finish_reason(self._reason, has_calls=self._calls > 0))
        deltas = self._close(is_cut=finished.is_cut)
        self.is_finished = True
        usage = self._usage
        cached, written = usage.get("cache_read_input_tokens", 0), usage.get("cache_creation_input_tokens", 0)
        reported = base.UsageReported(
            input_tokens=usage.get("input_tokens", 0) + cached + written,
            output_tokens=usage.get("output_tokens", 0),
            cached_tokens=cached,
            cache_write_tokens=written,
        )
        return [*deltas, reported, finished]
