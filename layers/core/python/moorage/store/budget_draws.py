"""The requests to shared budgets of a response, or of something like a response."""

from collections.abc import Iterable, Mapping

from moorage.dataclass import dataclass
from moorage.errors import budget_reached, model_not_budgetable
from moorage.store.budgets import Budgets, OnLimit, Scope


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit that was reached."""

    what: str
    """Used up, in a sentence."""
    remedy: str
    """What lets it go on."""
    on_limit: OnLimit


@dataclass(frozen=True, slots=True)
class BudgetDraw:
    budgets: Budgets
    tenant_id: str
    name: str
    """Id of the response, or of what is like one."""
    scopes: tuple[Scope, ...]

    @classmethod
    async def of_dollars(cls, budgets: Budgets, tenant_id: str, name: str, draws_on: Iterable[str]) -> "BudgetDraw":
        """From those budgets alone that bound dollars."""
        standings = [await budgets.standing(tenant_id, Scope.of(text)) for text in draws_on]
        return cls(budgets, tenant_id, name, tuple(each.scope for each in standings if each is not None and "usd" in each.limits))

    async def first(self, model: str, holding: Mapping[str, int]) -> None:
        """Hold what may be taken; without dollars if the price is not known. Raises an :class:`~moorage.errors.ApiError` if a
        budget is used up, or cannot be kept."""
        for scope in self.scopes:
            standing = await self.budgets.standing(self.tenant_id, scope)
            if standing is not None and "usd" in standing.limits and "usd" not in holding:
                raise model_not_budgetable(model, f"or take another: the {scope.kind} '{scope.name}' has a budget in dollars.")
        over = await self.step({}, holding)
        if over is not None:
            await self.end({})
            raise budget_reached(f"{over.what} {over.remedy}")

    async def step(self, used: Mapping[str, int], holding: Mapping[str, int]) -> LimitReached | None:
        for scope in self.scopes:
            over = await self.budgets.begin(self.tenant_id, scope, self.name, used, holding)
            if over is not None:
                await self.release(used)
                return LimitReached(over.message, _remedy(scope), over.on_limit)
        return None

    async def calls(self, used: Mapping[str, int], count: int, *, is_bounded: bool) -> bool:
        for scope in self.scopes:
            over = await self.budgets.count_calls(self.tenant_id, scope, self.name, used, count, is_bounded=is_bounded)
            if over is not None:
                await self.release(used)
                return False
        return True

    async def release(self, used: Mapping[str, int]) -> None:
        for scope in self.scopes:
            await self.budgets.release(self.tenant_id, scope, self.name, used)

    async def end(self, used: Mapping[str, int]) -> None:
        for scope in self.scopes:
            await self.budgets.end(self.tenant_id, scope, self.name, used)


def _remedy(scope: Scope) -> str:
    if scope.kind == "tree":
        return f"POST /v1/responses/{scope.name}/budget raises it."
    if scope.kind == "session":
        return f"POST /v1/agents/sessions/{scope.name} with another 'budget' raises it, and a turn that stands still goes on."
    return "The operator can raise it ('moorage keys budget'); a response that stands still for it goes on when it is resumed."
