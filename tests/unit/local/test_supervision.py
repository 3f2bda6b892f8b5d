"""Children are watched: the dead come back, and those that cannot live end the stack with a sentence."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage import limits
from moorage.local.processes import is_stopped
from moorage.local.supervision import Child, ChildKeepsDying, Supervisor, answers


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def dead() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(["false"])
    process.wait()
    return process


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Where somebody answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "alive"):
        yield str(tmp_path / "alive")


@pytest.fixture
def mute(tmp_path: Path) -> Iterator[str]:
    """Where the kernel takes connections for a process that does nothing any more."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "mute"))
        listener.listen()
        yield str(tmp_path / "mute")


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHILD_POLL_SECONDS", "CHILD_LOOK_SECONDS", "CHILD_PAUSE_SECONDS"):
        monkeypatch.setattr(limits, name, 0.01)


class Watched:
    """Children under the eyes of a supervisor."""

    def __init__(self, *children: Child) -> None:
        self.children = children

    async def __aenter__(self) -> "asyncio.Task[None]":
        self.watch = asyncio.create_task(Supervisor(list(self.children)).watch())
        return self.watch

    async def __aexit__(self, *_: object) -> None:
        self.watch.cancel()
        await asyncio.wait({self.watch})
        for child in self.children:
            child.process.kill()
            child.process.wait()


def child(address: str, restart: Callable[[], Any] = sleeper, *, process: Any = None) -> Child:
    return Child("One", process or sleeper(), restart, "one.log", address)


async def test_a_killed_child_is_started_again_and_the_others_are_left_alone(address: str) -> None:
    killed, other = child(address), child(address)
    before = killed.process.pid, other.process.pid
    async with Watched(killed, other):
        os.kill(killed.process.pid, signal.SIGKILL)
        await until(lambda: killed.process.pid != before[0])
        assert killed.process.poll() is None
        assert other.process.pid == before[1]


async def test_a_child_that_was_stopped_is_replaced(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHILD_STOPPED_SECONDS_MAX", 0)
    frozen = child(address)
    before = frozen.process
    async with Watched(frozen):
        before.send_signal(signal.SIGSTOP)
        await until(lambda: frozen.process is not before)
        assert before.returncode == -signal.SIGKILL


async def test_a_short_stop_is_nobodys_business(address: str) -> None:
    frozen = child(address)
    before = frozen.process
    async with Watched(frozen):
        before.send_signal(signal.SIGSTOP)
        await until(lambda: is_stopped(before.pid))
        await asyncio.sleep(0.05)
        before.send_signal(signal.SIGCONT)
        await until(lambda: not is_stopped(before.pid))
        assert (frozen.process, before.poll()) == (before, None)


async def test_a_child_that_runs_and_does_not_answer_is_replaced(mute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHILD_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(limits, "CHILD_SILENCE_SECONDS_MAX", 0)
    hung = child(mute)
    before = hung.process
    async with Watched(hung):
        await until(lambda: hung.process is not before)
        assert before.returncode == -signal.SIGKILL


async def test_who_answers_does_more_than_the_kernel_does_for_the_dead(
    address: str, mute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHILD_ANSWER_SECONDS", 60)
    assert await answers(address)
    monkeypatch.setattr(limits, "CHILD_ANSWER_SECONDS", 0.01)
    assert not await answers(mute)
    assert not await answers(str(tmp_path / "nobody"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert not await answers(closed.getsockname())


async def test_what_is_being_started_when_the_watch_ends_is_known(address: str) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def restart() -> "subprocess.Popen[bytes]":
        begun.set()
        goes_on.wait(60)
        return sleeper()

    one = child(address, restart, process=dead())
    async with Watched(one) as watch:
        await until(begun.is_set)
        watch.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.wait({watch})
        assert one.process.poll() is None


async def test_a_child_that_cannot_live_ends_the_watch_with_a_sentence(address: str) -> None:
    one = Child("The egress proxy", dead(), dead, "egress.log", address)
    with pytest.raises(ChildKeepsDying) as caught:
        await Supervisor([one]).watch()
    assert str(caught.value) == (
        f"The egress proxy was started {limits.CHILD_DEATHS_MAX + 1} times and died at once each time, so the stack ends. "
        "Its last words are in egress.log; 'moorage doctor' looks for the usual causes."
    )


async def test_a_restart_that_fails_counts_as_a_death_however_long_it_takes(address: str) -> None:
    def refuses() -> "subprocess.Popen[bytes]":
        raise SystemExit("no namespaces")

    now = iter(range(0, 10**6, 100))
    one = child(address, refuses, process=dead())
    with pytest.raises(ChildKeepsDying):
        await Supervisor([one], clock=lambda: next(now)).watch()


def test_a_child_that_has_lived_for_a_while_may_die_as_often_as_it_likes(address: str) -> None:
    one = child(address, process=dead())
    for n in range(100):
        one.ready_at = float(n)
        one.died(n + limits.CHILD_YOUTH_SECONDS)
