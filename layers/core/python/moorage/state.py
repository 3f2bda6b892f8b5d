"""The state machine's state: ids and one word, never content (256 KiB per state, history kept for 90 days)."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from moorage.codec import Codec, FieldCodec
from moorage.dataclass import dataclass
from moorage.wire.responses import Status, TokenUsage

_ONE_TOOL: Final = "tool"
_ONE_SERVICE: Final = "service"
_MIXED: Final = "mixed"
SANDBOX: Final = "sandbox"
SERVICE: Final = "service"


class Next(StrEnum):
    """Where ``Route`` goes. The state machine has words of its own for a single call, ``tool`` or ``service``, which spares it the Map,
    and for several of which some run outside of the sandboxes' network: ``mixed``, whose Map looks at each where it runs."""

    MODEL = "model"
    READ = "read"
    TOOLS = "tools"
    WAIT = "wait"
    CONTINUE = "continue"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class LoopState:
    response_id: str
    tenant_id: str
    container_id: str | None = None
    """The container that hosted calls run in: a tool step can look for it and for its call at once."""
    step: int = 0
    next: Next = Next.MODEL
    calls: tuple[str, ...] = ()
    """Ids of the tool calls of ``step`` that are to run."""
    from_step: int = 0
    """The step that this execution began with; a successor takes over before the history grows too long."""
    wait_seconds: int = 0
    services: tuple[str, ...] = ()
    """Those of ``calls``, and maybe some that have run already, that run outside of the sandboxes' network."""
    reader_id: str | None = None
    """If ``next`` is ``read``: the container in which documents of the input are read, before the model step of ``step``."""
    readings: int = 0
    """How often that was begun."""
    is_read: bool = False
    """Nothing is left to read, or cannot be read."""

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> "LoopState":
        return cls(
            response_id=state["response_id"],
            tenant_id=state["tenant_id"],
            container_id=state["container_id"],
            step=state["step"],
            next=Next.TOOLS if state["next"] in (_ONE_TOOL, _ONE_SERVICE, _MIXED) else Next(state["next"]),
            calls=tuple(state["calls"]),
            services=tuple(state["calls"])
            if state["next"] == _ONE_SERVICE
            else tuple(call["call_id"] for call in state.get("routed", ()) if call["place"] == SERVICE),
            from_step=state["from_step"],
            wait_seconds=state.get("wait_seconds", 0),
            reader_id=state.get("reader_id"),
            readings=state.get("readings", 0),
            is_read=state.get("is_read", False),
        )

    def to_json(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "response_id": self.response_id,
            "tenant_id": self.tenant_id,
            "container_id": self.container_id,
            "step": self.step,
            "next": self._word,
            "calls": list(self.calls),
            "from_step": self.from_step,
        }
        if self.next is Next.WAIT:
            state["wait_seconds"] = self.wait_seconds
        if self.next is Next.READ:
            state |= {"reader_id": self.reader_id, "readings": self.readings, "is_read": self.is_read}
        if self._word == _MIXED:
            # Not ``where``: LocalStack's interpreter takes that for an operator of JSONPath.
            state["routed"] = [
                {"call_id": call_id, "place": SERVICE if call_id in self.services else SANDBOX} for call_id in self.calls
            ]
        return state

    @property
    def _word(self) -> str:
        services = set(self.services) & set(self.calls)
        if self.next is not Next.TOOLS:
            return str(self.next)
        if len(self.calls) == 1:
            return _ONE_SERVICE if services else _ONE_TOOL
        return _MIXED if services else str(Next.TOOLS)

    def after(self, outcome: "StepOutcome") -> "LoopState":
        """The state that follows the model step of ``step``."""
        match outcome.next:
            case Next.TOOLS:
                calls = tuple(call.call_id for call in outcome.calls)
                services = tuple(call.call_id for call in outcome.calls if call.where == SERVICE)
                return replace(self, next=Next.TOOLS, calls=calls, services=services)
            case Next.MODEL:
                return replace(self, step=self.step + 1, next=Next.MODEL, calls=())
            case Next.WAIT:
                return self.waiting(outcome.wait_seconds)
            case _:
                return self.done()

    def done(self) -> "LoopState":
        return replace(self, next=Next.DONE, calls=())

    def waiting(self, seconds: int) -> "LoopState":
        return replace(self, next=Next.WAIT, wait_seconds=seconds)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A hosted tool call that is to run."""

    call_id: str
    type: str
    """Of the call's item."""
    call_index: int
    """Output index of the call's item. Below 0 it is in the step's record alone, and the call fills no item."""
    output_index: int
    """Output index of the item that the tool step fills: the call's own, if that holds its result."""
    output_item_id: str
    where: str = SANDBOX
    """Or ``service``: outside of the sandboxes' network."""
    approval: str = ""
    """Id of the approval without which it must not run; empty if it needs none."""


@dataclass(frozen=True, slots=True)
class Rent:
    """A response's payment for its sandbox."""

    since: int
    """Seconds that the response had run, pauses left out, when it asked for the first call that needs it."""
    nanodollars: int
    """Of a second, at the price of then."""

    def seconds(self, ran: int) -> int:
        """Of a response that has run so many."""
        return max(0, ran - self.since)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The result of a model step; stored with the step, so that a second run of it answers the same."""

    next: Next
    next_index: int
    """Output index of the next item."""
    calls: tuple[PendingCall, ...] = ()
    usage: TokenUsage = TokenUsage()
    """Of the response so far."""
    calls_made: int = 0
    """Hosted calls of the response so far, for ``max_tool_calls``."""
    is_last: bool = False
    """The client has calls to answer too: once the hosted ones have run, the response ends."""
    wait_seconds: int = 0
    """If ``next`` is ``wait``. Such an outcome is not stored: the step runs again."""
    status: Status = "completed"
    """If ``next`` is ``done``: how the response ends."""
    incomplete_reason: str | None = None
    service_tier: str | None = None
    """The tier of the latest step whose upstream named one."""
    had_no_calls_left: bool = False
    """Its calls were refused, because those of a budget that it shares were used up meanwhile."""
    rent: Rent | None = None
    """From its first call in a sandbox on, where those have a price."""
    error: Mapping[str, Any] | None = None
    """Of an agent in a team that failed with this step."""
    wakes: tuple[int, ...] = ()
    """Agents of its team that begin or go on after it."""
    waits_until_ms: int = 0
    """Until then (milliseconds) it waits for messages before the next step; 0 if it does not."""


CALL: Final = Codec(PendingCall, sparse=("where", "approval"))
OUTCOME: Final = Codec(
    StepOutcome,
    nested={
        "next": FieldCodec(str, Next),
        "calls": CALL,
        "usage": FieldCodec(TokenUsage.to_json, TokenUsage.from_json),
        "rent": Codec(Rent),
    },
    beside=("wait_seconds",),
    sparse=("had_no_calls_left", "rent", "error", "wakes", "waits_until_ms"),
)
"""How a step's record holds what it came to."""
