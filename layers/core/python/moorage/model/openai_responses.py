"""Upstreams that speak the Responses API: OpenAI, Bedrock (by SigV4), vLLM, and others.

The translation is mostly cleaning: nothing is stored there (``store: false``), so our ids mean nothing to it and are left out; what
it sealed into ``encrypted_content`` goes back as it came.
"""

import re
from collections.abc import AsyncGenerator, Collection
from dataclasses import field
from functools import partial
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.model import base, reasoning
from moorage.model.base import Delta, ModelRequest
from moorage.model.http import Decoder, Upstream, broken, error_in_stream, json_event, says_much
from moorage.model.output_checks import unfenced
from moorage.model.sequence import Sequence
from moorage.model.stream_endings import counted, details, error_beside, incomplete_reason
from moorage.model.text_tool_calls import listening
from moorage.net.sse import SseParser
from moorage.wire.types import Item, Tool

NATIVE_TO_ALL: Final = frozenset({"function"})
_NATIVE_SINCE: Final[tuple[tuple[tuple[int, int], frozenset[str]], ...]] = (
    (
        (4, 0),
        frozenset(
            {
                "function",
                "web_search",
                "web_search_2025_08_26",
                "web_search_preview",
                "web_search_preview_2025_03_11",
                "image_generation",
                "mcp",
            }
        ),
    ),
    ((5, 0), frozenset({"custom"})),
    ((5, 1), frozenset({"shell", "apply_patch"})),
    ((5, 4), frozenset({"namespace", "additional_tools", "tool_search", "computer"})),
)
"""What each generation of OpenAI's models was trained on; an older one refuses the tool by name."""

NATIVE_TO_OPENAI: Final = frozenset().union(*(types for _, types in _NATIVE_SINCE))
"""What the newest of them take."""

COMPUTERS: Final = frozenset({"computer", "computer_use_preview"})
"""Two definitions of one tool; each is native to other models."""

WITH_CONTAINERS: Final = frozenset({"shell", base.HOSTED_SHELL})
"""What is native besides to an upstream that hosts the shell itself."""


def with_computer(natives: frozenset[str], asked: str | None) -> frozenset[str]:
    """The native tools if an operator says how a computer is offered (``computer`` in models.toml)."""
    if asked in (None, "native"):
        return natives if asked is None or natives & COMPUTERS else natives | {"computer"}
    return natives - COMPUTERS


_VERSION: Final = re.compile(r"(?:ft:)?gpt-(\d+)(?:\.(\d+))?")


def native_to_openai(model: str) -> frozenset[str]:
    """The tool types that a model on OpenAI's own API takes. A name without a generation gets the types of all generations."""
    if model.startswith("codex-mini"):
        return _NATIVE_SINCE[0][1] | {"local_shell"}
    if model.startswith("computer-use-preview"):
        return frozenset({"function", "computer_use_preview"})
    found = _VERSION.match(model)
    version = (int(found[1]), int(found[2] or 0)) if found else (4, 0)
    return frozenset().union(*(types for since, types in _NATIVE_SINCE if since <= max(version, (4, 0))))


ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
_INCLUDES_OF_OURS: Final = frozenset(
    {"code_interpreter_call.outputs", "file_search_call.results", "shell_call_output.output_files", "usage.cost"}
)
"""``include`` values about what is known here alone."""

_ITEM_FIELDS_OF_OURS: Final = frozenset({"id", "status", "created_by", "container_id"})
_ITEMS_WITH_STATUS: Final = frozenset({"apply_patch_call", "apply_patch_call_output", "local_shell_call", "computer_call"})
"""Here ``status`` is required, or carries meaning."""

_SUMMARY_PARTS_MAX: Final = 1_000
"""All parts before a part are opened with it."""
_OF_WORDS: Final = frozenset({"message", "reasoning"})
_STREAMED: Final = _OF_WORDS | {"function_call", "custom_tool_call"}
"""Items that come as deltas; all others are passed on whole."""


@dataclass(frozen=True, slots=True)
class OpenAIResponses:
    upstream: Upstream
    native_tools: frozenset[str] = NATIVE_TO_ALL
    asks_encrypted_reasoning: bool = True
    """Off for models that do not reason and refuse the question."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        body = partial(request_body, request, asks_encrypted_reasoning=self.asks_encrypted_reasoning)
        return self.upstream.stream(body, lambda: self._decoder(request), is_long=says_much(request))

    def _decoder(self, request: ModelRequest) -> Decoder:
        """OpenAI's own models call; the small ones behind other servers may only write that they do."""
        runs_shell = any(_runs_there(tool) for tool in request.tools)
        decoder = ResponsesDecoder(self.upstream.secrets, runs_shell)
        return unfenced(listening(decoder, request), request) if self.native_tools == NATIVE_TO_ALL else decoder


def _runs_there(tool: Tool) -> bool:
    """A shell that the upstream hosts; if it does not, it is offered as its client's."""
    return tool["type"] == "shell" and str((tool.get("environment") or {}).get("type")).startswith("container_")


# --- the request ----------------------------------------------------------------------------------------------------------------


_PASSED_ON: Final = (
    "instructions",
    "text",
    "reasoning",
    "temperature",
    "top_p",
    "top_logprobs",
    "max_output_tokens",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
    "safety_identifier",
    "user",
)
"""Parameters that this protocol has under the same names. ``metadata`` is never passed on."""


def request_body(request: ModelRequest, *, asks_encrypted_reasoning: bool = True) -> dict[str, Any]:
    include = [value for value in request.include if value not in _INCLUDES_OF_OURS]
    if asks_encrypted_reasoning and ENCRYPTED_REASONING not in include:
        include.append(ENCRYPTED_REASONING)
    if not asks_encrypted_reasoning and ENCRYPTED_REASONING in include:
        include.remove(ENCRYPTED_REASONING)
    body: dict[str, Any] = {
        "model": request.model,
        "input": input_items(request.items),
        "store": False,
        "stream": True,
    }
    body |= {name: value for name in _PASSED_ON if (value := getattr(request, name)) not in (None, {})}
    if include:
        body["include"] = include
    if request.tools or any(item.get("type") == "additional_tools" for item in request.items):
        body["tool_choice"] = request.tool_choice
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.tools:
        body["tools"] = list(request.tools)
    if request.max_tool_calls is not None and any(map(_runs_there, request.tools)):
        body["max_tool_calls"] = request.max_tool_calls
    return body


def input_items(items: tuple[Item, ...]) -> list[Item]:
    """The items as an upstream that stores nothing takes them."""
    cleaned = []
    for position, item in enumerate(items):
        follower = items[position + 1] if position + 1 < len(items) else None
        if item.get("type") == "reasoning" and not _is_useful(item, follower):
            continue
        cleaned.append(_cleaned(item))
    return cleaned


def _is_useful(item: Item, follower: Item | None) -> bool:
    """A reasoning item is refused if it stands alone, cannot be looked up, and is useless if another kind of provider made it."""
    if reasoning.is_packed(item) or not (item.get("encrypted_content") or item.get("content")):
        return False
    return follower is not None and _is_models(follower)


def _is_models(item: Item) -> bool:
    type_ = item.get("type", "message")
    if type_ == "message":
        return bool(item.get("role") == "assistant")
    return type_ in ("reasoning", "compaction", "program") or type_.endswith("_call") or type_ == "mcp_approval_request"


def _cleaned(item: Item) -> Item:
    type_ = item.get("type", "message")
    dropped = _ITEM_FIELDS_OF_OURS - {"status"} if type_ in _ITEMS_WITH_STATUS else _ITEM_FIELDS_OF_OURS
    if type_ in ("mcp_list_tools", "mcp_call", "mcp_approval_request", "web_search_call", "image_generation_call", "program"):
        dropped = frozenset({"created_by"})
    clean = {key: value for key, value in item.items() if key not in dropped and value is not None}
    match type_:
        case "message":
            clean["type"] = "message"
            if isinstance(item.get("content"), list):
                clean["content"] = [_part(part) for part in item["content"]]
        case "reasoning":
            clean.setdefault("summary", [])
            if "encrypted_content" in clean:
                clean.pop("content", None)
        case "shell_call_output":
            clean["output"] = [{k: v for k, v in entry.items() if k != "created_by"} for entry in item["output"]]
    return clean


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Citations name files of ours; the upstream does not know them."""
    if part.get("type") != "output_text":
        return part
    return {"type": "output_text", "text": part["text"], "annotations": []}


# --- the stream -------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _StreamedItem:
    """An item as far as it has been passed on."""

    type: str
    pieces: list[str] = field(default_factory=list)
    """Of its text, or of its arguments."""
    summary_chars: dict[int, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True)
class ResponsesDecoder:
    secrets: Collection[str] = field(default=(), repr=False)
    runs_shell: bool = False
    """The upstream runs the shell's calls: they are shown as they grow, and so are their outputs."""
    is_finished: bool = False
    _sse: SseParser = field(default_factory=SseParser)
    _sequence: Sequence = field(default_factory=Sequence)
    _items: dict[int, _StreamedItem] = field(default_factory=dict)
    """Every item seen, by its index here."""
    _passed: set[int] = field(default_factory=set)
    _added_items: set[int] = field(default_factory=set)
    _latest: dict[int, int] = field(default_factory=dict)
    """By the upstream's index: the item that it named last."""
    _by_id: dict[str, int] = field(default_factory=dict)
    _count: int = 0
    _calls: int = 0

    def feed(self, piece: bytes) -> list[Delta]:
        return self._events([event.data for event in self._sse.feed(piece)])

    def end(self) -> list[Delta]:
        deltas = self._events([event.data for event in self._sse.end()])
        if not self.is_finished:
            raise broken("it ended without response.completed")
        return deltas

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        return self._final(body)

    def _events(self, payloads: list[str]) -> list[Delta]:
        deltas: list[Delta] = []
        for data in payloads:
            if self.is_finished or data == "[DONE]":
                break
            deltas += self._event(json_event(data))
        return deltas

    def _event(self, event: dict[str, Any]) -> list[Delta]:
        index = self._index(event)
        match event.get("type"):
            case "response.output_item.added":
                return self._added(index, event["item"])
            case "response.output_item.done":
                return self._done(index, event["item"])
            case "response.output_text.delta":
                logprobs = tuple(event.get("logprobs") or ())
                return self._text(index, event["delta"], base.TextDelta(event["delta"], logprobs))
            case "response.refusal.delta":
                return self._text(index, event["delta"], base.RefusalDelta(event["delta"]))
            case "response.output_text.annotation.added":
                return self._add(index, "message", base.AnnotationAdded(event["annotation"]))
            case "response.reasoning_summary_text.delta":
                return self._summary(index, event.get("summary_index", 0), event["delta"])
            case "response.reasoning_text.delta":
                self._open_as(index, "reasoning").pieces.append(event["delta"])
                return self._add(index, "reasoning", base.ReasoningTextDelta(event["delta"]))
            case str(name) if name.startswith("response.shell_call_") and index in self._sequence:
                return self._sequence.add(index, base.ItemEvent(event))
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" if index in self._sequence:
                self._items[index].pieces.append(event["delta"])
                return self._more(index, base.CallDelta(event["delta"]))
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._final(event["response"], event.get("error"))
            case "error":
                # Live streams nest the error; the SDK's type and other servers have it flat.
                nested = event.get("error")
                raise error_in_stream(nested if isinstance(nested, dict) else event | {"type": ""}, secrets=self.secrets)
        return []

    def _index(self, event: dict[str, Any]) -> int:
        """The index here of an event's item. Some servers give all items the index 0, or none: their ids tell such items apart. Other
        servers change an item's id from event to event, so an unknown id alone makes no new item."""
        given, item = event.get("output_index", 0), event.get("item")
        is_added = event.get("type") == "response.output_item.added"
        id_ = event.get("item_id") if item is None else item.get("id")
        known = self._by_id.get(id_) if id_ is not None else None
        index = self._latest.get(given) if known is None else known
        is_new = index is None or (known is None and item is not None and self._is_another(index, item, is_added=is_added))
        if index is None or is_new:
            index, self._count = self._count, self._count + 1
            self._latest[given] = index
        if id_ is not None and (is_new or item is not None):
            self._by_id[id_] = index
        if is_added:
            self._added_items.add(index)
        return index

    def _is_another(self, index: int, item: Item, *, is_added: bool) -> bool:
        """Whether an item whose id is unknown is not the one at this index."""
        if index in self._passed or (is_added and index in self._added_items):
            return (item.get("id") or item.get("call_id")) is not None
        return index in self._items and self._items[index].type != item["type"]

    def _added(self, index: int, item: Item) -> list[Delta]:
        if self._is_shells(item) and index not in self._items:
            self._items[index] = _StreamedItem(item["type"])
            return self._sequence.add(index, base.ItemOpened(item))
        if index in self._items or item["type"] not in _STREAMED:
            return []
        self._items[index] = _StreamedItem(item["type"])
        match item["type"]:
            case "message":
                return self._sequence.add(index, base.MessageStarted(item.get("phase")))
            case "reasoning":
                return self._sequence.add(index, base.ReasoningStarted())
        self._calls += 1
        kind = "custom" if item["type"] == "custom_tool_call" else "function"
        return self._sequence.add(
            index,
            base.CallStarted(item["name"], item.get("call_id"), "custom" if kind == "custom" else "function", item.get("namespace")),
        )

    def _is_shells(self, item: Item) -> bool:
        return self.runs_shell and item["type"] in ("shell_call", "shell_call_output")

    def _open_as(self, index: int, type_: str) -> _StreamedItem:
        return self._items.setdefault(index, _StreamedItem(type_))

    def _add(self, index: int, type_: str, delta: Delta) -> list[Delta]:
        """A delta of an item; servers that forget ``output_item.added`` are understood."""
        opened = [] if index in self._sequence or index in self._passed else self._reopened(index, type_)
        return opened + (self._more(index, delta) if index in self._sequence else [])

    def _more(self, index: int, delta: Delta) -> list[Delta]:
        """More of an open item. Half a call that went on as words would pass for a whole one, and words have no arguments."""
        type_ = self._items[index].type
        if (type_ in _OF_WORDS) == isinstance(delta, base.CallDelta):
            raise broken(f"its {type_} goes on as an item of another type")
        return self._sequence.add(index, delta)

    def _reopened(self, index: int, type_: str) -> list[Delta]:
        self._open_as(index, type_)
        return self._sequence.add(index, base.MessageStarted() if type_ == "message" else base.ReasoningStarted())

    def _text(self, index: int, text: str, delta: Delta) -> list[Delta]:
        self._open_as(index, "message").pieces.append(text)
        return self._add(index, "message", delta)

    def _summary(self, index: int, part: int, text: str) -> list[Delta]:
        if not 0 <= part < _SUMMARY_PARTS_MAX:
            raise broken(f"its summary has no part {part}")
        seen = self._open_as(index, "reasoning").summary_chars
        seen[part] = seen.get(part, 0) + len(text)
        return self._add(index, "reasoning", base.SummaryDelta(text, part))

    def _done(self, index: int, item: Item) -> list[Delta]:
        """The end of an item, with the rest that did not come as deltas."""
        if index in self._passed:
            return []
        if self._is_shells(item):
            self._passed.add(index)
            opened = self._added(index, item)
            return [*opened, *self._sequence.end(index, base.ItemRelayed(item))]
        if item["type"] not in _STREAMED:
            self._passed.add(index)
            self._calls += item["type"].endswith("_call") and item.get("call_id") is not None
            return self._sequence.pass_on(index, base.ItemRelayed(item))
        deltas = self._added(index, item)
        for rest in self._rest(self._items[index], item):
            deltas += self._more(index, rest)
        self._passed.add(index)
        is_cut = item.get("status") == "incomplete"
        return deltas + self._sequence.close(index, encrypted_content=item.get("encrypted_content"), is_cut=is_cut)

    def _rest(self, seen: _StreamedItem, item: Item) -> list[Delta]:
        match item["type"]:
            case "message":
                return _rest_of_message(seen, item)
            case "reasoning":
                rest: list[Delta] = []
                for part, summary in enumerate(item.get("summary") or []):
                    missing = summary.get("text", "")[seen.summary_chars.get(part, 0) :]
                    rest += [base.SummaryDelta(missing, part)] if missing else []
                missing = reasoning.text_of(item)[len(seen.text) :]
                return rest + ([base.ReasoningTextDelta(missing)] if missing else [])
        whole = item.get("input" if item["type"] == "custom_tool_call" else "arguments") or ""
        said = seen.text
        missing = whole[len(said) :] if whole.startswith(said) else ""
        return [base.CallDelta(missing)] if missing else []

    def _final(self, response: dict[str, Any], beside: Any = None) -> list[Delta]:
        """The terminal event, or a whole body: items if none were streamed, usage, and why it ended. Some servers tell the error
        ``beside`` the response."""
        status = response.get("status", "completed")
        error = error_beside(response) or error_beside({"error": beside})
        if status == "failed" or error is not None:
            raise error_in_stream(error or {}, secrets=self.secrets)
        if status not in ("completed", "incomplete"):
            raise broken(f"it ended with status '{status}'")
        deltas: list[Delta] = []
        if not self._items and not self._passed:
            for index, item in enumerate(response.get("output") or []):
                deltas += self._done(index, item)
        finished = base.StreamFinished(self._reason(status, response))
        deltas += self._sequence.close_all(is_cut=finished.is_cut)
        usage = _usage(response.get("usage"), response.get("service_tier"))
        self.is_finished = True
        return [*deltas, *([usage] if usage else []), finished]

    def _reason(self, status: str, response: dict[str, Any]) -> base.FinishReason:
        if status == "incomplete":
            return incomplete_reason((response.get("incomplete_details") or {}).get("reason"))
        return "tool_calls" if self._calls else "stop"


def _rest_of_message(seen: _StreamedItem, item: Item) -> list[Delta]:
    """Text that came only with the whole item, part by part."""
    skip, rest = len(seen.text), []
    for part in item.get("content") or []:
        text = part.get("text") or part.get("refusal") or ""
        missing, skip = text[skip:], max(0, skip - len(text))
        if missing:
            rest.append(base.RefusalDelta(missing) if part.get("type") == "refusal" else base.TextDelta(missing))
    return list(rest)


def _usage(usage: dict[str, Any] | None, service_tier: str | None) -> base.UsageReported | None:
    if not isinstance(usage, dict) or not usage:
        return None
    of_input, of_output = details(usage, "input_tokens_details"), details(usage, "output_tokens_details")
    return base.UsageReported(
        input_tokens=counted(usage, "input_tokens", "prompt_tokens"),
        output_tokens=counted(usage, "output_tokens", "completion_tokens"),
        cached_tokens=counted(of_input, "cached_tokens"),
        cache_write_tokens=counted(of_input, "cache_write_tokens"),
        reasoning_tokens=counted(of_output, "reasoning_tokens"),
        service_tier=service_tier,
    )
