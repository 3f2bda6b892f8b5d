"""Long turns of an event loop are told, with the place where they spent their time."""

import asyncio
import gc
import logging
import os
import selectors
import time

import pytest
from moorage.local.turn_meter import VARIABLE, event_loop
from moorage.settings import SettingsError


def work(seconds: float) -> None:
    """Of this thread's processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def busy() -> None:
    await asyncio.sleep(0)
    work(0.4)
    await asyncio.sleep(0)


async def idle() -> None:
    await asyncio.sleep(0.1)


def turns(caplog: pytest.LogCaptureFixture, said: str) -> list[logging.LogRecord]:
    with asyncio.Runner(loop_factory=lambda: event_loop({VARIABLE: said})) as runner, caplog.at_level(logging.INFO):
        runner.run(idle())
        runner.run(busy())
    return [record for record in caplog.records if record.getMessage() == "loop_turn"]


def test_a_long_turn_is_told_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    (turn,) = turns(caplog, "200")
    told = vars(turn)
    assert told["ms"] >= 400
    assert told["collecting_ms"] < 400
    assert f"{os.path.basename(__file__)}:{busy.__code__.co_firstlineno + 2}:busy" in told["where"]


def test_a_turn_below_the_bound_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert turns(caplog, "60000") == []


def test_a_loop_leaves_no_callback_behind(caplog: pytest.LogCaptureFixture) -> None:
    before = list(gc.callbacks)
    turns(caplog, "60000")
    assert gc.callbacks == before


def test_nobody_watches_unless_asked() -> None:
    loop = event_loop({})
    selector = vars(loop)["_selector"]
    loop.close()
    assert type(selector) is selectors.DefaultSelector


@pytest.mark.parametrize("said", ["0", "-1", "1.5", "soon"])
def test_a_bound_is_a_whole_number(said: str) -> None:
    with pytest.raises(SettingsError, match=f"{VARIABLE} takes a whole number of milliseconds from 1, not '{said}'"):
        event_loop({VARIABLE: said})
