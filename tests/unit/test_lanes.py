"""How modules of tests are dealt out to four workers; the workers note what they are given."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from xdist.remote import Producer

from tests.lanes import Lanes

MODULES = [
    *("tests/egress/test_a.py", "tests/scenarios/test_a.py", "tests/scenarios/test_b.py", "tests/scenarios/test_c.py"),
    *("tests/scenarios/test_d.py", "tests/unit/sandbox/test_a.py", "tests/upgrade/test_versions.py"),
]
TESTS = [f"{module}::test_{number}" for module in MODULES for number in range(3)]


@dataclass(eq=False)
class Worker:
    gateway: Any
    given: list[int] = field(default_factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys(TESTS[index].partition("::")[0].removeprefix("tests/") for index in self.given))


def test_the_fourth_worker_waits_and_ends_and_three_do_the_rest() -> None:
    workers, lanes = begun(TESTS)
    first = ["scenarios/test_a.py", "scenarios/test_b.py", "scenarios/test_c.py", "egress/test_a.py"]
    assert [worker.modules for worker in workers] == [[module] for module in first]
    finish(lanes, workers[3])
    assert workers[3].modules == ["egress/test_a.py", "unit/sandbox/test_a.py", "upgrade/test_versions.py"]
    assert [worker.shutting_down for worker in workers] == [False, False, False, True]
    finish(lanes, workers[0])
    assert workers[0].modules == ["scenarios/test_a.py", "scenarios/test_d.py"]
    assert lanes.tests_finished is False
    finish(lanes, workers[1])
    finish(lanes, workers[2])
    assert lanes.tests_finished is True


def test_three_turn_to_what_waits_when_all_else_is_done() -> None:
    workers, lanes = begun(TESTS)
    finish(lanes, workers[0])
    assert workers[0].modules == ["scenarios/test_a.py", "scenarios/test_d.py", "unit/sandbox/test_a.py", "upgrade/test_versions.py"]
    finish(lanes, workers[3])
    assert (workers[3].modules, workers[3].shutting_down) == (["egress/test_a.py"], True)


def begun(tests: list[str]) -> tuple[list[Worker], Lanes]:
    config: Any = SimpleNamespace(getvalue=lambda name: ["popen"] * 4, option=SimpleNamespace(loadscopereorder=False))
    lanes = Lanes(config, Producer("lanes", enabled=False))
    workers: list[Any] = [Worker(SimpleNamespace(id=f"gw{number}")) for number in range(4)]
    for worker in workers:
        lanes.add_node(worker)
        lanes.add_node_collection(worker, tests)
    lanes.schedule()
    return workers, lanes


def finish(lanes: Lanes, worker: Any) -> None:
    """All that it is given, and what it is given for it."""
    done = 0
    while done < len(worker.given):
        lanes.mark_test_complete(worker, worker.given[done])
        done += 1
