"""Whatever dies between a question, its decision and the call: the call runs once, or not without a word."""

from typing import Any

import pytest
from moorage import limits
from moorage.approvals.store import ApprovalDecision
from moorage.loop.recover import recover
from moorage.state import LoopState, Next
from moorage.store import keys

from tests.unit.api.served import Served
from tests.unit.loop.approvals import ASKS, PUSHES, approvals_of, begun, decided, ended, played, ran, waiting
from tests.unit.loop.lab import CONTAINER, Lab, first_state, say, shell
from tests.unit.loop.test_pause import run_all
from tests.unit.store.deaths import Death, Died, at_each_death


async def test_a_decider_that_dies_before_the_response_goes_on_is_made_up_for() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    there = await served.lab.runtime.stores.approvals.get("t", stored.response_id, approval["id"])
    assert there is not None
    await served.lab.runtime.stores.approvals.decide(there, ApprovalDecision(True, "a process that died"), int(served.lab.now))
    assert await recover(served.lab.runtime) == 1
    assert await played(served) == [f"{stored.response_id}-p1"]
    assert ((await ended(served, stored))["status"], ran(served)) == ("completed", ["call_1-0"])


@pytest.mark.parametrize("approve", [True, False])
@at_each_death
async def test_a_decider_may_die_before_any_write(death: Death, approve: bool) -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    (approval,) = await approvals_of(served, stored)
    served.lab.table.before_write = death
    assert (await decided(served, approval["id"], approve)).status_code == (500 if death.has_come else 200)
    served.lab.table.before_write = None
    served.lab.now += limits.RECOVERY_SECONDS + 1
    await recover(served.lab.runtime)
    if await waiting(served):
        assert (await played(served), ran(served)) == ([], []), "nothing was decided"
        await decided(served, approval["id"], approve)
    await played(served)
    assert (await ended(served, stored))["status"] == "completed"
    assert ran(served) == (["call_1-0"] if approve else [])


@pytest.mark.parametrize("approve", [True, False])
@at_each_death
async def test_steps_may_die_before_any_write(death: Death, approve: bool) -> None:
    served = Served.of(Lab(shell("git push"), say("done")))
    lab = served.lab
    stored = await lab.background(tools=[PUSHES])
    lab.table.before_write = death

    async def executed(name: str) -> None:
        state = LoopState.from_json(lab.executions.started[name])
        while state.next is not Next.DONE:
            try:
                if state.next is Next.TOOLS:
                    await lab.tools(state)
                state = await lab.step(state)
            except Died:
                lab.table.before_write = None
                has_called = any(event.get("item", {}).get("status") == "completed" for event in await lab.events(stored))
                lab.model.turns = [say("done")] if has_called else [shell("git push"), say("done")]
        lab.executions.states[name] = "SUCCEEDED"

    await executed(stored.response_id)
    (approval,) = await approvals_of(served, stored)
    assert ran(served) == []
    hook, lab.table.before_write = lab.table.before_write, None
    await decided(served, approval["id"], approve)
    lab.table.before_write = hook
    await executed(f"{stored.response_id}-p1")
    lab.table.before_write = None
    response = await ended(served, stored)
    assert (response["status"], len(ran(served))) == ("completed", 1 if approve else 0)


async def test_a_decision_that_meets_a_step_about_to_stand_still_is_not_missed() -> None:
    served = Served.of(Lab(shell("rm x"), say("done")))
    stored = await served.lab.background(tools=[ASKS])

    async def decide_first(record: Any) -> None:
        if "awaits" not in record:
            return
        served.lab.table.before_write = None
        (approval,) = await approvals_of(served, stored)
        await decided(served, approval["id"], True)

    served.lab.table.before_write = decide_first
    await run_all(served.lab, stored.response_id)
    assert list(served.lab.executions.started) == [stored.response_id], "it never stood still"
    assert ((await ended(served, stored))["status"], ran(served)) == ("completed", ["call_1-0"])


async def test_a_step_that_is_run_again_finds_it_standing_still() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    since = (await served.lab.responses.load("t", stored.response_id)).parked_at
    served.lab.now += 60
    assert (await served.lab.step(first_state(stored))).next is Next.DONE
    assert (await served.lab.responses.load("t", stored.response_id)).parked_at == since
    assert len(await approvals_of(served, stored)) == 1


async def test_whoever_sends_a_call_it_does_not_run_without_a_word() -> None:
    served, stored = await begun(shell("rm x"), say("done"))
    await served.lab.tools(LoopState(stored.response_id, "t", CONTAINER, step=0, next=Next.TOOLS, calls=("call_1",)))
    assert (ran(served), keys.attempt(0, "call_1") in {sk for _, sk in served.lab.table.records}) == ([], False)
