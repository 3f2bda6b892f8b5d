"""Due automations are invoked, and their invocations become input of a session.

Called once a minute by the reaper, and every few seconds on one machine; harmless to run twice, or twice at once. One transaction makes
an invocation. Another one turns it into input of its session; a new session is made in the same transaction. Later steps may be
repeated: the session takes its input once.
"""

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from moorage import limits
from moorage.agents.session_objects import session_status
from moorage.agents.session_start import give_up_container, messages_of, new_session, tell_beginning
from moorage.agents.session_store import SessionRecord
from moorage.agents.turns import Payer, advance, delete, stand
from moorage.automations.schedule import next_time
from moorage.automations.store import AutomationRecord, InvocationRecord
from moorage.errors import ApiError, MoorageError, rate_limited
from moorage.files.store import Clock
from moorage.loop.budget import draws_of
from moorage.parallel import as_json, side_by_side
from moorage.runtime import Runtime
from moorage.store.api_keys import ApiKeys
from moorage.stores import Stores
from moorage.telemetry import tell, tell_error
from moorage.wire.types import Item

_PASSES: Final = "rate_limit_exceeded"
"""The code of a refusal for now; a budget that is used up is none."""
_OF_SESSION: Final = ("environment", "agent", "agent_id", "metadata", "vault_ids")


class _TargetLost(MoorageError):
    """The session of an automation is of no use any more; the message says why."""


async def invoke_due(runtime: Runtime) -> int:
    """Invoke and deliver due automations; returns the number of invoked occurrences.

    Several occurrences that fell due without a round are invoked once.
    """
    automations, until, invoked = runtime.stores.automations, time.monotonic() + limits.AUTOMATION_ROUND_SECONDS_MAX, 0
    while time.monotonic() < until:
        due = await automations.due()
        made = [each for each in await _all(partial(_invoke, runtime.stores, runtime.clock), due) if each is not None]
        queued = [each for each in made if each.status == "queued"] + await automations.claimed()
        await _all(partial(deliver, runtime), queued)
        invoked += len(made)
        if not made and not queued:
            break
    return invoked


async def _all(work: Any, things: Sequence[Any]) -> list[Any]:
    return await side_by_side(work, things, at_once=limits.AUTOMATION_AT_ONCE)


async def _invoke(stores: Stores, clock: Clock, automation: AutomationRecord) -> InvocationRecord | None:
    """The invocation of its occurrence; None if somebody else makes it."""
    if automation.type == "once":
        following: dict[str, Any] = {"next_at": 0, "is_over": True, "status": "completed"}
    else:
        following = {"next_at": next_time(automation.expression, automation.timezone, clock()) or 0}
    return await stores.automations.invoke(automation, following)


async def deliver(runtime: Runtime, invocation: InvocationRecord) -> None:
    """Deliver an invocation that nobody else tries now. A refused delivery is tried again for an hour."""
    automation, automations = invocation.automation, runtime.stores.automations
    told = {"automation_id": automation.id, "invocation_id": invocation.id, "tenant_id": automation.tenant_id}
    try:
        if not await automations.is_there(automation):
            await automations.drop(invocation)  # A deletion broke off, and nobody asks for it any more.
            return
        session = await _taken(runtime, invocation, await _payer(runtime.identity.api_keys, automation))
    except _TargetLost as error:
        tell("automation_pauses", told)
        await automations.end(invocation, error={"code": "target_session_failed", "message": str(error)}, pauses=True)
    except Exception as error:
        is_late = runtime.clock() >= invocation.created_at + limits.AUTOMATION_RETRY_SECONDS
        is_final = isinstance(error, ApiError) and error.status < 500 and error.status != 409 and error.code != _PASSES
        tell_error(error, "an invocation cannot be delivered", **told)
        if is_final or is_late:
            await _give_up(runtime, invocation, error)
        else:
            await automations.postpone(invocation)
    else:
        if session is not None:
            tell("automation_delivered", {**told, "session_id": session.id})
            await automations.end(invocation)


async def _payer(api_keys: ApiKeys, automation: AutomationRecord) -> Payer:
    """The key that made it, with the budgets that it has now."""
    if automation.subject:
        return Payer(automation.key_id, automation.draws_on)
    key = await api_keys.of_id(automation.key_id)
    if key is None:
        raise ApiError(403, "The API key that made this automation has been revoked, or has run out.", code="api_key_revoked")
    return Payer(automation.key_id, draws_of(automation.tenant_id, automation.key_id, key.budgets))


async def _taken(runtime: Runtime, invocation: InvocationRecord, payer: Payer) -> SessionRecord | None:
    """The session that has taken it; None if somebody else lets it, or its session is being deleted."""
    automation = invocation.automation
    is_new = automation.target["type"] == "new_session"
    session: SessionRecord | None
    if not invocation.input_key:
        session = await (_into_new if is_new else _into_existing)(runtime, invocation)
    elif is_new:
        session = await runtime.stores.agent_sessions.get(automation.tenant_id, invocation.session_id)
    else:
        session = await _session(runtime.stores, automation, invocation.session_id)
    if session is not None:
        await advance(runtime, session, payer)
    return session


async def _session(stores: Stores, automation: AutomationRecord, session_id: str) -> SessionRecord:
    try:
        return await stores.agent_sessions.get(automation.tenant_id, session_id)
    except ApiError as error:
        raise _TargetLost(error.message) from error


async def _into_existing(runtime: Runtime, invocation: InvocationRecord) -> SessionRecord | None:
    automation, sessions = invocation.automation, runtime.stores.agent_sessions
    session = await _session(runtime.stores, automation, automation.target["session_id"])
    standing = await stand(runtime.stores, session)
    if session_status(standing) == "failed":
        raise _TargetLost(f"Session '{session.id}' has failed: {standing.error}")
    if len(await sessions.inputs(session)) >= limits.AGENT_SESSION_INPUTS_MAX:
        raise rate_limited("Too much input waits for the next step of this session's turn.", limits.AUTOMATION_PAUSE_SECONDS)
    given = await sessions.input_write(session, messages_of(automation.target["instructions"]), {})
    is_done = await runtime.stores.automations.deliver(invocation, session.id, given.sk, [given, sessions.notice(session)])
    return session if is_done else None


async def _into_new(runtime: Runtime, invocation: InvocationRecord) -> SessionRecord | None:
    automation, sessions = invocation.automation, runtime.stores.agent_sessions
    target = automation.target
    given = {name: target[name] for name in _OF_SESSION if name in target}
    session_id = f"session_{hashlib.sha256(invocation.id.encode()).hexdigest()[:48]}"
    session = await new_session(runtime, automation.tenant_id, given, size=len(await as_json(given)), session_id=session_id)
    messages: list[Item] = messages_of(target["input"])
    first = await sessions.input_write(session, messages, {})
    writes = [await sessions.beginning(session), first]
    if await runtime.stores.automations.deliver(invocation, session.id, first.sk, writes):
        await tell_beginning(runtime, session)
        return session
    await give_up_container(runtime, session)
    return None


async def _give_up(runtime: Runtime, invocation: InvocationRecord, error: Exception) -> None:
    """It is not delivered, and leaves nothing behind: neither input that waits, nor a session that never began."""
    automation = invocation.automation
    there = await runtime.stores.automations.invocation(automation, invocation.id)
    is_new = automation.target["type"] == "new_session"
    if there.input_key:
        try:
            session = await runtime.stores.agent_sessions.get(automation.tenant_id, there.session_id)
        except ApiError:
            pass  # It was deleted.
        else:
            await (
                delete(runtime, session, force=True) if is_new else runtime.stores.agent_sessions.drop_input(session, there.input_key)
            )
    said = {"code": "server_error", "message": "The invocation could not be delivered."}
    if isinstance(error, ApiError):
        said = {"code": error.code or error.type, "message": error.message}
    await runtime.stores.automations.end(invocation, error=said, session_id="" if is_new else None)
