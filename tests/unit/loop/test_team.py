"""The agents of a team in the loop."""

import itertools

import pytest

from tests.stack import assert_well_formed
from tests.unit.loop.lab import say, shell
from tests.unit.loop.teams import TeamLab, by_agent, spawn, text_of, wait


def two_children() -> TeamLab:
    return TeamLab(
        root=[spawn("a"), spawn("b", call_id="call_2"), wait(), wait(), say("Both are done.")],
        root__a=[shell("a1"), say("a is done")],
        root__b=[shell("b1"), say("b is done")],
    )


def last_prompt(lab: TeamLab, name: str) -> list[str]:
    return [text_of(item) for item in lab.team.prompts(name)[-1] if text_of(item)]


async def test_agents_work_side_by_side_in_one_log() -> None:
    lab = two_children()
    stored = await lab.begin()
    await lab.play()
    events, response = await lab.events(stored), await lab.object_of(stored)
    assert_well_formed(events)
    assert response["status"] == "completed"
    assert {name: sorted(set(kinds)) for name, kinds in by_agent(response).items()} == {
        "/root": ["agent_message", "message", "multi_agent_call", "multi_agent_call_output"],
        "/root/a": ["agent_message", "message", "shell_call", "shell_call_output"],
        "/root/b": ["agent_message", "message", "shell_call", "shell_call_output"],
    }
    assert lab.sandboxes.begun == ["a1", "b1"]


async def test_every_prompt_of_an_agent_begins_with_the_one_before() -> None:
    lab = two_children()
    await lab.begin()
    await lab.play()
    for name in lab.team.scripts:
        prompts = lab.team.prompts(name)
        assert all(before == after[: len(before)] for before, after in itertools.pairwise(prompts))
    assert any(
        "Message Type: FINAL_ANSWER\nTask name: /root\nSender: /root/b\nPayload:\nb is done" in text
        for text in last_prompt(lab, "/root")
    )


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("died_at", range(90))
async def test_whenever_a_process_dies_a_team_goes_on_and_no_command_runs_twice(died_at: int, newest_first: bool) -> None:
    lab = two_children()
    stored = await lab.begin()
    lab.die_at(died_at)
    await lab.play(newest_first=newest_first)
    events, response = await lab.events(stored), await lab.object_of(stored)
    assert_well_formed(events)
    assert response["status"] == "completed"
    assert [item["content"][0]["text"] for item in response["output"] if item.get("phase") == "final_answer"][-1] == "Both are done."
    assert sorted(lab.sandboxes.begun) == ["a1", "b1"]
