"""What bounds the agents of a team one by one, in the loop."""

from typing import Any

import pytest
from moorage.api.view import ResponseView
from moorage.model.prices import Price

from tests.unit.loop.lab import say, shell
from tests.unit.loop.teams import TEAM, TeamLab, by_agent, spawn, text_of, wait


async def played(bound: dict[str, Any], lab: TeamLab) -> dict[str, Any]:
    """How a response ends whose agents beside ``/root`` are bounded so."""
    stored = await lab.begin(parameters={"multi_agent": {**TEAM, "subagent_budget": bound}})
    await lab.play()
    return await lab.object_of(stored)


def busy() -> TeamLab:
    """A child that asks for three commands, a turn each, and its parent for one."""
    return TeamLab(
        root=[shell("r1"), spawn("a"), wait(), shell("r2"), say("Done.")],
        root__a=[shell("a1"), shell("a2", call_id="call_2"), shell("a3", call_id="call_3"), say("a is done")],
    )


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        ({"tool_calls": 2}, "tool_calls 2 of 2."),
        ({"total_tokens": 20}, "total_tokens 24 of 20."),
        ({"usd": 0.00002}, "usd 0.000024 of 0.00002."),
    ],
)
async def test_an_agent_stops_at_its_bound_and_its_parent_is_told(bound: dict[str, Any], says: str) -> None:
    lab = busy()
    lab.price = Price(input=1, output=1, source="test")
    response = await played(bound, lab)
    assert (response["status"], lab.sandboxes.begun) == ("completed", ["r1", "a1", "a2", "r2"])
    heard = [text_of(item).partition("Payload:\n")[2] for item in response["output"] if item.get("recipient") == "/root"]
    assert heard == [f"I cannot go on. Its budget is used up: {says}"]


async def test_an_agent_at_its_bound_may_give_a_last_answer() -> None:
    lab = busy()
    lab.team.scripts["/root/a"][2] = say("This is what I have.")
    response = await played({"tool_calls": 2, "on_limit": "finish"}, lab)
    heard = [text_of(item).partition("Payload:\n")[2] for item in response["output"] if item.get("recipient") == "/root"]
    assert (heard, lab.sandboxes.begun) == (["This is what I have."], ["r1", "a1", "a2", "r2"])
    assert by_agent(response)["/root/a"][-1] == "message"


async def test_usage_tells_what_each_agent_has_cost_to_who_asks() -> None:
    lab = busy()
    lab.price = Price(input=1, output=1, source="test")
    response = await played({}, lab)
    root = {"agent_name": "/root", "input_tokens": 50, "output_tokens": 10, "total_tokens": 60}
    child = {"agent_name": "/root/a", "input_tokens": 40, "output_tokens": 8, "total_tokens": 48}

    def shown(*include: str) -> Any:
        usage = ResponseView.of(include).response(response)["usage"]
        return usage["agents"], usage.get("cost")

    assert shown() == ([root, child], None)
    costs = [{"usd": 0.00006, "source": "test"}, {"usd": 0.000048, "source": "test"}]
    together = {"usd": 0.000108, "source": "test"}
    assert shown("usage.cost") == ([root | {"cost": costs[0]}, child | {"cost": costs[1]}], together)
