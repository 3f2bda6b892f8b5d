"""Upstreams that speak Chat Completions: Ollama, LM Studio, vLLM, LiteLLM, llama.cpp, and OpenAI's own.

Servers differ, so the request says no more than it must, and the reading forgives what is missing: ids, indexes, usage, streaming
itself, and tool calls and reasoning that come as text (``text_tool_calls.py``, ``thinking_tags.py``).

What has been said becomes messages in ``chat_messages.py``.
"""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import field, replace
from functools import partial
from typing import Any, Final

import orjson

from moorage.dataclass import dataclass
from moorage.errors import UpstreamError
from moorage.model import base, chat_templates, content, tokens
from moorage.model.base import Delta, ModelRequest
from moorage.model.chat_messages import GENERIC, MessageStyle, messages
from moorage.model.http import Decoder, Upstream, broken, error_in_stream, json_event, says_much
from moorage.model.output_checks import obeying
from moorage.model.sequence import Sequence
from moorage.model.stream_endings import counted, details, error_beside, finish_reason
from moorage.model.text_tool_calls import chosen_tools, listening
from moorage.model.thinking_tags import Kind, ThinkingTags
from moorage.net.sse import SseParser
from moorage.parallel import worked
from moorage.wire.types import Tool

_FOR_OPENAI: Final = ("service_tier", "safety_identifier", "user", "prompt_cache_key", "prompt_cache_retention")


@dataclass(frozen=True, slots=True)
class ChatCompletions:
    upstream: Upstream
    native_tools: frozenset[str] = frozenset({"function"})
    style: MessageStyle = GENERIC
    starts_thinking: bool = False
    """The model's template opens ``<think>``, so that an answer begins within it."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """A template that refuses its input is asked again in the way of its complaint."""
        style = self.style
        while True:
            has_spoken = False
            try:
                async with aclosing(self._asked(request, style)) as deltas:
                    async for delta in deltas:
                        has_spoken = True
                        if isinstance(delta, base.UsageReported) and not delta.input_tokens:
                            delta = replace(delta, input_tokens=await _estimated(request))
                        yield delta
                return
            except UpstreamError as error:
                stricter = None if has_spoken or style.is_openai else chat_templates.after_complaint(style.template, error.message)
                if stricter is None:
                    raise
            style = replace(style, template=stricter)

    def _asked(self, request: ModelRequest, style: MessageStyle) -> AsyncGenerator[Delta, None]:
        body = partial(request_body, request, style)
        return self.upstream.stream(body, lambda: self._decoder(request), is_long=says_much(request))

    def _decoder(self, request: ModelRequest) -> Decoder:
        return decoder_for(request, self.upstream.secrets, starts_thinking=self.starts_thinking)


# --- the request ----------------------------------------------------------------------------------------------------------------


def request_body(request: ModelRequest, style: MessageStyle = GENERIC) -> dict[str, Any]:
    is_openai = style.is_openai
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
        optional |= {name: getattr(request, name) for name in _FOR_OPENAI}
        optional |= {"verbosity": (request.text or {}).get("verbosity")}
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages(request, style),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    tools = _tools(request) if style.template.knows_tools else {}
    return body | tools | {key: value for key, value in optional.items() if value is not None}


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


# --- the stream -------------------------------------------------------------------------------------------------------------------


async def _estimated(request: ModelRequest) -> int:
    """The tokens of a request whose server counts none."""
    count = partial(tokens.estimate_request, request)
    return await worked(count) if says_much(request) else count()


def decoder_for(request: ModelRequest, secrets: Collection[str] = (), *, starts_thinking: bool = False) -> Decoder:
    tags = ThinkingTags.inside() if starts_thinking else ThinkingTags()
    return obeying(listening(ChatDecoder(secrets, _tags=tags), request), request)


@dataclass(slots=True)
class Characters:
    """Text that comes in pieces of UTF-16, as some servers cut it: a character outside of its first plane may arrive in two halves.

    JSON allows such halves (``\\ud83d``); UTF-8, in which everything goes on from here, does not.
    """

    _half: str = ""
    """The first half of a character whose second has not come yet."""

    def feed(self, piece: str) -> str:
        """Whole characters; a half without its other half becomes U+FFFD."""
        text = self._half + piece
        self._half = ""
        if text.isascii():
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass(slots=True)
class _Arguments:
    """Of one call, as far as they have come."""

    pieces: list[str] = field(default_factory=list)
    _last: str = ""
    """The last character that is no space."""

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self._last = text.rstrip()[-1:] or self._last

    @property
    def are_whole(self) -> bool:
        if self._last != "}":
            return False
        self.pieces = ["".join(self.pieces)]
        try:
            return isinstance(orjson.loads(self.pieces[0]), dict)
        except orjson.JSONDecodeError:
            return False


@dataclass(slots=True)
class ChatDecoder:
    secrets: Collection[str] = field(default=(), repr=False)
    is_finished: bool = False
    _sse: SseParser = field(default_factory=SseParser)
    _tags: ThinkingTags = field(default_factory=ThinkingTags)
    _characters: Characters = field(default_factory=Characters)
    _thoughts: Characters = field(default_factory=Characters)
    _spoken: list[str] = field(default_factory=list)
    """Text of chunks that was read and not passed on yet."""
    _logprobs: list[Any] = field(default_factory=list)
    """Of that text."""
    _sequence: Sequence = field(default_factory=Sequence)
    _arguments: dict[int, "_Arguments"] = field(default_factory=dict)
    """Arguments so far, by index of the tool call."""
    _last_index: int = 0
    """The highest of them."""
    _grown: set[int] = field(default_factory=set)
    """Calls that have grown since they were last looked at."""
    _ids: dict[int, str | None] = field(default_factory=dict)
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
        deltas = self._chunk(body) + self._speak()
        if self._reason is None:
            raise broken("it holds no finished choice")
        return deltas + self._finish()

    def _events(self, payloads: list[str]) -> list[Delta]:
        deltas: list[Delta] = []
        for data in payloads:
            if self.is_finished:
                break
            if data == "[DONE]":
                deltas += self._speak()
                self._check_forgotten_end()
                deltas += self._finish()
                break
            chunk = json_event(data)
            text = _only_text(chunk)
            if text is None:
                deltas += self._chunk(chunk)
            else:
                self._spoken.append(text)
        return deltas + self._speak()

    def _check_forgotten_end(self) -> None:
        """A server that forgets the finish reason still said its end, but not before its first word, nor inside a call."""
        if self._reason is not None:
            return
        if not self._texts and not self._arguments:
            raise broken("it ended without a word")
        if not all(arguments.are_whole for arguments in self._arguments.values()):
            raise broken("it ended inside a call")

    def _chunk(self, chunk: dict[str, Any]) -> list[Delta]:
        if (error := error_beside(chunk)) is not None:
            raise error_in_stream(error, secrets=self.secrets)
        self._service_tier = chunk.get("service_tier") or self._service_tier
        if isinstance(chunk.get("usage"), dict):
            self._usage = _usage(chunk["usage"]) or self._usage
        deltas: list[Delta] = []
        for choice in chunk.get("choices") or []:
            if not choice.get("index"):
                deltas += self._choice(choice)
        return deltas

    def _choice(self, choice: dict[str, Any]) -> list[Delta]:
        said = choice.get("delta") or choice.get("message") or {}
        spoken, deltas = said.get("content"), list[Delta]()
        told = said.get("reasoning_content") or said.get("reasoning")
        thought = (_text(told) if told else "") or (_thought(spoken) if isinstance(spoken, list) else "")
        if thought and (thought := self._thoughts.feed(thought)):
            deltas += self._speak()
            self._tags.are_parsed()
            deltas += self._say("reasoning", base.ReasoningTextDelta(thought))
            self._output_chars += len(thought)
        if text := _text(spoken):
            self._spoken.append(text)
            if logprobs := choice.get("logprobs"):
                self._logprobs += map(_logprob, logprobs.get("content") or ())
        if said.get("refusal"):
            deltas += self._speak() + self._say("message", base.RefusalDelta(said["refusal"]))
        for position, call in enumerate(said.get("tool_calls") or []):
            deltas += self._speak() + self._call(call, position)
        if isinstance(said.get("function_call"), dict):
            deltas += self._speak() + self._call({"function": said["function_call"]}, 0)
        if choice.get("finish_reason"):
            self._reason = choice["finish_reason"]
        return deltas

    def _speak(self) -> list[Delta]:
        """What chunks that came together have said, as one."""
        if not self._spoken:
            return []
        text, logprobs = self._characters.feed("".join(self._spoken)), tuple(self._logprobs)
        self._spoken, self._logprobs = [], []
        self._output_chars += len(text)
        return self._sorted(self._tags.feed(text), logprobs) if text else []

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
            self._ids[index] = call.get("id")
            deltas += self._sorted(self._tags.end()) + self._close_text() + self._close_complete()
            self._arguments[index] = _Arguments()
            self._last_index = max(self._last_index, index)
            deltas += self._sequence.add(("call", index), base.CallStarted(function["name"], call.get("id") or None))
        if text and ("call", index) in self._sequence:
            self._arguments[index].add(text)
            self._grown.add(index)
            deltas += self._sequence.add(("call", index), base.CallDelta(text))
        return deltas

    def _index(self, call: dict[str, Any], position: int) -> int:
        """Servers that omit the index send whole calls: one with a name is a new one."""
        index = call.get("index")
        if isinstance(index, int):
            has_name = bool((call.get("function") or {}).get("name"))
            # Some count every call as number 0; a second id with a name is a second call. Some give each piece of a call another id.
            is_other = has_name and call.get("id") and index in self._arguments and self._ids[index] != call["id"]
            is_next = is_other and (not self._arguments[index].pieces or self._arguments[index].are_whole)
            return len(self._arguments) if is_next else index
        if (call.get("function") or {}).get("name"):
            return len(self._arguments)
        return self._last_index if self._arguments else position

    def _close_complete(self) -> list[Delta]:
        """A call with whole arguments can go before the others end."""
        whole = [index for index in self._grown if self._arguments[index].are_whole]
        self._grown.clear()
        return [delta for index in whole for delta in self._sequence.close(("call", index))]

    def _finish(self) -> list[Delta]:
        finished = base.StreamFinished(finish_reason(self._reason, has_calls=bool(self._arguments)))
        deltas = self._sorted(self._tags.end()) + self._close_complete() + self._sequence.close_all(is_cut=finished.is_cut)
        self.is_finished = True
        output_tokens = (self._output_chars + 3) // 4
        usage = self._usage or base.UsageReported(0, output_tokens)
        return [*deltas, replace(usage, service_tier=self._service_tier), finished]


_BESIDE_TEXT: Final = frozenset({"choices", "id", "object", "created", "model", "system_fingerprint"})
_BESIDE_DELTA: Final = frozenset({"delta", "index", "finish_reason", "logprobs"})
_BESIDE_CONTENT: Final = frozenset({"content", "role"})


def _only_text(chunk: dict[str, Any]) -> str | None:
    """The text of a chunk that has no other news, as most have; None for any other. :meth:`ChatDecoder._chunk` reads all."""
    if not chunk.keys() <= _BESIDE_TEXT or chunk.get("object") == "error":
        return None
    choices = chunk.get("choices")
    if type(choices) is not list or len(choices) != 1 or type(choice := choices[0]) is not dict:
        return None
    delta = choice.get("delta")
    if type(delta) is not dict or not choice.keys() <= _BESIDE_DELTA or not delta.keys() <= _BESIDE_CONTENT:
        return None
    if choice.get("index") or choice.get("finish_reason") or choice.get("logprobs"):
        return None
    text = delta.get("content")
    return text if type(text) is str else None


def _text(value: Any) -> str:
    """``content`` is text; a few servers send parts."""
    if isinstance(value, list):
        return "".join(content.text_of(part) or "" for part in value)
    return value if isinstance(value, str) else ""


def _thought(parts: list[Any]) -> str:
    """Mistral's models think in parts of the content."""
    return "".join(_text(part.get("thinking")) for part in parts if isinstance(part, dict) and part.get("type") == "thinking")


def _logprob(entry: dict[str, Any]) -> dict[str, Any]:
    """With what the Responses API promises and Chat Completions may leave out: ``bytes`` as a list."""
    top = [_logprob(other) for other in entry.get("top_logprobs") or ()]
    spelled = entry.get("bytes")
    return entry | {"bytes": list(entry["token"].encode()) if spelled is None else spelled, "top_logprobs": top}


def _usage(usage: dict[str, Any]) -> base.UsageReported | None:
    """None if it says nothing of tokens read and written. A missing number is estimated."""
    of_prompt, of_completion = details(usage, "prompt_tokens_details"), details(usage, "completion_tokens_details")
    read, written = counted(usage, "prompt_tokens", "input_tokens"), counted(usage, "completion_tokens", "output_tokens")
    if not read:
        read = max(0, counted(usage, "total_tokens") - written)
    if not read and not written:
        return None
    return base.UsageReported(
        input_tokens=read,
        output_tokens=written,
        cached_tokens=counted(of_prompt, "cached_tokens") or counted(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=counted(of_prompt, "cache_write_tokens"),
        reasoning_tokens=counted(of_completion, "reasoning_tokens"),
    )
