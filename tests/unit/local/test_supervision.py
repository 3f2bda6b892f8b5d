"""Children are watched: the dead come back, and those that cannot live end the stack with a sentence."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from moorage import limits
from moorage.local.supervision import CannotLive, Child, Supervisor


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


async def until(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_killed_child_is_started_again_and_the_others_are_left_alone() -> None:
    killed, other = Child("One", sleeper(), sleeper, "one.log"), Child("Other", sleeper(), sleeper, "other.log")
    before = killed.process.pid, other.process.pid
    watch = asyncio.create_task(Supervisor([killed, other]).watch())
    try:
        os.kill(killed.process.pid, signal.SIGKILL)
        await until(lambda: killed.process.pid != before[0])
        assert killed.process.poll() is None
        assert other.process.pid == before[1]
    finally:
        watch.cancel()
        for child in (killed, other):
            child.process.kill()
            child.process.wait()


def dead() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(["false"])
    process.wait()
    return process


async def test_a_child_that_cannot_live_ends_the_watch_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHILD_POLL_SECONDS", 0)
    with pytest.raises(CannotLive) as caught:
        await Supervisor([Child("The egress proxy", dead(), dead, "egress.log")]).watch()
    assert str(caught.value) == (
        f"The egress proxy died {limits.CHILD_DEATHS_MAX + 1} times within {limits.CHILD_DEATHS_SECONDS} seconds, so the stack ends. "
        "Its last words are in egress.log; 'moorage doctor' looks for the usual causes."
    )


async def test_a_restart_that_fails_counts_as_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHILD_PAUSE_SECONDS", 0)

    def refuses() -> "subprocess.Popen[bytes]":
        raise SystemExit("no namespaces")

    with pytest.raises(CannotLive):
        await Supervisor([Child("One", dead(), refuses, "one.log")]).watch()


def test_deaths_of_long_ago_are_forgotten() -> None:
    child = Child("One", dead(), dead, "one.log")
    for n in range(100):
        child.died(n * limits.CHILD_DEATHS_SECONDS / 2)
