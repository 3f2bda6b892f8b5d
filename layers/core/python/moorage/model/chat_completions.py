"""Upstreams that speak Chat Completions: Ollama, LM Studio, vLLM, LiteLLM, llama.cpp, and OpenAI's own.

Servers differ, so the request says no more than it must, and the reading forgives what is missing: ids, indexes, usage, streaming
itself, and tool calls and reasoning that come as text (``spoken_calls.py``, ``thinking_tags.py``).

Assistant messages hold the calls of one turn, each followed by its ``tool`` message, as strict servers demand. Rendering goes
through the items once; a turn that is complete is never rendered differently later.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import orjson

from moorage.model import base, content, reasoning, tokens
from moorage.model.base import Delta, Item, ModelRequest, Tool
from moorage.model.http import Decoder, Upstream, broken, error_in_stream, json_event
from moorage.model.sequence import Sequence
from moorage.model.spoken_calls import chosen_tools, listening
from moorage.model.thinking_tags import Kind, ThinkingTags
from moorage.net.sse import SseParser

Dialect = Literal["generic", "openai"]
"""``openai``: knows the ``developer`` role, ``max_completion_tokens``, ``prompt_cache_key`` and ``verbosity``."""

_EXTRA_FOR_OPENAI: Final = ("service_tier", "safety_identifier", "user", "prompt_cache_retention")


@dataclass(frozen=True, slots=True)
class ChatCompletions:
    upstream: Upstream
    native_tools: frozenset[str] = frozenset({"function"})
    dialect: Dialect = "generic"
    replays_reasoning: bool = False
    """Send reasoning text back as ``reasoning_content``, for models that think between tool calls and expect it."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        body = request_body(request, dialect=self.dialect, replays_reasoning=self.replays_reasoning)
        return self.upstream.stream(body, lambda: decoder_for(request, self.upstream.secrets))


# --- the request ----------------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest, *, dialect: Dialect = "generic", replays_reasoning: bool = False) -> dict[str, Any]:
    is_openai = dialect == "openai"
    format_ = (request.text or {}).get("format")
    optional = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "logprobs": True if request.top_logprobs is not None or "message.output_text.logprobs" in request.include else None,
        "top_logprobs": request.top_logprobs,
        "max_completion_tokens" if is_openai else "max_tokens": request.max_output_tokens,
        "reasoning_effort": (request.reasoning or {}).get("effort"),
        "response_format": _response_format(format_) if format_ else None,
    }
    if is_openai:
        optional |= {key: request.extra[key] for key in _EXTRA_FOR_OPENAI if key in request.extra}
        optional |= {"prompt_cache_key": request.prompt_cache_key, "verbosity": (request.text or {}).get("verbosity")}
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages(request, dialect=dialect, replays_reasoning=replays_reasoning),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return body | _tools(request) | {key: value for key, value in optional.items() if value is not None}


def _tools(request: ModelRequest) -> dict[str, Any]:
    tools, choice = chosen_tools(request)
    if not tools:
        return {}
    body: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    if choice != "auto":
        body["tool_choice"] = choice if isinstance(choice, str) else {"type": "function", "function": {"name": choice["name"]}}
    if not request.parallel_tool_calls:
        body["parallel_tool_calls"] = False
    return body


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool["name"], "parameters": tool.get("parameters") or {"type": "object", "properties": {}}}
    if tool.get("description"):
        function["description"] = tool["description"]
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _response_format(format_: dict[str, Any]) -> dict[str, Any] | None:
    match format_["type"]:
        case "json_schema":
            kept = ("name", "description", "schema", "strict")
            return {"type": "json_schema", "json_schema": {k: format_[k] for k in kept if format_.get(k) is not None}}
        case "json_object":
            return {"type": "json_object"}
    return None


def messages(request: ModelRequest, *, dialect: Dialect = "generic", replays_reasoning: bool = False) -> list[dict[str, Any]]:
    rendering = _Rendering("developer" if dialect == "openai" else "system", replays_reasoning)
    if request.instructions:
        rendering.messages.append({"role": rendering.system_role, "content": request.instructions})
    for item in request.items:
        rendering.add(item)
    return rendering.finished()


@dataclass(slots=True)
class _Rendering:
    system_role: str
    replays_reasoning: bool
    messages: list[dict[str, Any]] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)
    """Calls of the last assistant message that have no ``tool`` message yet."""
    images: list[dict[str, Any]] = field(default_factory=list)
    """Pictures out of tool outputs: they follow the turn's last ``tool`` message, because that takes only text."""
    reasoning: str = ""

    def add(self, item: Item) -> None:
        match item.get("type", "message"):
            case "message" if content.role_of(item) == "assistant":
                self._assistant(item)
            case "message":
                self._flush_images()
                self.messages.append(self._said(item))
            case "function_call":
                self._call(item)
            case "function_call_output":
                self._output(item)
            case "reasoning":
                self.reasoning += reasoning.text_of(item)

    def finished(self) -> list[dict[str, Any]]:
        self._flush_images()
        return self.messages

    def _said(self, item: Item) -> dict[str, Any]:
        role = content.role_of(item)
        role = self.system_role if role in ("system", "developer") else role
        parts = content.parts_of(item.get("content"))
        texts = [content.text_of(part) for part in parts]
        if all(text is not None for text in texts):
            return {"role": role, "content": "\n\n".join(text or "" for text in texts)}
        return {"role": role, "content": [_part(part) for part in parts]}

    def _assistant(self, item: Item) -> None:
        """Joins the open message only while its calls wait for their outputs: nothing may come between the two."""
        text = content.plain_text(item.get("content"))
        if self.unanswered:
            last = self.messages[-1]
            last["content"] = "\n\n".join(part for part in (last["content"], text) if part)
        else:
            self._flush_images()
            self.messages.append(self._assistant_message(text))

    def _assistant_message(self, text: str | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.reasoning and self.replays_reasoning:
            message["reasoning_content"] = self.reasoning
        self.reasoning = ""
        return message

    def _call(self, item: Item) -> None:
        self._flush_images(unless_waiting=True)
        last = self.messages[-1] if self.messages else {}
        is_open = last.get("role") == "assistant" and (self.unanswered or "tool_calls" not in last)
        if not is_open:
            last = self._assistant_message(None)
            self.messages.append(last)
        function = {"name": item["name"], "arguments": item.get("arguments") or "{}"}
        last.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})
        self.unanswered.add(item["call_id"])

    def _output(self, item: Item) -> None:
        parts = content.parts_of(item.get("output"))
        self.messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content.plain_text(parts)})
        self.images += [_part(part) for part in parts if content.image_url_of(part)]
        self.unanswered.discard(item["call_id"])

    def _flush_images(self, *, unless_waiting: bool = False) -> None:
        if self.images and not (unless_waiting and self.unanswered):
            self.messages.append({"role": "user", "content": self.images})
            self.images = []


def _part(part: dict[str, Any]) -> dict[str, Any]:
    text = content.text_of(part)
    if text is not None:
        return {"type": "text", "text": text}
    url = content.image_url_of(part)
    if url:
        detail = {"detail": part["detail"]} if part.get("detail") in ("low", "high", "auto") else {}
        return {"type": "image_url", "image_url": {"url": url} | detail}
    file = content.file_of(part)
    if file is not None and content.data_of(file[1]) is not None:
        return {"type": "file", "file": {"filename": file[0], "file_data": file[1]}}
    return {"type": "text", "text": f"[file {file[0]}: {file[1]}]" if file else content.plain_text([part])}


# --- the stream -------------------------------------------------------------------------------------------------------------------


def decoder_for(request: ModelRequest, secrets: tuple[str, ...] = ()) -> Decoder:
    return listening(ChatDecoder(secrets, partial(tokens.estimate_request, request)), request)


@dataclass(slots=True)
class ChatDecoder:
    secrets: tuple[str, ...] = field(default=(), repr=False)
    prompt_tokens: Callable[[], int] = lambda: 0
    """An estimate, for servers that report no usage."""
    is_finished: bool = False
    _sse: SseParser = field(default_factory=SseParser)
    _tags: ThinkingTags = field(default_factory=ThinkingTags)
    _sequence: Sequence = field(default_factory=Sequence)
    _arguments: dict[int, str] = field(default_factory=dict)
    """Arguments so far, by index of the tool call."""
    _texts: int = 0
    """Messages and reasoning items so far; the number is part of their key."""
    _open_text: tuple[str, int] | None = None
    _reason: str | None = None
    _usage: base.UsageReported | None = None
    _service_tier: str | None = None
    _output_chars: int = 0

    def feed(self, piece: bytes) -> list[Delta]:
        return self._events([event.data for event in self._sse.feed(piece)])

    def end(self) -> list[Delta]:
        deltas = self._events([event.data for event in self._sse.end()])
        if self.is_finished:
            return deltas
        if self._reason is None:
            raise broken("it ended without a finish reason")
        return deltas + self._finish()

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        deltas = self._chunk(body)
        if self._reason is None:
            raise broken("it holds no finished choice")
        return deltas + self._finish()

    def _events(self, payloads: list[str]) -> list[Delta]:
        deltas: list[Delta] = []
        for data in payloads:
            if self.is_finished:
                break
            if data == "[DONE]":
                # A server that forgets the finish reason still said its end.
                self._reason = self._reason or "stop"
                deltas += self._finish()
                break
            deltas += self._chunk(json_event(data))
        return deltas

    def _chunk(self, chunk: dict[str, Any]) -> list[Delta]:
        if chunk.get("error"):
            error = chunk["error"]
            raise error_in_stream(error if isinstance(error, dict) else {"message": error}, secrets=self.secrets)
        self._service_tier = chunk.get("service_tier") or self._service_tier
        if chunk.get("usage"):
            self._usage = _usage(chunk["usage"])
        deltas: list[Delta] = []
        for choice in chunk.get("choices") or []:
            if choice.get("index", 0) == 0:
                deltas += self._choice(choice)
        return deltas

    def _choice(self, choice: dict[str, Any]) -> list[Delta]:
        said = choice.get("delta") or choice.get("message") or {}
        deltas: list[Delta] = []
        thought = said.get("reasoning_content") or said.get("reasoning")
        if isinstance(thought, str) and thought:
            deltas += self._say("reasoning", base.ReasoningTextDelta(thought))
            self._output_chars += len(thought)
        text = _text(said.get("content"))
        if text:
            self._output_chars += len(text)
            logprobs = tuple((choice.get("logprobs") or {}).get("content") or ())
            deltas += self._sorted(self._tags.feed(text), logprobs)
        if said.get("refusal"):
            deltas += self._say("message", base.RefusalDelta(said["refusal"]))
        for position, call in enumerate(said.get("tool_calls") or []):
            deltas += self._call(call, position)
        if isinstance(said.get("function_call"), dict):
            deltas += self._call({"function": said["function_call"]}, 0)
        if choice.get("finish_reason"):
            self._reason = choice["finish_reason"]
        return deltas

    def _sorted(self, pieces: list[tuple[Kind, str]], logprobs: tuple[Any, ...] = ()) -> list[Delta]:
        """Text, less the reasoning that a model wrote into it."""
        deltas: list[Delta] = []
        for kind, text in pieces:
            is_text = kind == "text"
            deltas += self._say(
                "message" if is_text else "reasoning", base.TextDelta(text, logprobs) if is_text else base.ReasoningTextDelta(text)
            )
        return deltas

    def _say(self, kind: str, delta: Delta) -> list[Delta]:
        """Text of a message or of reasoning; a change between the two closes the one and opens the other."""
        deltas: list[Delta] = []
        if self._open_text is None or self._open_text[0] != kind:
            deltas += self._close_text()
            self._texts += 1
            self._open_text = (kind, self._texts)
            started = base.MessageStarted() if kind == "message" else base.ReasoningStarted()
            deltas += self._sequence.add(self._open_text, started)
        return deltas + self._sequence.add(self._open_text, delta)

    def _close_text(self) -> list[Delta]:
        key, self._open_text = self._open_text, None
        return self._sequence.close(key) if key is not None else []

    def _call(self, call: dict[str, Any], position: int) -> list[Delta]:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else orjson.dumps(arguments).decode()
        self._output_chars += len(text)
        index = self._index(call, position)
        deltas: list[Delta] = []
        if index not in self._arguments:
            deltas += self._sorted(self._tags.end()) + self._close_text() + self._close_complete()
            self._arguments[index] = ""
            deltas += self._sequence.add(("call", index), base.CallStarted(function["name"], call.get("id") or None))
        if text and ("call", index) in self._sequence:
            self._arguments[index] += text
            deltas += self._sequence.add(("call", index), base.CallDelta(text))
        return deltas

    def _index(self, call: dict[str, Any], position: int) -> int:
        """Servers that omit the index send whole calls: one with a name is a new one."""
        index = call.get("index")
        if isinstance(index, int):
            has_name = bool((call.get("function") or {}).get("name"))
            # Some count every call as number 0; a second id with a name is a second call.
            is_other = has_name and call.get("id") and index in self._arguments and self._is_complete(index)
            return len(self._arguments) if is_other else index
        if (call.get("function") or {}).get("name"):
            return len(self._arguments)
        return max(self._arguments, default=position)

    def _is_complete(self, index: int) -> bool:
        try:
            return isinstance(orjson.loads(self._arguments[index]), dict)
        except orjson.JSONDecodeError:
            return False

    def _close_complete(self) -> list[Delta]:
        """A call whose arguments are whole can go before the others end."""
        return [delta for index in self._arguments if self._is_complete(index) for delta in self._sequence.close(("call", index))]

    def _finish(self) -> list[Delta]:
        finished = base.Finished(self._finish_reason())
        deltas = self._sorted(self._tags.end()) + self._close_complete() + self._sequence.close_all(is_cut=finished.is_cut)
        self.is_finished = True
        output_tokens = (self._output_chars + 3) // 4
        usage = self._usage or base.UsageReported(self.prompt_tokens(), output_tokens)
        return [*deltas, replace(usage, service_tier=self._service_tier), finished]

    def _finish_reason(self) -> base.FinishReason:
        match self._reason:
            case "length" | "max_tokens":
                return "max_output_tokens"
            case "content_filter":
                return "content_filter"
        return "tool_calls" if self._arguments else "stop"


def _text(value: Any) -> str:
    """``content`` is text; a few servers send parts."""
    if isinstance(value, list):
        return "".join(content.text_of(part) or "" for part in value)
    return value if isinstance(value, str) else ""


def _usage(usage: dict[str, Any]) -> base.UsageReported:
    of_prompt = usage.get("prompt_tokens_details") or {}
    of_completion = usage.get("completion_tokens_details") or {}
    return base.UsageReported(
        input_tokens=usage.get("prompt_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=of_prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0,
        cache_write_tokens=of_prompt.get("cache_write_tokens") or 0,
        reasoning_tokens=of_completion.get("reasoning_tokens") or 0,
    )
