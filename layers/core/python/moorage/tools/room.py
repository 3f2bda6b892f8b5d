"""A hosted tool is one *room*: a folder ``tools/<name>/`` with everything about it, and one line in ``tools/registry.py``.

The loop, the API and the command line know no tool by name. They ask its room, in the order of a call's life:

* how its tools and items look (``tool_shapes``, ``item_shapes``), and who runs its calls (``call_runner``);
* the function that replaces the tool for other models (``function_tool``), the call in such a function call (``parse_call``), and the
  items that a model reads later (``input_items``);
* the start of a call (``open_call``);
* the view of clients (``response_tool``, ``visible_item``, ``listing_defaults``).

A :class:`HostedTool` also runs calls (``run``), with a rule for a second run (``rerun_policy``), limits (``call_limits``), ends without
a result (``end``) and events (``events``, ``apply_event``). ``tools/capabilities.py`` has the capabilities of some tools only.

``docs/tools.md`` tells how to add a tool. ``loop/tool_step.py`` has the code for all calls: fence, attempts, takeover, cancellation,
time limits, flushing, log and metrics.
"""

from abc import ABC
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from moorage import limits
from moorage.dataclass import dataclass
from moorage.tools.calls import CallEnd, CallLogNote, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.function_items import compact_json
from moorage.tools.run import Run, StoppingPlace
from moorage.wire.types import Event, Item, Tool


class CallRunner(StrEnum):
    """The process that runs a call."""

    CLIENT = "client"
    """The response ends with the call, and the client brings its output."""
    SANDBOX = "sandbox"
    """Beside the response's container, inside the sandboxes' network."""
    SERVICE = "service"
    """Outside of that network: it reaches the internet by guarded fetching, and never through a sandbox."""
    STEP = "step"
    """Nowhere: the model step that made the call settles it."""


class RerunPolicy(StrEnum):
    """The rule for a run after one that died, or that had to stop."""

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
    view: str
    """How its model points at things on a screen (``computer`` in models.toml)."""

    def name(self, type_: str, name: str, namespace: str | None = None) -> str:
        """The upstream's name of a tool with the name ``name`` here."""
        ...

    def offered(self, types: Iterable[str]) -> str | None:
        """The type that the model was offered first, of these types."""
        ...

    def earlier(self, item_id: str) -> Item | None:
        """An item of a room that came before."""
        ...

    def latest(self, type_: str) -> Item | None:
        """The last item of this type that came before."""
        ...


class Room(ABC):
    """Every tool's description. Capabilities of some tools are classes of their own (:class:`HostedTool`, ``capabilities.py``)."""

    types: ClassVar[tuple[str, ...]]
    """The types of its tools, which are also its words in ``tool_choice``."""
    call_type: ClassVar[str]
    """The type of its calls' items."""
    output_type: ClassVar[str | None] = None
    """The type of the item that answers a call; None if the call's own item holds the result."""
    id_prefixes: ClassVar[Mapping[str, str]]
    """Every type of item of this tool, with the prefix of its ids."""
    tool_shapes: ClassVar[Mapping[str, Any]] = {}
    """The definition of the tool in a request, by the tool's type: typed dictionaries of the wire."""
    item_tool_shapes: ClassVar[Mapping[str, Any]] = {}
    """The definition of the tool in an item of the conversation, if it differs. By default, an item may not bring a hosted tool, and
    other tools are as in ``tool_shapes``."""
    choice_shapes: ClassVar[Mapping[str, Any]] = {}
    """The tool in ``tool_choice``, if that is more than its type."""
    item_shapes: ClassVar[Mapping[str, Any]] = {}
    """Its items as clients send them back, by type."""
    listing_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Fields that a listing adds to an item, by type: clients may leave them out of their input."""
    function_name: ClassVar[str] = ""
    """The name of the function that replaces the tool."""
    may_run_upstream: ClassVar[bool] = True
    """False if no upstream may run the tool for us."""

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        """The runner of this tool's calls, or of this call."""
        return CallRunner.CLIENT

    # --- the model's view ---

    def native_tool(self, tool: Tool, reader: InputWriter) -> tuple[str, Tool]:
        """The tool for an upstream that knows it, with a key that a later definition of the same tool shares."""
        return f"\0{compact_json(tool)}", tool

    def function_tool(self, name: str, tool: Tool) -> Tool:
        """The function that replaces the tool."""
        raise NotImplementedError

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        """The call in a function call, without ``id`` and ``call_id``; None if the arguments do not fit. ``value`` is their JSON value,
        or None if they are not JSON; ``type_`` is the tool's."""
        return None

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        """The upstream's view of an item: the item, or a function's call and output. The result depends on the item and the earlier
        tools alone."""
        raise NotImplementedError

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        """How a whole call is shown first. ``call`` has only fields from :meth:`parse_call` or the upstream."""
        item = call | {"id": place.item_id}
        return CallOpening(item, (), item)

    # --- the view of clients and operators ---

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        """The tool in the response object: complete, with nulls. ``container_id`` is the response's container."""
        return tool

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        """An item for a client that asked to ``include`` these fields."""
        return item

    def title(self, item: Item) -> str | None:
        """The operator's line at the start of an item; None if its events say enough."""
        return str(item["type"])


class HostedTool(Room):
    """A tool with calls that can run here."""

    events: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Its own events in their order, without ``response.``, and the fields of each beside ``type`` and ``sequence_number``.
    :meth:`apply_event` and :meth:`log_notes` get these events alone."""
    obfuscated_events: ClassVar[frozenset[str]] = frozenset()
    """Those of its events with pieces of the model's words: padding hides their lengths."""
    makes_calls: ClassVar[bool] = False
    """Whether a call makes further calls and resumes with their outputs (``loop/programs.py``). A run fills no item then: it reports
    the state of the call, and a call may stay open while the client answers."""
    rerun_policy: ClassVar[RerunPolicy] = RerunPolicy.ATTACH
    call_limits: ClassVar[CallLimits] = CallLimits()
    end_messages: ClassVar[Mapping[CallEnd, str]] = {}
    """The model's text for each end without a result."""

    @property
    def result_type(self) -> str:
        """The type of the item that a run fills."""
        return self.output_type or self.call_type

    def empty_output(self, call: Item, output_item_id: str) -> Item:
        """The output item before its content; only for rooms with ``output_type``."""
        raise NotImplementedError

    def is_settled(self, call: Item) -> bool:
        """Whether a call that holds its own result has it."""
        return call.get("status") in ("completed", "failed")

    def may_stay_open(self, call: Item) -> bool:
        """Whether a later response may give its output."""
        return self.makes_calls

    async def rerun_policy_of(self, call: Item, earlier: AsyncIterator[Item]) -> RerunPolicy:
        """:attr:`rerun_policy` for one call, if calls differ. :attr:`RerunPolicy.ATTACH` is only for rooms with that policy.
        ``earlier`` has the earlier items, the latest first."""
        return self.rerun_policy

    def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        """Run or resume the call: yields events, and last :class:`CallFinished`. Any ``await`` may be cancelled."""
        raise NotImplementedError

    async def stop(self, place: StoppingPlace, known: KnownCall) -> None:
        """Kill the processes of a call in a sandbox: its response is being cancelled."""

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        """An end without a result, after the earlier events: ends with :class:`CallFinished`. ``detail`` gives the reason."""
        raise NotImplementedError

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        """Put the content of an event into its item."""
        raise NotImplementedError

    def incomplete_item(self, item: Item) -> Item:
        """An open item of a response that ends, or of a run that will not come."""
        return item | {"status": "incomplete"}

    def missing_output(self, call: Item) -> Item | None:
        """The output for a hosted call without one, for models that require outputs; None if they do not."""
        return None

    def log_notes(self, name: str, event: Event) -> Iterable[CallLogNote]:
        """The operator's lines about an event."""
        return ()


def makes_calls(room: Room | None) -> bool:
    return isinstance(room, HostedTool) and room.makes_calls
