"""What comes of a response, as a chat completion: whole, or in chunks.

Of hosted tools only the final answer goes out: Chat Completions has no form for calls that the server ran, so what was said before
and between them is left out, and a stream waits until it is certain that no call follows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.wire import events
from moorage.wire.types import Event

Fields = dict[str, Any]

_RAN_HERE: Final = frozenset({"shell_call", "shell_call_output", "code_interpreter_call"})
_BETWEEN_MESSAGES: Final = "\n\n"
_BROKEN_OFF: Final[Fields] = {
    "code": "server_error",
    "message": "The model's answer broke off after its beginning was sent. Send the request again.",
    "param": None,
}


@dataclass(frozen=True, slots=True)
class ChunkFields:
    """What all chunks of an answer share."""

    id: str
    created: int
    model: str

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> "ChunkFields":
        return cls(f"chatcmpl-{response['id'].removeprefix('resp_')}", int(response["created_at"]), response["model"])

    def chunk(self, delta: Fields | None, *, finish_reason: str | None = None, logprobs: list[Any] | None = None) -> Fields:
        shown = None if logprobs is None else {"content": logprobs, "refusal": None}
        choice = {"index": 0, "delta": delta or {}, "logprobs": shown, "finish_reason": finish_reason}
        return self.object("chat.completion.chunk", [choice])

    def usage_chunk(self, response: Mapping[str, Any]) -> Fields:
        return self.object("chat.completion.chunk", []) | {"usage": usage_object(response.get("usage"))}

    def object(self, kind: str, choices: list[Fields]) -> Fields:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def completion(response: Mapping[str, Any], stop: Iterable[str] = ()) -> Fields:
    """The answer to a request without a stream. One that failed is its error alone: with a reason to stop, its words would pass for
    an answer."""
    if response["status"] == "failed":
        return {"error": {"type": "server_error", "param": None} | response["error"]}
    said = _FinalAnswer.of(response, StopWords(tuple(stop)))
    message: Fields = {"role": "assistant", "content": said.text, "refusal": said.refusal, "annotations": []}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = [_whole_call(item) for item in said.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": said.logprobs, "refusal": None} if said.logprobs else None,
        "finish_reason": said.finish_reason(response),
    }
    frame = ChunkFields.of(response)
    usage = {"usage": usage_object(response.get("usage")), "service_tier": response.get("service_tier")}
    return frame.object("chat.completion", [choice]) | usage


@dataclass(slots=True)
class Chunks:
    """Chunks out of the events of a response."""

    is_hosted: bool
    stop: tuple[str, ...] = ()
    includes_usage: bool = False
    is_over: bool = False
    """Nothing more is to be sent."""
    error: Fields | None = None
    """Of a response that failed."""
    _frame: ChunkFields | None = None
    _calls: dict[int, int] = field(default_factory=dict)
    """Numbers of the calls, by output index."""
    _words: "StopWords" = field(init=False)
    _has_words: bool = False
    """Some of a message were sent."""
    _shown: set[int] = field(default_factory=set)
    """Output indexes of texts and calls of which something was sent, which nothing takes back."""
    _is_broken: bool = False
    """The last one of these broke off."""

    def __post_init__(self) -> None:
        self._words = StopWords(self.stop)

    def of(self, event: Event) -> list[Fields]:
        if event["type"] == "error":
            self.is_over, self.error = True, event["error"]
            return []
        if self._frame is None:
            self._frame = ChunkFields.of(event["response"])
            return [self._frame.chunk({"role": "assistant", "content": ""})]
        if event["type"] in events.FINAL:
            return self._end(event["response"], self._frame)
        return [] if self.is_hosted or self.is_over else self._live(event, self._frame)

    def _live(self, event: Event, frame: ChunkFields) -> list[Fields]:
        match event["type"]:
            case events.OUTPUT_ITEM_ADDED if self._is_broken:
                # The model is asked again, and would say the beginning a second time.
                self.is_over, self.error = True, _BROKEN_OFF
            case events.OUTPUT_ITEM_ADDED:
                return self._added(event, frame)
            case events.OUTPUT_TEXT_DELTA:
                text = self._words.feed(event["delta"])
                self._shown |= {event["output_index"]} if text else set()
                self._has_words = self._has_words or bool(text)
                logprobs = event.get("logprobs") or None
                chunks = [frame.chunk({"content": text}, logprobs=logprobs)] if text else []
                return [*chunks, *self._stopped(frame)]
            case events.REFUSAL_DELTA:
                self._shown.add(event["output_index"])
                return [frame.chunk({"refusal": event["delta"]})]
            case events.REASONING_TEXT_DELTA | events.REASONING_SUMMARY_TEXT_DELTA:
                return [frame.chunk({"reasoning_content": event["delta"]})]
            case events.FUNCTION_CALL_ARGUMENTS_DELTA:
                return self._called(event, frame, {"function": {"arguments": event["delta"]}})
            case events.CUSTOM_TOOL_CALL_INPUT_DELTA:
                return self._called(event, frame, {"custom": {"input": event["delta"]}})
            case events.OUTPUT_ITEM_DONE:
                self._is_broken = event["item"].get("status") == "incomplete" and event["output_index"] in self._shown
        return []

    def _called(self, event: Event, frame: ChunkFields, more: Fields) -> list[Fields]:
        number = self._calls.get(event["output_index"])
        return [] if number is None else [frame.chunk({"tool_calls": [{"index": number} | more]})]

    def _added(self, event: Event, frame: ChunkFields) -> list[Fields]:
        item = event["item"]
        if item["type"] == "message":
            return [frame.chunk({"content": _BETWEEN_MESSAGES})] if self._has_words else []
        if item["type"] not in ("function_call", "custom_tool_call"):
            return []
        self._calls[event["output_index"]] = number = len(self._calls)
        self._shown.add(event["output_index"])
        return [frame.chunk({"tool_calls": [{"index": number} | _whole_call(item)]})]

    def _stopped(self, frame: ChunkFields) -> list[Fields]:
        if not self._words.is_met:
            return []
        self.is_over = True
        return [frame.chunk(None, finish_reason="stop")]

    def _end(self, response: Mapping[str, Any], frame: ChunkFields) -> list[Fields]:
        self.is_over = True
        if response["status"] == "failed":
            self.error = response["error"]
            return []
        if self.is_hosted:
            chunks, has_calls = self._at_once(response, frame)
        else:
            rest = self._words.end()
            chunks, has_calls = [frame.chunk({"content": rest})] if rest else [], bool(self._calls)
        chunks.append(frame.chunk(None, finish_reason=finish_reason(response, has_calls=has_calls)))
        return [*chunks, frame.usage_chunk(response)] if self.includes_usage else chunks

    def _at_once(self, response: Mapping[str, Any], frame: ChunkFields) -> tuple[list[Fields], bool]:
        said = _FinalAnswer.of(response, self._words)
        chunks = [frame.chunk({"content": said.text}, logprobs=said.logprobs or None)] if said.text else []
        chunks += [frame.chunk({"refusal": said.refusal})] if said.refusal else []
        calls = [{"index": number} | _whole_call(item) for number, item in enumerate(said.calls)]
        return [*chunks, *([frame.chunk({"tool_calls": calls})] if calls else [])], bool(calls)


@dataclass(slots=True)
class StopWords:
    """Cuts a text, which comes in pieces, before the first of some words."""

    words: tuple[str, ...]
    is_met: bool = False
    _held: str = ""
    """The end of what came, as long as it may be the beginning of a word."""

    def feed(self, piece: str) -> str:
        if not self.words or self.is_met:
            return "" if self.is_met else piece
        text = self._held + piece
        found = [place for word in self.words if (place := text.find(word)) >= 0]
        if found:
            self.is_met, self._held = True, ""
            return text[: min(found)]
        held = max((n for word in self.words for n in range(1, len(word)) if text.endswith(word[:n])), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        rest, self._held = self._held, ""
        return rest


@dataclass(frozen=True, slots=True)
class _FinalAnswer:
    """The final answer of a response: what follows the last call that ran here."""

    text: str | None
    refusal: str | None
    reasoning: str
    calls: list[Fields]
    logprobs: list[Any]
    is_stopped: bool

    @classmethod
    def of(cls, response: Mapping[str, Any], words: StopWords) -> "_FinalAnswer":
        output = response["output"]
        last = max((number for number, item in enumerate(output) if item["type"] in _RAN_HERE), default=-1)
        items = output[last + 1 :]
        parts = [part for item in items if item["type"] == "message" for part in item["content"]]
        texts = [part["text"] for part in parts if part["type"] == "output_text"]
        text = words.feed(_BETWEEN_MESSAGES.join(texts)) + words.end() if texts else None
        refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
        thoughts = [part["text"] for item in items if item["type"] == "reasoning" for part in _thought(item)]
        calls = [item for item in items if item["type"] in ("function_call", "custom_tool_call")]
        logprobs = [entry for part in parts for entry in part.get("logprobs") or ()]
        return cls(text, "".join(refusals) or None, "".join(thoughts), [] if words.is_met else calls, logprobs, words.is_met)

    def finish_reason(self, response: Mapping[str, Any]) -> str:
        return "stop" if self.is_stopped else finish_reason(response, has_calls=bool(self.calls))


def _thought(item: Fields) -> list[Fields]:
    """As the model wrote it, or the summary of those that show no more."""
    parts: list[Fields] = item.get("content") or item["summary"]
    return parts


def _whole_call(item: Fields) -> Fields:
    if item["type"] == "custom_tool_call":
        return {"id": item["call_id"], "type": "custom", "custom": {"name": item["name"], "input": item["input"]}}
    return {"id": item["call_id"], "type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}}


def usage_object(usage: Mapping[str, Any] | None) -> Fields:
    usage = usage or {}
    of_input, of_output = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return {
        "prompt_tokens": usage.get("input_tokens", 0),
        "completion_tokens": usage.get("output_tokens", 0),
        "total_tokens": usage.get("total_tokens", 0),
        "prompt_tokens_details": {"cached_tokens": of_input.get("cached_tokens", 0), "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": of_output.get("reasoning_tokens", 0), "audio_tokens": 0},
    }


def finish_reason(response: Mapping[str, Any], *, has_calls: bool) -> str:
    reason = (response.get("incomplete_details") or {}).get("reason")
    if reason == "content_filter":
        return "content_filter"
    if reason is not None:
        return "length"
    return "tool_calls" if has_calls else "stop"
