"""How the agents of a team stand still, go on, and what they cost."""

from collections import Counter

import pytest
from moorage.loop import paused
from moorage.state import LoopState
from moorage.store import keys

from tests.stack import assert_well_formed
from tests.unit.loop.lab import Turn, say, shell
from tests.unit.loop.teams import TeamLab, ask, spawn, wait


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
    await paused.resume(lab.runtime, standing.stored)
    await lab.play()
    response = await lab.object_of(stored)
    assert_well_formed(await lab.events(stored))
    assert response["status"] == "completed"
    assert (before, lab.sandboxes.begun) == (["a1", "a2"][: len(before)], ["a1", "a2"])


@pytest.mark.parametrize("died_at", range(70))
async def test_a_further_task_is_done_whenever_an_execution_is_lost(died_at: int) -> None:
    lab = asked_twice()
    lab.loses_executions = True
    stored = await lab.begin()
    lab.die_at(died_at)
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
