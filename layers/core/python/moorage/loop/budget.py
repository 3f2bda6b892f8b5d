"""The limits of a response, and its fate at a limit. They are checked before each step but the first, so that one step at most exceeds
them.

Everything that is counted of a response alone stands in the outcome of the step before. So a response without a budget costs nothing
for it, and one with a budget of its own no write. A budget shared with others (of its key, its tenant, its tree of forks) is a counter
in the table (``store/budgets.py``). It takes a write before each step, the first one too, and one at the end. If tool calls are
limited, it takes one before those of a step run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from moorage import limits
from moorage.containers.containers import Containers
from moorage.errors import ApiError, model_not_budgetable
from moorage.model.catalog import ModelCatalog
from moorage.model.prices import usd
from moorage.model.tokens import estimate_frame, estimate_items
from moorage.runtime import Runtime
from moorage.state import Rent, StepOutcome
from moorage.store.budget_draws import BudgetDraw, LimitReached
from moorage.store.budgets import MEASURES, Scope, amount
from moorage.store.response_list import calls_by_type
from moorage.store.responses import StoredResponse
from moorage.stores import Stores
from moorage.wire.answers import Cost, SandboxCost
from moorage.wire.operator_answers import BudgetShown
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item

Budget = Mapping[str, Any]


def check_budget(catalog: ModelCatalog, model: str, budget: Budget | None) -> None:
    """Dollars can only be counted if the price is known. Raises an :class:`~moorage.errors.ApiError`."""
    if budget is not None and "usd" in budget and catalog.price_of(model) is None:
        raise model_not_budgetable(model, "or give a budget in tokens.")


def own_budget(stored: StoredResponse) -> Budget | None:
    """The budget that a response has for itself, or an agent that ``/root`` or another one has started."""
    if stored.lane:
        bound: Budget | None = (stored.parameters.multi_agent or {}).get("subagent_budget")
        return bound
    budget = stored.budget or stored.parameters.budget
    is_shared = budget is not None and budget.get("scope") == "tree"
    return None if is_shared or stored.agent is not None else budget


async def standings(stores: Stores, tenant_id: str, draws_on: Iterable[str]) -> list[BudgetShown]:
    """The state of the budgets of a key and its tenant."""
    found = [await stores.budgets.standing(tenant_id, Scope.of(text)) for text in draws_on]
    return [standing.to_json() for standing in found if standing is not None]


def draws_of(tenant_id: str, key_id: str, kinds: Iterable[str]) -> tuple[str, ...]:
    """The shared budgets that a request of this key draws from; ``kinds`` are those that there are of its key and tenant."""
    names = {"key": key_id, "tenant": tenant_id}
    return tuple(f"{kind}:{names[kind]}" for kind in kinds if kind in names)


async def reached(
    runtime: Runtime, stored: StoredResponse, outcome: StepOutcome, items: Mapping[int, Item], step: int
) -> LimitReached | None:
    """The first limit that a response has reached after a step with this outcome.

    None if it may take ``step``; the shared budgets hold its estimate then.
    """
    used = _used(runtime, stored, outcome.usage, outcome.calls_made, list(items.values()), outcome.rent)
    draw = draw_of(runtime.stores, stored)
    own = _own(stored, used)
    if own is not None:
        await draw.release(used)
        return own
    return await draw.step(used, {name: used[name] // step for name in ("usd", "input_tokens", "output_tokens", "total_tokens")})


def _own(stored: StoredResponse, used: Mapping[str, int]) -> LimitReached | None:
    budget = own_budget(stored) or {}
    for name in MEASURES:
        counted = usd(used[name]) if name == "usd" else used[name]
        if name in budget and counted >= budget[name]:
            what = f"Its budget is used up: {name} {amount(counted)} of {amount(budget[name])}."
            return LimitReached(what, "POST /v1/responses/{id}/budget raises it, and it goes on.", budget.get("on_limit", "stop"))
    return None


async def draw_first(runtime: Runtime, stored: StoredResponse, said: Sequence[Item]) -> None:
    """Before the first step: hold its estimated cost.

    Raises an :class:`~moorage.errors.ApiError` if a budget is used up, or cannot be kept.
    """
    if not stored.draws_on:
        return
    parameters = stored.parameters
    tokens_in = estimate_frame(parameters.instructions, parameters.tools) + estimate_items(list(said))
    holding = first_holding(runtime.models.catalog, parameters.model, tokens_in, parameters.max_output_tokens)
    await draw_of(runtime.stores, stored).first(parameters.model, holding)


async def counts_calls(
    runtime: Runtime,
    stored: StoredResponse,
    usage: TokenUsage,
    calls_made: int,
    items: Sequence[Item],
    calls: int,
    *,
    rent: Rent | None,
    is_bounded: bool,
) -> bool:
    """Calls that a step has asked for are about to run: count them. False if others have used up a shared budget of calls meanwhile,
    and ``is_bounded``; then none of them may run."""
    if not calls or not stored.draws_on:
        return True
    return await draw_of(runtime.stores, stored).calls(
        _used(runtime, stored, usage, calls_made, items, rent), calls, is_bounded=is_bounded
    )


async def draw_last(
    runtime: Runtime, stored: StoredResponse, usage: TokenUsage, calls_made: int, items: Sequence[Item], rent: Rent | None = None
) -> None:
    """The response ends: its use counts, and nothing is held."""
    if stored.draws_on:
        await draw_of(runtime.stores, stored).end(_used(runtime, stored, usage, calls_made, items, rent))


def draw_of(stores: Stores, stored: StoredResponse) -> BudgetDraw:
    """The response's request to its shared budgets."""
    name = f"{stored.response_id}-l{stored.lane}" if stored.lane else stored.response_id
    return BudgetDraw(stores.budgets, stored.tenant_id, name, tuple(map(Scope.of, stored.draws_on)))


def first_holding(catalog: ModelCatalog, model: str, tokens_in: int, tokens_out_max: int | None) -> dict[str, int]:
    """The estimate of a first step; without dollars if the price is not known."""
    price = catalog.price_of(model)
    tokens_out = min(limits.BUDGET_HELD_OUTPUT_TOKENS, tokens_out_max or limits.BUDGET_HELD_OUTPUT_TOKENS)
    holding = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    if price is not None:
        holding["usd"] = price.nanodollars(TokenUsage(tokens_in, tokens_out), {})
    return holding


async def rent_of(runtime: Runtime, stored: StoredResponse) -> Rent | None:
    """The price of a response's sandbox from now on; None if that costs nothing."""
    price = runtime.stores.sandbox_usage.price
    if price is None or stored.container_id is None or not stored.pays_rent:
        return None
    with suppress(ApiError):  # Deleted meanwhile: there will be no sandbox.
        container = await runtime.computers.containers.get(stored.tenant_id, stored.container_id)
        return Rent(seconds_run(runtime.clock, stored), price.nanodollars(container.memory_limit))
    return None


def cost_of(
    runtime: Runtime, stored: StoredResponse, usage: TokenUsage, items: Sequence[Item], rent: Rent | None, ran: int
) -> Cost | None:
    """The cost of a response after so many seconds, at the prices of now; None if its model's are not known."""
    price, sandboxes = runtime.models.catalog.price_of(stored.parameters.model), runtime.stores.sandbox_usage.price
    if price is None:
        return None
    nanodollars = price.nanodollars(usage, calls_by_type(items))
    if rent is None or sandboxes is None:
        return {"usd": usd(nanodollars), "source": price.source}
    seconds = rent.seconds(ran)
    rented = seconds * rent.nanodollars
    sandbox: SandboxCost = {"seconds": seconds, "usd": usd(rented), "source": sandboxes.source}
    return {"usd": usd(nanodollars + rented), "source": price.source, "sandbox": sandbox}


async def pay_rent(containers: Containers, stored: StoredResponse, cost: Cost | None) -> None:
    """Sandbox time that a response pays is not the tenant's to pay.

    Before the end is seen: a process that dies in between runs the step again, and pays again, and the later word counts. Without a
    sandbox that has a price nothing is asked of the table.
    """
    if stored.container_id is not None and cost is not None and "sandbox" in cost:
        await containers.pay(stored.tenant_id, stored.container_id, stored.response_id, cost["sandbox"]["seconds"])


def seconds_run(clock: Callable[[], float], stored: StoredResponse) -> int:
    """So far, pauses left out."""
    return max(0, int(clock()) - stored.created_at - stored.paused_seconds)


def _used(
    runtime: Runtime, stored: StoredResponse, usage: TokenUsage, calls_made: int, items: Sequence[Item], rent: Rent | None
) -> dict[str, int]:
    used, ran = (
        used_of(runtime.models.catalog, stored.parameters.model, usage, calls_by_type(items)),
        seconds_run(runtime.clock, stored),
    )
    if rent is not None and stored.lane == 0 and runtime.models.catalog.price_of(stored.parameters.model) is not None:
        used["usd"] += rent.seconds(ran) * rent.nanodollars
    return used | {"tool_calls": calls_made, "wall_seconds": ran}


def used_of(catalog: ModelCatalog, model: str, usage: TokenUsage, calls: Mapping[str, int] | None = None) -> dict[str, int]:
    """Tokens and dollars, at the prices of now."""
    price = catalog.price_of(model)
    return {
        "usd": 0 if price is None else price.nanodollars(usage, calls or {}),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
