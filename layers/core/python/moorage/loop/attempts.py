"""The fence: one record for each step and each tool call, counting its runs.

Starting raises ``attempt``. A run that finds the work done returns the stored outcome; a run that finds too many attempts gives up.
A writer of a lower attempt meets the higher one in the event log and stops (``store/event_log.py``).
"""

from dataclasses import dataclass

from moorage.loop.state import Outcome
from moorage.store import keys
from moorage.store.responses import StoredResponse
from moorage.store.table import Record, Table


@dataclass(frozen=True, slots=True)
class StepAttempt:
    attempt: int
    """Runs so far, this one included."""
    yields: int
    """Runs that ended in good order to wait for something."""
    outcome: Outcome | None

    @property
    def crashes(self) -> int:
        return self.attempt - 1 - self.yields


@dataclass(frozen=True, slots=True)
class CallAttempt:
    attempt: int
    """Runs so far, this one included."""
    yields: int
    """Runs that ended in good order with the command still going."""
    sandbox: int | None
    """The incarnation that the commands were started in; None before the first start."""
    is_finished: bool

    @property
    def crashes(self) -> int:
        return self.attempt - 1 - self.yields


async def begin_step(table: Table, stored: StoredResponse, step: int) -> StepAttempt:
    """Harmless to run twice: each run takes a higher number."""
    record = await table.update(
        _pk(stored), keys.attempt(step), add={"attempt": 1}, set={"ttl": stored.expires_at}, must_exist=False
    )
    outcome = record.get("outcome")
    # The first attempt of a foreground response's first step ran in the API process, which spares itself this record.
    inline = 1 if step == 0 and not stored.is_background else 0
    return StepAttempt(record["attempt"] + inline, record.get("yields", 0), Outcome.from_json(outcome) if outcome else None)


async def yield_step(table: Table, stored: StoredResponse, step: int) -> None:
    await table.update(_pk(stored), keys.attempt(step), add={"yields": 1})


async def end_step(table: Table, stored: StoredResponse, step: int, outcome: Outcome) -> None:
    """Harmless to run twice: two attempts that both got here wrote the same log."""
    await table.update(
        _pk(stored),
        keys.attempt(step),
        set={"outcome": outcome.to_json(), "ttl": stored.expires_at},
        must_exist=False,
    )


async def outcome_of(table: Table, tenant_id: str, response_id: str, step: int) -> Outcome | None:
    record = await table.get(keys.response(tenant_id, response_id), keys.attempt(step))
    return Outcome.from_json(record["outcome"]) if record and "outcome" in record else None


async def begin_call(table: Table, stored: StoredResponse, step: int, call_id: str, sandbox: int | None) -> CallAttempt:
    """Count a run of a tool call and note, once, the incarnation of the sandbox that its commands are started in."""
    once = {} if sandbox is None else {"sandbox": sandbox}
    record = await table.update(
        _pk(stored),
        keys.attempt(step, call_id),
        add={"attempt": 1},
        set={"ttl": stored.expires_at},
        set_once=once,
        must_exist=False,
    )
    return _call(record)


async def yield_call(table: Table, stored: StoredResponse, step: int, call_id: str) -> None:
    await table.update(_pk(stored), keys.attempt(step, call_id), add={"yields": 1})


async def end_call(table: Table, stored: StoredResponse, step: int, call_id: str) -> None:
    await table.update(_pk(stored), keys.attempt(step, call_id), set={"finished": True})


@dataclass(frozen=True, slots=True)
class Round:
    """A step and its tool calls, as one query sees them."""

    outcome: Outcome | None
    calls: dict[str, CallAttempt]
    """Those that have been started, by id."""


async def round_of(table: Table, tenant_id: str, response_id: str, step: int) -> Round:
    records = await table.query(keys.response(tenant_id, response_id), prefix=keys.attempt(step))
    calls = {record["SK"].removeprefix(keys.attempts_of(step)): _call(record) for record in records if record["SK"].count("#") == 2}
    outcome = next((record["outcome"] for record in records if "outcome" in record), None)
    return Round(None if outcome is None else Outcome.from_json(outcome), calls)


def _call(record: Record) -> CallAttempt:
    return CallAttempt(
        record.get("attempt", 0), record.get("yields", 0), record.get("sandbox"), bool(record.get("finished"))
    )


def _pk(stored: StoredResponse) -> str:
    return keys.response(stored.tenant_id, stored.response_id)



async def where(table: Table, stored: StoredResponse) -> tuple[int, Outcome | None]:
    """The last step that was begun, and its outcome if it came to one; for whoever finds the loop without an owner."""
    records = await table.query(_pk(stored), prefix="AT#")
    steps = {record["SK"]: record for record in records if record["SK"].count("#") == 1}
    if not steps:
        return 0, None
    last = max(steps)
    outcome = steps[last].get("outcome")
    return int(last.removeprefix("AT#")), Outcome.from_json(outcome) if outcome else None
