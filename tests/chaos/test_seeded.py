"""A short history of ``make chaos``, the same each time, and what makes histories."""

from pathlib import Path

import pytest

from tests.chaos.nemesis import WEIGHTS, Event, schedule
from tests.chaos.run import play
from tests.chaos.shrink import shrink

SHORT = [
    Event(2.0, "worker", "kill"),
    Event(0.5, "emulator", "kill"),
    Event(1.0, "connections", "cut"),
    Event(0.5, "launcher", "kill"),
    Event(1.0, "clock", "set", 60),
    Event(1.0, "API", "kill"),
]


def test_a_seed_is_a_schedule() -> None:
    assert schedule(7, 50, 2.0) == schedule(7, 50, 2.0) != schedule(8, 50, 2.0)
    assert {event.victim for event in schedule(7, 400, 2.0)} == set(WEIGHTS)


def test_a_schedule_is_shrunk_to_what_matters() -> None:
    tried: list[list[int]] = []

    def still_fails(events: list[int]) -> bool:
        tried.append(events)
        return {3, 17} <= set(events)

    assert shrink(range(20), still_fails) == [3, 17]
    assert len(tried) < 60
    assert shrink([1], lambda events: True) == [1]
    assert shrink([1, 2, 3], lambda events: False) == [1, 2, 3]


@pytest.mark.timeout(900)
def test_a_short_history_leaves_nothing_wrong(tmp_path: Path) -> None:
    report = play(5, SHORT, tmp_path, is_whole=False)
    assert report.violations == []
    assert {"emulator killed", "launcher killed", "API killed", "clock set"} <= set(report.struck)
    assert report.responses > 3
