"""An agent wakes its own session by its tool: within bounds, and once for each call, whatever dies."""

import json
from typing import Any, SupportsIndex

import pytest
from moorage import limits
from moorage.automations.delivery import invoke_due
from moorage.errors import ApiError
from moorage.loop.create import prepare
from moorage.wire.requests import parse_create

from tests.unit.agents.sessions import SessionLab
from tests.unit.agents.test_session_input import decided
from tests.unit.loop.lab import TENANT, Turn, call, say
from tests.unit.store.deaths import Death

TOOL: dict[str, Any] = {"type": "automations"}
DAILY = {"action": "create", "name": "look", "expression": "0 9 * * *", "timezone": "Europe/Berlin", "instructions": "Look again."}


def act(**arguments: Any) -> Turn:
    return call("automations", json.dumps(arguments))


async def begun(*turns: Turn, tool: dict[str, Any] = TOOL) -> SessionLab:
    return await SessionLab.begun(*turns, has_container=False, tools=[tool])


async def played(*turns: Turn) -> tuple[SessionLab, list[dict[str, Any]]]:
    """A session after its first turn, and what its calls came to."""
    lab = await begun(*turns)
    await lab.play()
    return lab, await results(lab)


async def results(lab: SessionLab) -> list[dict[str, Any]]:
    answer = await lab.served.get(f"{lab.path}/items", order="asc", limit=100)
    return [item for item in answer.json()["data"] if item["type"] == "mcp_call"]


async def latest(lab: SessionLab) -> dict[str, Any]:
    answer = await lab.served.get(f"{lab.path}/items", order="desc", limit=10)
    return next(item for item in answer.json()["data"] if item["type"] == "mcp_call")


async def automations(lab: SessionLab) -> list[dict[str, Any]]:
    answer = await lab.served.get("/agents/automations", order="asc", limit=100)
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_an_agent_makes_an_automation_that_wakes_it() -> None:
    lab, (result,) = await played(act(**DAILY), say("I will."))
    (made,) = await automations(lab)
    maker = {"type": "agent", "session_id": lab.session.id, "tool_call_id": result["id"]}
    target = {"type": "existing_session", "session_id": lab.session.id, "instructions": "Look again."}
    assert (made["created_by"], made["target"], made["expression"]) == (maker, target, "0 9 * * *")
    assert (result["server_label"], result["name"], result["status"], result["error"]) == ("moorage", "automations", "completed", None)
    told = json.loads(result["output"])["created"]
    assert (told["automation_id"], told["status"], told["made_by_you"]) == (made["id"], "active", True)
    lab.lab.now += 2 * 86_400
    lab.lab.model.turns.append(say("I looked."))
    assert await invoke_due(lab.lab.runtime) == 1
    await lab.play()
    assert [turn["status"] for turn in await lab.turns()] == ["completed", "completed"]


async def test_an_agent_changes_what_it_has_made() -> None:
    lab, (first,) = await played(act(**DAILY), say("I will."))
    named = {"automation_id": json.loads(first["output"])["created"]["automation_id"]}
    changes = [
        act(action="update", **named, expression="30 8 * * *", instructions="Look well."),
        act(action="pause", **named),
        act(action="list"),
        act(action="resume", **named),
        act(action="delete", **named),
        act(action="delete", **named),
        act(action="pause", **named),
    ]
    lab.lab.model.turns.extend([*changes, say("Done.")])
    lab.lab.now += 1
    await lab.say("go on")
    await lab.play()
    updated, paused, listed, resumed, deleted, again, gone = (await results(lab))[1:]
    told = [json.loads(each["output"]) for each in (updated, paused, listed, resumed, deleted, again)]
    assert [told[0]["updated"][name] for name in ("expression", "instructions")] == ["30 8 * * *", "Look well."]
    assert (told[1]["paused"]["status"], told[2]["automations"][0]["status"], told[3]["resumed"]["status"]) == (
        "paused",
        "paused",
        "active",
    )
    assert told[4]["deleted"] == told[5]["deleted"] == named["automation_id"]
    assert (gone["status"], "not found" in gone["error"]) == ("failed", True)
    assert await automations(lab) == []


async def test_an_agent_leaves_the_automations_of_others_alone() -> None:
    lab = await begun(say("Hello."))
    await lab.play()
    wakes = {"type": "existing_session", "session_id": lab.session.id, "instructions": "Look."}
    other = {"type": "new_session", "environment": {"type": "none"}, "agent": {"model": "m"}, "input": [_user("hi")]}
    schedule = {"type": "periodic", "expression": "0 9 * * *", "timezone": "UTC", "name": "a"}
    ids = [(await lab.served.post("/agents/automations", {**schedule, "target": each})).json()["id"] for each in (wakes, other)]
    lab.lab.model.turns.extend([act(action="list"), *(act(action="delete", automation_id=each) for each in ids), say("Done.")])
    lab.lab.now += 1
    await lab.say("go on")
    await lab.play()
    listed, by_person, foreign = await results(lab)
    assert [each["automation_id"] for each in json.loads(listed["output"])["automations"]] == ids[:1]
    assert "made by a person" in by_person["error"]
    assert "not found" in foreign["error"]
    assert {each["id"] for each in await automations(lab)} == set(ids)


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({**DAILY, "expression": "*/4 * * * *"}, "every 5 minutes at most"),
    ({**DAILY, "expression": "0,1 9 * * *"}, "every 5 minutes at most"),
    ({**DAILY, "expression": "daily"}, "five fields"),
    ({**DAILY, "timezone": "Mars/Olympus"}, "IANA"),
    ({"action": "create", "name": "a", "run_at": "2001-01-01T00:00:00Z", "instructions": "x"}, "in the future"),
    ({"action": "create", "name": "a", "run_at": "tomorrow", "instructions": "x"}, "with its offset"),
    ({"action": "create", "name": "a", "run_at": "2031-01-01T00:00:00Z"}, "instructions"),
    ({"action": "pause"}, "automation_id"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
async def test_the_model_reads_what_is_wrong(arguments: dict[str, Any], words: str) -> None:
    lab, (result,) = await played(act(**arguments), say("Then not."))
    assert (result["status"], words in result["error"]) == ("failed", True), result["error"]
    assert await automations(lab) == []


async def test_a_call_makes_one_automation_whatever_dies() -> None:
    died_at = 0
    while await _made_with_a_death(died_at):
        died_at += 1
    assert died_at >= 5


class Steady(list[Turn]):
    """A model that is asked again says the same again: it calls until it reads an output."""

    def __init__(self, requests: list[Any]) -> None:
        super().__init__()
        self.requests = requests

    def pop(self, _index: SupportsIndex = -1) -> Turn:
        has_read = any(item["type"] == "function_call_output" for item in self.requests[-1].items)
        return say("I will.") if has_read else act(**DAILY)


async def _made_with_a_death(died_at: int) -> bool:
    lab = await begun()
    lab.lab.model.turns = Steady(lab.lab.model.requests)
    standing = await lab.standing()
    assert standing.snapshot is not None
    await lab.lab.run_with_deaths(standing.snapshot.stored, Death(died_at))
    has_died = lab.lab.table.before_write is None
    lab.lab.table.before_write = None
    assert len(await automations(lab)) == 1
    counted = [record["count"] for record in lab.lab.table.records.values() if str(record["PK"]).endswith("#AUTOMATIONS")]
    assert counted == [1, 1], "of the tenant, and of the session's day"
    return has_died


async def test_an_agent_that_wakes_itself_for_ever_comes_to_an_end() -> None:
    lab = await begun(say("Hello."))
    await lab.play()
    run_at = {"run_at": "2031-01-01T00:00:00Z", "name": "a", "instructions": "x"}
    made = 0
    for _ in range(limits.AGENT_AUTOMATIONS_PER_DAY + 2):
        lab.lab.now += 1
        lab.lab.model.turns.extend([act(action="create", **run_at), say("Done.")])
        await lab.say("go on")
        await lab.play()
        result = await latest(lab)
        if result["status"] == "failed":
            break
        made += 1
        await lab.served.delete(f"/agents/automations/{json.loads(result['output'])['created']['automation_id']}")
    assert (made, "today" in result["error"]) == (limits.AGENT_AUTOMATIONS_PER_DAY, True)
    lab.lab.now += 86_400
    lab.lab.model.turns.extend([act(action="create", **run_at), say("Done.")])
    await lab.say("go on")
    await lab.play()
    assert (await latest(lab))["status"] == "completed"


async def test_a_session_has_few_automations_of_its_agent() -> None:
    run_at = {"run_at": "2031-01-01T00:00:00Z", "name": "a", "instructions": "x"}
    _, found = await played(*(act(action="create", **run_at) for _ in range(limits.AGENT_AUTOMATIONS_MAX + 1)), say("Done."))
    assert [each["status"] for each in found] == ["completed"] * limits.AGENT_AUTOMATIONS_MAX + ["failed"]
    assert "delete some first" in found[-1]["error"]


async def test_a_person_is_asked_where_the_agent_says_so() -> None:
    lab = await begun(act(**DAILY), say("I will."), tool={**TOOL, "require_approval": "always"})
    await lab.play()
    (action,) = (await lab.shown())["required_actions"]
    assert (action["request"]["name"], await automations(lab)) == ("automation_call", [])
    lab.lab.now += 1
    assert (await lab.send(decided(action["request_id"]))).status_code == 202
    await lab.play()
    assert len(await automations(lab)) == 1


async def test_only_a_session_has_the_tool() -> None:
    lab = await begun(say("Hello."))
    with pytest.raises(ApiError) as refused:
        await prepare(lab.lab.runtime, TENANT, parse_create({"model": "m", "input": "hi", "tools": [TOOL]}))
    assert (refused.value.param, refused.value.code) == ("tools[0].type", "unsupported_value")
