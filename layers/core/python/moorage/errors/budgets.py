"""What the API says of budgets."""

from moorage.errors.kinds import ApiError, bad_request


def model_not_budgetable(model: str, otherwise: str) -> ApiError:
    return bad_request(
        f"The price of the model '{model}' is not known, so that no budget in dollars can be kept. Set 'price' in models.toml, "
        f"{otherwise}",
        param="budget.usd",
        code="model_not_budgetable",
    )


def budget_reached(message: str) -> ApiError:
    """429, which the SDKs need not send again: it takes an operator, or another budget."""
    return ApiError(429, message, type="insufficient_quota", code="budget_reached", headers={"x-should-retry": "false"})
