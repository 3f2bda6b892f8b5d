"""Outputs that come while a team runs: when they come, whatever dies meanwhile, and how long a response stays open for them."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from moorage import limits
from moorage.errors import ConditionFailed
from moorage.loop import team
from moorage.loop.recover import recover
from moorage.store.responses import StoredResponse
from moorage.store.table import Record
from moorage.wire.types import Item

from tests.stack import assert_well_formed
from tests.unit.loop.lab import say, shell
from tests.unit.loop.teams import TeamLab, ask, by_agent, look, spawn, text_of, wait
from tests.unit.store.deaths import Death, Died, at_each_death


def asking() -> TeamLab:
    """``/root`` waits for an agent that asks its client twice."""
    return TeamLab(root=[spawn("a"), wait(), say("Done.")], root__a=[look("x", "call_x"), shell("a1"), look("y", "call_y"), say("a")])


def output(call_id: str, text: str) -> Item:
    return {"id": f"fco_{call_id}", "type": "function_call_output", "call_id": call_id, "output": text}


async def open_calls(lab: TeamLab, stored: StoredResponse) -> dict[str, str]:
    """The calls without an output that the client has seen, by where they look."""
    items = [event["item"] for event in await lab.events(stored) if event["type"] == "response.output_item.done"]
    answered = {item["call_id"] for item in items if item["type"] == "function_call_output"}
    calls = [item for item in items if item["type"] == "function_call" and item["call_id"] not in answered]
    return {json.loads(item["arguments"])["at"]: item["call_id"] for item in calls}


async def answer(lab: TeamLab, stored: StoredResponse, agent: str, at: str) -> bool:
    call_id = (await open_calls(lab, stored))[at]
    return await team.answer(lab.runtime.stores, stored, {agent: [output(call_id, f"the {at}")]})


async def play_and_answer(lab: TeamLab, stored: StoredResponse) -> None:
    """The client answers as soon as it sees a call. If it does not hear that its output was taken, and sees none, it sends it again."""
    for _ in range(60):
        await lab.play()
        if (await lab.responses.snapshot(stored.tenant_id, stored.response_id)).is_final:
            return
        for at in await open_calls(lab, stored):
            try:
                assert await answer(lab, stored, "/root/a", at)
            except Died:
                lab.table.before_write = None
            except ConditionFailed:
                pass
        lab.now += limits.RECOVERY_SECONDS + 1
        await recover(lab.runtime)
    raise AssertionError("it never ends")


async def test_an_agent_reads_its_outputs_at_the_beginning_of_its_next_step() -> None:
    lab = asking()
    stored = await lab.begin(takes_outputs=True)
    await play_and_answer(lab, stored)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert response["status"] == "completed"
    assert by_agent(response)["/root/a"] == [
        "agent_message", "function_call", "function_call_output", "shell_call", "shell_call_output", "function_call",
        "function_call_output", "message",
    ]  # fmt: skip
    assert [item["output"] for item in response["output"] if item["type"] == "function_call_output"] == ["the x", "the y"]
    for before, after in itertools.pairwise(lab.team.prompts("/root/a")):
        assert after[: len(before)] == before
    assert lab.sandboxes.begun == ["a1"]


@pytest.mark.parametrize("loses", [False, True])
@at_each_death
async def test_outputs_are_read_once_wherever_a_process_dies(death: Death, loses: bool) -> None:
    lab = asking()
    lab.loses_executions = loses
    stored = await lab.begin(takes_outputs=True)
    lab.table.before_write = death
    await play_and_answer(lab, stored)
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert (response["status"], lab.sandboxes.begun) == ("completed", ["a1"])
    assert [item["output"] for item in response["output"] if item["type"] == "function_call_output"] == ["the x", "the y"]


async def test_an_output_may_come_before_its_agent_waits_for_it() -> None:
    """A client sees a call before its step has ended."""
    lab = TeamLab(root=[look("x"), say("Done.")])
    stored = await lab.begin(takes_outputs=True)
    table, is_sent = lab.table, False

    async def before_write(record: Record) -> None:
        nonlocal is_sent
        if not is_sent and await open_calls(lab, stored):
            is_sent = True
            assert await answer(lab, stored, "/root", "x")

    table.before_write = before_write
    await lab.play()
    response = await lab.object_of(stored)
    assert is_sent
    assert (response["status"], by_agent(response)["/root"]) == ("completed", ["function_call", "function_call_output", "message"])


async def test_a_response_stays_open_for_a_bounded_time() -> None:
    lab = TeamLab(root=[spawn("a"), wait(), say("Done.")], root__a=[look("x"), say("a")])
    stored = await lab.begin(takes_outputs=True)
    await lab.play()
    lab.now += limits.TEAM_OUTPUTS_MS / 1000 - 1
    await recover(lab.runtime)
    await lab.play()
    assert not (await lab.responses.snapshot(stored.tenant_id, stored.response_id)).is_final
    lab.now += 2
    await recover(lab.runtime)
    response = await lab.object_of(stored)
    assert (response["status"], by_agent(response)["/root/a"]) == ("completed", ["agent_message", "function_call"])
    assert not await answer(lab, stored, "/root/a", "x")


async def test_a_wait_ends_at_its_time_while_another_agent_asks() -> None:
    lab = TeamLab(root=[spawn("a"), wait(timeout_ms=5_000), say("I go on.")], root__a=[look("x"), say("a")])
    stored = await lab.begin(takes_outputs=True)
    await lab.play()
    lab.now += 6
    await recover(lab.runtime)
    await lab.play()
    events = await lab.events(stored)
    assert any(event["type"] == "response.output_text.done" and event["text"] == "I go on." for event in events)
    assert await answer(lab, stored, "/root/a", "x")
    await lab.play()
    assert (await lab.object_of(stored))["status"] == "completed"


async def test_a_call_has_one_output_and_all_of_a_frame_are_kept_or_none() -> None:
    lab = TeamLab(root=[look("x"), say("Done.")])
    stored = await lab.begin(takes_outputs=True)
    await lab.play()
    assert await team.answer(lab.runtime.stores, stored, {"/root": [output("call_1", "one")]})
    with pytest.raises(ConditionFailed):
        await team.answer(lab.runtime.stores, stored, {"/root": [output("call_2", "two"), output("call_1", "again")]})
    assert [item["call_id"] for item in await lab.runtime.stores.lanes.outputs(stored, 0)] == ["call_1"]


async def test_an_output_that_no_agent_reads_stands_at_the_end() -> None:
    lab = TeamLab(root=[look("x"), say("Done.")])
    stored = await lab.begin(takes_outputs=True)
    await lab.play()
    assert await team.answer(lab.runtime.stores, stored, {"/root": [output("call_of_nobody", "late")]})
    await team.end_outputs(lab.runtime, stored)
    await team.end_outputs(lab.runtime, stored)
    response = await lab.object_of(stored)
    last: dict[str, Any] = response["output"][-1]
    assert (last["type"], last["output"], last["agent"]) == ("function_call_output", "late", {"agent_name": "/root"})


async def test_a_long_output_is_kept_too() -> None:
    lab = TeamLab(root=[look("x"), say("Done.")])
    stored = await lab.begin(takes_outputs=True)
    await lab.play()
    long = "".join(str(number) for number in range(100_000))
    (call_id,) = (await open_calls(lab, stored)).values()
    assert await team.answer(lab.runtime.stores, stored, {"/root": [output(call_id, long)]})
    await lab.play()
    found = [item["output"] for item in (await lab.object_of(stored))["output"] if item["type"] == "function_call_output"]
    assert found == [long]


def kinds(prompt: Iterable[Item]) -> list[str]:
    """Behind the agent's name."""
    items = list(prompt)
    begin = max(index for index, item in enumerate(items) if text_of(item).startswith("From here on you are "))
    return [str(item.get("role", item["type"])) for item in items[begin + 1 :]]


async def test_messages_that_came_before_an_output_follow_it_in_the_prompt() -> None:
    """Model providers refuse a message between a call and its output."""
    hurry = ask("send_message", "call_3", target="a", message="Hurry.")
    lab = TeamLab(root=[spawn("a"), shell("r1"), hurry, say("Enough.")], root__a=[look("x"), say("a saw it")])
    first = await lab.begin()
    await lab.play()
    await lab.answer(first, x="a rock")
    await lab.play()
    assert kinds(lab.team.prompts("/root/a")[-1]) == ["user", "function_call", "function_call_output", "user"]


async def test_an_agent_that_was_interrupted_goes_on_without_its_output() -> None:
    """Its client answers later all the same, as it has to. The agent reads that before its next task, and does not go on for it."""
    interrupt, more = ask("interrupt_agent", "call_2", target="a"), ask("followup_task", "call_3", target="a", message="Go on.")
    again = ask("followup_task", "call_4", target="a", message="And now?")
    lab = TeamLab(
        root=[spawn("a"), shell("r1"), interrupt, more, wait(), say("Enough."), again, wait(), say("Done.")],
        root__a=[look("x"), say("a went on"), say("a read it")],
    )
    first = await lab.begin()
    await lab.play()
    second = await lab.answer(first, x="a rock")
    await lab.play()
    response = await lab.object_of(second)
    assert by_agent(response)["/root/a"] == ["agent_message", "message"]
    assert response["output"][-1]["content"][0]["text"] == "Done."
    before, after = lab.team.prompts("/root/a")[1:]
    assert kinds(before) == ["user", "function_call", "function_call_output", "user"]
    assert kinds(after) == [*kinds(before), "assistant", "user", "user"]
    assert after[: len(before)] == before
    assert "a rock" in text_of(after[-2])
