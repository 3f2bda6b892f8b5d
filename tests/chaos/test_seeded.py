"""A short history of ``make chaos``, the same each time, and what makes histories."""

from pathlib import Path

import httpx
import pytest

from tests.chaos.nemesis import WEIGHTS, Event, schedule
from tests.chaos.run import ANSWERS_KEPT_MAX, FILES_KEPT_MAX, Load, Told, play
from tests.chaos.shrink import shrink
from tests.stack import Stack

SHORT = [
    Event(2.0, "worker", "kill"),
    Event(0.5, "worker", "kill"),
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


def test_a_long_history_keeps_no_more_than_its_disk_has_room_for() -> None:
    there: set[str] = set()

    def serve(request: httpx.Request) -> httpx.Response:
        identity = request.url.path.rpartition("/")[2]
        if request.method == "DELETE":
            there.remove(identity)
            return httpx.Response(200, json={})
        there.add(f"{identity}_{len(told.responses) + len(told.files) + len(told.files_deleted)}")
        return httpx.Response(200, json={"id": max(there, key=lambda one: int(one.rpartition("_")[2]))})

    told = Told()
    load = Load(Stack(Path("nowhere")), told, 7)
    load.stopped.set()  # It waits for nothing.
    with httpx.Client(base_url="http://nowhere/v1", transport=httpx.MockTransport(serve)) as http:
        for _ in range(ANSWERS_KEPT_MAX * 2):
            load._plain(http)
        assert there == set(told.responses) - told.deleted
        assert len(there) == ANSWERS_KEPT_MAX
        there.clear()
        for _ in range(FILES_KEPT_MAX + 20):
            load._files(http)
    assert there == set(told.files)
    assert (len(told.files), len(told.files_deleted)) == (FILES_KEPT_MAX, 20)


@pytest.mark.timeout(900)
def test_a_short_history_leaves_nothing_wrong(tmp_path: Path) -> None:
    report = play(5, SHORT, tmp_path, is_whole=False)
    assert report.violations == []
    assert {"worker killed", "launcher killed", "API killed", "clock set"} <= set(report.struck)
    assert report.responses > 3
    assert report.sessions > 0
