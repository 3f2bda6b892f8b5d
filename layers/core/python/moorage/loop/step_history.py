"""The loop of a response, unrolled: its model steps and tool calls in order, with their times, runs and tokens.

All of it stands in the records of the steps, which are written anyhow. What they do not know, because the first step of a response in
the foreground and the last step of any end without a record, is read from the log: the events of that step alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

from moorage import limits
from moorage.dataclass import dataclass
from moorage.loop.waiting import WaitReason, wait_of
from moorage.model.prices import Price, usd
from moorage.parallel import worked
from moorage.runtime import Runtime
from moorage.state import StepOutcome
from moorage.store.event_log import EventBatch
from moorage.store.lanes import AgentLane
from moorage.store.responses import Snapshot
from moorage.store.steps import StepAccount
from moorage.stores import Stores
from moorage.wire.events import OUTPUT_ITEM_ADDED
from moorage.wire.operator_answers import ResponseStep
from moorage.wire.responses import TokenUsage


@dataclass(frozen=True, slots=True)
class StepHistory:
    """Times are in milliseconds, None if they are not known (yet)."""

    step: int
    type: str
    """``model``, or the type of the tool call."""
    status: str
    """``in_progress``, ``completed``, or how the response ended while it ran."""
    call_id: str | None
    queued_at_ms: int | None
    """When it could have begun: the end of what it follows."""
    started_at_ms: int | None
    first_output_at_ms: int | None
    ended_at_ms: int | None
    attempts: int
    """Runs, with the one that ended it."""
    lost_attempts: int
    """Those whose process was lost."""
    pauses: int
    """Those that ended in good order, to wait for something."""
    why: str | None
    """What the latest of the pauses was for, or that a process was lost."""
    usage: TokenUsage | None
    """Of a model step."""
    waiting_for: WaitReason | None = None
    cost_usd: float | None = None
    """At the prices of now; None where they are not known."""
    request_id: str | None = None
    """Of a model step: what its upstream called the latest request, where it calls it anything."""
    agent: str | None = None
    """Whose step it is, of the agents of a team."""

    @property
    def id(self) -> str:
        return f"step_{self.step}" if self.call_id is None else f"step_{self.step}_{self.call_id}"

    def to_json(self, command: str) -> ResponseStep:
        queue = None if self.queued_at_ms is None or self.started_at_ms is None else max(0, self.started_at_ms - self.queued_at_ms)
        shown: ResponseStep = {
            "id": self.id,
            "object": "response.step",
            "step": self.step,
            "type": self.type,
            "status": self.status,
            "call_id": self.call_id,
            "started_at": self.started_at_ms,
            "first_output_at": self.first_output_at_ms,
            "ended_at": self.ended_at_ms,
            "queue_ms": queue,
            "attempts": {"count": self.attempts, "lost": self.lost_attempts, "pauses": self.pauses, "why": self.why},
            "upstream_request_id": self.request_id,
            "usage": None if self.usage is None else self.usage.to_json(),
            "cost_usd": self.cost_usd,
            "waiting_for": None if self.waiting_for is None else self.waiting_for.to_json(command),
        }
        if self.agent is not None:
            shown["agent"] = {"agent_name": self.agent}
        return shown


@dataclass(frozen=True, slots=True)
class _StepEvents:
    """The log's facts about one model step."""

    first_at_ms: int
    first_output_at_ms: int | None
    attempts: int
    request_id: str | None


async def unroll(runtime: Runtime, snapshot: Snapshot) -> list[StepHistory]:
    """All steps so far. Those of the agents of a team come as they began, each model step with its calls."""
    stored = snapshot.stored
    lanes = [AgentLane(0)] if stored.agent is None else await runtime.stores.lanes.all(stored)
    found = await asyncio.gather(*(_recorded(runtime.stores, snapshot, lane) for lane in lanes))
    price = runtime.models.catalog.price_of(stored.parameters.model)

    def told() -> list[StepHistory]:
        own = [_of_lane(snapshot, lane, *recorded) for lane, recorded in zip(lanes, found, strict=True)]
        steps = own[0] if stored.agent is None else _of_team(snapshot, lanes, own)
        return [replace(step, cost_usd=_cost(step, price)) for step in steps]

    is_long = sum(len(accounts) for accounts, _ in found) > limits.STEPS_TOLD_HERE_MAX
    return await worked(told) if is_long else told()


def _of_team(snapshot: Snapshot, lanes: Sequence[AgentLane], own: Sequence[Sequence[StepHistory]]) -> list[StepHistory]:
    rounds = [
        [replace(step, agent=lane.name) for step in group]
        for lane, steps in zip(lanes, own, strict=True)
        for _, group in groupby(steps, key=lambda step: step.step)
    ]
    rounds.sort(key=lambda group: group[0].started_at_ms or snapshot.stored.created_at * 1000)
    return list(chain.from_iterable(rounds))


async def _recorded(stores: Stores, snapshot: Snapshot, lane: AgentLane) -> tuple[list[StepAccount], _StepEvents | None]:
    """The accounts of an agent's steps, and the log's facts about an open one."""
    stored, first = snapshot.stored, lane.number * limits.LANE_STEPS
    accounts = await stores.steps.accounts(stored.tenant_id, stored.response_id, since=first)
    models = [account for account in accounts if account.call_id is None]
    if models and models[-1].outcome is not None:
        return accounts, None
    ended = [account for account in models if account.outcome is not None]
    following = ended[-1].following or 0 if ended else 0
    return accounts, await _spoken(stores, snapshot, following, models[-1].step if models else first)


def _of_lane(snapshot: Snapshot, lane: AgentLane, accounts: Sequence[StepAccount], spoken: _StepEvents | None) -> list[StepHistory]:
    """The steps of an agent; of ``/root``, where there is no team."""
    stored = snapshot.stored
    models = [account for account in accounts if account.call_id is None]
    ended = [account for account in models if account.outcome is not None]
    calls_of = dict[int, list[StepAccount]]()
    for account in accounts:
        if account.call_id is not None:
            calls_of.setdefault(account.step, []).append(account)
    steps: list[StepHistory] = []
    before = TokenUsage()
    queued_at = stored.created_at * 1000
    if not models and lane.number == 0 and (spoken is not None or not stored.is_looping):
        steps.append(_open_model_step(snapshot, None, 0, before, queued_at, spoken))
    for account in models:
        if account.outcome is None and ended and ended[-1].outcome is not None and ended[-1].outcome.is_last:
            continue  # It only ends the response, whose client has calls to answer.
        if account.outcome is None:
            steps.append(_open_model_step(snapshot, account, account.step, before, queued_at, spoken))
            continue
        steps.append(_model_step(account, account.outcome, before, queued_at))
        before = account.outcome.usage
        calls = calls_of.get(account.step, [])
        steps += _tool_steps(snapshot, account, account.outcome, calls)
        queued_at = max([account.ended_at_ms or 0, *(call.ended_at_ms or 0 for call in calls)]) or queued_at
    if lane.number:  # The record says what /root waits for.
        snapshot = replace(snapshot, stored=replace(stored, waiting_for=None))
    wait = wait_of(snapshot, accounts)
    return [replace(step, waiting_for=wait if step.status == "in_progress" else None) for step in steps]


def _cost(step: StepHistory, price: Price | None) -> float | None:
    """The cost of a step: its tokens, or its call."""
    if price is None:
        return None
    return usd(price.nanodollars(step.usage or TokenUsage(), {} if step.call_id is None else {step.type: 1}))


async def _spoken(stores: Stores, snapshot: Snapshot, following: int, step: int) -> _StepEvents | None:
    """The log's facts about a model step without an end in its record; None if there are none yet."""
    batches = [
        batch
        for batch in await stores.responses.log_of(snapshot.stored).read_from(following)
        if batch.writer.step == step and batch.writer.call_id is None
    ]
    return _heard(batches) if batches else None


def _heard(batches: Sequence[EventBatch]) -> _StepEvents:
    outputs = [
        batch.said_at(position)
        for batch in batches
        for position, event in enumerate(batch.events)
        if event["type"] == OUTPUT_ITEM_ADDED
    ]
    return _StepEvents(
        batches[0].said_at(0),
        outputs[0] if outputs else None,
        max(batch.writer.attempt for batch in batches),
        next((batch.request_id for batch in reversed(batches) if batch.request_id is not None), None),
    )


def _model_step(account: StepAccount, outcome: StepOutcome, before: TokenUsage, queued_at: int) -> StepHistory:
    """A model step that others have followed."""
    lost = max(0, account.attempts - 1 - account.yields)
    return StepHistory(
        step=account.step,
        type="model",
        status="completed",
        call_id=None,
        queued_at_ms=queued_at,
        started_at_ms=account.begun_at_ms,
        first_output_at_ms=account.first_output_at_ms,
        ended_at_ms=account.ended_at_ms,
        attempts=max(1, account.attempts),
        lost_attempts=lost,
        pauses=account.yields,
        why=_why(account, lost),
        usage=outcome.usage - before,
        request_id=account.request_id,
    )


def _open_model_step(
    snapshot: Snapshot, account: StepAccount | None, step: int, before: TokenUsage, queued_at: int, spoken: _StepEvents | None
) -> StepHistory:
    """The last model step: it runs, or it has ended the response."""
    is_final = snapshot.is_final
    final = snapshot.final_object if is_final else None
    attempts = max(1, account.attempts if account else 0, spoken.attempts if spoken else 0)
    pauses = account.yields if account else 0
    lost = max(0, attempts - 1 - pauses)
    # The usage of a team is that of all of its agents, whose last steps have records of their own.
    used = _usage_of(final) if snapshot.stored.agent is None else None
    return StepHistory(
        step=step,
        type="model",
        status="in_progress" if final is None else final["status"],
        call_id=None,
        queued_at_ms=queued_at if account is not None else None,
        started_at_ms=account.begun_at_ms if account and account.begun_at_ms else spoken.first_at_ms if spoken else None,
        first_output_at_ms=spoken.first_output_at_ms if spoken else None,
        ended_at_ms=_ended_at(snapshot) if is_final else None,
        attempts=attempts,
        lost_attempts=lost,
        pauses=pauses,
        why=_why(account, lost),
        usage=None if used is None or used == before else used - before,
        request_id=spoken.request_id if spoken else None,
    )


def _tool_steps(snapshot: Snapshot, model: StepAccount, outcome: StepOutcome, calls: Sequence[StepAccount]) -> list[StepHistory]:
    by_id = {account.call_id: account for account in calls}
    steps = []
    for call in outcome.calls:
        account = by_id.get(call.call_id)
        is_finished = account is not None and account.is_finished
        lost = 0 if account is None else max(0, account.attempts - 1 - account.yields)
        running = "in_progress" if not snapshot.is_final else str(snapshot.final_object["status"])
        steps.append(
            StepHistory(
                step=model.step,
                type=call.type,
                status="completed" if is_finished else running,
                call_id=call.call_id,
                queued_at_ms=model.ended_at_ms,
                started_at_ms=None if account is None else account.begun_at_ms,
                first_output_at_ms=None,
                ended_at_ms=account.ended_at_ms if account is not None and is_finished else _ended_at(snapshot),
                attempts=0 if account is None else account.attempts,
                lost_attempts=lost,
                pauses=0 if account is None else account.yields + account.waits,
                why=_why(account, lost),
                usage=None,
            )
        )
    return steps


def _ended_at(snapshot: Snapshot) -> int | None:
    if not snapshot.is_final or snapshot.last is None:
        return None
    return snapshot.last.said_at(len(snapshot.last.events) - 1)


def _why(account: StepAccount | None, lost: int) -> str | None:
    if account is not None and account.why is not None:
        return account.why
    return "A process that ran it was lost." if lost else None


def _usage_of(final: dict[str, Any] | None) -> TokenUsage | None:
    if final is None or final.get("usage") is None:
        return None
    return TokenUsage.from_json(final["usage"])
