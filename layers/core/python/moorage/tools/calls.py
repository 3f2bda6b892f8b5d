"""A call of a tool as its room sees it: its known facts, its beginning, and its end."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, Literal

from moorage.dataclass import dataclass
from moorage.wire.types import Event, Item, Tool

NOT_ALLOWED: Final = "The user did not allow this call, and it was not run."


class CallEnd(StrEnum):
    """Ends of a call that are not a result."""

    REFUSED = "refused"
    """It was not run: a bound is reached."""
    DENIED = "denied"
    """It was not run: a person did not allow it, and the detail is what they said."""
    LOST = "lost"
    """It was begun, and nobody knows how it ended."""
    GAVE_UP = "gave_up"
    """It could not be run."""
    CANCELLED = "cancelled"
    """Its response ended first."""
    TIME_OVER = "time_over"
    """It took longer than its bound."""
    TOO_LARGE = "too_large"
    """It said more than its bound."""


@dataclass(frozen=True, slots=True)
class CallApproval:
    """A person's decision, as an item brings it."""

    approval_id: str
    approve: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ItemPosition:
    """The position of a call's item."""

    item_id: str
    output_index: int
    container_id: str | None
    """The container that calls of this response run in, if there is one."""
    is_hosted: bool
    """The request has the tool's calls run here, and not in the client."""

    def event(self, name: str, **fields: Any) -> Event:
        """An event of the item; ``name`` without ``response.``."""
        return {"type": f"response.{name}", "item_id": self.item_id, "output_index": self.output_index, **fields}


@dataclass(frozen=True, slots=True)
class CallOpening:
    """How a call that the model has made is shown."""

    added: Item
    """As in ``response.output_item.added``."""
    events: Iterable[Event]
    """Those between."""
    item: Item
    """With what the events have told."""
    is_whole: bool = True
    """``response.output_item.done`` follows at once. If not, it comes with the result, which the run puts into this same item."""


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A function that an item of the conversation adds to the model's functions."""

    name: str
    function: Tool
    """But for its name, which the lowering chooses."""
    call: Item
    """What a call of it is, before its arguments are known."""
    has_own_name: bool = False
    """It bears its name as it is, where that is free: models were trained on it."""
    is_clients: bool = False
    """Its calls are function calls that the client answers."""
    tells_container: bool = False
    """It runs commands in the container: the model is told which programs and files there are."""
    is_deferred: bool = False
    """It is kept back until a search has found it."""
    is_search: bool = False
    """It looks for what is kept back: offered where something is, and nothing else looks for it."""


@dataclass(frozen=True, slots=True)
class OfferedFunctions:
    """All offers of an item; an earlier item's offers of the same name are over."""

    namespace: str
    functions: tuple[OfferedFunction, ...]
    about: str = ""
    """Told with each of them."""


@dataclass(frozen=True, slots=True)
class CallEvent:
    """An event of a running call."""

    event: Event
    offset: tuple[int, int] | None = None
    """Of which of its streams the event is, and the number there; a later run finds the highest of each in ``KnownCall.offsets``."""


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The end of a run: the item that it fills, whole."""

    item: Item
    events: tuple[Event, ...] = ()
    """Said together with the end, in one batch: a run that comes after one that died finds both or neither."""


Piece = CallEvent | CallFinished

ToolKey = tuple[str, str | None, str]
"""A tool by its type, its namespace or server, and its name there."""


def finished_of(pieces: Iterable[Piece]) -> Item:
    """The whole item, if nobody is told how it came about."""
    (item,) = [piece.item for piece in pieces if isinstance(piece, CallFinished)]
    return item


@dataclass(frozen=True, slots=True)
class CallLogNote:
    """A note for an operator; ``at`` is the place that it continues, none for a line of its own."""

    text: str
    tone: Literal["call", "output", "problem", "note", "failure"]
    at: tuple[Hashable, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownCall:
    """A call, and the output of its earlier runs."""

    response_id: str
    call_id: str
    item: Item
    """The call."""
    output_index: int
    """Of the item that the run fills."""
    output_item_id: str
    so_far: Item | None = None
    """That item as the log has it."""
    offsets: Mapping[int, int] = field(default_factory=dict)

    def event(self, name: str, **fields: Any) -> Event:
        """An event of the item that the run fills; ``name`` without ``response.``."""
        return {"type": f"response.{name}", "item_id": self.output_item_id, "output_index": self.output_index, **fields}
