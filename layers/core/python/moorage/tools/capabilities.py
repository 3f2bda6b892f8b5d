"""Optional capabilities of rooms. A room inherits from those that it has, and callers ask with ``isinstance``."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from moorage.model.catalog import ModelEntry
from moorage.model.remote_servers import RemoteServers
from moorage.settings import Settings
from moorage.tools.calls import CallApproval, ItemPosition, OfferedFunctions, ToolKey
from moorage.tools.room import InputWriter, Room
from moorage.tools.run import Service
from moorage.tools.source_marks import SourceMark
from moorage.wire.types import Event, Item, Tool


class Stage(Protocol):
    """The conversation before a model request, and the way to add items (:meth:`PreparesSteps.prepare_step`)."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The request's tools of this room."""
        ...

    @property
    def items(self) -> Sequence[Item]:
        """The model's view: the conversation, and the items of this response so far."""
        ...

    @property
    def made(self) -> Sequence[Item]:
        """The items of this response so far, with incomplete ones."""
        ...

    @property
    def own_input(self) -> Sequence[Item]:
        """The input items of the request itself."""
        ...

    @property
    def outside(self) -> Service: ...

    def add(self, item: Item) -> ItemPosition:
        """Open an item, which gets its id."""
        ...

    def say(self, event: Event) -> None: ...

    def done(self, place: ItemPosition, item: Item) -> None:
        """Close a whole item."""
        ...

    def call(self, call: Item) -> None:
        """Open a call that runs before a model is asked, like a call of the model."""
        ...


class PreparesSteps(Room):
    """Adds items before each model request."""

    @abstractmethod
    def needs_preparation(self, said: Sequence[Item]) -> bool:
        """Whether :meth:`prepare_step` may have work for a request with these input items."""

    @abstractmethod
    async def prepare_step(self, stage: Stage) -> None:
        """Add the items that the model needs, and open the calls that the client has allowed. Each model step calls this first. It may
        run twice, and be cancelled."""


class ValidatesItems(Room):
    @abstractmethod
    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        """Check a request's items, also if the request does not offer the tool. ``tools`` are those of this room. Raises
        :class:`~moorage.errors.ApiError` for an item without its counterpart."""


class MayBeUnavailable(Room):
    @abstractmethod
    def unavailable(self, tools: Sequence[Tool], entry: ModelEntry, settings: Settings) -> str | None:
        """Why calls of these tools cannot run here, in a sentence; None if they can. ``entry`` is the model that makes them."""


class AdaptsToModel(Room):
    """The function, and the meaning of its calls, depend on the upstream's model."""

    @abstractmethod
    def adapt_tool(self, tool: Tool, reader: InputWriter) -> Tool:
        """The tool for :meth:`Room.function_tool`."""

    @abstractmethod
    def adapt_call(self, call: Item, tool: Tool, reader: InputWriter) -> Item | None:
        """The call of :meth:`Room.parse_call` in the tool's own form; None if it does not fit."""


class TrimsContext(Room):
    @abstractmethod
    def trim_context(self, items: Sequence[Item]) -> Sequence[Item]:
        """A conversation without the parts of old items that models do not need. It is cut in steps, so that a longer conversation
        begins like the shorter one most of the time."""


class AsksApproval(Room):
    """A person may have to allow the calls."""

    pauses_in_place: ClassVar[bool] = True
    """Whether calls of a background response wait in their place by default."""

    def may_ask(self, tool: Tool) -> bool:
        """Whether calls of this tool may have to wait for a person."""
        return bool(tool.get("require_approval", "never") != "never")

    @abstractmethod
    def hold_for_approval(self, call: Item, tools: Sequence[Tool], approval_id: str | None) -> Item:
        """How the call, or the question, of a model is shown. If a person has to allow it, it becomes the question that ends the
        response, or the call that waits for the approval of this id."""

    @abstractmethod
    def needs_approval(self, call: Item, tools: Sequence[Tool], said: Sequence[Item], approval_id: str) -> bool:
        """Whether a call must wait for the approval of this id. ``tools`` and ``said`` are the request's."""


class HasApprovalItems(Room):
    """Its items carry questions and decisions about calls, of its own and of other rooms."""

    approval_request_type: ClassVar[str]
    """The type of the question's item: the response ends with it."""

    @abstractmethod
    def approval_decision(self, item: Item) -> CallApproval | None:
        """The decision in an item of a request, if it has one."""


class OffersFunctions(Room):
    """Its items offer functions to the model. The tool itself has no function (``function_name = ""``)."""

    @abstractmethod
    def offered_functions(self, item: Item, tools: Sequence[Tool]) -> OfferedFunctions | None:
        """The functions in an item; None for another item. ``tools`` are the request's tools of this room."""

    @abstractmethod
    def deferred_functions(self, tool: Tool, kept_back: Iterable[ToolKey]) -> Iterable[ToolKey]:
        """The deferred functions of a tool that joins the conversation later. ``kept_back`` are those of its server."""

    @abstractmethod
    def discovered_functions(self, item: Item, tools: Sequence[Tool]) -> Iterable[ToolKey]:
        """The deferred functions that an item has found. ``tools`` are the request's tools of this room."""


class HoldsSecrets(Room):
    """Its definition in a request may have secrets."""

    @abstractmethod
    def extract_secrets(self, tool: Tool, handle: str, configured: RemoteServers) -> tuple[Tool, Mapping[str, str]]:
        """The tool for the record, clients and models, and its secrets by handle. Handles replace the secrets, and begin with
        ``handle``. A run reads a secret by ``run.outside.secret(handle)``. ``configured`` has the operator's servers. Raises
        :class:`~moorage.errors.ApiError` for an unknown server."""

    def is_repeatable(self, tool: Tool) -> bool:
        """Whether a stored tool still works in another response, without its secrets."""
        return True


class HidesField(Room):
    """Clients get a field of its results only by ``include``."""

    hidden_field: ClassVar[str]
    """Of the item that a run fills. One that comes back without this field is completed from the stored one."""

    def restore_hidden(self, item: Item, stored: Item) -> Item:
        """The item of a client with the field of the stored item."""
        return item | ({self.hidden_field: stored[self.hidden_field]} if self.hidden_field in stored else {})


class SearchesVectorStores(Room):
    @abstractmethod
    def vector_store_ids(self, tool: Tool) -> Sequence[str]:
        """Ids of the vector stores that a tool searches."""


class CitesSources(Room):
    """Texts of the model cite results of its calls."""

    citation_marks: ClassVar[tuple[str, ...]] = ()
    """The kinds of marks that models write for the tool (``tools/source_marks.py``). The stream leaves the marks out."""

    @abstractmethod
    def citations(self, text: str, marks: Sequence[SourceMark], items: Sequence[Item]) -> list[dict[str, Any]]:
        """Annotations of a model's text: of the text itself, or of the marks that were taken out of it. ``items`` are the model's
        input."""


class RunsInContainer(Room):
    """Its calls name the container that they ran in."""

    def container_id(self, item: Item) -> str | None:
        """The container of a call."""
        container_id: str | None = item.get("container_id")
        return container_id

    def with_container(self, item: Item, container_id: str) -> Item:
        """A call as if it had run in a copy of its container."""
        return item | {"container_id": container_id}


class NeedsSession(Room):
    """A tool of agents: only a response of a session can have it."""


class ReportsUsage(Room):
    @abstractmethod
    def usage(self, items: Sequence[Item]) -> Mapping[str, Any]:
        """The tool's part of ``tool_usage`` for the items of a response, with zeros."""


class KeepsItems(Room):
    @abstractmethod
    def survives_truncation(self, item: Item) -> bool:
        """Whether truncation and compaction keep an item, however old it is."""
