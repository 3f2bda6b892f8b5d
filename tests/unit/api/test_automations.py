"""Automations with clocks that are set: what is due is invoked once, whoever looks, and whoever dies."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from moorage import limits
from moorage.automations.delivery import invoke_due
from moorage.automations.store import Automations

from tests.unit.api.served import KEY_A, Keys, Served
from tests.unit.loop.lab import Lab, say
from tests.unit.skills.archives import asked_plugin, plugin
from tests.unit.store.deaths import Death, Died

INPUT = [{"role": "user", "content": [{"type": "input_text", "text": "Report."}]}]
NEW: dict[str, Any] = {"type": "new_session", "environment": {"type": "none"}, "agent": {"model": "m"}, "input": INPUT}
PLACE = "/agents/automations"


@pytest.fixture
def served() -> Served:
    return Served.of(Lab())


def clock(served: Served, text: str, zone: str = "UTC") -> int:
    """Set it."""
    served.lab.now = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()
    return int(served.lab.now)


async def made(served: Served, *, by: str = "key-a", **fields: Any) -> dict[str, Any]:
    schedule = {"type": "once"} if "run_at" in fields else {"type": "periodic", "expression": "0 * * * *", "timezone": "UTC"}
    answer = await served.post(PLACE, {**schedule, "name": "report", "target": NEW, **fields}, by=by)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def data(served: Served, path: str, **query: Any) -> list[dict[str, Any]]:
    """The whole list, oldest first."""
    answer = await served.get(path, order="asc", limit=100, **query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def invocations(served: Served, automation: dict[str, Any]) -> list[dict[str, Any]]:
    return await data(served, f"{PLACE}/{automation['id']}/invocations")


async def session_of(served: Served) -> str:
    """One whose first turn has ended."""
    body = {"environment": {"type": "none"}, "agent": {"model": "m"}, "input": INPUT}
    session_id: str = (await served.post("/agents/sessions", body)).json()["id"]
    await played(served)
    return session_id


async def played(served: Served) -> None:
    """The responses that were begun come to their end."""
    lab = served.lab
    for name in list(lab.executions.started):
        if lab.executions.states[name] == "RUNNING":
            lab.model.turns.append(say("done"))
            await lab.run(await lab.responses.load("t", name))
            lab.executions.states[name] = "SUCCEEDED"


async def said_in(served: Served, session_id: str) -> list[str]:
    """What users have said in a session."""
    items = await data(served, f"/agents/sessions/{session_id}/items")
    return [part["text"] for item in items if item.get("role") == "user" for part in item["content"]]


async def test_a_day_of_automations(served: Served) -> None:
    """Each minute of a day on which Berlin's clocks are set forward."""
    begin = clock(served, "2027-03-28 00:00", "Europe/Berlin")
    session_id = await session_of(served)
    hourly = await made(served, name="hourly", expression="15 * * * *")
    daily = await made(served, name="daily", expression="30 2 * * *", timezone="Europe/Berlin")
    once = await made(served, name="once", run_at=begin + 5 * 3600 + 30)
    wakes = {"type": "existing_session", "session_id": session_id, "instructions": "Look again."}
    waking = await made(served, name="waking", expression="0 */6 * * *", target=wakes)
    for minute in range(23 * 60):
        served.lab.now = begin + 60 * minute
        await invoke_due(served.lab.runtime)
        await played(served)
    times = {}
    for each in (hourly, daily, once, waking):
        found = await invocations(served, each)
        assert {(one["status"], one["error"], one["skip_reason"]) for one in found} == {("completed", None, None)}
        times[each["name"]] = [(one["scheduled_at"] - begin) / 3600 for one in found]
    assert times == {
        "hourly": [hour + 0.25 for hour in range(23)],
        "daily": [2.0],
        "once": [5 + 30 / 3600],
        "waking": [1.0, 7.0, 13.0, 19.0],
    }, "in hours that have passed, of which the day has 23"
    assert await said_in(served, session_id) == ["Report."] + ["Look again."] * 4
    sessions = await data(served, "/agents/sessions")
    assert Counter(session["status"] for session in sessions) == {"idle": 1 + 23 + 1 + 1}
    states = [(await served.get(f"{PLACE}/{each['id']}")).json()["status"] for each in (hourly, once)]
    assert states == ["active", "completed"]


async def test_two_reapers_invoke_an_occurrence_once(served: Served) -> None:
    clock(served, "2027-01-01 09:30")
    automation = await made(served)
    clock(served, "2027-01-01 10:00")
    await asyncio.gather(*(invoke_due(served.lab.runtime) for _ in range(4)))
    (found,) = await invocations(served, automation)
    (session,) = await data(served, "/agents/sessions")
    assert (found["status"], found["session_id"], found["scheduled_at"]) == ("completed", session["id"], int(served.lab.now))
    assert await said_in(served, session["id"]) == ["Report."]
    assert len(served.lab.executions.started) == 1


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_reaper_may_die_before_any_write(is_new: bool) -> None:
    died_at = 0
    while await _invoked_with_a_death(died_at, is_new=is_new):
        died_at += 1
    assert died_at >= 6, "the invocation, the input, the response and its turn, the end"


async def _invoked_with_a_death(died_at: int, *, is_new: bool) -> bool:
    served = Served.of(Lab())
    begin = clock(served, "2027-01-01 09:30")
    session_id = await session_of(served)
    wakes = {"type": "existing_session", "session_id": session_id, "instructions": "Look again."}
    automation = await made(served, run_at=begin + 60, target=NEW if is_new else wakes)
    served.lab.now = begin + 60
    served.lab.table.before_write = Death(died_at)
    has_died = False
    try:
        await invoke_due(served.lab.runtime)
    except Died:
        has_died = True
    served.lab.table.before_write = None
    for _ in range(3):
        served.lab.now += limits.AUTOMATION_LEASE_SECONDS
        await asyncio.gather(*(invoke_due(served.lab.runtime) for _ in range(2)))
    await played(served)
    (found,) = await invocations(served, automation)
    assert found["status"] == "completed"
    taking = [session["id"] for session in await data(served, "/agents/sessions") if is_new != (session["id"] == session_id)]
    assert taking == [found["session_id"]]
    assert await said_in(served, found["session_id"]) == (["Report."] if is_new else ["Report.", "Look again."])
    return has_died


async def test_an_occurrence_is_skipped_while_a_delivery_is_pending(served: Served) -> None:
    begin = clock(served, "2027-01-01 09:30")
    automation = await made(served, expression="* * * * *")
    served.lab.now = begin + 60
    served.lab.table.before_write = Death(1)  # The invocation is made, and its maker dies.
    with pytest.raises(Died):
        await invoke_due(served.lab.runtime)
    served.lab.table.before_write = None
    served.lab.now = begin + 120
    await invoke_due(served.lab.runtime)
    served.lab.now += 1
    assert (await served.post(f"{PLACE}/{automation['id']}/invocations")).json()["status"] == "skipped"
    served.lab.now = begin + 60 + limits.AUTOMATION_LEASE_SECONDS
    await invoke_due(served.lab.runtime)
    found = await invocations(served, automation)
    assert [(one["source"]["type"], one["status"], one["skip_reason"]) for one in found] == [
        ("automation", "completed", None),
        ("automation", "skipped", "pending_delivery"),
        ("manual", "skipped", "pending_delivery"),
        ("automation", "skipped", "pending_delivery"),
    ]
    assert len(await data(served, "/agents/sessions")) == 1


async def test_what_fell_due_while_nobody_looked_is_invoked_once(served: Served) -> None:
    clock(served, "2027-01-01 09:30")
    automation = await made(served)
    clock(served, "2027-01-01 15:20")
    assert await invoke_due(served.lab.runtime) == 1
    clock(served, "2027-01-01 16:00")
    assert await invoke_due(served.lab.runtime) == 1
    hours = [datetime.fromtimestamp(one["scheduled_at"], ZoneInfo("UTC")).hour for one in await invocations(served, automation)]
    assert hours == [10, 16]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_session_that_is_of_no_use_pauses_its_automation(served: Served, is_deleted: bool) -> None:
    clock(served, "2027-01-01 09:30")
    session_id = await session_of(served)
    automation = await made(served, target={"type": "existing_session", "session_id": session_id, "instructions": "Look."})
    sessions = served.lab.runtime.stores.agent_sessions
    if is_deleted:
        await served.delete(f"/agents/sessions/{session_id}")
    else:
        (turn,) = await data(served, f"/agents/sessions/{session_id}/turns")
        await sessions.note_error(await sessions.get("t", session_id), "The model is gone.", turn["response_ids"][-1])
    clock(served, "2027-01-01 10:00")
    await invoke_due(served.lab.runtime)
    (found,) = await invocations(served, automation)
    reason = f"Session with id '{session_id}' not found." if is_deleted else f"Session '{session_id}' has failed: The model is gone."
    assert (found["status"], found["error"]) == ("failed", {"code": "target_session_failed", "message": reason})
    paused = (await served.get(f"{PLACE}/{automation['id']}")).json()
    assert (paused["status"], paused["pause_reason"]) == ("paused", "target_session_failed")
    clock(served, "2027-01-01 11:00")
    assert await invoke_due(served.lab.runtime) == 0
    resumed = (await served.post(f"{PLACE}/{automation['id']}/resume")).json()
    assert (resumed["status"], resumed["pause_reason"]) == ("active", None)


async def test_the_key_that_made_it_pays_as_long_as_there_is_one(served: Served) -> None:
    clock(served, "2027-01-01 09:30")
    automation = await made(served)
    keys: Keys = served.lab.runtime.identity.api_keys  # type: ignore[assignment]
    keys.budgets["key-a"] = ("key",)
    clock(served, "2027-01-01 10:00")
    await invoke_due(served.lab.runtime)
    (name,) = served.lab.executions.started
    stored = await served.lab.responses.load("t", name)
    assert (stored.key_id, stored.draws_on) == (KEY_A, (f"key:{KEY_A}",))
    keys.revoked.add(KEY_A)
    clock(served, "2027-01-01 11:00")
    await invoke_due(served.lab.runtime)
    found = (await invocations(served, automation))[-1]
    assert (found["status"], found["error"]["code"], found["session_id"]) == ("failed", "api_key_revoked", None)
    assert len(await data(served, "/agents/sessions")) == 1


async def test_what_is_refused_for_now_is_tried_again_for_an_hour(served: Served) -> None:
    begin = clock(served, "2027-01-01 09:30")
    session_id = await session_of(served)
    sessions = served.lab.runtime.stores.agent_sessions
    session = await sessions.get("t", session_id)
    automation = await made(
        served, run_at=begin + 60, target={"type": "existing_session", "session_id": session_id, "instructions": "x"}
    )
    for _ in range(limits.AGENT_SESSION_INPUTS_MAX):
        await sessions.add_input(session, [], {})
    served.lab.now = begin + 60
    statuses = []
    while served.lab.now <= begin + 60 + limits.AUTOMATION_RETRY_SECONDS:
        await invoke_due(served.lab.runtime)
        statuses.append((await invocations(served, automation))[0]["status"])
        served.lab.now += limits.AUTOMATION_PAUSE_SECONDS
    assert statuses == ["queued"] * (len(statuses) - 1) + ["failed"]
    assert (await served.get(f"{PLACE}/{automation['id']}")).json()["pause_reason"] is None


async def test_how_an_automation_is_changed(served: Served) -> None:
    begin = clock(served, "2027-01-01 09:30")
    target = {**NEW, "environment": {"type": "openai_hosted", "container_size": "small"}}
    periodic = await made(served, target=target, metadata={"team": "a"})
    assert periodic == {
        "id": periodic["id"],
        "object": "agent.automation",
        "type": "periodic",
        "created_at": begin,
        "created_by": {"type": "developer"},
        "name": "report",
        "expression": "0 * * * *",
        "timezone": "UTC",
        "status": "active",
        "pause_reason": None,
        "target": periodic["target"],
        "metadata": {"team": "a"},
    }
    assert periodic["target"]["environment"] == {
        "type": "openai_hosted",
        **dict.fromkeys(["environment_id", "environment_template_id", "files", "skills", "network", "capability_directories"]),
        **dict.fromkeys(["desktop", "packages", "plugins"]),
        "container_size": "small",
    }
    assert (periodic["target"]["input"], periodic["target"]["agent_id"]) == ([{"type": "message", **INPUT[0]}], None)
    place = f"{PLACE}/{periodic['id']}"
    changed = (await served.post(place, {"name": "other", "expression": "45 9 * * *", "target": NEW, "metadata": {}})).json()
    assert (changed["name"], changed["expression"], changed["metadata"]) == ("other", "45 9 * * *", {})
    clock(served, "2027-01-01 09:45")
    assert await invoke_due(served.lab.runtime) == 1
    assert (await served.post(f"{place}/pause")).json()["status"] == "paused"
    assert (await served.post(f"{place}/pause")).json()["status"] == "paused"
    clock(served, "2027-01-02 09:50")
    assert await invoke_due(served.lab.runtime) == 0
    assert (await served.post(f"{place}/resume")).json()["status"] == "active"
    assert await invoke_due(served.lab.runtime) == 0, "what fell due while it was paused is not made up for"
    manual = (await served.post(f"{place}/invocations")).json()
    assert (manual["status"], manual["scheduled_at"], manual["source"]) == ("completed", None, {"type": "manual"})
    assert (await served.get(f"{place}/invocations/{manual['id']}")).json() == manual
    newest = (await served.get(f"{place}/invocations", limit=1)).json()
    assert (newest["data"], newest["has_more"]) == ([manual], True)
    (scheduled,) = (await served.get(f"{place}/invocations", limit=1, after=manual["id"])).json()["data"]
    assert scheduled["source"]["automation"] == changed
    assert (await served.delete(place)).json() == {"id": periodic["id"], "object": "agent.automation.deleted", "deleted": True}
    assert await data(served, PLACE) == []
    assert [key for key in served.lab.table.records if "#AM#" in key[0] and key[1] != "GONE"] == []
    assert len(await data(served, "/agents/sessions")) == 2, "sessions stay"


async def test_one_that_runs_once_is_over_then(served: Served) -> None:
    begin = clock(served, "2027-01-01 09:30")
    once = await made(served, run_at=begin + 60)
    place = f"{PLACE}/{once['id']}"
    assert (await served.post(place, {"run_at": begin + 120})).json()["run_at"] == begin + 120
    await served.post(f"{place}/pause")
    served.lab.now = begin + 180
    refused = await served.post(f"{place}/resume")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "run_at")
    await served.post(place, {"run_at": begin + 240})
    assert (await served.post(f"{place}/resume")).json()["status"] == "active"
    served.lab.now = begin + 240
    assert await invoke_due(served.lab.runtime) == 1
    for path, body in ((place, {"run_at": begin + 999}), (f"{place}/pause", None), (f"{place}/resume", None)):
        assert (await served.post(path, body)).status_code == 400, path
    assert (await served.post(place, {"name": "old"})).json()["status"] == "completed"


async def test_a_list_is_of_one_session_or_of_all(served: Served) -> None:
    clock(served, "2027-01-01 09:30")
    session_id = await session_of(served)
    waking = await made(served, target={"type": "existing_session", "session_id": session_id, "instructions": "Look."})
    other = await made(served)
    assert await data(served, PLACE, session_id=session_id) == [waking]
    assert {each["id"] for each in await data(served, PLACE)} == {waking["id"], other["id"]}


async def test_long_targets_make_pages_shorter_and_are_all_invoked(served: Served) -> None:
    """A hundred of them, in one page or due at one minute, would be more than a process has memory for."""
    clock(served, "2027-01-01 09:30")
    text = "a" * (limits.PAGE_BYTES_MAX * 2 // 5)
    target = {**NEW, "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}
    names = []
    for name in "abc":
        served.lab.now += 1
        names.append((await made(served, name=name, target=target))["name"])
    page = (await served.get(PLACE, order="asc")).json()
    assert ([each["name"] for each in page["data"]], page["has_more"]) == (["a", "b"], True)
    first = page["data"][0]
    for _ in "abc":
        await served.post(f"{PLACE}/{first['id']}/invocations", {})
    page = (await served.get(f"{PLACE}/{first['id']}/invocations")).json()
    assert (len(page["data"]), page["has_more"]) == (2, True)
    clock(served, "2027-01-01 10:00:01")
    assert len(await served.lab.runtime.stores.automations.due()) == 2
    assert await invoke_due(served.lab.runtime) == 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"expression": "every day"}, "expression"),
        ({"timezone": "Mars"}, "timezone"),
        ({"run_at": 1_000}, "run_at"),
        ({"type": "once", "run_at": 4_000_000_000, "expression": "* * * * *"}, "expression"),
        ({"target": {**NEW, "agent_id": "agent_1"}}, "target.agent_id"),
        ({"target": {**NEW, "agent": {}}}, "target.agent.model"),
        ({"target": {**NEW, "input": []}}, "target.input"),
        ({"target": {**NEW, "vault_ids": ["vault_1"]}}, "target.vault_ids[0]"),
        ({"target": {"type": "existing_session", "session_id": "session_1", "instructions": "x"}}, "target.session_id"),
        ({"target": {"type": "somewhere"}}, "target.type"),
        (
            {"target": {**NEW, "environment": {"type": "openai_hosted", "plugins": [asked_plugin(plugin(hooks="./a"))]}}},
            "target.environment.plugins[0].source.data",
        ),
        ({"name": ""}, "name"),
    ],
)
async def test_what_could_not_be_delivered_is_refused(served: Served, fields: Any, param: str) -> None:
    clock(served, "2027-01-01 09:30")
    schedule = {"type": "once"} if "run_at" in fields else {"type": "periodic", "expression": "0 * * * *", "timezone": "UTC"}
    answer = await served.post(PLACE, {**schedule, "name": "report", "target": NEW, **fields})
    assert (answer.status_code in (400, 404), answer.json()["error"]["param"]) == (True, param), answer.text


async def test_a_tenant_has_so_many_automations(served: Served) -> None:
    """Those who ask at once are counted one after the other."""
    lab = served.lab
    automations = Automations(lab.table, lab.blobs, lab.runtime.stores.sealer, clock=lambda: lab.now, most=3)
    lab.runtime.stores = replace(lab.runtime.stores, automations=automations)
    body = {"type": "periodic", "expression": "0 * * * *", "timezone": "UTC", "name": "report", "target": NEW}
    answers = await asyncio.gather(*(served.post(PLACE, body) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 400, 400]
    error = next(answer.json()["error"] for answer in answers if answer.status_code == 400)
    assert (error["code"], "MOORAGE_AUTOMATIONS_MAX" in error["message"]) == ("automations_limit_reached", True)
    first, *_ = await data(served, PLACE)
    gone = await asyncio.gather(*(served.delete(f"{PLACE}/{first['id']}") for _ in range(2)))
    assert sorted(answer.status_code for answer in gone) == [200, 404]
    assert [(await served.post(PLACE, body)).status_code for _ in range(2)] == [200, 400]
    assert (await served.post(PLACE, body, by="key-b")).status_code == 200
