"""Events of a turn, as a projection of the logs of its responses: pure.

The same logs give the same events in the same order, so that a reader can go on behind any of them. If theirs tells more than a log
knows at that moment, an event waits: whether a message is the answer is known when something stands behind it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from moorage.agents import team_items, turn_items
from moorage.agents.team_items import AgentNames, agent_message, status_of_output, team_call
from moorage.agents.turn_items import (
    Phase,
    command_id,
    commands,
    computer_call,
    function_call,
    function_result,
    message,
    of_input,
    phase_of,
    simple,
    text_of,
)
from moorage.dataclass import dataclass
from moorage.store.responses import ROOT_AGENT
from moorage.wire import events
from moorage.wire.types import Event, Item

TURN: Final = "agent.session.turn"
COMMAND_OUTPUT: Final = "agent.output.command_execution_output.delta"
ITEM_ADDED: Final = f"{TURN}.item.added"
ITEM_DONE: Final = f"{TURN}.item.done"
OBFUSCATED: Final = (f"{TURN}.output_text.delta", f"{TURN}.reasoning_summary_text.delta", COMMAND_OUTPUT)

_TEXT_PARTS: Final = ("output_text", "refusal")
_COMMAND_DELTA: Final = "response.shell_call_output_content.delta"


@dataclass(slots=True)
class _EventPosition:
    """Where an item of a response stands in its turn."""

    item_id: str
    index: int
    """``output_index`` of the turn."""


@dataclass(slots=True)
class _AgentCall:
    """A call that has no result yet, with the places of what it shows."""

    item: Item
    places: list[_EventPosition]


@dataclass(slots=True)
class TurnProjector:
    """What is heard of a turn's responses, one event after the other, becomes its own events. They bear no ``event_id`` yet. In a team,
    each turn of an agent hears what is the agent's (``team_events.py``)."""

    session_id: str
    turn_id: str
    names: AgentNames
    agent: str = ROOT_AGENT
    started: list[str] = field(default_factory=list)
    """Names of the agents that this one has started."""
    _count: int = 0
    """Of items so far."""
    _places: dict[int, _EventPosition] = field(default_factory=dict)
    """By ``output_index`` of the response."""
    _held: tuple[_EventPosition, Item] | None = None
    """A message that is whole, and what it is will be known soon."""
    _shells: dict[str, _AgentCall] = field(default_factory=dict)
    _shell_outputs: dict[int, str] = field(default_factory=dict)
    """``call_id`` by ``output_index`` of the response."""
    _functions: dict[str, _AgentCall] = field(default_factory=dict)
    _screens: dict[str, _AgentCall] = field(default_factory=dict)
    _asks: dict[str, _AgentCall] = field(default_factory=dict)
    """What it asks of other agents, as it is shown."""

    def begin(self, given: Sequence[Item]) -> Iterator[Event]:
        """Another response has these items given."""
        for item in given:
            call = self._functions.pop(item["call_id"], None) if item["type"] == "function_call_output" else None
            if call is not None:
                yield self._done(call.places[0], function_call(self.turn_id, call.item, item))
                yield self._added(None, function_result(self.turn_id, item))
            elif item["type"] == "message" and (shown := of_input(self.turn_id, item, ())) is not None:
                yield self._added(None, shown)

    def begins_anew(self) -> None:
        """Another response counts its items from the first on."""
        self._places, self._shell_outputs = {}, {}

    def hear(self, event: Event) -> Iterator[Event]:
        """One event of a response's log."""
        match event["type"]:
            case events.OUTPUT_ITEM_ADDED:
                yield from self._release([event["item"]], has_answered=False)
                yield from self._item_added(event["output_index"], event["item"])
            case events.OUTPUT_ITEM_DONE:
                yield from self._item_done(event["output_index"], event["item"])
            case events.COMPLETED | events.INCOMPLETE | events.FAILED:
                yield from self._ended(event["response"])
            case _:
                shown = self._within(event)
                if shown is not None:
                    yield shown

    def _ended(self, response: Mapping[str, Any]) -> Iterator[Event]:
        yield from self._release([], has_answered=response["status"] == "completed" and not self._functions)
        for call in self._shells.values():  # What was killed has no output.
            ended = commands(self.turn_id, {**call.item, "status": "incomplete"}, None)
            for place, item in zip(call.places, ended, strict=True):
                yield self._done(place, item)
        for call in self._screens.values():
            yield self._done(call.places[0], computer_call(self.turn_id, {**call.item, "status": "incomplete"}, None))
        self._shells, self._screens = {}, {}

    def close(self) -> Iterator[Event]:
        """The turn has ended: what was asked of the client or of other agents, and has come to nothing by now, never will."""
        for call in self._functions.values():
            yield self._done(call.places[0], function_call(self.turn_id, call.item | {"status": "incomplete"}, None))
        for call in self._asks.values():
            yield self._done(call.places[0], call.item | {"status": "incomplete"})
        self._functions, self._asks = {}, {}

    def awaits(self, call_id: str) -> bool:
        """Whether it has called a function that has no result yet."""
        return call_id in self._functions

    def _item_added(self, at: int, item: Item) -> Iterator[Event]:
        if item["type"] == "shell_call_output":
            self._shell_outputs[at] = item["call_id"]
        elif item["type"] == "message":
            yield self._added(self._place(at, item["id"]), message(self.turn_id, {**item, "status": "in_progress"}, item.get("phase")))
        elif (shown := simple(self.turn_id, {**item, "status": "in_progress"})) is not None:
            yield self._added(self._place(at, item["id"]), shown)

    def _item_done(self, at: int, item: Item) -> Iterator[Event]:
        match item["type"]:
            case "message":
                if at in self._places:
                    self._held = (self._places[at], item)
                    if item.get("phase") is not None or item["status"] != "completed":
                        yield from self._release([], has_answered=False)
            case "function_call":
                if item.get("status") != "incomplete":
                    place = self._place(at, item["id"])
                    self._functions[item["call_id"]] = _AgentCall(item, [place])
                    yield self._added(place, function_call(self.turn_id, item, None))
            case "shell_call":
                made = range(len(item["action"]["commands"]))
                places = [self._next_place(command_id(item, index)) for index in made]
                self._shells[item["call_id"]] = _AgentCall(item, places)
                for place, shown in zip(places, commands(self.turn_id, item, None), strict=True):
                    yield self._added(place, shown)
            case "shell_call_output":
                call = self._shells.pop(item["call_id"], None)
                if call is not None:
                    for place, shown in zip(call.places, commands(self.turn_id, call.item, item), strict=True):
                        yield self._done(place, shown)
            case "computer_call":
                place = self._place(at, item["id"])
                self._screens[item["call_id"]] = _AgentCall(item, [place])
                yield self._added(place, computer_call(self.turn_id, {**item, "status": "in_progress"}, None))
            case turn_items.SEEN:
                call = self._screens.pop(item["call_id"], None)
                if call is not None:
                    yield self._done(call.places[0], computer_call(self.turn_id, call.item, item))
            case team_items.CALL:
                asked = team_call(self.turn_id, self.agent, item, "in_progress", self.names, lambda: self.started)
                if asked is not None:
                    place = self._place(at, item["id"])
                    self._asks[item["call_id"]] = _AgentCall(asked, [place])
                    yield self._added(place, asked)
            case team_items.OUTPUT:
                call = self._asks.pop(item["call_id"], None)
                if call is not None:
                    yield self._done(call.places[0], call.item | {"status": status_of_output(item)})
            case team_items.MESSAGE:
                yield self._added(None, agent_message(self.turn_id, item, self.names))
            case _:
                whole = simple(self.turn_id, item)
                if whole is not None and at in self._places:
                    yield self._done(self._places[at], whole)

    def _release(self, behind: Sequence[Item], *, has_answered: bool) -> Iterator[Event]:
        """Tell of a message that was held, now that it is known what stands behind it."""
        if self._held is not None:
            place, item = self._held
            self._held = None
            phase: Phase | None = phase_of(item, behind, has_answered=has_answered)
            yield self._done(place, message(self.turn_id, item, phase))

    def _within(self, event: Event) -> Event | None:
        """A piece of an item; None for what has no place there."""
        name, at = event["type"], event.get("output_index")
        if name == _COMMAND_DELTA:
            return self._command_output(event)
        place = None if at is None else self._places.get(at)
        if place is None:
            return None
        match name:
            case events.CONTENT_PART_ADDED | events.CONTENT_PART_DONE if event["part"]["type"] in _TEXT_PARTS:
                part = {"type": "output_text", "text": text_of(event["part"])}
                return self._piece(name.removeprefix("response."), place, content_index=event["content_index"], part=part)
            case events.OUTPUT_TEXT_DELTA | events.REFUSAL_DELTA:
                return self._piece("output_text.delta", place, content_index=event["content_index"], delta=event["delta"])
            case events.OUTPUT_TEXT_DONE | events.REFUSAL_DONE:
                return self._piece("output_text.done", place, content_index=event["content_index"], text=text_of(event))
            case events.REASONING_SUMMARY_PART_ADDED:
                return self._piece("reasoning_summary_part.added", place, **_summary(event, part=_summary_part(event)))
            case events.REASONING_SUMMARY_PART_DONE:
                return self._piece("reasoning_summary_part.done", place, **_summary(event, part=_summary_part(event)), status=None)
            case events.REASONING_SUMMARY_TEXT_DELTA:
                return self._piece("reasoning_summary_text.delta", place, **_summary(event, delta=event["delta"]))
            case events.REASONING_SUMMARY_TEXT_DONE:
                return self._piece("reasoning_summary_text.done", place, **_summary(event, text=event["text"]))
        return None

    def _command_output(self, event: Event) -> Event | None:
        call = self._shells.get(self._shell_outputs.get(event["output_index"], ""))
        if call is None or event["command_index"] >= len(call.places):
            return None
        place = call.places[event["command_index"]]
        said = event["delta"]
        text = said if isinstance(said, str) else "".join(said.values())
        return self._of_turn(COMMAND_OUTPUT, item_id=place.item_id, output_index=place.index, delta=text)

    def _place(self, at: int, item_id: str) -> _EventPosition:
        self._places[at] = self._next_place(item_id)
        return self._places[at]

    def _next_place(self, item_id: str) -> _EventPosition:
        self._count += 1
        return _EventPosition(item_id, self._count - 1)

    def _added(self, place: _EventPosition | None, item: Item) -> Event:
        return self._of_turn(ITEM_ADDED, item=item, output_index=None if place is None else place.index)

    def _done(self, place: _EventPosition, item: Item) -> Event:
        return self._of_turn(ITEM_DONE, item=item, output_index=place.index)

    def _piece(self, name: str, place: _EventPosition, **said: Any) -> Event:
        return self._of_turn(f"{TURN}.{name}", item_id=place.item_id, output_index=place.index, **said)

    def _of_turn(self, name: str, **said: Any) -> Event:
        return {"type": name, "session_id": self.session_id, "turn_id": self.turn_id, **said}


def _summary(event: Event, **said: Any) -> dict[str, Any]:
    return {"summary_index": event["summary_index"], **said}


def _summary_part(event: Event) -> dict[str, Any]:
    return {"type": "summary_text", "text": event["part"]["text"]}
