"""Budgets of keys, of tenants and of trees of forks: one counter for all that draw from it, before each step."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from moorage import limits
from moorage.errors import Superseded
from moorage.loop.budget import draw_first, draws_of
from moorage.loop.stop import stop
from moorage.model.prices import Price
from moorage.state import LoopState, Next
from moorage.store import keys
from moorage.store.budgets import MEASURES, BudgetReached, Budgets, Scope
from moorage.store.responses import StoredResponse
from moorage.store.table import Record

from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.lab import CONTAINER, SHELL_TOOL, Lab, Turn, first_state, say, shell, texts
from tests.unit.loop.test_dice import together
from tests.unit.store.deaths import Death, at_each_death
from tests.unit.store.memory import MemoryTable

KEY, TENANT = Scope("key", KEY_A), Scope("tenant", "t")
HERE = {"type": "shell", "environment": {"type": "container_reference", "container_id": CONTAINER}}
STEP = 12
"""Tokens of each of the lab's turns: 10 in, 2 out."""


def rounds(count: int) -> list[Turn]:
    return [shell(f"echo {number}", call_id=f"call_{number}") for number in range(count)] + [say("done")]


async def served_with(lab: Lab, **budgets: dict[str, Any]) -> Served:
    """With budgets of the first key (``key``), and of its tenant (``tenant``)."""
    served = Served.of(lab)
    for kind, budget in budgets.items():
        await lab.runtime.stores.budgets.put("t", {"key": KEY, "tenant": TENANT}[kind], budget)
    cast("Any", lab.runtime.identity.api_keys).budgets["key-a"] = tuple(budgets)
    return served


async def used(served: Served, scope: Scope, name: str = "total_tokens") -> tuple[float, float]:
    """What was used, and what is held."""
    standing = await served.lab.runtime.stores.budgets.standing("t", scope)
    assert standing is not None
    return standing.used[name], standing.held[name]


async def begun(served: Served, *kinds: str, **changes: Any) -> StoredResponse:
    """A response in the background that draws from these, as one whose request came with the key."""
    stored = served.lab.stored(draws_on=draws_of("t", KEY_A, kinds), **changes)
    await served.lab.responses.create(stored)
    await draw_first(served.lab.runtime, stored, stored.input_items)
    return stored


async def run(lab: Lab, stored: StoredResponse, state: LoopState | None = None) -> LoopState:
    state = state or first_state(stored)
    while state.next is not Next.DONE:
        if state.next is Next.TOOLS:
            await lab.tools(state)
        state = await lab.step(state)
    return state


async def asked(served: Served, **body: Any) -> Any:
    return await served.post("/responses", {"model": "m", "input": "hi", **body})


# --- what it costs, and what it counts ---


@pytest.mark.parametrize(
    ("name", "limit", "used", "held", "said"),
    [
        ("total_tokens", 12_345_678, 12_345_679, 1_500_000, "12345679 of 12345678 (1500000 more is held by steps that run)"),
        ("usd", 0.00002, 0.000021, 0.0, "0.000021 of 0.00002"),
    ],
)
def test_a_refusal_tells_all_digits(name: str, limit: float, used: float, held: float, said: str) -> None:
    refusal = BudgetReached(Scope("key", "key_1"), name, limit, used, held, "stop").message
    assert refusal == f"The budget of the API key 'key_1' is used up: {name} {said}."


async def test_without_a_budget_nothing_is_read_or_written_for_one() -> None:
    seen = []
    for kinds in ((), ("key",)):
        served = await served_with(Lab(say("hello")), **{kind: {"total_tokens": 10_000} for kind in kinds})
        before = served.lab.table.reads, served.lab.table.writes
        assert (await asked(served)).status_code == 200
        seen.append((served.lab.table.reads - before[0], served.lab.table.writes - before[1]))
    (plain_reads, plain_writes), (reads, writes) = seen
    assert (plain_reads, plain_writes) == (0, 2)
    assert writes - plain_writes == 2, "one before the step, one at the end"
    assert reads > plain_reads


async def test_what_a_response_used_is_what_counts_at_its_end() -> None:
    served = await served_with(Lab(say("a"), *rounds(2)), key={"total_tokens": 10_000}, tenant={"usd": 100.0})
    served.lab.price = Price(1_000.0, None, 5_000.0, {"shell_call": 0.5})
    assert (await asked(served)).status_code == 200
    assert await used(served, KEY) == (STEP, 0)
    stored = await begun(served, "key", "tenant")
    await run(served.lab, stored)
    assert await used(served, KEY) == (4 * STEP, 0)
    assert await used(served, KEY, "tool_calls") == (2, 0)
    assert await used(served, TENANT, "usd") == (1.08, 0)


async def test_a_step_holds_what_it_may_take_until_the_next_one_knows_better() -> None:
    served = await served_with(Lab(*rounds(2)), key={"total_tokens": 10_000})
    stored = await begun(served, "key")
    state = await served.lab.step(first_state(stored))
    await served.lab.tools(state)
    seen = []

    async def look() -> None:
        seen.append(await used(served, KEY))

    served.lab.model.before_answer = look
    await served.lab.step(state)
    assert seen == [(STEP, STEP)]


async def test_what_a_foreground_request_may_take_is_held_by_estimate() -> None:
    served = await served_with(Lab(say("hello")), key={"total_tokens": 10_000})
    seen = []

    async def look() -> None:
        seen.append(await used(served, KEY))

    served.lab.model.before_answer = look
    await asked(served, max_output_tokens=200)
    ((already, held),) = seen
    assert already == 0
    assert 200 < held < 300


# --- the limit ---


async def test_a_request_beyond_the_limit_is_refused_and_says_which_budget_and_what_to_do() -> None:
    served = await served_with(Lab(say("a")), key={"total_tokens": 10}, tenant={"total_tokens": 1_000})
    assert (await asked(served)).status_code == 200
    for path, body in (
        ("/responses", {"model": "m", "input": "hi"}),
        ("/responses", {"model": "m", "input": "hi", "background": True}),
        ("/responses", {"model": "m", "input": "hi", "store": False}),
        ("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
        ("/responses/compact", {"model": "m", "input": "hi"}),
    ):
        answer = await served.post(path, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["code"]) == (429, "insufficient_quota", "budget_reached"), path
        assert error["message"] == (
            f"The budget of the API key '{KEY_A}' is used up: total_tokens 12 of 10. The operator can raise it ('moorage keys "
            "budget'); a response that stands still for it goes on when it is resumed."
        )
        assert answer.headers["x-should-retry"] == "false"
    assert await used(served, TENANT) == (STEP, 0), "what was refused holds nothing anywhere"


@pytest.mark.parametrize(
    ("on_limit", "ends"),
    [("stop", ("incomplete", {"reason": "budget_reached"}, [])), ("finish", ("completed", None, ["done"]))],
)
async def test_a_response_that_runs_does_what_the_budget_says(on_limit: str, ends: tuple[Any, ...]) -> None:
    served = await served_with(Lab(shell("echo 0"), say("done")), tenant={"total_tokens": 5, "on_limit": on_limit})
    stored = await begun(served, "tenant")
    await run(served.lab, stored)
    response = await served.lab.object_of(stored)
    assert (response["status"], response["incomplete_details"], texts(response["output"])) == ends
    assert await used(served, TENANT) == (response["usage"]["total_tokens"], 0)


async def test_one_that_stands_still_for_it_goes_on_when_the_operator_has_raised_it() -> None:
    served = await served_with(Lab(shell("echo 0"), say("done")), tenant={"total_tokens": 5, "on_limit": "pause"})
    stored = await begun(served, "tenant")
    await run(served.lab, stored)
    path = f"/responses/{stored.response_id}"
    still = (await served.get(path)).json()
    assert (still["status"], "tenant 't' is used up: total_tokens 12 of 5" in still["waiting_for"]) == ("in_progress", True)
    assert await used(served, TENANT) == (STEP, 0)
    await served.lab.runtime.stores.budgets.put("t", TENANT, {"total_tokens": 100})
    await served.post(f"{path}/resume")
    name = next(name for name in served.lab.executions.started if name.endswith("-p1"))
    await run(served.lab, stored, LoopState.from_json(served.lab.executions.started[name]))
    assert (await served.lab.object_of(stored))["status"] == "completed"


async def test_dollars_of_a_model_without_a_price_are_refused() -> None:
    served = await served_with(Lab(say("a")), tenant={"usd": 1})
    answer = await asked(served)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "model_not_budgetable")
    assert "the tenant 't' has a budget in dollars" in answer.json()["error"]["message"]


async def test_a_refused_request_holds_no_reservation() -> None:
    served = await served_with(Lab(say("a")), key={"total_tokens": 1_000})
    gone = {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_gone"}}
    assert (await asked(served, tools=[gone])).status_code == 404
    assert await used(served, KEY) == (0, 0)
    await served.lab.runtime.stores.budgets.put("t", KEY, {"total_tokens": 0})
    # The lab's containers cannot be reserved: whoever got there would be answered with a 500.
    assert (await asked(served, tools=[SHELL_TOOL])).status_code == 429


async def test_the_other_tenant_pays_for_itself() -> None:
    served = await served_with(Lab(say("a"), say("b")), tenant={"total_tokens": 1})
    await asked(served)
    assert (await asked(served)).status_code == 429
    assert (await served.post("/responses", {"model": "m", "input": "hi"}, by="key-b")).status_code == 200


# --- trees ---


async def test_forks_draw_from_the_budget_of_their_root() -> None:
    served = Served.of(Lab(say("root"), say("first"), say("second")))
    root = (await asked(served, budget={"total_tokens": 30, "scope": "tree"})).json()
    first = (await served.post(f"/responses/{root['id']}/fork", {"input": "a"})).json()
    second = (await served.post(f"/responses/{first['id']}/fork", {"input": "b"})).json()
    assert (first["status"], second["status"]) == ("completed", "completed")
    refused = await served.post(f"/responses/{second['id']}/fork", {"input": "c"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_reached")
    assert f"POST /v1/responses/{root['id']}/budget raises it" in refused.json()["error"]["message"]
    assert await used(served, Scope("tree", root["id"])) == (3 * STEP, 0)


async def test_a_tree_is_raised_at_its_root_and_a_budget_of_ones_own_stays_that() -> None:
    served = Served.of(Lab(*rounds(1)))
    budget = {"total_tokens": 5, "on_limit": "pause", "scope": "tree"}
    asked_for = (await asked(served, budget=budget, background=True, tools=[HERE])).json()
    stored = await served.lab.responses.load("t", asked_for["id"])
    await run(served.lab, stored)
    await served.post(f"/responses/{stored.response_id}/budget", {"total_tokens": 500})
    name = next(name for name in served.lab.executions.started if name.endswith("-p1"))
    await run(served.lab, stored, LoopState.from_json(served.lab.executions.started[name]))
    assert (await served.lab.object_of(stored))["status"] == "completed"
    own = await served.lab.background(parameters={"budget": {"total_tokens": 5}})
    refused = await served.post(f"/responses/{own.response_id}/budget", {"total_tokens": 5, "scope": "tree"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "budget.scope")


# --- ends of every kind ---


async def test_a_cancelled_response_counts_with_what_its_finished_steps_have_used() -> None:
    served = await served_with(Lab(*rounds(2)), key={"total_tokens": 1_000})
    stored = await begun(served, "key")
    state = await served.lab.step(first_state(stored))
    await served.lab.tools(state)
    await served.lab.step(state)
    await stop(served.lab.runtime, await served.lab.responses.snapshot("t", stored.response_id))
    response = await served.lab.object_of(stored)
    assert (response["status"], response["usage"]["total_tokens"]) == ("cancelled", 2 * STEP)
    assert await used(served, KEY) == (2 * STEP, 0)


async def test_a_response_that_is_asked_for_twice_holds_once() -> None:
    served = await served_with(Lab(say("a")), key={"total_tokens": 1_000})
    for _ in range(2):
        answer = await served.ask("POST", "/responses", headers={"idempotency-key": "1"}, json={"model": "m", "input": "hi"})
        assert answer.status_code == 200
    assert await used(served, KEY) == (STEP, 0)


@at_each_death
async def test_wherever_a_process_dies_what_was_used_is_counted_and_nothing_stays_held(death: Death) -> None:
    turns = [turn for number in range(12) for turn in (shell("a", call_id=f"call_{number}"),)]
    served = await served_with(Lab(*turns[:2], *[say("done")] * 3), key={"total_tokens": 1_000_000})
    stored = await begun(served, "key")
    await served.lab.run_with_deaths(stored, death)
    response = await served.lab.object_of(stored)
    counted, held = await used(served, KEY)
    asked_for = len(served.lab.model.requests)
    assert response["usage"]["total_tokens"] <= counted <= STEP * asked_for
    assert held == 0


async def test_what_a_dead_process_held_is_free_again_after_a_time() -> None:
    served = await served_with(Lab(say("a")), key={"total_tokens": 100})
    assert await served.lab.runtime.stores.budgets.begin("t", KEY, "resp_dead", {}, {"total_tokens": 100}) is None
    assert (await asked(served)).status_code == 429
    served.lab.now += limits.BUDGET_HOLD_SECONDS + 1
    assert (await asked(served)).status_code == 200
    assert await used(served, KEY) == (STEP, 0)
    served.lab.now += limits.BUDGET_HOLD_SECONDS + limits.RESPONSE_SECONDS_MAX + 1
    await served.lab.runtime.stores.budgets.put("t", KEY, {"total_tokens": 1})
    assert (await asked(served)).status_code == 429
    assert not [name for name in served.lab.table.records[keys.budgets("t"), str(KEY)] if "resp_dead" in name]


async def test_a_first_step_that_takes_longer_than_its_hold_counts_at_its_end() -> None:
    """Its provider is away for an hour, and others take what it has held; it has used nothing yet."""
    served = await served_with(Lab(say("late"), say("quick")), key={"total_tokens": 60})
    late = await begun(served, "key", parameters={"max_output_tokens": 20})
    served.lab.now += limits.BUDGET_HOLD_SECONDS + 1
    await served.lab.runtime.stores.budgets.put("t", KEY, {"total_tokens": 1})
    assert await served.lab.runtime.stores.budgets.begin("t", KEY, "resp_other", {}, {"total_tokens": 30}) is None
    await served.lab.runtime.stores.budgets.end("t", KEY, "resp_other", {"total_tokens": 5})
    await run(served.lab, late)
    assert await used(served, KEY) == (STEP + 5, 0)


async def test_what_runs_long_is_counted_once_though_its_hold_was_given_back() -> None:
    budgets = Budgets(table := MemoryTable(), lambda: now)
    now = 0.0
    await budgets.put("t", KEY, {"total_tokens": 100})
    assert await budgets.begin("t", KEY, "resp_1", {"total_tokens": 30}, {"total_tokens": 70}) is None
    assert await budgets.begin("t", KEY, "resp_1", {"total_tokens": 40}, {"total_tokens": 70}) is None
    now = limits.BUDGET_HOLD_SECONDS + 1
    assert await budgets.begin("t", KEY, "resp_2", {}, {"total_tokens": 10}) is None
    await budgets.end("t", KEY, "resp_1", {"total_tokens": 50})
    await budgets.end("t", KEY, "resp_1", {"total_tokens": 50})
    await budgets.end("t", KEY, "resp_2", {"total_tokens": 5})
    # The 30 of its first sight were counted before there was an entry of it.
    assert table.records[keys.budgets("t"), str(KEY)]["c_total_tokens"] == 20 + 5


# --- many at once ---


@dataclass
class Crowd:
    """Responses that draw from one budget of 200 tokens, up to 14 a step."""

    budgets: Budgets
    chance: random.Random
    total: int = 0
    begun_beyond: Counter[str] = field(default_factory=Counter)
    """Steps that each began when the limit was used up in truth, whoever knew that yet."""

    async def let_others_go_first(self, _: Any) -> None:
        for _ in range(self.chance.randrange(3)):
            await asyncio.sleep(0)

    async def one(self, name: str) -> None:
        mine, holding = 0, {"total_tokens": 10}
        for step in range(10):
            before = self.total
            if await self.budgets.begin("t", KEY, name, {"total_tokens": mine}, holding) is not None:
                break
            if self.chance.random() < 0.2:  # The process dies, and the step is run again.
                await self.budgets.begin("t", KEY, name, {"total_tokens": mine}, holding)
            self.begun_beyond[name] += before >= 200
            took = self.chance.randrange(1, 15)
            await asyncio.sleep(0)
            mine += took
            self.total += took
            holding = {"total_tokens": mine // (step + 1)}
        await self.budgets.end("t", KEY, name, {"total_tokens": mine})


async def test_many_at_once_overrun_a_limit_by_no_more_than_a_step_of_each_that_had_begun() -> None:
    """Responses of many steps draw from one counter in every order that a random schedule gives; some die and are run again."""
    for seed in range(20):
        chance = random.Random(seed)
        table = MemoryTable()
        budgets = Budgets(table, lambda: 0.0)
        await budgets.put("t", KEY, {"total_tokens": 200})
        crowd = Crowd(budgets, chance)
        table.before_write = crowd.let_others_go_first
        await asyncio.gather(*(crowd.one(f"resp_{number}") for number in range(12)))
        standing = await budgets.standing("t", KEY)
        assert standing is not None
        assert (standing.used["total_tokens"], standing.held["total_tokens"]) == (crowd.total, 0), seed
        assert crowd.total < 200 + 12 * 15, seed
        assert max(crowd.begun_beyond.values()) <= 1, seed


def asks(count: int) -> Turn:
    """A turn with so many calls."""
    return together(*(shell(f"echo {number}", call_id=f"call_{number}") for number in range(count)))


async def test_calls_are_counted_before_they_run() -> None:
    served = await served_with(Lab(asks(3), say("done")), tenant={"tool_calls": 10})
    stored = await begun(served, "tenant")
    state = await served.lab.step(first_state(stored))
    assert (len(state.calls), await used(served, TENANT, "tool_calls")) == (3, (3, 0))
    await run(served.lab, stored, state)
    assert await used(served, TENANT, "tool_calls") == (3, 0)


async def test_without_a_limit_of_calls_nothing_is_written_for_them() -> None:
    writes = []
    for name in ("total_tokens", "tool_calls"):
        served = await served_with(Lab(asks(3), say("done")), tenant={name: 10_000})
        stored = await begun(served, "tenant")
        before_it = served.lab.table.writes
        await run(served.lab, stored)
        writes.append(served.lab.table.writes - before_it)
    assert writes[1] - writes[0] == 1


@pytest.mark.parametrize("on_limit", ["stop", "finish", "pause"])
async def test_of_steps_at_the_same_time_one_passes_a_limit_of_calls(on_limit: str) -> None:
    """Each began when no call was counted. Those that ask when the limit is reached run nothing, and do what the budget says."""
    lab = Lab(*[asks(3)] * 5, *[say("done")] * 5)
    served = await served_with(lab, tenant={"tool_calls": 4, "on_limit": on_limit})
    many = [await begun(served, "tenant") for _ in range(5)]
    states = await asyncio.gather(*(lab.step(first_state(stored)) for stored in many))
    assert sorted(len(state.calls) for state in states) == [0, 0, 0, 3, 3]
    assert await used(served, TENANT, "tool_calls") == (6, 0)
    for stored, state in zip(many, states, strict=True):
        await run(lab, stored, state)
    assert (len(lab.sandboxes.executed), await used(served, TENANT, "tool_calls")) == (6, (6, 0))
    ends = {"stop": ("incomplete", []), "finish": ("completed", ["done"]), "pause": ("in_progress", [])}
    for stored in many:
        response = (await served.get(f"/responses/{stored.response_id}")).json()
        assert (response["status"], texts(response["output"])) == ends[on_limit]
    if on_limit == "pause":
        await goes_on_when_raised(served, many)


async def goes_on_when_raised(served: Served, many: list[StoredResponse]) -> None:
    await served.lab.runtime.stores.budgets.put("t", TENANT, {"tool_calls": 100})
    for stored in many:
        await served.post(f"/responses/{stored.response_id}/resume")
        name = next(name for name in served.lab.executions.started if name == f"{stored.execution}-p1")
        await run(served.lab, stored, LoopState.from_json(served.lab.executions.started[name]))
        response = await served.lab.object_of(stored)
        assert (response["status"], texts(response["output"])) == ("completed", ["done"])


async def test_calls_announced_by_a_dead_run_run_despite_a_spent_budget() -> None:
    served = await served_with(Lab(asks(3), say("done")), tenant={"tool_calls": 3})
    stored = await begun(served, "tenant")

    async def dies(record: Record) -> None:
        if record["SK"].startswith(keys.ATTEMPT_PREFIX) and "outcome" in record:
            served.lab.table.before_write = None
            raise ConnectionError

    served.lab.table.before_write = dies
    with pytest.raises(ConnectionError):
        await served.lab.step(first_state(stored))
    await served.lab.runtime.stores.budgets.count_calls("t", TENANT, "resp_other", {}, 3, is_bounded=False)
    state = await served.lab.step(first_state(stored))
    assert len(state.calls) == 3
    await run(served.lab, stored, state)
    assert await used(served, TENANT, "tool_calls") == (6, 0)


@pytest.mark.parametrize("seed", range(12))
async def test_under_deaths_calls_of_many_at_once_pass_the_limit_by_one_step(seed: int) -> None:
    """Every run of every step may die at any write; the calls that were begun are counted from outside."""
    chance = random.Random(seed)
    lab = Lab(*[asks(3)] * 60)
    served = await served_with(lab, tenant={"tool_calls": 10})
    many = [await begun(served, "tenant") for _ in range(6)]

    async def let_others_go_first(_record: Record) -> None:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if chance.random() < 0.02:
            raise ConnectionError

    lab.table.before_write = let_others_go_first

    async def one(stored: StoredResponse) -> None:
        state = first_state(stored)
        while state.next is not Next.DONE:
            with suppress(ConnectionError, Superseded):
                if state.next is Next.TOOLS:
                    await lab.tools(state)
                state = await lab.step(state)

    await asyncio.gather(*map(one, many))
    lab.table.before_write = None
    assert len(lab.sandboxes.executed) <= 10 + 2, seed


# --- who sees it ---


async def test_a_key_sees_how_its_budgets_stand() -> None:
    served = await served_with(Lab(say("a")), key={"total_tokens": 1_000, "on_limit": "finish"}, tenant={"usd": 2.5})
    served.lab.price = Price(1_000.0, None, 5_000.0)
    await asked(served)
    nothing = dict.fromkeys(MEASURES, 0)
    counted = nothing | {"usd": 0.02, "input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    expected = [
        {"scope": "key", "id": KEY_A, "limits": {"total_tokens": 1_000}, "on_limit": "finish", "used": counted, "held": nothing},
        {"scope": "tenant", "id": "t", "limits": {"usd": 2.5}, "on_limit": "stop", "used": counted, "held": nothing},
    ]
    for path in ("/me", "/usage"):
        assert (await served.get(path)).json()["budgets"] == expected
    assert (await served.get("/me", by="key-b")).json()["budgets"] == []


async def test_a_reset_begins_anew_and_a_removal_ends_it() -> None:
    served = await served_with(Lab(say("a"), say("b"), say("c")), key={"total_tokens": 5})
    await asked(served)
    assert (await asked(served)).status_code == 429
    await served.lab.runtime.stores.budgets.reset("t", KEY)
    assert (await asked(served)).status_code == 200
    assert (await asked(served)).status_code == 429
    await served.lab.runtime.stores.budgets.remove("t", KEY)
    assert (await asked(served)).status_code == 200
