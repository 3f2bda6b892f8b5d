"""Responses that run on a WebSocket connection, as its client reaches them: it may interrupt one, or steer it.

A response that is steered ends at the next boundary: no item is half said, and each hosted call has its result. It then is
``incomplete`` with the reason ``steered``. A successor begins by itself with the same settings and the new input. If the
response waits for outputs or decisions of its client, the input waits for the request that brings them.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

from moorage import ids
from moorage.api.foreground import Foreground
from moorage.dataclass import dataclass
from moorage.loop import decide
from moorage.store.event_log import FINAL_TYPES
from moorage.store.responses import StoredResponse
from moorage.tools.approval_items import RESPONSE as APPROVAL_RESPONSE
from moorage.tools.registry import ROOMS
from moorage.wire import client_events
from moorage.wire.events import OUTPUT_ITEM_ADDED, OUTPUT_ITEM_DONE
from moorage.wire.types import Event, Item

INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class SteeringInput:
    """One ``response.steer`` that was accepted."""

    id: str
    response_id: str
    messages: list[Item]
    given: Any
    """``input`` as it came."""
    size: int
    """Bytes of the frame."""

    @classmethod
    def of(cls, frame: dict[str, Any], messages: list[Item], size: int) -> "SteeringInput":
        return cls(ids.new_id("steer"), frame["previous_response_id"], messages, frame["input"], size)

    @property
    def named(self) -> dict[str, Any]:
        return {"id": self.id, "previous_response_id": self.response_id}

    def accepted(self, number: int) -> Event:
        return {"type": client_events.STEER_ACCEPTED, "sequence_number": number, "steer": self.named}

    def pending(self, number: int, output: Sequence[Item]) -> Event:
        return {
            "type": client_events.STEER_PENDING,
            "sequence_number": number,
            "reason": "waiting_for_required_input",
            "required_input": required_input(output),
            "steer": self.named,
        }

    def failed(self, number: int, code: str, message: str) -> Event:
        return steer_failed(number, code, message, self.named | {"input": self.given})


def steer_failed(number: int, code: str, message: str, steer: dict[str, Any]) -> Event:
    """``code`` is one of the SDK's ``ResponseSteerErrorCode``; ``steer`` gives the input back."""
    error = {"code": code, "message": message, "type": "invalid_request_error"}
    return {"type": client_events.STEER_FAILED, "sequence_number": number, "error": error, "steer": steer}


def required_input(output: Sequence[Item]) -> list[dict[str, Any]]:
    """The client's due inputs for a response that has ended: the beginnings of its outputs and decisions."""
    answered = {item.get("call_id") for item in output if item["type"].endswith("_output")}
    return [_stub(item) for item in output if decide.is_for_client(item) and item.get("call_id") not in answered]


def _stub(item: Item) -> dict[str, Any]:
    if ROOMS.of_question(item["type"]) is not None:
        return {"type": APPROVAL_RESPONSE, "approval_request_id": item["id"]}
    room = ROOMS.of_call(item["type"])
    assert room is not None
    stub = {"type": room.output_type, "call_id": item["call_id"]}
    if item["type"] == "function_call":
        stub["name"] = item["name"]
    return stub | ({"execution": item["execution"]} if "execution" in item else {})


@dataclass(slots=True)
class RunningResponse:
    stored: StoredResponse
    stream_id: str | None
    foreground: Foreground
    request: dict[str, Any]
    """The frame that it was made of."""
    steers: list[SteeringInput] = field(default_factory=list)
    number: int = 0
    """Of the last event that its client has got."""
    is_over: bool = False
    is_ending: bool = False
    """It was told to end."""
    is_interrupted: bool = False
    calls: dict[str, Item] = field(default_factory=dict)
    """The client's calls without an output, by ``call_id``."""
    _open: set[int] = field(default_factory=set)
    _unanswered: set[str] = field(default_factory=set)
    """``call_id`` of hosted calls without a result."""

    @property
    def can_be_steered(self) -> bool:
        """As at OpenAI: not if a conversation or automatic compaction decides what the model reads, and not with a team."""
        is_alone = self.stored.conversation_id is None and self.stored.agent is None
        return is_alone and not self.stored.parameters.context_management

    @property
    def is_at_boundary(self) -> bool:
        """Whether it may be ended now without losing anything."""
        return not (self.is_over or self.is_ending or self._open or self._unanswered)

    def successor(self, messages: list[Item]) -> dict[str, Any]:
        """The frame of a response that goes on from this one with the same settings."""
        own = {name: value for name, value in self.request.items() if name not in ("input", "generate")}
        return own | {"previous_response_id": self.stored.response_id, "input": messages}

    def hear(self, event: Event) -> None:
        """An event that its client gets."""
        self.number = event["sequence_number"]
        self.is_over = self.is_over or event["type"] in FINAL_TYPES
        if event["type"] == OUTPUT_ITEM_ADDED:
            self._open.add(event["output_index"])
        elif event["type"] == OUTPUT_ITEM_DONE:
            self._open.discard(event["output_index"])
            self._settle(event["item"])

    def _settle(self, item: Item) -> None:
        room, call_id = ROOMS.hosted(item["type"]), item.get("call_id") or item["id"]
        if decide.is_for_client(item):  # It ends the response by itself.
            self._unanswered.add(call_id)
            self.calls |= {item["call_id"]: item} if "call_id" in item else {}
        elif item.get("async") and item.get("status") == "completed":
            self.calls[call_id] = item
        elif room is None:
            self._unanswered.discard(call_id)
            self.calls.pop(call_id, None)
        elif decide.is_hosted(item) and not (room.output_type is None and room.is_settled(item)):
            self._unanswered.add(call_id)
