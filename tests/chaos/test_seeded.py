"""A short history of ``make chaos``, the same each time."""

from pathlib import Path

import pytest

from tests.chaos.run import WEIGHTS, play, schedule


def test_a_seed_is_a_schedule() -> None:
    assert schedule(7, 50, 2.0) == schedule(7, 50, 2.0) != schedule(8, 50, 2.0)
    assert {event.victim for event in schedule(7, 400, 2.0)} == set(WEIGHTS)


@pytest.mark.timeout(600)
def test_a_short_history_leaves_nothing_wrong(tmp_path: Path) -> None:
    report = play(5, schedule(5, 10, 1.5), tmp_path)
    assert report.violations == []
    assert report.responses > 3
    assert sum(report.struck.values()) > 5
