"""Deltas in, items and events out: the one place that knows the order of a response's events.

The order per item is the recorded one of the live API. At most one item is open at a time; opening another closes it. The caller
gives the sink (which numbers and stores events) and the lowering's reverse mapping, so that a model that was offered ``shell`` as a
function still yields ``shell_call`` items.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Any, Final

import orjson

from moorage import ids, limits
from moorage.dataclass import dataclass
from moorage.model import base, reasoning
from moorage.model.base import Delta
from moorage.model.http import broken
from moorage.tools.calls import ItemPosition, ToolKey
from moorage.tools.lowering import OriginalTool
from moorage.tools.registry import ROOMS
from moorage.tools.room import HostedTool, Room
from moorage.tools.source_marks import MarkedText, SourceMark
from moorage.wire.events import (
    CONTENT_PART_ADDED,
    CONTENT_PART_DONE,
    CUSTOM_TOOL_CALL_INPUT_DELTA,
    CUSTOM_TOOL_CALL_INPUT_DONE,
    FUNCTION_CALL_ARGUMENTS_DELTA,
    FUNCTION_CALL_ARGUMENTS_DONE,
    OUTPUT_ITEM_ADDED,
    OUTPUT_ITEM_DONE,
    OUTPUT_TEXT_ANNOTATION_ADDED,
    OUTPUT_TEXT_DELTA,
    OUTPUT_TEXT_DONE,
    REASONING_SUMMARY_PART_ADDED,
    REASONING_SUMMARY_PART_DONE,
    REASONING_SUMMARY_TEXT_DELTA,
    REASONING_SUMMARY_TEXT_DONE,
    REASONING_TEXT_DELTA,
    REASONING_TEXT_DONE,
    REFUSAL_DELTA,
    REFUSAL_DONE,
)
from moorage.wire.types import Event, Item

Emit = Callable[[dict[str, Any]], None]

_CLIENTS: Final = {"function_call": "function", "custom_tool_call": "custom"}
"""Calls that the client answers, and the types of their tools."""


@dataclass(slots=True)
class _Open:
    item: Item
    index: int
    part_open: bool = False
    original: OriginalTool | None = None
    arguments: str = ""
    """What a lowered call has said so far."""
    is_plain: bool = False
    """The upstream has custom tools itself: what it says is the input, not JSON around it."""
    is_upstreams: bool = False
    """The upstream runs it, and says how it grows."""
    is_mirrored: bool = False
    """The first summary part of this reasoning repeats its raw text."""
    marked: MarkedText | None = None
    """The open text, where marks are taken out of it."""
    is_said: bool = False
    """Its upstream has ended it: a message, which waits for what comes next."""
    is_prose: bool | None = None
    """It does not begin as its form does; None as long as that is open."""
    kept_back: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    """Pieces, with their log probabilities, that nobody has seen."""
    _pieces: list[str] = field(default_factory=list)
    """What came of a call: adding each to it would copy the call as often as it has pieces."""
    _growing: dict[int, tuple[dict[str, Any], str, list[str]]] = field(default_factory=dict)
    """The same of texts, each with its object and its name there, by the object's identity: some upstreams let two grow by turns."""

    def grow(self, owner: dict[str, Any], name: str, text: str) -> None:
        self._growing.setdefault(id(owner), (owner, name, []))[2].append(text)

    def grow_call(self, text: str) -> None:
        self._pieces.append(text)

    def settle(self) -> None:
        """Put the text together. Whoever reads the item does this first."""
        for owner, name, pieces in self._growing.values():
            owner[name] += "".join(pieces)
        self._growing.clear()
        if not self._pieces:
            return
        self.arguments += "".join(self._pieces)
        self._pieces.clear()
        match self.item["type"]:
            case "function_call":
                self.item["arguments"] = self.arguments
            case "custom_tool_call" if self.is_plain:
                self.item["input"] = self.arguments


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that is whole, and that nobody has seen yet."""

    call_id: str
    original: OriginalTool
    arguments: str

    @property
    def input(self) -> str:
        return self.original.custom_input(self.arguments)

    def item(self, item_id: str) -> Item:
        namespace = {} if self.original.namespace is None else {"namespace": self.original.namespace}
        return {
            "id": item_id,
            "type": "custom_tool_call",
            "status": "in_progress",
            "call_id": self.call_id,
            "name": self.original.name,
            "input": "",
        } | namespace


@dataclass(slots=True)
class Assembler:
    """Builds the output items of one model step."""

    response_id: str
    emit: Emit
    next_index: int
    restore: Callable[[str], OriginalTool]
    seal: Callable[[str], str] = lambda text: text
    """Makes of a text what only this deployment can read."""
    seals_text: bool = False
    """Raw reasoning text is sealed too: the client asked for what it can carry."""
    summarises: bool = False
    """The client asked for a summary of the reasoning: raw text is also shown as one."""
    container_id: str | None = None
    """The container that hosted calls run in."""
    hosts: Callable[[Room], bool] = lambda room: True
    """Says whose calls run here, if they can: a tool may be the client's in one request and hosted in another."""
    annotate: Callable[[str, Sequence[SourceMark]], list[dict[str, Any]]] | None = None
    """Citations for a finished text, and for the marks that were taken out of it."""
    mark_kinds: frozenset[str] = frozenset()
    """Those that are taken out of texts."""
    checks_text: bool = False
    """The last message stays open after its end, until :meth:`accept` or :meth:`take_back`: it has to be JSON."""
    opens_with: str = ""
    """The character that a text begins with. One that does not is prose, and is kept back until its end."""
    holds: Callable[[OriginalTool], bool] = lambda original: False
    """Says which custom tools' calls are kept back until :meth:`release`, to be looked at first."""
    shown: Callable[[Item, int], Item] = lambda item, index: item
    """What a call that came whole is shown as, at this output index: one that needs a person's word may be a question."""
    caller: Item | None = None
    """``caller`` of the calls, where a program makes them."""
    is_of_team: bool = False
    """Each message says whether it is the answer of its agent."""
    asynchronous: Collection[ToolKey] = frozenset()
    """Types, namespaces and names of tools with open calls: the model goes on without their outputs."""
    is_named_anew: bool = False
    """Calls get ids of our own: several models may choose the same."""
    held: list[HeldCall] = field(default_factory=list)
    misfits: list[HeldCall] = field(default_factory=list)
    """Calls of tools that there are not, or whose arguments did not fit: the model is told, nobody else sees them."""
    offered: tuple[str, ...] = ()
    """The names that the model may call."""
    taken_call_ids: set[str] = field(default_factory=set)
    """Calls are told apart by their ids, also over the steps of a response; some upstreams count from one in each."""
    items: dict[int, Item] = field(default_factory=dict)
    """Finished items of this step by output index."""
    usage: base.UsageReported = field(default_factory=lambda: base.UsageReported(0, 0))
    finished: base.StreamFinished | None = None
    has_begun: bool = False
    """The upstream has said something, though it may not show yet."""
    broke_inside: bool = False
    """The upstream broke off in the middle of an item."""
    _open: _Open | None = None

    def feed(self, delta: Delta) -> None:
        self.has_begun = self.has_begun or not isinstance(delta, base.StreamStarted)
        if self._open is not None and self._open.is_said and not isinstance(delta, base.UsageReported | base.StreamFinished):
            self.close()
        match delta:
            case base.MessageStarted(phase):
                self._start_message(phase)
            case base.TextDelta(text, logprobs):
                if text:
                    self._text(text, [dict(entry) for entry in logprobs])
            case base.RefusalDelta(text):
                self._refusal(text)
            case base.AnnotationAdded(annotation):
                self._annotation(dict(annotation))
            case base.ReasoningStarted():
                self._start_reasoning()
            case base.SummaryDelta(text, index):
                self._summary(text, index)
            case base.ReasoningTextDelta(text):
                self._reasoning_text(text)
            case base.CallStarted():
                self._start_call(delta)
            case base.CallDelta(text):
                self._call(text)
            case base.ItemDone(_, False) if self._open is not None and self._has_words_open:
                # It is closed by what comes next, for it may announce a call that never comes: then it can be taken back.
                self._open.is_said = True
            case base.ItemDone(encrypted_content, is_cut):
                self.close(status="incomplete" if is_cut else "completed", encrypted_content=encrypted_content)
            case base.ItemRelayed(item):
                self._pass_checked(item)
            case base.ItemOpened(item):
                self._open_upstreams(item)
            case base.ItemEvent(event):
                self._grow_upstreams(event)
            case base.StreamStarted():
                pass  # an operator is told, no client
            case base.UsageReported():
                self.usage = delta
            case base.StreamFinished():
                if delta.is_cut or not self.has_answer_open:
                    self.close(status="incomplete" if delta.is_cut else "completed", is_last=True)
                self.finished = delta

    def release(self) -> None:
        """Show the calls that were kept back; they come after all other items."""
        for held in self.held:
            self._add(held.item(self._id("ctc")), original=held.original).grow_call(held.arguments)
            self.close()
        self.held.clear()

    @property
    def has_answer_open(self) -> bool:
        """Whether the open item is a message that has to be JSON."""
        return self.checks_text and self._has_words_open

    @property
    def _has_words_open(self) -> bool:
        """Whether the open item is a message that may be the answer."""
        item = {} if self._open is None else self._open.item
        return item.get("type") == "message" and item.get("phase") != "commentary"

    def last_text(self) -> str | None:
        """The text of the message that ends the turn and is whole; None if there is none, or if the model refuses."""
        open_ = self._open
        if open_ is None or not self.has_answer_open or not (open_.is_said or self.finished is not None):
            return None
        if open_.marked is not None and (rest := open_.marked.end()):
            self._show_or_keep(open_, rest, [])
        open_.settle()
        content = open_.item["content"]
        if any(part["type"] == "refusal" for part in content):
            return None
        return "".join([*(part["text"] for part in content), *(text for text, _ in open_.kept_back)])

    @property
    def has_shown_text(self) -> bool:
        """Whether a client has seen words of the open message."""
        return self._open is not None and any(part.get("text") for part in self._open.item.get("content") or ())

    def accept(self) -> None:
        """Close the message that was kept open."""
        if self.has_answer_open:
            self.close(is_last=True)

    def take_back(self) -> None:
        """Close it without its text, and it does not count: as one that broke off."""
        if self._open is not None:
            self._open.settle()
            self._open.item["content"], self._open.part_open = [], False
            self.close(status="incomplete")

    def abandon(self, *, is_said_anew: bool) -> None:
        """Close the open item as ``incomplete``: the upstream broke off. A message that is said anew gives up its text, as in
        ``finish.closing_events``, and half a call its arguments: clients mend JSON, and would act on the half."""
        self.broke_inside = bool(self._open or self.held or self.misfits)
        self.held.clear()
        self.misfits.clear()
        if self._open is not None:
            self._open.settle()
            match self._open.item["type"]:
                case "message" if is_said_anew:
                    self._open.item["content"], self._open.part_open = [], False
                case "function_call" | "custom_tool_call":
                    self._open.arguments = ""
                    self._open.item["arguments" if self._open.item["type"] == "function_call" else "input"] = ""
        self.close(status="incomplete")

    # --- messages ---

    def _start_message(self, phase: str | None) -> None:
        item: Item = {"id": self._id("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        if phase is not None:
            item["phase"] = phase
        self._add(item)

    def _message_part(self, type_: str) -> _Open:
        """The open message with an open part of this type."""
        if self._open is None or self._open.item["type"] != "message":
            self._start_message(None)
        open_ = self._open
        assert open_ is not None
        content = open_.item["content"]
        if open_.part_open and content[-1]["type"] != type_:
            self._end_part(open_)
        if not open_.part_open:
            part: Item = (
                {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                if type_ == "output_text"
                else {"type": "refusal", "refusal": ""}
            )
            content.append(part)
            open_.part_open = True
            open_.marked = MarkedText(self.mark_kinds) if self.mark_kinds and type_ == "output_text" else None
            self._send(CONTENT_PART_ADDED, open_, content_index=len(content) - 1, part=dict(part))
        return open_

    def _text(self, text: str, logprobs: list[dict[str, Any]]) -> None:
        open_ = self._message_part("output_text")
        if open_.marked is not None:
            text = open_.marked.feed(text)
        if text or logprobs:
            self._show_or_keep(open_, text, logprobs)

    def _show_or_keep(self, open_: _Open, text: str, logprobs: list[dict[str, Any]]) -> None:
        """Prose in place of JSON is kept back, so that if it is said anew nothing has to be taken back."""
        open_.kept_back.append((text, logprobs))
        if not self.opens_with or open_.item.get("phase") == "commentary":
            open_.is_prose = False
        if open_.is_prose is None and text.strip():
            open_.is_prose = not text.lstrip().startswith(self.opens_with)
        if open_.is_prose is False:
            self._show_kept(open_)

    def _show_kept(self, open_: _Open) -> None:
        for text, logprobs in open_.kept_back:
            self._show(open_, text, logprobs)
        open_.kept_back.clear()

    def _show(self, open_: _Open, text: str, logprobs: list[dict[str, Any]]) -> None:
        part = open_.item["content"][-1]
        open_.grow(part, "text", text)
        part["logprobs"] += logprobs
        self._send(OUTPUT_TEXT_DELTA, open_, content_index=len(open_.item["content"]) - 1, delta=text, logprobs=logprobs)

    def _refusal(self, text: str) -> None:
        open_ = self._message_part("refusal")
        open_.grow(open_.item["content"][-1], "refusal", text)
        self._send(REFUSAL_DELTA, open_, content_index=len(open_.item["content"]) - 1, delta=text)

    def _annotation(self, annotation: dict[str, Any]) -> None:
        open_ = self._message_part("output_text")
        annotations = open_.item["content"][-1]["annotations"]
        annotations.append(annotation)
        self._send(
            OUTPUT_TEXT_ANNOTATION_ADDED,
            open_,
            content_index=len(open_.item["content"]) - 1,
            annotation_index=len(annotations) - 1,
            annotation=annotation,
        )

    def _end_part(self, open_: _Open) -> None:
        index = len(open_.item["content"]) - 1
        part = open_.item["content"][index]
        if part["type"] == "output_text":
            rest, marks = ("", []) if open_.marked is None else (open_.marked.end(), open_.marked.marks)
            self._show_kept(open_)
            if rest:
                self._show(open_, rest, [])
            open_.settle()
            for annotation in self.annotate(part["text"], marks) if self.annotate is not None else ():
                self._annotation(annotation)
            self._send(OUTPUT_TEXT_DONE, open_, content_index=index, text=part["text"], logprobs=part["logprobs"])
        else:
            open_.settle()
            self._send(REFUSAL_DONE, open_, content_index=index, refusal=part["refusal"])
        self._send(CONTENT_PART_DONE, open_, content_index=index, part=part)
        open_.part_open = False

    # --- reasoning ---

    def _start_reasoning(self) -> None:
        self._add({"id": self._id("rs"), "type": "reasoning", "summary": []})

    def _reasoning(self) -> _Open:
        if self._open is None or self._open.item["type"] != "reasoning":
            self._start_reasoning()
        assert self._open is not None
        return self._open

    def _summary(self, text: str, index: int) -> None:
        open_ = self._reasoning()
        index += open_.is_mirrored
        summary = open_.item["summary"]
        while len(summary) <= index:
            self._end_summary(open_)
            self._start_summary(open_)
        open_.grow(summary[index], "text", text)
        self._send(REASONING_SUMMARY_TEXT_DELTA, open_, summary_index=index, delta=text)

    def _start_summary(self, open_: _Open) -> None:
        summary = open_.item["summary"]
        summary.append({"type": "summary_text", "text": ""})
        open_.part_open = True
        self._send(REASONING_SUMMARY_PART_ADDED, open_, summary_index=len(summary) - 1, part=dict(summary[-1]))

    def _mirror(self, open_: _Open, text: str) -> None:
        """Show raw text as the summary too, until the upstream gives one: many clients read nothing else of a reasoning item."""
        if not open_.item["summary"]:
            open_.is_mirrored = True
            self._start_summary(open_)
        if open_.is_mirrored and len(open_.item["summary"]) == 1:
            self._send(REASONING_SUMMARY_TEXT_DELTA, open_, summary_index=0, delta=text)

    def _end_summary(self, open_: _Open) -> None:
        if open_.part_open:
            open_.settle()
            index = len(open_.item["summary"]) - 1
            part = open_.item["summary"][index]
            if open_.is_mirrored and index == 0:
                part["text"] = open_.item["content"][0]["text"]
            self._send(REASONING_SUMMARY_TEXT_DONE, open_, summary_index=index, text=part["text"])
            self._send(REASONING_SUMMARY_PART_DONE, open_, summary_index=index, part=part)
            open_.part_open = False

    def _reasoning_text(self, text: str) -> None:
        open_ = self._reasoning()
        content = open_.item.setdefault("content", [])
        if not content:
            content.append({"type": "reasoning_text", "text": ""})
            # openai-node's stream helper fails at a delta whose part was not announced.
            self._send(CONTENT_PART_ADDED, open_, content_index=0, part=dict(content[0]))
        open_.grow(content[0], "text", text)
        self._send(REASONING_TEXT_DELTA, open_, content_index=0, delta=text)
        if self.summarises:
            self._mirror(open_, text)

    # --- calls ---

    def _start_call(self, call: base.CallStarted) -> None:
        is_plain = call.kind == "custom"
        is_own_name = is_plain or call.namespace is not None
        original = OriginalTool(call.kind, call.name, call.namespace) if is_own_name else self.restore(call.name)
        call_id = self._call_id(call.call_id)
        match original.type:
            case "function":
                item = {
                    "id": self._id("fc"),
                    "type": "function_call",
                    "status": "in_progress",
                    "call_id": call_id,
                    "name": original.name,
                    "arguments": "",
                }
            case "custom" if is_plain or not self.holds(original):
                item = HeldCall(call_id, original, "").item(self._id("ctc"))
            case _:
                # The item's fields come from the arguments, which must be whole first: it is added when the call closes.
                self.close()
                self._open = _Open({"type": original.type, "call_id": call_id}, -1, original=original)
                return
        if original.namespace is not None:
            item["namespace"] = original.namespace
        self._add(item, original=original).is_plain = is_plain

    def _call_id(self, given: str | None) -> str:
        call_id = (ids.new_call_id() if self.is_named_anew else given or ids.new_call_id())[: limits.CALL_ID_CHARS_MAX]
        if call_id in self.taken_call_ids:
            call_id = ids.new_call_id()
        self.taken_call_ids.add(call_id)
        return call_id

    def _call(self, text: str) -> None:
        open_ = self._open
        assert open_ is not None, "a call's delta without a call"
        open_.grow_call(text)
        match open_.item["type"]:
            case "function_call":
                self._send(FUNCTION_CALL_ARGUMENTS_DELTA, open_, delta=text)
            case "custom_tool_call" if open_.is_plain:
                self._send(CUSTOM_TOOL_CALL_INPUT_DELTA, open_, delta=text)
            case _:
                pass
        # An input that the lowering wrapped in JSON is sent when it can be unwrapped, at the end.

    def _end_call(self, open_: _Open) -> None:
        item = open_.item
        match item["type"]:
            case "function_call":
                self._send(FUNCTION_CALL_ARGUMENTS_DONE, open_, name=item["name"], arguments=item["arguments"])
            case "custom_tool_call":
                if not open_.is_plain:
                    assert open_.original is not None
                    item["input"] = open_.original.custom_input(open_.arguments)
                    if item["input"]:
                        self._send(CUSTOM_TOOL_CALL_INPUT_DELTA, open_, delta=item["input"])
                self._send(CUSTOM_TOOL_CALL_INPUT_DONE, open_, input=item["input"])

    def _restore_call(self, open_: _Open, *, status: str) -> None:
        """A lowered call of another kind is whole: give it back in its own form."""
        assert open_.original is not None
        self._open = None
        if status != "completed":
            return  # Never shown to anyone: nothing to close.
        held = HeldCall(open_.item["call_id"], open_.original, open_.arguments)
        item = open_.original.call_item(held.arguments, held.call_id)
        if held.original.type == "custom":
            self.held.append(held)
        elif item is None:
            self.misfits.append(held)
        else:
            self._pass(item)

    # --- whole items ---

    def _pass_checked(self, item: Item) -> None:
        """An item of an upstream's. It may lack the fields of its kind."""
        try:
            self._pass(item)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise broken(f"its {item['type']} does not have the shape of one ({type(error).__name__}: {error})") from error

    def _pass(self, item: Item) -> None:
        """An item that came whole, from the upstream or from a lowered call; its events are those of its kind."""
        if self._open is not None and self._open.is_upstreams:
            self._open.item = item | {"id": self._open.item["id"]}
            self.close(status=item.get("status", "completed"))
            return
        self.close()
        item = self.shown(item | self._caller, self.next_index)
        room = ROOMS.of_call(item["type"]) or ROOMS.of_question(item["type"])
        if room is None:
            self._add(item | {"id": self._id(_PREFIXES.get(item["type"], "item"))})
            self.close()
            return
        place = ItemPosition(self._id(room.id_prefixes[item["type"]]), self.next_index, self.container_id, self.hosts(room))
        opening = room.open_call(item, place)
        open_ = self._add(opening.added)
        for event in opening.events:
            self.emit(event)
        open_.item = opening.item | self._caller
        if opening.is_whole:
            self.close()
        else:  # The rest is told by the tool step that runs the call.
            self.items[open_.index] = open_.item
            self._open = None

    # --- items that the upstream runs ---

    def _open_upstreams(self, item: Item) -> None:
        room = ROOMS.of_item(item["type"])
        assert room is not None, f"nobody knows the events of a {item['type']}"
        if item["type"] == room.call_type:
            self.taken_call_ids.add(item["call_id"])
        self._add(item | {"id": self._id(room.id_prefixes[item["type"]])}).is_upstreams = True

    def _grow_upstreams(self, event: Event) -> None:
        """The event, about the item by its index and id here. One that this kind of item does not have would trip clients up."""
        open_ = self._open
        assert open_ is not None, "an event of an item that is not open"
        name = event["type"].removeprefix("response.")
        room = ROOMS.of_item(open_.item["type"])
        if not isinstance(room, HostedTool) or not name.startswith(open_.item["type"]) or name not in room.events:
            return
        own = {"output_index": open_.index, "item_id": open_.item["id"]}
        fields = {field: own.get(field, event.get(field)) for field in room.events[name]}
        self.emit({"type": event["type"], **fields})

    # --- the frame of every item ---

    def _id(self, prefix: str) -> str:
        return ids.new_item_id(prefix, self.response_id)

    def _add(self, item: Item, *, original: OriginalTool | None = None) -> _Open:
        self.close()
        item |= self._caller
        is_clients = item["type"] in _CLIENTS and self.caller is None  # A program waits for what it calls.
        if is_clients and (_CLIENTS[item["type"]], item.get("namespace"), item["name"]) in self.asynchronous:
            item["async"] = True
        self._open = _Open(item, self.next_index, original=original)
        self.next_index += 1
        self.emit({"type": OUTPUT_ITEM_ADDED, "output_index": self._open.index, "item": orjson.loads(orjson.dumps(item))})
        return self._open

    def close(self, *, status: str = "completed", encrypted_content: str | None = None, is_last: bool = False) -> None:
        """Close the open item, if there is one; ``is_last`` says that nothing follows it."""
        open_ = self._open
        if open_ is None:
            return
        open_.settle()
        if open_.index < 0:
            self._restore_call(open_, status=status)
            return
        item = open_.item
        match item["type"]:
            case "message" if open_.part_open:
                self._end_part(open_)
            case "reasoning":
                self._end_summary(open_)
                if item.get("content"):
                    part = item["content"][0]
                    self._send(REASONING_TEXT_DONE, open_, content_index=0, text=part["text"])
                    self._send(CONTENT_PART_DONE, open_, content_index=0, part=part)
                sealed = reasoning.sealed(item, encrypted_content, self.seal, with_text=self.seals_text)
                if sealed is not None:
                    item["encrypted_content"] = sealed
            case "function_call" if status == "completed" and open_.arguments.strip() and not is_json(open_.arguments):
                # Clients parse the arguments, and some mend what is no JSON: the model is told instead.
                assert open_.original is not None
                self.misfits.append(HeldCall(item["call_id"], open_.original, open_.arguments))
                status, item["arguments"] = "incomplete", ""
            case "function_call" | "custom_tool_call" if status == "completed":
                if item["type"] == "function_call" and not item["arguments"].strip():
                    self._call("{}")  # What clients parse is JSON, also for a call without arguments.
                    open_.settle()
                self._end_call(open_)
        if "status" in item or status != "completed":
            item["status"] = status
        if self.is_of_team and item["type"] == "message" and "phase" not in item:
            has_calls = self.misfits or self.held or any("call_id" in other for other in self.items.values())
            item["phase"] = "final_answer" if is_last and not has_calls else "commentary"
        self.items[open_.index] = item
        self._open = None
        self.emit({"type": OUTPUT_ITEM_DONE, "output_index": open_.index, "item": item})

    @property
    def _caller(self) -> Item:
        return {} if self.caller is None else {"caller": self.caller}

    def _send(self, type_: str, open_: _Open, **fields: Any) -> None:
        self.emit({"type": type_, "item_id": open_.item["id"], "output_index": open_.index, **fields})


def is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


_PREFIXES: Final = {
    "compaction": "cmp",
}
"""Of items that an upstream made with tools of its own."""
