"""What a log adds up to.

The response object is the sum of its events. This module adds them up: for a step that takes over from a dead one (which items are
done, which one is open), for ``GET`` on a response that is still running, and for the tests of that very claim.
"""

from collections.abc import Iterable
from dataclasses import field
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.store import keys
from moorage.store.event_log import FINAL_TYPES, EventBatch
from moorage.tools.function_items import without
from moorage.tools.registry import ROOMS
from moorage.wire import events
from moorage.wire.events import OUTPUT_ITEM_ADDED
from moorage.wire.types import Event, Item


@dataclass(slots=True)
class FoldedState:
    """The state after some events."""

    next_number: int = 0
    response: dict[str, Any] | None = None
    """The last whole response object that an event carried."""
    is_final: bool = False
    items: dict[int, Item] = field(default_factory=dict)
    """Items by output index, as far as they have come; open ones are ``in_progress``."""
    done: set[int] = field(default_factory=set)
    """Output indexes whose ``response.output_item.done`` has come."""

    @property
    def open(self) -> list[int]:
        return sorted(index for index in self.items if index not in self.done)

    def drop_open(self) -> None:
        """Forget incomplete items."""
        for index in self.open:
            del self.items[index]

    @property
    def output(self) -> list[Item]:
        """All items in output order."""
        return [self.items[index] for index in sorted(self.items)]


def fold(events: Iterable[Event], onto: FoldedState | None = None) -> FoldedState:
    """Add events up, after those of ``onto``: it is changed and returned. Raises AssertionError at a gap or a repeat."""
    state = onto or FoldedState()
    pieces: list[Event] = []
    for event in events:
        number = event["sequence_number"]
        assert number == state.next_number, f"event {number} where {state.next_number} was due"
        state.next_number += 1
        if pieces and not _goes_on(pieces[-1], event):
            _apply(state, _joined(pieces))
            pieces = []
        pieces.append(event)
    if pieces:
        _apply(state, _joined(pieces))
    return state


def of_lane(batches: Iterable[EventBatch], lane: int | None) -> tuple[list[Event], dict[int, int]]:
    """A log as a lane knows it: its own events with the output indexes of the lane, and those of others without any; and by these
    indexes the response's. A lane's items are numbered in the order in which they were added. None: there is no team."""
    if lane is None:
        return [event for batch in batches for event in batch.events], {}
    events: list[Event] = []
    places: dict[int, int] = {}
    own: dict[int, int] = {}
    for batch in batches:
        is_own = keys.lane_of(batch.writer.step) == lane
        for event in batch.events:
            place = event.get("output_index")
            if place is None:
                events.append(event)
                continue
            if is_own and event["type"] == OUTPUT_ITEM_ADDED:
                own[place] = len(own)
                places[own[place]] = place
            if place not in own:
                events.append({"type": event["type"], "sequence_number": event["sequence_number"]})
                continue
            item = {"item": without(event["item"], "agent")} if "item" in event else {}
            events.append(event | item | {"output_index": own[place]})
    return events, places


_PIECE_NAMES: Final = frozenset({"type", "sequence_number", "delta", "logprobs"})


def _goes_on(before: Event, event: Event) -> bool:
    """Whether an event says the next piece of the same text. Such pieces are added up together: a text that grows by each of them would
    be copied as often as it has pieces."""
    if event["type"] != before["type"] or not isinstance(event.get("delta"), str) or not isinstance(before.get("delta"), str):
        return False
    return all(before.get(name) == value for name, value in event.items() if name not in _PIECE_NAMES)


def _joined(pieces: list[Event]) -> Event:
    return pieces[0] if len(pieces) == 1 else pieces[0] | {"delta": "".join(piece["delta"] for piece in pieces)}


def _apply(state: FoldedState, event: Event) -> None:
    type_ = event["type"]
    if "response" in event:
        state.response = event["response"]
        state.is_final = type_ in FINAL_TYPES
        if state.is_final:
            state.drop_open()  # An interruption leaves out what is half said.
        return
    index = event.get("output_index")
    if index is None:
        return
    if type_ == events.OUTPUT_ITEM_ADDED:
        state.items[index] = _copy(event["item"])
        return
    if type_ == events.OUTPUT_ITEM_DONE:
        state.items[index] = event["item"]
        state.done.add(index)
        return
    _grow(state.items[index], type_, event)


def _copy(item: Item) -> Item:
    """An added item that later events may grow without changing the event itself."""
    return {
        key: list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value
        for key, value in item.items()
    }


def _grow(item: Item, type_: str, event: Event) -> None:
    match type_:
        case events.CONTENT_PART_ADDED:
            item.setdefault("content", []).append(_copy(event["part"]))
        case events.CONTENT_PART_DONE:
            item["content"][event["content_index"]] = event["part"]
        case events.OUTPUT_TEXT_DELTA:
            part = item["content"][event["content_index"]]
            part["text"] += event["delta"]
        case events.OUTPUT_TEXT_ANNOTATION_ADDED:
            item["content"][event["content_index"]]["annotations"].append(event["annotation"])
        case events.REFUSAL_DELTA:
            item["content"][event["content_index"]]["refusal"] += event["delta"]
        case events.REASONING_SUMMARY_PART_ADDED:
            item["summary"].append(dict(event["part"]))
        case events.REASONING_SUMMARY_TEXT_DELTA:
            item["summary"][event["summary_index"]]["text"] += event["delta"]
        case events.REASONING_TEXT_DELTA:
            item["content"][event["content_index"]]["text"] += event["delta"]
        case events.FUNCTION_CALL_ARGUMENTS_DELTA:
            item["arguments"] += event["delta"]
        case events.CUSTOM_TOOL_CALL_INPUT_DELTA:
            item["input"] += event["delta"]
        case _:
            name = type_.removeprefix("response.")
            room = ROOMS.of_event(name)
            if room is not None:
                room.apply_event(item, name, event)
