"""Programs that the agents of a team write, in the loop."""

import itertools
from typing import Any

import pytest

from tests.stack import assert_well_formed
from tests.unit.loop.lab import Turn, say, shell
from tests.unit.loop.teams import LOOK, TeamLab, ask, by_agent, spawn, text_of, wait
from tests.unit.loop.test_programs import PROGRAM, PROGRAMS, SHELL, Node, calls
from tests.unit.store.deaths import Death, at_each_death

LOOKS: dict[str, Any] = LOOK | {"allowed_callers": ["direct", "programmatic"]}


def lab_with(node: Node, **scripts: list[Turn]) -> TeamLab:
    lab = TeamLab(**scripts)
    lab.sandboxes.session_prints = node.prints
    return lab


def programs_of_two() -> TeamLab:
    """``/root`` and its child each run a program that runs two commands, one after the other."""
    node = Node(calls("shell", {"commands": ["one"]}), calls("shell", {"commands": ["two"]}))
    return lab_with(
        node,
        root=[spawn("a", fork_turns="all"), PROGRAM, wait(), say("Both are done.")],
        root__a=[PROGRAM, say("a is done")],
    )


def are_prefixes(lab: TeamLab) -> bool:
    return all(
        before == after[: len(before)] for name in lab.team.scripts for before, after in itertools.pairwise(lab.team.prompts(name))
    )


@pytest.mark.parametrize("newest_first", [False, True])
@at_each_death
async def test_whenever_a_process_dies_the_programs_of_a_team_go_on(death: Death, newest_first: bool) -> None:
    lab = programs_of_two()
    stored = await lab.begin(tools=[PROGRAMS, SHELL])
    lab.table.before_write = death
    await lab.play(newest_first=newest_first)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert (response["status"], response["output"][-1]["content"][0]["text"]) == ("completed", "Both are done.")
    kinds = by_agent(response)
    for name in ("/root", "/root/a"):
        assert kinds[name].count("program_output") == kinds[name].count("program")
        assert kinds[name].count("shell_call") == 2 * kinds[name].count("program")
    if not lab.deaths:
        assert sorted(lab.sandboxes.begun) == ["one", "one", "two", "two"]
    commands = [identity for identity in lab.sandboxes.executed if "-program-" not in identity]
    assert len(commands) == len(set(commands)) == len(lab.sandboxes.begun)


async def test_every_prompt_of_an_agent_with_a_program_begins_with_the_one_before() -> None:
    lab = programs_of_two()
    await lab.begin(tools=[PROGRAMS, SHELL])
    await lab.play()
    assert are_prefixes(lab)


async def test_a_message_to_an_agent_with_a_program_comes_after_its_output() -> None:
    node = Node(calls("shell", {"commands": ["one"]}), calls("shell", {"commands": ["two"]}))
    lab = lab_with(
        node,
        root=[spawn("a"), ask("send_message", "call_2", target="a", message="Hurry."), wait(), say("Done.")],
        root__a=[PROGRAM, shell("three"), say("a is done")],
    )
    stored = await lab.begin(tools=[PROGRAMS, SHELL])
    await lab.play(newest_first=True)
    assert (await lab.object_of(stored))["status"] == "completed"
    assert are_prefixes(lab)
    prompt = lab.team.prompts("/root/a")[-1]
    kinds = [item["type"] for item in prompt if item["type"] != "message"]
    assert kinds == ["function_call", "function_call_output"] * 2
    heard = next(index for index, item in enumerate(prompt) if "Hurry." in text_of(item))
    assert prompt[heard - 1]["type"] == "function_call_output"


async def test_an_agent_that_starts_another_after_a_program_gives_it_the_programs_result() -> None:
    node = Node(calls("shell", {"commands": ["one"]}))
    lab = lab_with(node, root=[PROGRAM, spawn("a"), wait(), say("Done.")], root__a=[say("a is done")])
    stored = await lab.begin(tools=[PROGRAMS, SHELL])
    await lab.play()
    assert (await lab.object_of(stored))["status"] == "completed"
    assert len(node.runs) == 2, "the child runs no program of its parent"
    (prompt,) = lab.team.prompts("/root/a")
    assert [item["type"] for item in prompt if item["type"] != "message"] == ["function_call", "function_call_output"]


async def test_a_program_of_a_child_calls_a_function_of_the_client() -> None:
    node = Node(calls("look", {"at": "x"}), calls("look", {"at": "y"}))
    lab = lab_with(node, root=[spawn("a"), wait(), say("Done.")], root__a=[PROGRAM, say("a is done")])
    first = await lab.begin(tools=[PROGRAMS, LOOKS])
    await lab.play()
    second = await lab.answer(first, x="a rock")
    await lab.play()
    third = await lab.answer(second, y="a net")
    await lab.play()
    assert by_agent(await lab.object_of(first))["/root/a"] == ["agent_message", "program", "function_call"]
    assert by_agent(await lab.object_of(second)) == {"/root/a": ["function_call"]}
    ended = await lab.object_of(third)
    assert by_agent(ended)["/root/a"] == ["program_output", "message"]
    assert next(item for item in ended["output"] if item["type"] == "program_output")["result"] == "a rocka net"
    assert ended["output"][-1]["content"][0]["text"] == "Done."


async def test_an_agent_is_interrupted_in_the_middle_of_a_program() -> None:
    node = Node(calls("shell", {"commands": ["one"]}))
    lab = lab_with(
        node,
        root=[spawn("a"), ask("interrupt_agent", "call_2", target="a"), wait(), say("Enough.")],
        root__a=[PROGRAM, say("never")],
    )
    stored = await lab.begin(tools=[PROGRAMS, SHELL])
    await lab.play(newest_first=True)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert response["status"] == "completed"
