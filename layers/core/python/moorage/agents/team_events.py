"""The agents of a turn's team, as a projection of the turn's logs: pure.

Each task of an agent that another one has started is a turn of its own, and is told between the lines of the root agent's. An agent's
turn ends with its last answer. That of an agent without one is known later: from the message to the agent that started it, or from the
end of the root's turn. The same logs give the same events in the same order, at the times of the logs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from moorage import ids
from moorage.agents.team_items import MESSAGE, AgentNames, content_of, payload_of, spawned, target_of, text_of
from moorage.agents.turn_events import TURN, TurnProjector
from moorage.dataclass import dataclass
from moorage.loop.team_items import FAILED, INTERRUPTED, SILENT
from moorage.store.event_log import STEP_OF_THE_END
from moorage.store.responses import ROOT_AGENT
from moorage.tools.function_items import parsed
from moorage.tools.multi_agent.room import is_last_answer
from moorage.wire import events
from moorage.wire.types import Event, Item

SUBAGENT: Final = "agent.session.subagent"
TurnEnd = Literal["completed", "failed", "cancelled"]
_UNSAID: Final = "The subagent ended its turn without an answer."
_CUT: Final = "The subagent's answer was cut."


@dataclass(slots=True)
class SubagentTurn:
    """One task of a subagent."""

    id: str
    subagent_id: str
    created_ms: int
    projector: TurnProjector
    status: Literal["in_progress", "completed", "failed", "cancelled"] = "in_progress"
    ended_ms: int = 0
    message: str = ""
    """Why it has failed."""
    response_ids: list[str] = field(default_factory=list)
    """The responses that it runs in."""
    steps: set[tuple[str, int]] = field(default_factory=set)
    """The steps of the loop that have written of it, with their response."""
    called: list[Item] = field(default_factory=list)
    """Its items, as the response has them."""


@dataclass(slots=True)
class Subagent:
    id: str
    name: str
    parent_id: str
    task: str | None
    """The first one; None if it was given in an earlier turn of the session."""
    opened_ms: int
    closed_ms: int | None = None
    turns: list[SubagentTurn] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    is_interrupted: bool = False

    @property
    def is_busy(self) -> bool:
        return bool(self.turns) and self.turns[-1].status == "in_progress"


class TeamProjector:
    """What is heard of the responses of a root agent's turn, with what its subagents do. Without a team it is the root's alone."""

    def __init__(self, session_id: str, agent_id: str, turn_id: str) -> None:
        self._session_id = session_id
        self._agent_id = agent_id
        self._turn_id = turn_id
        self._names = AgentNames(agent_id, turn_id)
        self._root = TurnProjector(session_id, turn_id, self._names)
        self._response_id = ""
        self._tasks: dict[str, tuple[str, str]] = {}
        """Who has asked for an agent, and its task."""
        self._interrupts: dict[str, str] = {}
        """The name of the agent that a call interrupts, by the call's id."""
        self.subagents: dict[str, Subagent] = {}
        """By name, in the order in which they were opened."""

    def begin(self, given: Sequence[Item], response_id: str) -> Iterator[Event]:
        """Another response begins with these items."""
        self._response_id = response_id
        calling = [turn.projector for subagent in self.subagents.values() for turn in subagent.turns]
        for item in given:
            of_call = (each for each in calling if item["type"] == "function_call_output" and each.awaits(item["call_id"]))
            yield from next(of_call, self._root).begin([item])
        for each in (self._root, *calling):
            each.begins_anew()

    def hear(self, event: Event, at_ms: int = 0, step: int | None = None) -> Iterator[Event]:
        """One event of a response's log, when it was said, and by which step of the loop; None if that is not known."""
        if event["type"] in events.FINAL:
            for subagent in self.subagents.values():
                for turn in subagent.turns:
                    yield from turn.projector.hear(event)
            yield from self._root.hear(event)
            return
        name = event.get("agent", {}).get("agent_name", ROOT_AGENT)
        if name == ROOT_AGENT:
            yield from self._root.hear(event)
        else:
            yield from self._of_subagent(name, event, at_ms, step)
        if event["type"] == events.OUTPUT_ITEM_DONE:
            yield from self._noted(name, event["item"], at_ms)

    def _of_subagent(self, name: str, event: Event, at_ms: int, step: int | None) -> Iterator[Event]:
        if step == STEP_OF_THE_END and (name not in self.subagents or not self.subagents[name].turns):
            return  # A message that it has not read: it does not begin with that.
        yield from self._open(name, at_ms)
        subagent = self.subagents[name]
        is_new = event["type"] == events.OUTPUT_ITEM_ADDED and event["item"]["type"] == MESSAGE and step != STEP_OF_THE_END
        if is_new and subagent.is_busy and subagent.is_interrupted:  # It reads nothing more in the turn that was interrupted.
            yield from self._ended(subagent, "cancelled", at_ms)
        if not subagent.turns or (is_new and not subagent.is_busy):
            yield from self._begin(subagent, at_ms)
        turn = subagent.turns[-1]
        if self._response_id not in turn.response_ids:
            turn.response_ids.append(self._response_id)
        if step not in (None, STEP_OF_THE_END) and turn.status == "in_progress":
            turn.steps.add((self._response_id, step))
        if event["type"] == events.OUTPUT_ITEM_DONE:
            turn.called.append(event["item"])
        yield from turn.projector.hear(event)
        if event["type"] == events.OUTPUT_ITEM_DONE and _is_answer(event["item"]):
            yield from self._ended(subagent, "completed", at_ms)

    def _noted(self, name: str, item: Item, at_ms: int) -> Iterator[Event]:
        """What an agent's call or message tells of another agent."""
        match item["type"]:
            case "multi_agent_call":
                begun = spawned(name, item)
                if begun is not None and begun[0] not in self.subagents:
                    self._tasks[begun[0]] = (name, begun[1])
                if item["action"] == "interrupt_agent":
                    self._interrupts[item["call_id"]] = target_of(name, item)
            case "multi_agent_call_output":
                said = parsed(text_of(item["output"])) or {}
                if item["action"] == "spawn_agent" and "task_name" in said:
                    yield from self._open(said["task_name"], at_ms)
                interrupted = self._interrupts.pop(item["call_id"], "")
                if "error" not in said and interrupted in self.subagents and self.subagents[interrupted].is_busy:
                    self.subagents[interrupted].is_interrupted = True
            case "agent_message" if is_last_answer(item):
                subagent = self.subagents.get(item["author"])
                if subagent is not None and subagent.is_busy:
                    status, why = _end_said(payload_of(item))
                    yield from self._ended(subagent, status, at_ms, why)

    def _open(self, name: str, at_ms: int) -> Iterator[Event]:
        if name in self.subagents:
            return
        parent, task = self._tasks.get(name, (name.rpartition("/")[0], None))
        subagent = Subagent(self._names.id_of(name), name, self._names.id_of(parent), task, at_ms)
        self.subagents[name] = subagent
        started = self._root.started if parent == ROOT_AGENT else self.subagents[parent].started
        started.append(name)
        yield self._of_subagent_object("created", subagent)

    def _begin(self, subagent: Subagent, at_ms: int) -> Iterator[Event]:
        if subagent.closed_ms is not None:
            subagent.closed_ms = None
            yield self._of_subagent_object("active", subagent)
        turn_id = ids.id_within_turn("turn", self._turn_id, f"{subagent.name} {len(subagent.turns)}")
        projector = TurnProjector(self._session_id, turn_id, self._names, subagent.name, subagent.started)
        turn = SubagentTurn(turn_id, subagent.id, at_ms, projector, response_ids=[self._response_id])
        subagent.turns.append(turn)
        subagent.is_interrupted = False
        yield self._of_turn_object("created", turn, "queued")
        yield self._of_turn_object("in_progress", turn)

    def _ended(self, subagent: Subagent, status: TurnEnd, at_ms: int, why: str = "") -> Iterator[Event]:
        """Its turn has ended. One that has failed is closed: another task may open it again."""
        turn = subagent.turns[-1]
        turn.status, turn.ended_ms, turn.message, subagent.is_interrupted = status, at_ms, why, False
        yield self._of_turn_object(status, turn) | {"usage": None}
        if status == "failed":
            yield from self._closed(subagent, at_ms)

    def _closed(self, subagent: Subagent, at_ms: int) -> Iterator[Event]:
        if subagent.closed_ms is None:
            subagent.closed_ms = at_ms
            yield self._of_subagent_object("closed", subagent)

    def close(self, status: TurnEnd, at_ms: int) -> Iterator[Event]:
        """The root's turn has ended so, and the team with it."""
        yield from self._root.close()
        for subagent in self.subagents.values():
            for turn in subagent.turns:
                yield from turn.projector.close()
            if subagent.is_busy:
                is_told = status == "completed" and not subagent.is_interrupted
                yield from self._ended(subagent, "failed" if is_told else "cancelled", at_ms, _UNSAID if is_told else "")
            yield from self._closed(subagent, at_ms)

    def _of_turn_object(self, name: str, turn: SubagentTurn, status: str | None = None) -> Event:
        shown = turn_object_of(turn, self._session_id, self._agent_id, status)
        return {"type": f"{TURN}.{name}", "session_id": self._session_id, "turn_id": turn.id, "turn": shown}

    def _of_subagent_object(self, name: str, subagent: Subagent) -> Event:
        return {"type": f"{SUBAGENT}.{name}", "subagent": subagent_object(subagent, self._session_id)}


def _is_answer(item: Item) -> bool:
    return item["type"] == "message" and item.get("phase") == "final_answer" and item["status"] == "completed"


def _end_said(text: str) -> tuple[TurnEnd, str]:
    """What a turn without an answer has come to, by what the loop says of it."""
    if text == INTERRUPTED:
        return "cancelled", ""
    if text == f"{SILENT} completed.":
        return "completed", ""
    if text.startswith(FAILED):
        return "failed", text.removeprefix(FAILED).strip() or _UNSAID
    return "failed", _UNSAID if text.startswith(SILENT) else _CUT


def turn_object_of(turn: SubagentTurn, session_id: str, agent_id: str, status: str | None = None) -> dict[str, Any]:
    """As it is told, without its use; ``status`` is that of an event."""
    stands = status or turn.status
    has_ended = stands not in ("queued", "in_progress")
    created = turn.created_ms // 1000
    return {
        "id": turn.id,
        "object": "agent.session.turn",
        "session_id": session_id,
        "agent_id": agent_id,
        "subagent_id": turn.subagent_id,
        "created_at": created,
        "started_at": None if stands == "queued" else created,
        "completed_at": turn.ended_ms // 1000 if has_ended else None,
        "status": stands,
        "error": {"code": "server_error", "message": turn.message} if stands == "failed" else None,
        "usage": None,
        "response_ids": list(turn.response_ids),
        "cost_usd": None,
    }


def subagent_object(subagent: Subagent, session_id: str) -> dict[str, Any]:
    """As it is told, without its use."""
    return {
        "id": subagent.id,
        "object": SUBAGENT,
        "session_id": session_id,
        "parent_agent_id": subagent.parent_id,
        "name": subagent.name,
        "instructions": None if subagent.task is None else content_of(subagent.task),
        "status": "active" if subagent.closed_ms is None else "closed",
        "opened_at": subagent.opened_ms // 1000,
        "closed_at": None if subagent.closed_ms is None else subagent.closed_ms // 1000,
        "usage": None,
        "cost_usd": None,
    }
