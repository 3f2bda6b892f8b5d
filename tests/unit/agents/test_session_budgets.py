"""What a session may use, all its responses together, and what its turns have cost."""

from typing import Any

from moorage.model.prices import Price

from tests.unit.agents.sessions import SessionLab, message
from tests.unit.agents.test_turns import statuses
from tests.unit.loop.lab import Turn, say, shell
from tests.unit.store.deaths import Death

NONE = {"type": "none"}


async def begun(*turns: Turn, **body: Any) -> SessionLab:
    """A session that a client has made."""
    lab = await SessionLab.begun(*turns, first=None)
    lab.lab.price = Price(input=10_000.0, output=20_000.0)
    made = await lab.served.post("/agents/sessions", {"agent": {"model": "m"}, "environment": NONE, "input": "go", **body})
    assert made.status_code == 200, made.text
    lab.session = await lab.lab.runtime.stores.agent_sessions.get("t", made.json()["id"])
    return lab


async def changed(lab: SessionLab, **body: Any) -> dict[str, Any]:
    answer = await lab.served.post(lab.path, body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_session_whose_budget_is_used_up_takes_no_message_until_it_is_raised() -> None:
    lab = await begun(say("one"), say("two"), say("three"), budget={"total_tokens": 20})
    await lab.play()
    assert (await lab.send(message("more"))).status_code == 202
    await lab.play()
    refused = await lab.send(message("again"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_reached")
    assert f"The budget of the session '{lab.session.id}' is used up: total_tokens 24 of 20." in refused.json()["error"]["message"]
    shown = await lab.shown()
    assert (shown["budget"], shown["budget_used"]["total_tokens"]) == ({"total_tokens": 20}, 24)
    await changed(lab, budget={"total_tokens": 100})
    assert (await lab.send(message("again"))).status_code == 202
    await lab.play()
    assert await statuses(lab) == ["completed", "completed", "completed"]
    assert (await changed(lab, budget=None))["budget"] is None
    assert (await lab.shown())["budget_used"]["total_tokens"] == 36


async def test_a_turn_that_pauses_for_want_of_budget_goes_on_when_it_is_raised() -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."), first=None)
    budget = {"total_tokens": 5, "on_limit": "pause"}
    assert (await changed(lab, budget=budget))["budget"] == budget
    lab.session = await lab.lab.runtime.stores.agent_sessions.get("t", lab.session.id)
    await lab.say("go")
    await lab.play()
    assert (await statuses(lab), (await lab.shown())["status"]) == (["in_progress"], "in_progress")
    (response_id,) = (await lab.turns())[0]["response_ids"]
    assert (await lab.served.get(f"/responses/{response_id}")).json()["status"] == "in_progress"
    await changed(lab, budget={"total_tokens": 500, "on_limit": "pause"})
    await lab.play()
    assert (await statuses(lab), (await lab.shown())["status"]) == (["completed"], "idle")


async def test_a_turn_that_stops_for_want_of_budget_says_so() -> None:
    lab = await SessionLab.begun(shell("a"), say("never"), first=None)
    await changed(lab, budget={"total_tokens": 5})
    lab.session = await lab.lab.runtime.stores.agent_sessions.get("t", lab.session.id)
    await lab.say("go")
    await lab.play()
    (turn,) = await lab.turns()
    assert (turn["status"], turn["error"]["code"]) == ("failed", "usage_limit_exceeded")


async def test_spend_control_is_a_budget_in_cents() -> None:
    lab = await begun(say("one"), spend_control={"limit": 50})
    await lab.play()
    shown = await lab.shown()
    assert (shown["budget"], shown["spend_control"]) == ({"usd": 0.5, "on_limit": "stop"}, {"limit": 50, "consumed": 14})
    assert (await lab.turns())[0]["cost_usd"] == 0.14
    assert (await changed(lab, metadata={"a": "b"}))["spend_control"] == {"limit": 50, "consumed": 14}
    assert (await changed(lab, spend_control={"limit": None}))["spend_control"] == {"limit": None, "consumed": 14}
    assert (await changed(lab, spend_control={"limit": 1}))["budget"] == {"usd": 0.01, "on_limit": "stop"}
    assert (await lab.send(message("more"))).status_code == 429
    assert (await changed(lab, spend_control=None))["budget"] is None


async def test_the_cost_of_a_turn_is_that_of_its_responses() -> None:
    lab = await SessionLab.begun(shell("a"), say("Done."), first=None)
    lab.lab.price = Price(input=10_000.0, output=20_000.0)
    await lab.say("go")

    async def steer() -> None:
        await lab.say("more")

    lab.lab.model.before_answer = steer
    await lab.play()
    (turn,) = await lab.turns()
    assert (len(turn["response_ids"]), turn["cost_usd"]) == (2, 0.28)


async def test_what_is_no_budget_is_refused() -> None:
    lab = await SessionLab.begun(first=None)
    for body, param in (
        ({"budget": {"usd": 1}, "spend_control": {"limit": 1}}, "spend_control"),
        ({"spend_control": {"limit": 0}}, "spend_control.limit"),
        ({"budget": {"total_tokens": 0}}, "budget.total_tokens"),
        ({"budget": {"scope": "tree"}}, "budget.scope"),
        ({"budget": {"usd": 1}}, "budget.usd"),
    ):
        answer = await lab.served.post(lab.path, body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_a_budget_goes_with_its_session() -> None:
    lab = await begun(say("one"), budget={"total_tokens": 20})
    await lab.play()
    assert any("session:" in sk for _, sk in lab.lab.table.records)
    assert (await lab.served.delete(lab.path)).status_code == 200
    assert not any("session:" in sk for _, sk in lab.lab.table.records)


async def test_no_session_is_left_without_its_budget_by_a_death() -> None:
    answered, died_at = 500, 0
    while answered == 500:
        lab = await SessionLab.begun(say("one"), first=None)
        lab.lab.table.before_write = Death(died_at)
        body = {"agent": {"model": "m"}, "environment": NONE, "input": "go", "budget": {"total_tokens": 20}}
        answered = (await lab.served.post("/agents/sessions", body)).status_code
        lab.lab.table.before_write = None
        listed = (await lab.served.get("/agents/sessions")).json()["data"]
        found = [(await lab.served.get(f"/agents/sessions/{each['id']}")).json() for each in listed]
        assert [each for each in found if each["budget"] and each["budget_used"] is None] == []
        died_at += 1
    assert died_at > 3
