"""What a response pays for its sandbox: the time from its first call there to its end, on a clock that is only counted."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from moorage.loop.finish import end_from_outside
from moorage.model.prices import Price
from moorage.settings import Settings
from moorage.state import LoopState, Next
from moorage.store.budgets import Scope
from moorage.store.responses import StoredResponse
from moorage.store.sandbox_usage import SandboxPrice
from moorage.store.table import Record

from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, first_state, say, shell
from tests.unit.loop.test_shared_budgets import begun, served_with

SECOND = 0.001
"""Dollars of a second of the lab's sandbox: half a vCPU and a GiB at $3.60 and $1.80 an hour."""
STEP = 0.02
"""Of the tokens of a step."""


PRICE = Price(1_000.0, None, 5_000.0, source="a test")


def lab_with_prices(commands: int, *, price: Price | None = PRICE) -> Lab:
    lab = Lab(*(shell(f"echo {number}", call_id=f"call_{number}") for number in range(commands)), say("done"))
    lab.runtime.stores.sandbox_usage.price = SandboxPrice(3.6, 1.8, "a list")
    lab.price = price
    return lab


async def run(lab: Lab, stored: StoredResponse, state: LoopState | None = None) -> None:
    """Each model takes 100 s, and each command 10."""
    state = state or first_state(stored)
    while state.next is not Next.DONE:
        if state.next is Next.TOOLS:
            lab.now += 10
            await lab.tools(state)
        lab.now += 100
        state = await lab.step(state)


async def cost_of(served: Served, stored: StoredResponse) -> Any:
    answer = await served.get(f"/responses/{stored.response_id}", include="usage.cost")
    return answer.json()["usage"].get("cost")


async def test_the_time_from_the_first_command_to_the_end_is_paid_for() -> None:
    served = Served.of(lab_with_prices(2))
    stored = await served.lab.background()
    await run(served.lab, stored)
    # 10 s of each command and 100 of each model after it; nothing of the 100 before the first.
    sandbox = {"seconds": 220, "usd": pytest.approx(220 * SECOND), "source": "a list"}
    cost = await cost_of(served, stored)
    assert cost == {"usd": pytest.approx(3 * STEP + 220 * SECOND), "source": "a test", "sandbox": sandbox}
    assert served.lab.sandboxes.paid == {stored.response_id: 220}
    (row,) = (await served.get("/responses")).json()["data"]
    (day,) = (await served.get("/usage")).json()["data"]
    assert (row["cost_usd"], day["cost_usd"]) == (cost["usd"], cost["usd"])


async def test_one_without_a_command_and_a_machine_that_costs_nothing_pay_nothing() -> None:
    served = Served.of(lab_with_prices(0))
    stored = await served.lab.background()
    await run(served.lab, stored)
    assert await cost_of(served, stored) == {"usd": STEP, "source": "a test"}
    own = Served.of(lab_with_prices(1))
    own.lab.runtime.stores.sandbox_usage.price = None
    stored = await own.lab.background()
    await run(own.lab, stored)
    assert await cost_of(own, stored) == {"usd": 2 * STEP, "source": "a test"}
    assert served.lab.sandboxes.paid | own.lab.sandboxes.paid == {}


async def test_where_the_models_price_is_unknown_the_tenant_pays_for_all_of_it() -> None:
    """A sum without the tokens would be told for the whole."""
    served = Served.of(lab_with_prices(1, price=None))
    stored = await served.lab.background()
    await run(served.lab, stored)
    assert (await cost_of(served, stored), served.lab.sandboxes.paid) == (None, {})


async def test_a_pause_is_not_paid_for() -> None:
    served = Served.of(lab_with_prices(2))
    stored = await served.lab.background()
    state = await served.lab.step(first_state(stored))
    await served.lab.tools(state)
    await served.post(f"/responses/{stored.response_id}/pause")
    assert (await served.lab.step(state)).next is Next.DONE
    served.lab.executions.states[stored.response_id] = "SUCCEEDED"
    served.lab.now += 5_000
    before = set(served.lab.executions.started)
    await served.post(f"/responses/{stored.response_id}/resume")
    (name,) = set(served.lab.executions.started) - before
    await run(served.lab, stored, LoopState.from_json(served.lab.executions.started[name]))
    assert (await cost_of(served, stored))["sandbox"]["seconds"] == served.lab.now - stored.created_at - 5_000


async def test_a_cancelled_response_pays_until_then() -> None:
    served = Served.of(lab_with_prices(2))
    stored = await served.lab.background()
    state = await served.lab.step(first_state(stored))
    served.lab.now += 30
    assert (await served.post(f"/responses/{stored.response_id}/cancel")).status_code == 200
    await served.lab.step(state)
    assert (await cost_of(served, stored))["sandbox"] == {"seconds": 30, "usd": pytest.approx(30 * SECOND), "source": "a list"}


class Died(Exception):
    """The process is gone."""


@pytest.mark.parametrize("moment", ["before it has paid", "before the end is written"])
async def test_a_process_that_dies_while_it_ends_a_response_leaves_it_paid_once(moment: str) -> None:
    served = Served.of(lab_with_prices(1))
    lab = served.lab
    stored = await lab.background()
    state = await lab.step(first_state(stored))
    await lab.tools(state)
    lab.now += 100
    lab.model.turns.append(say("done"))  # the answer is asked for once more
    lab.sandboxes.before_pay = die if moment == "before it has paid" else partial(dies_at_the_next_write, lab)
    with pytest.raises(Died):
        await lab.step(state)
    lab.table.before_write = None
    lab.now += 60
    assert (await lab.step(state)).next is Next.DONE
    assert (await cost_of(served, stored))["sandbox"]["seconds"] == 160
    assert lab.sandboxes.paid == {stored.response_id: 160}


async def test_a_process_that_dies_while_it_cancels_a_response_leaves_it_paid_once() -> None:
    served = Served.of(lab_with_prices(2))
    lab = served.lab
    stored = await lab.background()
    await lab.step(first_state(stored))
    lab.now += 30
    lab.sandboxes.before_pay = die
    with pytest.raises(Died):
        await end_from_outside(lab.runtime, stored, status="cancelled")
    await end_from_outside(lab.runtime, stored, status="cancelled")
    assert (await cost_of(served, stored))["sandbox"]["seconds"] == 30
    assert lab.sandboxes.paid == {stored.response_id: 30}


def die() -> None:
    raise Died


def dies_at_the_next_write(lab: Lab) -> None:
    async def before_write(_: Record) -> None:
        raise Died

    lab.table.before_write = before_write


async def test_a_budget_in_dollars_stops_the_run_for_the_time_of_its_sandbox() -> None:
    served = Served.of(lab_with_prices(9))
    stored = await served.lab.background(parameters={"budget": {"usd": 4 * STEP + 220 * SECOND}})
    await run(served.lab, stored)
    response = await served.lab.object_of(stored)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "budget_reached"})
    # Before the third step $0.04 and 220 s are less than the $0.30; before the fourth $0.06 and 330 s are more.
    assert len(served.lab.sandboxes.executed) == 3
    assert (await cost_of(served, stored))["sandbox"]["seconds"] == 330


async def test_budgets_of_key_and_tenant_count_it_too() -> None:
    served = await served_with(lab_with_prices(1), key={"usd": 10}, tenant={"usd": 10})
    stored = await begun(served, "key", "tenant")
    await run(served.lab, stored)
    for scope in map(Scope.of, stored.draws_on):
        standing = await served.lab.runtime.stores.budgets.standing("t", scope)
        assert standing is not None
        assert standing.used["usd"] == pytest.approx(2 * STEP + 110 * SECOND)
        assert standing.held["usd"] == 0


async def test_as_of_an_event_it_has_cost_what_it_had_by_then() -> None:
    served = Served.of(lab_with_prices(2))
    stored = await served.lab.background()
    await run(served.lab, stored)
    events = await served.lab.events(stored)
    last = events[-1]["sequence_number"]
    then = (await served.get(f"/responses/{stored.response_id}", at=last)).json()
    assert then["as_of"]["cost_usd"] == (await cost_of(served, stored))["usd"]
    assert (await served.get(f"/responses/{stored.response_id}", at=0)).json()["as_of"]["cost_usd"] == 0


def test_a_browser_of_a_task_is_paid_for_by_the_memory_that_it_has() -> None:
    settings = Settings("t", "b", sandbox_price=(3.6, 1.8), sandbox_browser=True, fargate={"cluster": "moorage"})
    with_desk, without = (SandboxPrice.of(each) for each in (settings, replace(settings, fargate={})))
    assert with_desk is not None
    assert without is not None
    more = [with_desk.nanodollars(tier) - without.nanodollars(tier) for tier in ("1g", "64g")]
    assert more == [2 * 500_000, 8 * 500_000]
