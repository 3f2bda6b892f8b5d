"""A budget is looked at before each step but the first: the response stops, stands still or answers once more."""

from typing import Any, SupportsIndex

import orjson
import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.loop.prompt import sent
from moorage.model.base import ModelRequest
from moorage.model.prices import Price
from moorage.state import LoopState, Next
from moorage.store.responses import StoredResponse
from moorage.wire.requests import parse_create

from tests.stack import assert_well_formed
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, Turn, first_state, say, shell, texts
from tests.unit.store.deaths import Death, at_each_death

STOPPED = ("incomplete", {"reason": "budget_reached"})


def rounds(count: int) -> list[Turn]:
    """A model that calls its shell so often (12 tokens each) before it is done."""
    return [shell(f"echo {number}", call_id=f"call_{number}") for number in range(count)] + [say("done")]


async def begun(served: Served, **budget: Any) -> StoredResponse:
    return await served.lab.background(parameters={"budget": budget})


async def run(lab: Lab, stored: StoredResponse, state: LoopState | None = None, *, seconds: float = 0) -> None:
    """As the state machine would, with so much time before each step."""
    state = state or first_state(stored)
    while state.next is not Next.DONE:
        if state.next is Next.TOOLS:
            await lab.tools(state)
        lab.now += seconds
        state = await lab.step(state)


def ended(response: dict[str, Any]) -> tuple[str, Any]:
    return response["status"], response["incomplete_details"]


@pytest.mark.parametrize(
    ("budget", "seconds", "commands"),
    [
        ({"input_tokens": 10}, 0, 1),
        ({"input_tokens": 11}, 0, 2),
        ({"output_tokens": 5}, 0, 3),
        ({"total_tokens": 24}, 0, 2),
        ({"tool_calls": 2}, 0, 2),
        ({"wall_seconds": 30}, 10, 2),
        ({"usd": 0.04}, 0, 2),
        ({"total_tokens": 1_000_000, "tool_calls": 3, "usd": 100.0}, 0, 3),
    ],
    ids=str,
)
async def test_each_limit_stops_the_loop_after_the_step_that_reached_it(budget: dict[str, Any], seconds: float, commands: int) -> None:
    served = Served.of(Lab(*rounds(5)))
    served.lab.price = Price(1_000.0, None, 5_000.0)  # A step is two cents.
    stored = await begun(served, **budget)
    await run(served.lab, stored, seconds=seconds)
    response = await served.lab.object_of(stored)
    assert (ended(response), len(served.lab.sandboxes.executed)) == (STOPPED, commands)
    assert response["usage"]["total_tokens"] == 12 * commands
    assert_well_formed(await served.lab.events(stored))


@pytest.mark.parametrize(
    ("dollars_per_million", "commands"),
    [(0.1, 1), (0.05, 2)],
    ids=["a step costs as much", "two steps cost as much"],
)
async def test_the_smallest_budget_is_counted_to_its_last_fraction(dollars_per_million: float, commands: int) -> None:
    served = Served.of(Lab(*rounds(5)))
    served.lab.price = Price(dollars_per_million, None, 0.0)  # A step has ten tokens of input.
    stored = await begun(served, usd=limits.BUDGET_USD_MIN)
    await run(served.lab, stored)
    response = await served.lab.object_of(stored)
    assert (ended(response), len(served.lab.sandboxes.executed)) == (STOPPED, commands)


@pytest.mark.parametrize("usd", [limits.BUDGET_USD_MIN * 0.999, 0, -limits.BUDGET_USD_MIN])
async def test_a_budget_below_the_smallest_is_refused(usd: float) -> None:
    body = {"model": "m", "input": "hi", "budget": {"usd": usd}}
    with pytest.raises(ApiError) as refused:
        parse_create(orjson.dumps(body))
    assert (refused.value.status, refused.value.param) == (400, "budget.usd")
    assert parse_create(orjson.dumps(body | {"budget": {"usd": limits.BUDGET_USD_MIN}})).budget == {"usd": 0.000_001}


async def test_a_response_that_stays_within_its_budget_ends_as_any_other() -> None:
    served = Served.of(Lab(*rounds(2)))
    stored = await begun(served, total_tokens=1_000, tool_calls=10, wall_seconds=600)
    await run(served.lab, stored)
    assert ended(await served.lab.object_of(stored)) == ("completed", None)


async def test_a_budget_costs_no_write() -> None:
    writes = []
    for parameters in ({}, {"budget": {"total_tokens": 1_000}}):
        lab = Lab(*rounds(2))
        stored = await lab.background(parameters=parameters)
        await run(lab, stored)
        writes.append(lab.table.writes)
    assert writes[0] == writes[1]


async def test_one_last_answer_is_asked_for_without_tools() -> None:
    served = Served.of(Lab(shell("one"), say("This is what I have.")))
    stored = await begun(served, tool_calls=1, on_limit="finish")
    await run(served.lab, stored)
    response = await served.lab.object_of(stored)
    assert (ended(response), texts(response["output"])) == (("completed", None), ["This is what I have."])
    assert [request.tool_choice for request in served.lab.model.requests] == ["auto", "none"]
    snapshot = await served.lab.runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id)
    told = [(await sent(served.lab.runtime, snapshot, f"step_{number}")).request for number in range(2)]
    assert told == served.lab.model.requests


async def test_a_model_that_goes_on_calling_in_its_last_answer_is_stopped_after_it() -> None:
    served = Served.of(Lab(*rounds(5)))
    stored = await begun(served, tool_calls=1, on_limit="finish")
    await run(served.lab, stored)
    response = await served.lab.object_of(stored)
    assert (ended(response), len(served.lab.sandboxes.executed), len(served.lab.model.requests)) == (STOPPED, 1, 2)
    assert_well_formed(await served.lab.events(stored))


async def test_it_stands_still_until_its_budget_is_raised() -> None:
    served = Served.of(Lab(*rounds(2)))
    stored = await begun(served, tool_calls=1, on_limit="pause")
    path = f"/responses/{stored.response_id}"
    await run(served.lab, stored)
    standing = (await served.get(path)).json()
    assert standing["waiting_for"] == (
        "Its budget is used up: tool_calls 1 of 1. POST /v1/responses/{id}/budget raises it, and it goes on."
    )
    assert (standing["status"], len(served.lab.model.requests)) == ("in_progress", 1)
    await served.post(f"{path}/resume")  # Not raised: it stands still again.
    await _run_latest(served, stored)
    assert len(served.lab.model.requests) == 1
    answer = await served.post(f"{path}/budget", {"tool_calls": 5, "on_limit": "pause"})
    assert answer.status_code == 200, answer.text
    await _run_latest(served, stored)
    assert ended(await served.lab.object_of(stored)) == ("completed", None)
    assert (await served.post(f"{path}/budget", {"tool_calls": 9})).status_code == 400


async def _run_latest(served: Served, stored: StoredResponse) -> None:
    """The execution that was started last."""
    name = list(served.lab.executions.started)[-1]
    await run(served.lab, stored, LoopState.from_json(served.lab.executions.started[name]))


class TwoRounds(list[Turn]):
    """A model that makes its second call when it reads the output of its first, however often it is asked."""

    def __init__(self, requests: list[ModelRequest]) -> None:
        self.requests = requests

    def pop(self, at: SupportsIndex = -1) -> Turn:
        made = sum(item["type"] == "function_call" for item in self.requests[-1].items)
        return [*rounds(2), say("done")][made]


@pytest.mark.parametrize("on_limit", ["stop", "finish"])
@at_each_death
async def test_whatever_write_a_process_dies_before_the_budget_is_overrun_by_no_step(death: Death, on_limit: str) -> None:
    lab = Lab()
    lab.model.turns = TwoRounds(lab.model.requests)
    stored = await lab.background(parameters={"budget": {"tool_calls": 2, "on_limit": on_limit}})
    await lab.run_with_deaths(stored, death)
    response = await lab.object_of(stored)
    assert ended(response) == (STOPPED if on_limit == "stop" else ("completed", None))
    assert len(lab.sandboxes.executed) == 2
    assert_well_formed(await lab.events(stored))


@pytest.mark.parametrize(
    ("budget", "param", "code"),
    [
        ({"usd": 1}, "budget.usd", "model_not_budgetable"),
        ({"usd": -1}, "budget.usd", None),
        ({"tool_calls": 0}, "budget.tool_calls", None),
        ({"on_limit": "shrug"}, "budget.on_limit", None),
        ({"euros": 5}, "budget.euros", None),
        ({"total_tokens": 5, "on_limit": "pause"}, "budget.on_limit", None),
    ],
)
async def test_a_budget_that_cannot_be_kept_is_refused_by_name(budget: dict[str, Any], param: str, code: str | None) -> None:
    served = Served.of(Lab(say("hello")))
    answer = await served.post("/responses", {"model": "m", "input": "hi", "budget": budget})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], code in (None, error["code"])) == (400, param, True), error


async def test_a_foreign_budget_cannot_be_raised() -> None:
    served = Served.of(Lab(say("done")))
    stored = await begun(served, tool_calls=1)
    assert (await served.post(f"/responses/{stored.response_id}/budget", {"tool_calls": 2}, by="key-b")).status_code == 404
