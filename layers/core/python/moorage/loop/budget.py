"""What a response may use, and what happens once it has: looked at before each step but the first, so that it is overrun by one step
at most.

Everything that is counted stands in the outcome of the step before. So a response without a budget costs nothing for it, and one with a
budget no write.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from moorage.errors import bad_request
from moorage.model.prices import usd
from moorage.runtime import Runtime
from moorage.state import Outcome
from moorage.store.response_list import calls_by_type
from moorage.store.responses import StoredResponse
from moorage.wire.types import Item

OnLimit = Literal["stop", "pause", "finish"]


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that was reached."""

    name: str
    limit: float
    used: float
    on_limit: OnLimit

    @property
    def message(self) -> str:
        return f"Its budget is used up: {self.name} {self.used:g} of {self.limit:g}."


def check_budget(runtime: Runtime, model: str, budget: Mapping[str, Any] | None) -> None:
    """Dollars can only be counted where the price is known. Raises an :class:`~moorage.errors.ApiError`."""
    if budget is not None and "usd" in budget and runtime.catalog.price_of(model) is None:
        raise bad_request(
            f"The price of the model '{model}' is not known, so that no budget in dollars can be kept. Set 'price' in models.toml, or "
            "give a budget in tokens.",
            param="budget.usd",
            code="model_not_budgetable",
        )


def reached(runtime: Runtime, stored: StoredResponse, outcome: Outcome, items: Mapping[int, Item]) -> Reached | None:
    """The first limit of its budget that a response has reached, after a step with this outcome; None if it may go on."""
    budget = stored.budget or stored.parameters.budget
    if budget is None:
        return None
    used = _used(runtime, stored, outcome, items)
    on_limit: OnLimit = budget.get("on_limit", "stop")
    for name in used:
        if name in budget and used[name] >= budget[name]:
            return Reached(name, budget[name], used[name], on_limit)
    return None


def _used(runtime: Runtime, stored: StoredResponse, outcome: Outcome, items: Mapping[int, Item]) -> dict[str, float]:
    usage = outcome.usage
    used: dict[str, float] = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "tool_calls": outcome.calls_made,
        "wall_seconds": runtime.clock() - stored.created_at - stored.paused_seconds,
    }
    price = runtime.catalog.price_of(stored.parameters.model)
    if price is not None:
        used["usd"] = usd(price.nanodollars(usage, calls_by_type(list(items.values()))))
    return used
