"""How many examples a property is tried with: as many as its test says, or in the inner loop (``make quick``) a few."""

import os
from collections.abc import Callable

import hypothesis
import moorage.tools.registry  # noqa: F401  (the rooms declare what requests may say about their tools)
import pytest

QUICK_EXAMPLES_MAX = 15

hypothesis.settings.register_profile(
    "patient",
    deadline=None,  # A busy machine is no reason to fail ...
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,  # ... nor is the day: the same code has the same examples. ``make simulate`` and ``make fuzz`` look for others.
)
hypothesis.settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("TESTS") != "quick":
        return
    for item in items:
        test: Callable[..., None] | None = getattr(item, "obj", None)
        given: hypothesis.settings | None = getattr(test, "_hypothesis_internal_use_settings", None)
        if given is not None:
            quick = hypothesis.settings(given, max_examples=min(given.max_examples, QUICK_EXAMPLES_MAX))
            vars(getattr(test, "__func__", test))["_hypothesis_internal_use_settings"] = quick
