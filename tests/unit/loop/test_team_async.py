"""``async`` calls of agents: they go on while such a call is open, and its output finds them, whatever they do by then."""

import itertools
from typing import Any

import pytest
from moorage import limits
from moorage.errors import ConditionFailed
from moorage.loop import team
from moorage.loop.recover import recover
from moorage.store.responses import StoredResponse

from tests.stack import assert_well_formed
from tests.unit.loop.lab import SHELL_TOOL, say
from tests.unit.loop.teams import FETCH, LOOK, TeamLab, ask, by_agent, look, spawn, text_of, wait
from tests.unit.loop.test_team_outputs import open_calls, output
from tests.unit.store.deaths import Death, Died, at_each_death

TOOLS: list[dict[str, Any]] = [SHELL_TOOL, LOOK, FETCH]
OPEN = "This call is open. Its output comes later, in a message: go on without it, and do not invent it."


def fetch(at: str) -> Any:
    return ask("fetch", f"call_{at}", at=at)


def late(call_id: str) -> str:
    """What a model reads of an output that comes later."""
    return f"Output of the earlier call {call_id} of fetch:the x"


async def begin(lab: TeamLab) -> StoredResponse:
    """A response that takes outputs while it runs, as far as it goes by itself."""
    stored = await lab.begin(takes_outputs=True, tools=TOOLS)
    await lab.play()
    return stored


async def answer(lab: TeamLab, stored: StoredResponse, agent: str, at: str) -> None:
    assert await team.answer(lab.runtime.stores, stored, {agent: [output((await open_calls(lab, stored))[at], f"the {at}")]})
    await lab.play()


def said(lab: TeamLab, name: str) -> list[list[str]]:
    """What an agent's model was told since the prompt before, which each prompt begins with."""
    prompts = lab.team.prompts(name)
    for before, after in itertools.pairwise(prompts):
        assert after[: len(before)] == before
    return [[text_of(item) for item in after[len(before) :]] for before, after in itertools.pairwise([(), *prompts])]


def words(response: Any, agent: str) -> list[tuple[str, str]]:
    own = [item for item in response["output"] if item["type"] == "message" and item["agent"]["agent_name"] == agent]
    return [(item["phase"], text_of(item)) for item in own]


async def test_an_output_ends_a_wait_for_messages() -> None:
    lab = TeamLab(root=[spawn("a"), fetch("x"), wait(), say("Done.")], root__a=[look("y"), say("a")])
    stored = await begin(lab)
    assert [lane.status for lane in await lab.runtime.stores.lanes.all(stored)] == ["waiting", "asking"]
    await answer(lab, stored, "/root", "x")
    assert [lane.status for lane in await lab.runtime.stores.lanes.all(stored)] == ["completed", "asking"]
    assert "The wait is over" in said(lab, "/root")[-1][-2]
    assert said(lab, "/root")[-1][-1] == late("call_x")
    await answer(lab, stored, "/root/a", "y")
    assert_well_formed(await lab.events(stored))
    assert by_agent(await lab.object_of(stored)) == {
        "/root": [
            "multi_agent_call", "multi_agent_call_output", "function_call", "multi_agent_call", "multi_agent_call_output",
            "function_call_output", "message", "agent_message",
        ],
        "/root/a": ["agent_message", "function_call", "function_call_output", "message"],
    }  # fmt: skip


async def test_an_agent_that_has_ended_begins_another_turn() -> None:
    lab = TeamLab(
        root=[spawn("a"), spawn("b", call_id="call_2"), wait(), say("Done.")],
        root__a=[fetch("x"), say("Not yet."), say("It is x.")],
        root__b=[look("y"), say("b")],
    )
    stored = await begin(lab)
    assert [lane.status for lane in await lab.runtime.stores.lanes.all(stored)] == ["completed", "completed", "asking"]
    await answer(lab, stored, "/root/a", "x")
    await answer(lab, stored, "/root/b", "y")
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert words(response, "/root/a") == [("final_answer", "Not yet."), ("final_answer", "It is x.")]
    (call,) = (item for item in response["output"] if item.get("name") == "fetch")
    assert said(lab, "/root/a")[1:] == [["", OPEN], ["Not yet.", late(call["call_id"])]]
    told = [text_of(item).rpartition("\n")[2] for item in response["output"] if item["type"] == "agent_message"]
    assert sorted(told) == ["Do it.", "Do it.", "It is x.", "Not yet.", "b"]


async def test_the_next_request_brings_it_to_the_agent_that_called() -> None:
    lab = TeamLab(root=[spawn("a"), wait(), say("Done.")], root__a=[fetch("x"), say("Not yet."), say("It is x.")])
    stored = await lab.begin(tools=TOOLS)
    await lab.play()
    assert words(await lab.object_of(stored), "/root/a") == [("final_answer", "Not yet.")]
    following = await lab.answer(stored, x="the x")
    await lab.play()
    response = await lab.object_of(following)
    assert by_agent(response) == {"/root/a": ["message"], "/root": ["agent_message"]}
    (call,) = (item for item in (await lab.object_of(stored))["output"] if item.get("name") == "fetch")
    assert said(lab, "/root/a")[-1] == ["Not yet.", late(call["call_id"])]


@pytest.mark.parametrize("loses", [False, True])
@at_each_death
async def test_an_output_is_read_once_wherever_a_process_dies(death: Death, loses: bool) -> None:
    lab = TeamLab(root=[spawn("a"), fetch("x"), say("Not yet."), say("Done.")], root__a=[look("y"), say("a")])
    lab.loses_executions = loses
    stored = await lab.begin(takes_outputs=True, tools=TOOLS)
    lab.table.before_write = death
    due = {"x": "/root", "y": "/root/a"}
    left_unread = set[str]()
    for _ in range(60):
        await lab.play()
        if (await lab.responses.snapshot(stored.tenant_id, stored.response_id)).is_final:
            break
        for at in [at for at in due if at in await open_calls(lab, stored)]:
            try:
                await answer(lab, stored, due[at], at)
            except Died:
                lab.table.before_write = None
                left_unread = {f"the {at}"}  # If it took the output, and died before it woke the agent up.
                continue
            except ConditionFailed:
                pass
            del due[at]
        lab.now += limits.RECOVERY_SECONDS + 1
        await recover(lab.runtime)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert response["status"] == "completed"
    read = [item["output"] for item in response["output"] if item["type"] == "function_call_output"]
    assert sorted(read) in (["the x", "the y"], sorted({"the x", "the y"} - left_unread)), "the next response reads what is left"
    assert words(response, "/root/a")[-1] == ("final_answer", "a")
