"""How the agents of a team stand still, go on, and what they cost."""

from collections import Counter

import pytest
from moorage.loop import paused
from moorage.loop.recover import recover
from moorage.model.base import MessageStarted, StreamFinished, TextDelta, UsageReported
from moorage.state import LoopState
from moorage.store import keys
from moorage.store.responses import StoredResponse
from moorage.store.table import Record

from tests.stack import assert_well_formed
from tests.unit.loop.lab import Turn, say, shell
from tests.unit.loop.teams import TeamLab, ask, by_agent, look, spawn, text_of, wait
from tests.unit.store.deaths import Death, at_each_death


def asked_twice() -> TeamLab:
    return TeamLab(
        root=[spawn("a"), wait(), ask("followup_task", target="a", message="Once more."), wait(), say("Done.")],
        root__a=[shell("a1"), say("one"), shell("a2"), say("two")],
    )


@pytest.mark.parametrize("paused_at", range(7))
async def test_a_team_that_is_paused_stands_still_and_goes_on_where_it_was(paused_at: int) -> None:
    lab = asked_twice()
    stored = await lab.begin()
    for _ in range(paused_at):
        for name in [name for name, state in lab.executions.states.items() if state == "RUNNING"]:
            await lab.task(name)
    await lab.responses.request_pause(stored)
    await lab.play()
    before = list(lab.sandboxes.begun)
    standing = await lab.responses.snapshot(stored.tenant_id, stored.response_id)
    assert (standing.is_final, bool(standing.stored.parked_at)) == (False, True)
    lab.now += 60
    await paused.resume(lab.runtime.stores, lab.runtime.clock, standing.stored)
    await lab.play()
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert response["status"] == "completed"
    assert (before, lab.sandboxes.begun) == (["a1", "a2"][: len(before)], ["a1", "a2"])


async def test_a_pause_does_not_count_as_time_of_a_wait() -> None:
    lab = TeamLab(root=[spawn("a"), wait(timeout_ms=60_000), say("Done.")], root__a=[shell("a1"), say("a is done")])
    stored = await lab.begin()
    while lab.executions.states[stored.response_id] == "RUNNING":
        await lab.task(stored.response_id)
    lab.now += 59
    await lab.responses.request_pause(stored)
    await lab.play()
    lab.now += 3600
    await paused.resume(lab.runtime.stores, lab.runtime.clock, await lab.responses.load(stored.tenant_id, stored.response_id))
    await recover(lab.runtime)
    assert (await lab.runtime.stores.lanes.get(stored, 0)).status == "waiting"
    lab.now += 1
    await recover(lab.runtime)
    assert (await lab.runtime.stores.lanes.get(stored, 0)).status == "running"
    await lab.play()
    assert (await lab.object_of(stored))["status"] == "completed"


@at_each_death
async def test_a_further_task_is_done_whenever_an_execution_is_lost(death: Death) -> None:
    lab = asked_twice()
    lab.loses_executions = True
    stored = await lab.begin()
    lab.table.before_write = death
    await lab.play()
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert response["status"] == "completed"
    assert lab.sandboxes.begun == ["a1", "a2"]
    told = [item for item in response["output"] if item["type"] == "agent_message" and item["recipient"] == "/root"]
    assert len(told) == 2
    assert told[-1]["content"][0]["text"].endswith("Payload:\ntwo")


class CountedLab(TeamLab):
    """Counts the tasks of the state machine and the writes of the steps, by agent."""

    def __init__(self, **scripts: list[Turn]) -> None:
        super().__init__(**scripts)
        self.tasks: dict[int, Counter[str]] = {}
        self.lane = 0

    async def task(self, name: str) -> None:
        state = self.states.get(name) or LoopState.from_json(self.executions.started[name])
        self.lane = keys.lane_of(state.step)
        counted = self.tasks.setdefault(self.lane, Counter())
        counted["tool"] += len(state.calls)
        counted["model"] += 1
        before = self.table.writes
        await super().task(name)
        counted["writes"] += self.table.writes - before


async def test_an_agent_takes_the_tasks_of_a_response_and_two_writes_more() -> None:
    """It ends in its own record, and tells its parent. An agent that waits has one task more: the one that finds nothing to read."""
    work = [shell("a1"), shell("a2"), say("a is done")]
    alone, lab = CountedLab(root=work), CountedLab(root=[spawn("a"), wait(), say("Done.")], root__a=work)
    for each in (alone, lab):
        await each.begin()
        await each.play()
    assert alone.tasks == {0: Counter(model=3, tool=2, writes=20)}
    assert lab.tasks == {0: Counter(model=4, writes=16), 1: Counter(model=3, tool=2, writes=22)}


CUT: Turn = [MessageStarted(), TextDelta("I was"), UsageReported(10, 2), StreamFinished("max_output_tokens")]
INTERRUPT = ask("interrupt_agent", "call_2", target="a")


async def as_it_asks_its_client(lab: TeamLab, root_tasks: int) -> StoredResponse:
    """The call of ``/root/a`` is in the log, but its step has not ended, when ``/root`` takes its next tasks."""
    stored = await lab.begin()
    await lab.task(stored.response_id)

    async def before_write(record: Record) -> None:
        if record["SK"].startswith(keys.LANE_ATTEMPT_PREFIX) and "function_call" in str(await lab.events(stored)):
            lab.table.before_write = None
            for _ in range(root_tasks):
                await lab.task(stored.response_id)

    lab.table.before_write = before_write
    await lab.task(f"{stored.response_id}-l1")
    await lab.play()
    return stored


async def test_an_interrupted_agent_rests_in_the_next_response_too() -> None:
    """Its response ended before it could end its turn."""
    lab = TeamLab(root=[spawn("a"), INTERRUPT, CUT, say("Next.")], root__a=[look("x"), say("never")])
    first = await as_it_asks_its_client(lab, root_tasks=2)
    assert (await lab.object_of(first))["status"] == "incomplete"
    second = await lab.answer(first, x="a rock")
    await lab.play()
    assert by_agent(await lab.object_of(second)) == {"/root": ["message"]}
    assert len(lab.team.prompts("/root/a")) == 1


async def test_an_agent_gets_its_output_though_its_parent_hears_late_of_an_end() -> None:
    """It has a further task, and asks its client, before its parent reads that the turn before was interrupted."""
    further = ask("followup_task", "call_3", target="a", message="Look once more.")
    lab = TeamLab(
        root=[spawn("a"), INTERRUPT, both := [*further[:-2], *shell("r1", call_id="call_4")], both, wait(), say("Done.")],
        root__a=[shell("a1"), look("y"), say("a is done")],
    )
    first = await lab.begin()
    child = f"{first.response_id}-l1"
    await lab.task(first.response_id)
    await lab.task(child)
    await lab.task(first.response_id)  # Interrupts it.
    lab.team.before_answer = lambda: lab.task(child)  # It ends its turn while its parent is asked.
    await lab.task(first.response_id)
    while lab.executions.states[f"{child}-1"] == "RUNNING":
        await lab.task(f"{child}-1")
    await lab.play()
    assert (await lab.object_of(first))["status"] == "completed"
    second = await lab.answer(first, y="a fish")
    await lab.play()
    assert by_agent(await lab.object_of(second))["/root/a"] == ["message"]
    assert (await lab.object_of(second))["output"][-1]["content"][0]["text"] == "Done."


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_task_that_follows_an_interruption_is_done(at_once: bool) -> None:
    """The turn of the agent has not ended yet when the task comes: it goes on with that."""
    further = ask("followup_task", "call_3", target="a", message="Do this.")
    leads = [[*INTERRUPT[:-2], *further]] * 2 if at_once else [INTERRUPT, further]  # A turn with two calls counts as two.
    lab = TeamLab(root=[spawn("a"), *leads, wait(), say("Done.")], root__a=[shell("a1"), say("a is done")])
    stored = await lab.begin()
    await lab.task(stored.response_id)
    await lab.task(f"{stored.response_id}-l1")
    while lab.executions.states[stored.response_id] == "RUNNING":
        await lab.task(stored.response_id)
    await lab.play()
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    assert any("Do this." in text_of(item) for item in lab.team.prompts("/root/a")[-1])
    told = [text_of(item).partition("Payload:\n")[2] for item in response["output"] if item.get("recipient") == "/root"]
    assert told == ["a is done"]


async def test_a_task_that_comes_while_an_interrupted_turn_ends_is_done() -> None:
    further = ask("followup_task", "call_3", target="a", message="Do this.")
    lab = TeamLab(root=[spawn("a"), INTERRUPT, further, wait(), say("Done.")], root__a=[shell("a1"), say("a is done")])
    stored = await lab.begin()
    for name in (stored.response_id, f"{stored.response_id}-l1", stored.response_id):
        await lab.task(name)

    async def before_write(record: Record) -> None:
        if record.get("kind") == "FINAL_ANSWER":
            lab.table.before_write = None
            await lab.task(stored.response_id)

    lab.table.before_write = before_write
    await lab.task(f"{stored.response_id}-l1")
    await lab.play()
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    assert any("Do this." in text_of(item) for item in lab.team.prompts("/root/a")[-1])
    told = [text_of(item).partition("Payload:\n")[2] for item in response["output"] if item.get("recipient") == "/root"]
    assert told == ["This agent ended its turn without an answer: interrupted.", "a is done"]


@at_each_death
async def test_a_further_task_is_done_once_wherever_a_process_dies(death: Death) -> None:
    """The step that gave it may run again when the task has been done."""
    lab = TeamLab(
        root=[spawn("a"), wait(), ask("followup_task", "call_2", target="a", message="More."), wait(), say("Done.")],
        root__a=[say("One."), say("Two."), say("Three.")],
    )
    lab.loses_executions = True
    lab.table.before_write = death
    stored = await lab.begin()
    await lab.play(newest_first=True)
    response = await lab.object_of(stored)
    assert response["status"] == "completed"
    told = [text_of(item) for item in response["output"] if item["type"] == "agent_message" and item["author"] == "/root/a"]
    assert len([text for text in told if "FINAL_ANSWER" in text]) == 2
