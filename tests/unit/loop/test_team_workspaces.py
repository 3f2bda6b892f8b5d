"""The files of the agents of a team, in the loop."""

from typing import Any, cast

import pytest
from moorage.loop.finish import end_from_outside
from moorage.model.prices import Price
from moorage.store.responses import StoredResponse
from moorage.store.sandbox_usage import SandboxPrice

from tests.stack import assert_well_formed
from tests.unit.loop.lab import CONTAINER, say, shell
from tests.unit.loop.teams import TeamLab, by_agent, spawn, text_of, wait
from tests.unit.store.deaths import Death, at_each_death


def one_child(workspace: str) -> TeamLab:
    return TeamLab(
        root=[shell("r1"), spawn("a", workspace=workspace), wait(), say("Done.")],
        root__a=[shell("a1"), shell("a2", call_id="call_2"), say("a is done")],
    )


async def containers_of(lab: TeamLab, stored: StoredResponse) -> dict[str, set[str]]:
    """In which each agent's commands ran."""
    found: dict[str, set[str]] = {}
    for item in (await lab.object_of(stored))["output"]:
        if item["type"] == "shell_call":
            found.setdefault(item["agent"]["agent_name"], set()).add(item["environment"]["container_id"])
    return found


@pytest.mark.parametrize("workspace", ["copied", "read_only"])
@at_each_death
async def test_whenever_a_process_dies_a_copy_is_the_agents_alone(death: Death, workspace: str) -> None:
    lab = one_child(workspace)
    stored = await lab.begin()
    lab.table.before_write = death
    await lab.play()
    assert_well_formed(await lab.events(stored))
    own = (await lab.runtime.stores.lanes.get(stored, 1)).container
    assert await containers_of(lab, stored) == {"/root": {CONTAINER}, "/root/a": {own}}
    assert (own != CONTAINER, sorted(lab.sandboxes.begun)) == (True, ["a1", "a2", "r1"])
    assert cast("Any", lab.runtime.computers.containers).known == {CONTAINER, own}


async def test_an_agent_without_a_workspace_is_offered_no_commands() -> None:
    lab = one_child("none")
    lab.team.scripts["/root/a"] = [say("a is done")]
    stored = await lab.begin()
    await lab.play()
    offered = {name: {tool["name"] for tool in request.tools} for name, request in lab.team.asked}
    assert offered["/root"] - offered["/root/a"] == {"shell"}
    assert any("You have no files and run no commands." in text_of(item) for item in lab.team.prompts("/root/a")[0])
    assert by_agent(await lab.object_of(stored))["/root/a"] == ["agent_message", "message"]


@pytest.mark.parametrize(("workspace", "is_paid"), [("shared", True), ("copied", False)])
async def test_the_sandbox_of_a_copy_is_its_tenants_to_pay(workspace: str, is_paid: bool) -> None:
    lab = one_child(workspace)
    lab.team.scripts["/root"] = lab.team.scripts["/root"][1:]
    lab.runtime.stores.sandbox_usage.price = SandboxPrice(3.6, 1.8, "a list")
    lab.price = Price(1_000.0, None, 5_000.0, source="a test")
    stored = await lab.begin()
    await lab.play()
    cost = (await lab.object_of(stored))["usage"]["cost"]
    assert ("sandbox" in cost, stored.response_id in lab.sandboxes.paid) == (is_paid, is_paid)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_copy_that_no_agent_has_got_ends_with_the_response(is_cancelled: bool) -> None:
    lab = one_child("copied")
    stored = await lab.begin()
    containers = cast("Any", lab.runtime.computers.containers)
    await lab.runtime.stores.lanes.note_copy(stored, "of-a-dead-run", "cntr_left")
    containers.known.add("cntr_left")
    if is_cancelled:
        await end_from_outside(lab.runtime, stored, status="cancelled")
        assert containers.known == {CONTAINER}
    else:
        await lab.play()
        assert containers.known == {CONTAINER, (await lab.runtime.stores.lanes.get(stored, 1)).container}


async def test_a_container_that_begins_with_commands_is_not_read_only() -> None:
    lab = one_child("read_only")
    lab.team.scripts["/root"] = [shell("r1"), spawn("a", workspace="read_only"), say("Done.")]
    stored = await lab.begin()
    cast("Any", lab.runtime.computers.containers).has_setup = True
    await lab.play()
    said = [item for item in (await lab.object_of(stored))["output"] if item["type"] == "multi_agent_call_output"]
    assert [text_of(item) for item in said] == [
        "{\"error\":\"Your container begins with commands, which have to write: its 'workspace' is not 'read_only'.\"}"
    ]
    assert cast("Any", lab.runtime.computers.containers).known == {CONTAINER}
