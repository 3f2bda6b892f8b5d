"""What all tests share.

* How many examples a property is tried with: as many as its test says, or in the inner loop (``make quick``) a few.
* What comes first: the tests of sandboxes, which wait most (for time-outs, for memory to fill), and long for one file: others use the
  processors meanwhile. What comes last: the other unit tests, whose files are short, so that no worker is left with a long one when the
  others have done all. A fourth worker has what waits to itself (``tests/lanes.py``).
* That what is imported and collected stays to the end: the garbage collector need not look at it, neither meanwhile nor ever after.
* One stack for those who need nothing of their own: starting one takes four seconds of processor time, and its workers as much again.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import moorage.tools.registry  # noqa: F401  (the rooms declare what requests may say about their tools)
import pytest
from xdist.remote import Producer

from tests.lanes import Lanes
from tests.stack import Stack

QUICK_EXAMPLES_MAX = 15
_UNIT = Path(__file__).parent / "unit"
_SANDBOX = _UNIT / "sandbox"

hypothesis.settings.register_profile(
    "patient",
    deadline=None,  # A busy machine is no reason to fail ...
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,  # ... nor is the day: the same code has the same examples. ``make simulate`` and ``make fuzz`` look for others.
)
hypothesis.settings.load_profile("patient")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One embedded stack for all tests of this process."""
    running = Stack(Path(tmp_path_factory.mktemp("stack")), {"MOORAGE_METRICS_PORT": "0"}).start()
    yield running
    assert running.stop() == 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes | None:
    return Lanes(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (_SANDBOX not in item.path.parents, _UNIT in item.path.parents))
    if os.environ.get("TESTS") != "quick":
        return
    for item in items:
        test: Callable[..., None] | None = getattr(item, "obj", None)
        given: hypothesis.settings | None = getattr(test, "_hypothesis_internal_use_settings", None)
        if given is not None:
            quick = hypothesis.settings(given, max_examples=min(given.max_examples, QUICK_EXAMPLES_MAX))
            vars(getattr(test, "__func__", test))["_hypothesis_internal_use_settings"] = quick
