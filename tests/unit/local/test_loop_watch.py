"""An event loop that does not turn is named, told of signals, and given up."""

import json
import logging
import signal
import subprocess
import sys

import pytest
from moorage import limits
from moorage.local.loop_watch import GIVEN_UP, LoopWatch


@pytest.fixture
def left() -> list[int]:
    return []


def watch(left: list[int], now: float = 1_000.0) -> LoopWatch:
    return LoopWatch(leave=left.append, clock=lambda: now)


def looks(watched: LoopWatch, count: int) -> None:
    for _ in range(count):
        watched.look()


def test_a_short_silence_is_no_news(left: list[int], caplog: pytest.LogCaptureFixture) -> None:
    watched = watch(left)
    looks(watched, limits.LOOP_SILENCE_TOLD_SECONDS)
    assert (left, watched.late_silence_seconds, caplog.messages) == ([], None, [])


def test_a_long_silence_is_told_with_the_place_and_remembered(left: list[int], caplog: pytest.LogCaptureFixture) -> None:
    watched = watch(left)
    looks(watched, limits.LOOP_SILENCE_TOLD_SECONDS + 1)
    watched.turned()
    watched.look()
    assert (left, watched.late_silence_seconds) == ([], limits.LOOP_SILENCE_TOLD_SECONDS)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "the API's event loop has not turned for 5 seconds"
    ]


def test_a_loop_that_never_turns_is_given_up(left: list[int]) -> None:
    watched = watch(left)
    looks(watched, limits.STACK_SILENCE_SECONDS_MAX)
    assert left == []
    watched.look()
    assert left == [GIVEN_UP]


def test_a_loop_that_does_not_hear_a_signal_is_not_waited_for(left: list[int]) -> None:
    watched = watch(left)
    watched.look()
    watched.heard()
    looks(watched, limits.STOP_LOOP_SECONDS_MAX)
    assert left == [GIVEN_UP]


_BUSY = """
import asyncio, json, sys, time
from moorage.local.loop_watch import LoopWatch
heard = []
async def main(busy):
    done = asyncio.Event()
    with LoopWatch().watching(lambda number, frame: (heard.append(number), done.set())):
        print("ready", flush=True)
        end = time.monotonic() + busy
        while time.monotonic() < end:
            pass
        await done.wait()
asyncio.run(main(float(sys.argv[1])))
print(json.dumps(heard))
"""


def test_a_signal_reaches_a_loop_as_soon_as_it_turns() -> None:
    with subprocess.Popen([sys.executable, "-c", _BUSY, "0.5"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline()) == [signal.SIGTERM]
    assert process.returncode == 0


def test_a_signal_ends_a_process_whose_loop_never_turns() -> None:
    with subprocess.Popen([sys.executable, "-c", _BUSY, "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "did not hear the signal to end" in said) == (GIVEN_UP, True)
