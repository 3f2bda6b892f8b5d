"""A hosted tool is one *room*: a folder ``tools/<name>/`` with everything about it, and one line in ``tools/registry.py``.

The loop, the API and the command line know no tool by name. They ask its room, in the order of a call's life:

* how requests, items and events of the tool look (``tool_shapes``, ``item_shapes``, ``events``), and who runs its calls
  (``call_runner``);
* the function that replaces the tool for other models (``function_tool``), the call in such a function call (``parse_call``), and the
  items that a model reads later (``input_items``);
* how a call starts (``open_call``), runs (``run``), and grows by its events (``apply_event``);
* the rule for a second run (``rerun_policy``), the limits (``call_limits``), and an end without a result (``end``);
* the view of clients (``response_tool``, ``visible_item``, ``listing_defaults``) and of ``moorage tail`` (``log_notes``).

``docs/tools.md`` tells how to add a tool. ``loop/tool_step.py`` has the code for all calls: fence, attempts, takeover, cancellation,
time limits, flushing, log and metrics.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from moorage import limits
from moorage.model.remote_servers import RemoteServers
from moorage.sandbox.exec_client import ExecClient
from moorage.tools.calls import (
    CallApproval,
    CallEnd,
    CallLogNote,
    CallOpening,
    ItemPosition,
    KnownCall,
    OfferedFunctions,
    Piece,
    ToolKey,
)
from moorage.tools.function_items import compact_json
from moorage.tools.run import Run, Service
from moorage.tools.source_marks import SourceMark
from moorage.wire.types import Event, Item, Tool


class CallRunner(StrEnum):
    """Who runs a call."""

    CLIENT = "client"
    """The response ends with the call, and the client brings its output."""
    SANDBOX = "sandbox"
    """Beside the response's container, inside the sandboxes' network."""
    SERVICE = "service"
    """Outside of that network: it reaches the internet by guarded fetching, and never through a sandbox."""


class RerunPolicy(StrEnum):
    """What a run may do that comes after one that died, or that had to stop."""

    ATTACH = "attach"
    """Go on with what was begun: the exec server still has it."""
    REPEAT = "repeat"
    """Run it anew: it only reads."""
    ONCE = "once"
    """Nothing but say that it may have run: it may have had an effect."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Of one call, but for the last; the figures stand in ``limits``. Calls that run in a sandbox have theirs there."""

    seconds: float | None = None
    """At most ``limits.TOOL_STEP_SECONDS_MAX``. None: as long as it takes, over many runs; only with ``RerunPolicy.ATTACH``."""
    bytes: int | None = None
    """Of the finished item and all its events, as JSON."""
    calls_per_round: int = limits.CALLS_PER_ROUND_MAX
    """Calls of this tool that one turn of the model may make; the others are refused."""


class InputWriter(Protocol):
    """The lowering, to a room that writes an item for an upstream."""

    native: frozenset[str]
    """Tool types that the upstream takes as they are."""

    def name(self, type_: str, name: str, namespace: str | None = None) -> str:
        """What a tool is called there, which this one calls ``name``."""
        ...

    def offered(self, types: Iterable[str]) -> str | None:
        """Which of these types the model was offered first."""
        ...

    def earlier(self, item_id: str) -> Item | None:
        """An item of a room that came before."""
        ...


class Stage(Protocol):
    """What stands before a model is asked, and the way to put more there (:meth:`Room.prepare_step`)."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Those of the request that are of this room."""
        ...

    @property
    def items(self) -> Sequence[Item]:
        """What the model sees: the conversation, and what this response has made so far."""
        ...

    @property
    def made(self) -> Sequence[Item]:
        """What this response has made so far, with what was broken off."""
        ...

    @property
    def own_input(self) -> Sequence[Item]:
        """What the request itself has brought."""
        ...

    @property
    def outside(self) -> Service: ...

    def add(self, item: Item) -> ItemPosition:
        """Open an item, which gets its id."""
        ...

    def say(self, event: Event) -> None: ...

    def done(self, place: ItemPosition, item: Item) -> None:
        """Close it, whole."""
        ...

    def call(self, call: Item) -> None:
        """Open a call that runs before a model is asked, as if the model had made it."""
        ...


class Room:
    """What is the same for most tools; a room sets the attributes, and overrides what it does otherwise."""

    types: ClassVar[tuple[str, ...]]
    """The types of tools that it stands for, and the words for them in ``tool_choice``."""
    call_type: ClassVar[str]
    """The type of its calls' items."""
    output_type: ClassVar[str | None] = None
    """The type of the item that answers a call; None if the call's own item holds the result."""
    other_types: ClassVar[tuple[str, ...]] = ()
    """Types of further items that are of this tool."""
    approval_request_type: ClassVar[str | None] = None
    """The type of item with which it asks the client something: the response ends with it."""
    id_prefixes: ClassVar[Mapping[str, str]] = {}
    """Of ids, by type of item."""
    tool_shapes: ClassVar[Mapping[str, Any]] = {}
    """What ``tools`` of a request may say about it, by the tool's type: typed dictionaries of the wire."""
    item_tool_shapes: ClassVar[Mapping[str, Any]] = {}
    """The same of a tool that an item of the conversation brings along, where that is something else: by default a hosted tool is
    refused there, and any other is what it is in ``tools``."""
    choice_shapes: ClassVar[Mapping[str, Any]] = {}
    """What ``tool_choice`` may say about it, where that is more than its type."""
    item_shapes: ClassVar[Mapping[str, Any]] = {}
    """Its items as clients send them back, by type."""
    listing_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """What a listing has of an item, by type, although clients may leave it out of what they send."""
    events: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Its own events in the order in which they come, named without ``response.``, and the fields that each has beside ``type`` and
    ``sequence_number``: :meth:`apply_event` and :meth:`log_notes` get these and no others."""
    obfuscated_events: ClassVar[frozenset[str]] = frozenset()
    """Those of its events that say the model's words, piece by piece: their lengths are hidden on the way."""
    function_name: ClassVar[str] = ""
    """The name of the function that stands for it."""
    may_run_upstream: ClassVar[bool] = True
    """False for a tool that no upstream may run in our place."""
    is_hosted: ClassVar[bool] = False
    """Whether its calls can run here at all."""
    makes_calls: ClassVar[bool] = False
    """Whether a call makes calls of its own and goes on with their outputs (``loop/programs.py``). A run fills no item then: it says
    what the call has come to, and a call may stay open while the client answers."""
    rerun_policy: ClassVar[RerunPolicy] = RerunPolicy.ATTACH
    call_limits: ClassVar[CallLimits] = CallLimits()
    end_messages: ClassVar[Mapping[CallEnd, str]] = {}
    """What the model reads of an end that was not a result."""
    pauses_in_place: ClassVar[bool] = True
    """Whether its calls wait for a person in their place, in a response in the background that does not say otherwise."""
    citation_marks: ClassVar[tuple[str, ...]] = ()
    """The kinds of marks that it asks models to write into their text (``tools/source_marks.py``): they are taken out of it."""
    hidden_field: ClassVar[str | None] = None
    """A field of its call that clients send back only if they had asked for it: what is missing is looked up."""

    def extract_secrets(self, tool: Tool, handle: str, configured: RemoteServers) -> tuple[Tool, Mapping[str, str]]:
        """The tool as it is stored, shown and told to models, and its secrets by the handles that stand in their places; these begin
        with ``handle``. A run gets a secret by ``run.outside.secret(handle)``. ``configured`` are the servers that the operator has
        named. Raises :class:`~moorage.errors.ApiError` for what is not there."""
        return tool, {}

    def vector_store_ids(self, tool: Tool) -> Sequence[str]:
        """Ids of the vector stores that it searches."""
        return ()

    def is_repeatable(self, tool: Tool) -> bool:
        """Whether a tool as it is stored can be asked for anew: not if it was given a secret."""
        return True

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        """Look at what a request brings for this tool, also where it does not offer it; ``tools`` are those of this room. Raises
        :class:`~moorage.errors.ApiError` for what does not belong to anything."""

    def approval_decision(self, item: Item) -> CallApproval | None:
        """The decision that an item of a request brings, if it is one."""
        return None

    def restore_hidden(self, item: Item, stored: Item) -> Item:
        """A call that clients have sent back without its :attr:`hidden_field` field, and how it was stored."""
        return item | (
            {} if self.hidden_field is None or self.hidden_field not in stored else {self.hidden_field: stored[self.hidden_field]}
        )

    def hold_for_approval(self, call: Item, tools: Sequence[Tool], approval_id: str | None) -> Item:
        """A call, or a question, that the model has made, as it is to be shown: where a person has to allow it first it becomes the
        question with which the response ends, or the call that waits in its place for the approval of this id."""
        return call

    def needs_approval(self, call: Item, tools: Sequence[Tool], said: Sequence[Item], approval_id: str) -> bool:
        """Whether a call must not run before the approval of this id is given. ``tools`` and ``said`` are the request's."""
        return False

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        """Who runs the calls of this tool, or this call."""
        return CallRunner.CLIENT

    @property
    def result_type(self) -> str:
        """The type of the item that a run fills."""
        return self.output_type or self.call_type

    # --- the offer ---

    def native_tool(self, tool: Tool, reader: InputWriter) -> tuple[str, Tool]:
        """The tool as an upstream gets it that knows it, under a key that a later definition of the same tool shares."""
        return f"\0{compact_json(tool)}", tool

    def function_tool(self, name: str, tool: Tool) -> Tool:
        """The function that stands for it."""
        raise NotImplementedError

    def offered_functions(self, item: Item, tools: Sequence[Tool]) -> OfferedFunctions | None:
        """What an item of this tool adds to what the model may call; None if it is not about that. ``tools`` are those of the request
        that are of this room."""
        return None

    def deferred_functions(self, tool: Tool, kept_back: Iterable[ToolKey]) -> Iterable[ToolKey]:
        """Of a tool whose functions its items offer: which of those that are kept back it brings, where it comes on the way."""
        return ()

    def discovered_functions(self, item: Item, tools: Sequence[Tool]) -> Iterable[ToolKey]:
        """What an item of this tool has found of what is kept back; ``tools`` are those of the request that are of this room."""
        return ()

    def needs_preparation(self, said: Sequence[Item]) -> bool:
        """Whether :meth:`prepare_step` may have anything to do for a request that has brought these items."""
        return False

    async def prepare_step(self, stage: Stage) -> None:
        """Put in front of the model what it has to know of this tool, and run what the client has allowed. Called before each step's
        model is asked; it may be run twice, and be cancelled."""

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        """The call that a function call is, without ``id`` and ``call_id``; None if the arguments do not fit. ``value`` is what they
        are as JSON, None if they are none; ``type_`` is the tool's."""
        return None

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        """What an upstream gets of an item: the item, or a function's call and output. Depends on it and the tools before alone."""
        raise NotImplementedError

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        """How a call is shown that came whole; nothing of it is in ``call`` that :meth:`parse_call` or the upstream did not say."""
        item = call | {"id": place.item_id}
        return CallOpening(item, (), item)

    def empty_output(self, call: Item, output_item_id: str) -> Item:
        """The answering item before anything is in it; only for rooms with ``output_type``."""
        raise NotImplementedError

    def is_settled(self, call: Item) -> bool:
        """Whether a call that holds its own result has it."""
        return call.get("status") in ("completed", "failed")

    async def rerun_policy_of(self, call: Item, earlier: AsyncIterator[Item]) -> RerunPolicy:
        """:attr:`rerun_policy` for one call, if calls differ. :attr:`RerunPolicy.ATTACH` is only for rooms with that policy.
        ``earlier`` has the earlier items, the latest first."""
        return self.rerun_policy

    def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        """Run the call, or go on with it: events as they come, and last :class:`CallFinished`. Any ``await`` may be cancelled."""
        raise NotImplementedError

    async def stop(self, client: ExecClient, known: KnownCall) -> None:
        """Kill what the call runs in a sandbox: its response is being cancelled."""

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        """An end that is not a result, after what was said so far, and :class:`CallFinished`. ``detail`` says why."""
        raise NotImplementedError

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        """Put what an event tells into its item."""

    def incomplete_item(self, item: Item) -> Item:
        """An open item whose response ends, or whose run will never come."""
        return item | {"status": "incomplete"}

    def missing_output(self, call: Item) -> Item | None:
        """The output of a hosted call that never got one, for models that want one for each; None where that is no matter."""
        return None

    # --- who looks at it ---

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        """The tool as the response shows it: complete, with nulls. ``container_id`` is the container that the response got."""
        return tool

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        """An item as its client gets it, who has asked to ``include`` these."""
        return item

    def usage(self, items: Sequence[Item]) -> Mapping[str, Any]:
        """What the calls among the items of a response have used: the tool's own part of ``tool_usage``, with zeros."""
        return {}

    def survives_truncation(self, item: Item) -> bool:
        """Whether models need an item however long ago it was: it is left out by no truncation and no compaction."""
        return False

    def container_id(self, item: Item) -> str | None:
        """The container that a call ran in."""
        return None

    def citations(self, text: str, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Annotations of a model's text: where it names what calls of this tool have found. ``items`` are what the model had read."""
        return []

    def annotate_marks(self, marks: Sequence[SourceMark], items: Sequence[Item]) -> list[dict[str, Any]]:
        """The same of the marks that were taken out of a text."""
        return []

    def with_container(self, item: Item, container_id: str) -> Item:
        """A call as if it had run in another container, which is a copy of its own."""
        return item

    def title(self, item: Item) -> str | None:
        """What an operator reads when the item begins; None if its events say enough."""
        return str(item["type"])

    def log_notes(self, name: str, event: Event) -> Iterable[CallLogNote]:
        """What an operator reads of an event."""
        return ()
