"""A short history of ``make chaos``, the same each time, and what makes histories."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.computers import HAS_BROWSER, UNSERVED, ComputerTold, clicked_wrong
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


REFUSAL = "No server that a command has started listens on port 3000."


def clicked(page: str, heard: int, *, error: str = "", refused: str = "", printed: str = "") -> dict[str, Any]:
    """A response whose page heard of so many clicks; ``error`` is that of the call's first action, ``refused`` a reason of its page's,
    and ``printed`` is what the start of the site said."""
    call = {"type": "computer_call", "call_id": "c", "actions": [{"type": "type", "text": page}]}
    results = [{"ok": False, "error": error}] if error else [{"ok": True}]
    shown: dict[str, Any] = {
        "type": "computer_call_output",
        "call_id": "c",
        "status": "completed",
        "actions": results,
        "page": {"notes": [], "refused": [{"host": "localhost:3000", "reason": refused}] if refused else []},
    }
    served = {"type": "shell_call_output", "output": [{"stdout": printed}]}
    counted = {"type": "shell_call_output", "output": [{"stdout": "counted\n" + f"/{page}\n" * heard}]}
    return {"output": [served, call, shown, counted]}


@pytest.mark.parametrize(
    ("heard", "error", "is_wrong"),
    [
        (2, "", False),
        (1, "", True),
        (3, "", True),
        (1, "The browser ended during this call.", False),
        (3, "The browser ended during this call.", True),
        (0, "This call could not be run.", False),
        (1, "This call could not be run.", True),
    ],
)
def test_a_click_too_many_and_one_that_is_denied_are_seen(heard: int, error: str, is_wrong: bool) -> None:
    assert bool(clicked_wrong(clicked("pg_1", heard, error=error), ComputerTold("resp_1", ["pg_1"]))) is is_wrong


def test_a_page_that_was_refused_in_words_is_no_click_that_is_missing() -> None:
    told = ComputerTold("resp_1", ["pg_1"])
    assert clicked_wrong(clicked("pg_1", 0, refused=REFUSAL), told) == []
    assert clicked_wrong(clicked("pg_1", 1, refused=REFUSAL), told) != []
    assert clicked_wrong(clicked("pg_1", 0, refused="It is not allowed."), told) != []
    (fault,) = clicked_wrong(clicked("pg_1", 0, refused=REFUSAL, printed=UNSERVED), told)
    assert fault.endswith("A fault of the test: its site was not up.")


@pytest.mark.timeout(900)
def test_a_short_history_leaves_nothing_wrong(tmp_path: Path) -> None:
    report = play(5, SHORT, tmp_path, is_whole=False)
    assert report.violations == []
    assert {"worker killed", "launcher killed", "API killed", "clock set"} <= set(report.struck)
    assert report.responses > 3
    assert report.sessions > 0
    assert report.computers > 0 or not HAS_BROWSER
