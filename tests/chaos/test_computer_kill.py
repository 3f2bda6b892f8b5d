"""Processes below a call of a hosted computer are killed: the response ends, no click is repeated, and the model is told.

The death of a worker is told in ``tests/scenarios/test_computer.py``.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import is_launcher, kill_all, until
from tests.scenarios.test_computer import CLICK, OPEN, SERVE, SHOT, TOOLS, acts, said, shown
from tests.stack import Stack, say, script, shell

pytestmark = pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed ('make setup-dev' installs it).")
WAIT = {"type": "wait", "ms": 2_000}
LOST = "The browser ended during this call. Its actions may have been done, and were not repeated: look at the page first."


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(Path(tmp_path_factory.mktemp("computers"))).start()
    yield running
    assert running.stop() == 0


def struck(stack: Stack, is_victim: Callable[[str], bool], *after: dict[str, Any]) -> Any:
    """A response whose victims are killed behind the first of three clicks; ``after`` are its steps behind that call."""
    client, process = stack.client(), stack.process
    assert process is not None
    asked: dict[str, Any] = {"model": "demo", "tools": TOOLS}
    served = client.responses.create(**asked, input=script(shell(SERVE), acts(OPEN), say("ready")))
    # The first click must be seen before the second one, on a busy machine too. The death cuts the waits short.
    steps = script(acts(CLICK, *[WAIT] * 8, CLICK, CLICK), *after, say("The end."))
    running = client.responses.create(**asked, input=steps, previous_response_id=served.id, background=True)

    def has_clicked() -> bool:
        look = client.responses.create(**asked, input=script(shell("cat /tmp/said"), say("x")), previous_response_id=served.id)
        return said(look) == ["click"]

    until(has_clicked)
    assert kill_all(process.pid, is_victim)
    until(lambda: client.responses.retrieve(running.id).status not in ("queued", "in_progress"))
    return client.responses.retrieve(running.id)


def test_a_killed_browser_is_told_and_the_next_call_has_a_new_one(stack: Stack) -> None:
    ended = struck(stack, lambda line: "--remote-debugging-pipe" in line, acts(OPEN, SHOT), shell("cat /tmp/said"))
    lost, again = shown(ended)
    assert (ended.status, ended.output_text) == ("completed", "The end.")
    assert any("ended" in result.get("error", "") for result in lost.actions)
    assert (again.page["title"], said(ended)) == ("Shop", ["click"])


def test_the_end_of_all_sandboxes_is_told_and_the_next_call_has_new_ones(stack: Stack) -> None:
    ended = struck(stack, is_launcher, shell(SERVE), acts(OPEN, SHOT))
    lost, again = shown(ended)
    assert (ended.status, lost.status, lost.actions[0]["error"]) == ("completed", "failed", LOST)
    assert again.page["title"] == "Shop"
