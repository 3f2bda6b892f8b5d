"""What an agent does with automations by its tool (``tools/automations/``): it wakes its own session, and no other.

A run of a call may be repeated. What a call makes has an id that follows from the call, and all other changes come to the same when
they are made again.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from moorage import limits
from moorage.automations import changes
from moorage.automations.schedule import shortest_period
from moorage.automations.shapes import CREATE_AUTOMATION, UPDATE_AUTOMATION
from moorage.automations.store import AutomationRecord
from moorage.errors import ApiError, bad_request, invalid_value, missing_parameter
from moorage.errors.agents import automation_not_found
from moorage.runtime import Runtime
from moorage.store.responses import StoredResponse
from moorage.wire.queries import PageQuery

_CHANGEABLE = ("name", "expression", "timezone")


async def act(runtime: Runtime, stored: StoredResponse, call_id: str, arguments: Mapping[str, Any]) -> str:
    """Do what a call of a session's response asks for; answers what the model reads. Raises :class:`~moorage.errors.ApiError` with a
    sentence for it."""
    assert stored.session_id is not None
    agent = _WakingAgent(runtime, stored, stored.session_id)
    done: Mapping[str, Any]
    match arguments["action"]:
        case "list":
            done = {"automations": [_told(each) for each in await agent.all()]}
        case "create":
            done = {"created": _told(await agent.create(call_id, arguments))}
        case "delete":
            await agent.delete(_named(arguments))
            done = {"deleted": arguments["automation_id"]}
        case action:
            done = {f"{action}d": _told(await agent.change(action, _named(arguments), arguments))}
    now = datetime.fromtimestamp(int(runtime.clock()), UTC).isoformat()
    return orjson.dumps({"now": now, **done}).decode()


class _WakingAgent:
    def __init__(self, runtime: Runtime, stored: StoredResponse, session_id: str) -> None:
        self._runtime = runtime
        self._stored = stored
        self._session_id = session_id
        self._tenant_id = stored.tenant_id

    async def all(self) -> list[AutomationRecord]:
        """Those that wake its session, whoever made them."""
        found = await self._runtime.stores.automations.page(self._tenant_id, PageQuery(limit=limits.PAGE_ITEMS_MAX), self._session_id)
        return found.entries

    async def create(self, call_id: str, arguments: Mapping[str, Any]) -> AutomationRecord:
        automation_id = f"auto_00000{hashlib.sha256(f'{self._stored.response_id} {call_id}'.encode()).hexdigest()[:43]}"
        own = [each for each in await self.all() if each.made_in == self._session_id and each.id != automation_id]
        if len(own) >= limits.AGENT_AUTOMATIONS_MAX:
            most = limits.AGENT_AUTOMATIONS_MAX
            raise bad_request(f"You have made {len(own)} automations for this session, and {most} are the most: delete some first.")
        given = {name: arguments[name] for name in ("name", "expression", "timezone") if name in arguments}
        if "run_at" in arguments:
            given = {"type": "once", "run_at": _moment(arguments["run_at"]), **given}
        else:
            given["type"] = "periodic"
        if "instructions" not in arguments:
            raise missing_parameter("instructions")
        target = {"type": "existing_session", "session_id": self._session_id, "instructions": arguments["instructions"]}
        wanted = CREATE_AUTOMATION({**given, "target": target})
        now = self._runtime.clock()
        schedule = changes.schedule_of(wanted, now)
        _check_period(schedule, now)
        await self._check_payer()
        return await self._runtime.stores.automations.create(
            self._tenant_id,
            target,
            type=wanted["type"],
            name=wanted["name"],
            key_id=self._stored.key_id,
            automation_id=automation_id,
            made_in=self._session_id,
            made_by=call_id,
            **schedule,
        )

    async def change(self, action: str, automation_id: str, arguments: Mapping[str, Any]) -> AutomationRecord:
        runtime, tenant_id = self._runtime, self._tenant_id
        there = await self._own(automation_id)
        if action == "pause":
            return await changes.pause(runtime.stores, tenant_id, automation_id)
        if action == "resume":
            return await changes.resume(runtime.stores, runtime.clock, tenant_id, automation_id)
        given: dict[str, Any] = {name: arguments[name] for name in _CHANGEABLE if name in arguments}
        if "run_at" in arguments:
            given["run_at"] = _moment(arguments["run_at"])
        if "instructions" in arguments:
            given["target"] = {**there.target, "instructions": arguments["instructions"]}
        wanted, now = UPDATE_AUTOMATION(given), runtime.clock()

        def change(before: AutomationRecord) -> Mapping[str, Any]:
            found = changes.change_of(before, wanted, now)
            _check_period({"expression": before.expression, "timezone": before.timezone, **found}, now)
            return found

        return await runtime.stores.automations.change(tenant_id, automation_id, change)

    async def delete(self, automation_id: str) -> None:
        try:
            await self._own(automation_id)
            await self._runtime.stores.automations.delete(self._tenant_id, automation_id)
        except ApiError as error:
            if error.status != 404 or not await self._runtime.stores.automations.was_deleted(self._tenant_id, automation_id):
                raise

    async def _own(self, automation_id: str) -> AutomationRecord:
        there = await self._runtime.stores.automations.get(self._tenant_id, automation_id)
        if there.session_id != self._session_id:
            raise automation_not_found(automation_id)
        if there.made_in != self._session_id:
            raise bad_request(f"Automation '{automation_id}' was made by a person, who changes it.")
        return there

    async def _check_payer(self) -> None:
        """A token ends, and pays for nothing later."""
        if await self._runtime.identity.api_keys.of_id(self._stored.key_id) is None:
            raise bad_request("This session was not begun with an API key that can pay for an automation later.")


def _named(arguments: Mapping[str, Any]) -> str:
    if "automation_id" not in arguments:
        raise missing_parameter("automation_id")
    return str(arguments["automation_id"])


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise invalid_value("run_at", "it must be a time with its offset, such as '2027-01-31T12:00:00+01:00'.")
    return int(moment.timestamp())


def _check_period(schedule: Mapping[str, Any], now: float) -> None:
    least = limits.AGENT_AUTOMATION_PERIOD_SECONDS_MIN
    if schedule.get("expression") and shortest_period(schedule["expression"], schedule["timezone"], now) < least:
        raise invalid_value("expression", f"an agent is woken every {least // 60} minutes at most.")


def _told(automation: AutomationRecord) -> dict[str, Any]:
    said: dict[str, Any] = {"automation_id": automation.id, "name": automation.name, "status": automation.status}
    if automation.type == "periodic":
        said |= {"expression": automation.expression, "timezone": automation.timezone}
    else:
        said["run_at"] = datetime.fromtimestamp(automation.run_at, UTC).isoformat()
    if automation.next_at:
        said["next_at"] = datetime.fromtimestamp(automation.next_at, UTC).isoformat()
    instructions = automation.target["instructions"]
    return {**said, "instructions": instructions[: limits.LISTED_PREVIEW_CHARS], "made_by_you": bool(automation.made_in)}
