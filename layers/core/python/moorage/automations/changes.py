"""Making and changing automations, whoever asks for it: a client by the API, or an agent by its tool."""

from collections.abc import Mapping
from typing import Any, Final

from moorage.automations.schedule import check_schedule, next_time
from moorage.automations.store import AutomationRecord
from moorage.errors import bad_request, invalid_value
from moorage.files.store import Clock
from moorage.stores import Stores
from moorage.wire.validation import Fields

_SCHEDULES: Final = {"periodic": ("expression", "timezone"), "once": ("run_at",)}


def schedule_of(given: Mapping[str, Any], now: float) -> Fields:
    """Its times as fields of its record, with the first one. Raises :class:`~moorage.errors.ApiError`."""
    schedule = {name: given[name] for name in _SCHEDULES[given["type"]]}
    _check(schedule, now)
    return {**schedule, "next_at": _next_at(schedule, now)}


def change_of(there: AutomationRecord, given: Mapping[str, Any], now: float) -> Mapping[str, Any]:
    """What an update changes. Raises :class:`~moorage.errors.ApiError`."""
    for other in ("expression", "timezone", "run_at"):
        if other in given and other not in _SCHEDULES[there.type]:
            raise bad_request(f"An automation of the type '{there.type}' has no '{other}'.", param=other, code="invalid_value")
    schedule = {name: given.get(name, getattr(there, name)) for name in _SCHEDULES[there.type]}
    if not any(name in given for name in schedule):
        return given
    if there.is_over:
        raise bad_request("This automation has been invoked: make another one.", param="run_at", code="invalid_value")
    _check(schedule, now)
    return {**given, **({"next_at": _next_at(schedule, now)} if there.status == "active" else {})}


async def pause(stores: Stores, tenant_id: str, automation_id: str) -> AutomationRecord:
    def change(there: AutomationRecord) -> Fields:
        _check_not_over(there)
        return {"status": "paused", "next_at": 0} if there.status == "active" else {}

    return await stores.automations.change(tenant_id, automation_id, change)


async def resume(stores: Stores, clock: Clock, tenant_id: str, automation_id: str) -> AutomationRecord:
    """What fell due while it was paused is not made up for."""
    now = clock()

    def change(there: AutomationRecord) -> Fields:
        _check_not_over(there)
        if there.status == "active":
            return {}
        schedule = {name: getattr(there, name) for name in _SCHEDULES[there.type]}
        _check(schedule, now)
        return {"status": "active", "pause_reason": "", "next_at": _next_at(schedule, now)}

    return await stores.automations.change(tenant_id, automation_id, change)


def _check_not_over(automation: AutomationRecord) -> None:
    if automation.status == "completed":
        raise bad_request("The schedule of this automation is over: make another one.", code="automation_completed")


def _check(schedule: Mapping[str, Any], now: float) -> None:
    if "run_at" not in schedule:
        check_schedule(schedule["expression"], schedule["timezone"], now)
    elif schedule["run_at"] <= now:
        raise invalid_value("run_at", "it must be in the future.")


def _next_at(schedule: Mapping[str, Any], now: float) -> int:
    """Of a schedule that was checked."""
    if "run_at" in schedule:
        return int(schedule["run_at"])
    return next_time(schedule["expression"], schedule["timezone"], now) or 0
