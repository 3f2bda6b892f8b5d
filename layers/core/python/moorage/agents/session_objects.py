"""Sessions and turns as they are answered, from their records and the ends of their responses."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import orjson

from moorage.agents.session_shapes import AgentSession, SessionStatus, SpendShown, Turn, TurnFailure, TurnStatus, TurnTokens
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.agents.settings import as_session_answer
from moorage.agents.team_events import TurnEnd
from moorage.agents.turn_items import function_call
from moorage.agents.turns import Standing
from moorage.approvals.waiting import question_of
from moorage.environments.answers import environment_of
from moorage.environments.shapes import HostedEnvironment, NoEnvironment
from moorage.runtime import Runtime
from moorage.store import keys
from moorage.store.responses import Snapshot
from moorage.stores import Stores
from moorage.tools.approval_text import asked
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item

_CODES: Final[Mapping[str, str]] = {
    "context_length_exceeded": "context_length_exceeded",
    "rate_limit_exceeded": "rate_limit_exceeded",
    "insufficient_quota": "usage_limit_exceeded",
    "budget_reached": "usage_limit_exceeded",
    "max_output_tokens": "max_output_tokens",
    "container_unavailable": "sandbox_error",
    "model_not_found": "resource_not_found",
    "invalid_prompt": "invalid_request",
    "loop_limit_exceeded": "request_timeout",
    "content_filter": "misalignment_policy_violation",
}
"""Theirs by ours; the rest is a fault of the server."""


Environment = NoEnvironment | HostedEnvironment


async def environment_object(runtime: Runtime, session: SessionRecord) -> Environment:
    """As it is; one whose container was deleted is none any more."""
    container = (
        None if session.container_id is None else await runtime.computers.containers.peek(session.tenant_id, session.container_id)
    )
    return await environment_of(runtime, container)


def status_of(standing: Standing) -> TurnStatus:
    """Of the turn that stands there."""
    if standing.is_cancelled:
        return "cancelled"
    if standing.is_queued:
        return "queued"
    if standing.awaits or standing.open_calls:
        return "waiting"
    if not standing.is_over:
        return "in_progress"
    ended = standing.snapshot
    return "completed" if ended is not None and ended.final_object["status"] == "completed" else "failed"


def end_of(standing: Standing) -> tuple[TurnEnd, int]:
    """How a turn has ended, and when (milliseconds)."""
    turn, snapshot = standing.turn, standing.snapshot
    assert turn is not None
    status = status_of(standing)
    assert status in ("completed", "failed", "cancelled")
    if turn.cancelled_at:
        return status, turn.cancelled_at * 1000
    return status, turn.created_at * 1000 if snapshot is None or snapshot.last is None else snapshot.last.at_ms


def session_status(standing: Standing) -> SessionStatus:
    if standing.error and not standing.is_running:
        return "failed"
    if standing.awaits or standing.open_calls:
        return "requires_action"
    if not standing.is_over:
        return "in_progress"
    return "idle"


def tokens_of(used: TokenUsage) -> TurnTokens | None:
    """None for what has used nothing yet."""
    return cast("TurnTokens", used.to_json()) if used != TokenUsage() else None


def failure_of(snapshot: Snapshot | None) -> TurnFailure:
    """Why a turn has failed. Its response may be gone."""
    if snapshot is None:
        return {"code": "resource_not_found", "message": "The turn's response was deleted."}
    ended = snapshot.final_object
    if ended["error"] is not None:
        return {"code": _CODES.get(ended["error"]["code"], "server_error"), "message": ended["error"]["message"]}
    reason = (ended["incomplete_details"] or {}).get("reason", "")
    return {"code": _CODES.get(reason, "server_error"), "message": f"The turn's response is incomplete: {reason}."}


def turn_object(standing: Standing, turn: TurnRecord, status: TurnStatus | None = None) -> Turn:
    """``status`` is that of an event; by default it is as it stands."""
    stands, snapshot = status or status_of(standing), standing.snapshot
    has_ended = stands in ("completed", "failed", "cancelled")
    ended_at = end_of(standing)[1] // 1000 if has_ended else 0
    return {
        "id": turn.id,
        "object": "agent.session.turn",
        "session_id": standing.session.id,
        "agent_id": standing.session.agent_id,
        "subagent_id": None,
        "created_at": turn.created_at,
        "started_at": None if stands == "queued" else turn.created_at,
        "completed_at": ended_at if has_ended else None,
        "status": stands,
        "error": failure_of(snapshot) if stands == "failed" else None,
        "usage": tokens_of(turn.used + standing.used) if has_ended else None,
        "response_ids": list(turn.responses),
        "cost_usd": cost_usd(turn, standing.cost) if has_ended else None,
    }


def cost_usd(turn: TurnRecord, current: int | None) -> float | None:
    """Of a turn whose current response has cost so much; None if that is not known."""
    return None if current is None or turn.cost < 0 else (turn.cost + current) / 1_000_000_000


def _spend(session: SessionRecord, used: Mapping[str, float] | None) -> SpendShown:
    limit = (session.budget or {}).get("usd")
    consumed = None if used is None else math.floor(round(used["usd"] * 100, 7))
    return {"limit": None if limit is None else round(limit * 100), "consumed": consumed}


def agent_object(session: SessionRecord) -> dict[str, Any]:
    return {"id": session.agent_id, "version": session.agent_version or None, **as_session_answer(session.settings)}


def session_object(
    standing: Standing,
    environment: Environment,
    actions: Sequence[Mapping[str, Any]] = (),
    status: SessionStatus | None = None,
    used: Mapping[str, float] | None = None,
) -> AgentSession:
    """``status`` is that of an event; by default it is as it stands. ``used`` is of the session's budget, if that is known."""
    session, turn, snapshot = standing.session, standing.turn, standing.snapshot
    active_at = session.created_at if turn is None else turn.created_at
    if snapshot is not None and snapshot.last is not None:
        active_at = max(active_at, snapshot.last.at_ms // 1000)
    tokens = TokenUsage() if turn is None else turn.earlier + turn.used + standing.used
    stands = status or session_status(standing)
    said = {
        "id": session.id,
        "object": "agent.session",
        "created_at": session.created_at,
        "last_active_at": active_at,
        "status": stands,
        "error": (standing.error or None) if stands == "failed" else None,
        "agent": agent_object(session),
        "environment": environment,
        "required_actions": list(actions) if stands == "requires_action" else [],
        "usage": tokens_of(tokens),
        "metadata": dict(session.metadata),
        "vault_ids": list(session.vault_ids),
        "review": "none",
        "budget": dict(session.budget) if session.budget else None,
        "budget_used": None if used is None else dict(used),
        "spend_control": _spend(session, used),
        "forked_from": None if session.forked_from is None else dict(session.forked_from),
    }
    return cast("AgentSession", said)


async def actions_of(stores: Stores, standing: Standing) -> list[dict[str, Any]]:
    """What the client has to do for the turn to go on."""
    turn = standing.turn
    if turn is None:
        return []
    calls = [_call(turn, call) for call in standing.open_calls]
    if not standing.awaits or standing.snapshot is None:
        return calls
    stored = standing.snapshot.stored
    known = await stores.approvals.those(stored, standing.awaits)
    waiting = [known[each] for each in standing.awaits if each in known and known[each].is_waiting]
    lanes = sorted({keys.lane_of(each.step) for each in waiting})
    read = await asyncio.gather(*(stores.steps.read(stored.tenant_id, stored.response_id, lane=lane) for lane in lanes))
    items = {lane: progress.items for lane, progress in zip(lanes, read, strict=True)}
    return [*calls, *(_question(turn, each.id, question_of(each, items[keys.lane_of(each.step)])) for each in waiting)]


def _call(turn: TurnRecord, call: Item) -> dict[str, Any]:
    shown = function_call(turn.id, call, None)
    return {"type": "function_call", **{name: shown[name] for name in ("call_id", "name", "arguments", "turn_id")}}


def _question(turn: TurnRecord, approval_id: str, question: Item) -> dict[str, Any]:
    """Every tool that asks a person asks in the one form that the Agents API has for it."""
    request = {
        "type": "mcp_tool_call",
        "server_label": question.get("server_label", "moorage"),
        "name": question.get("name", question.get("type", "")),
        "arguments": _arguments(question),
        "message": "\n".join(asked(question)),
    }
    return {"type": "mcp_approval_request", "request_id": approval_id, "turn_id": turn.id, "request": request}


def _arguments(question: Item) -> Any:
    if "arguments" not in question:
        return {name: question[name] for name in ("action", "code") if name in question}
    try:
        return orjson.loads(question["arguments"])
    except orjson.JSONDecodeError:
        return question["arguments"]
