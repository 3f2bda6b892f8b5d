"""What a response waits for right now, read from its records: the one place that says so, for lists, steps and the command line."""

from collections.abc import Sequence
from typing import Final, Literal

from moorage.command_hints import as_typed
from moorage.dataclass import dataclass
from moorage.store.responses import Snapshot, StoredResponse
from moorage.store.steps import StepAccount
from moorage.wire.operator_answers import WaitingFor

PAUSED: Final = "It is paused: POST /v1/responses/{id}/resume, or 'moorage resume', lets it go on."
Kind = Literal["start", "model", "tool", "container", "pause", "approval"]


@dataclass(frozen=True, slots=True)
class WaitReason:
    kind: Kind
    since_ms: int
    detail: str
    """A sentence or a few words: the model's name, the tools that run, why there is a pause."""

    def to_json(self, command: str) -> WaitingFor:
        """``command`` is the word that starts moorage for its reader."""
        return {"kind": self.kind, "since": self.since_ms, "detail": as_typed(self.detail, command)}


def wait_of(snapshot: Snapshot, accounts: Sequence[StepAccount]) -> WaitReason | None:
    """What it waits for; None once it has ended. ``accounts`` are those of its last round at least."""
    stored = snapshot.stored
    if snapshot.is_final:
        return None
    created_ms = stored.created_at * 1000
    if stored.parked_at:
        is_asking = bool(stored.awaits) and not stored.is_pause_requested
        return WaitReason("approval" if is_asking else "pause", stored.parked_at * 1000, reason_of(stored) or "")
    if stored.waiting_for is not None:
        return WaitReason("pause", _since(accounts, created_ms), stored.waiting_for)
    steps = [account for account in accounts if account.call_id is None]
    if not steps:
        if stored.is_looping:
            return WaitReason("start", created_ms, "The state machine, which is about to take the first step.")
        return WaitReason("model", created_ms, stored.parameters.model)
    last = steps[-1]
    if last.outcome is None:
        return WaitReason("model", last.run_at_ms or created_ms, stored.parameters.model)
    by_id = {account.call_id: account for account in accounts if account.step == last.step and account.call_id is not None}
    open_calls = [call for call in last.outcome.calls if call.call_id not in by_id or not by_id[call.call_id].is_finished]
    if not open_calls:
        return WaitReason(
            "start", max([last.ended_at_ms or created_ms, *(a.ended_at_ms or 0 for a in by_id.values())]), "The next step."
        )
    running = [account for call in open_calls if (account := by_id.get(call.call_id)) is not None and account.run_at_ms is not None]
    if not running:
        return WaitReason(
            "container", last.ended_at_ms or created_ms, f"A container, for {_named([call.type for call in open_calls])}."
        )
    names = [call.type for call in open_calls if call.call_id in {account.call_id for account in running}]
    return WaitReason("tool", min(account.run_at_ms or created_ms for account in running), _named(names))


def reason_of(stored: StoredResponse) -> str | None:
    """Why no step of it runs, in a sentence. One that was paused while it waited for a word goes on when it is resumed, and not
    when that word is said."""
    return PAUSED if stored.awaits and stored.is_pause_requested else stored.waiting_for


def _since(accounts: Sequence[StepAccount], created_ms: int) -> int:
    return max((account.run_at_ms for account in accounts if account.run_at_ms is not None), default=created_ms)


def _named(types: Sequence[str]) -> str:
    return ", ".join(name if types.count(name) == 1 else f"{types.count(name)} × {name}" for name in dict.fromkeys(types))
