"""An API whose event loop does not turn: the log names it, ``/healthz`` tells of it, and a stop works without the loop.

The thread of the loop is stopped alone, as a debugger does it (ptrace(2)); all other threads run.
"""

import ctypes
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from moorage import limits
from moorage.local.logs import API
from moorage.local.loop_watch import GIVEN_UP

from tests.processes import descendants, until
from tests.stack import Stack

_DETACH: Final = 17
_SEIZE: Final = 0x4206
_INTERRUPT: Final = 0x4207
_WALL: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _trace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _waits_for_events(thread: int) -> bool:
    """Then it does not hold the interpreter's lock, which the other threads need."""
    where = Path(f"/proc/{thread}/wchan").read_text()
    return "epoll" in where or "ep_poll" in where


class StoppedLoop:
    """The first thread of the API's process, which runs the loop, stands still from the making of this until :meth:`release`."""

    def __init__(self, stack: Stack) -> None:
        assert stack.process is not None
        self._thread = stack.process.pid
        try:
            _trace(_SEIZE, self._thread)
        except PermissionError:
            pytest.skip("this machine does not let a process trace its child")
        until(lambda: _waits_for_events(self._thread))
        _trace(_INTERRUPT, self._thread)
        os.waitpid(self._thread, _WALL)

    def release(self) -> None:
        _trace(_DETACH, self._thread)


@contextmanager
def served(folder: Path) -> Iterator[Stack]:
    stack = Stack(folder).start()
    try:
        yield stack
    finally:
        stack.stop()


def told(stack: Stack, message: str) -> list[dict[str, Any]]:
    with (stack.state_dir / API).open() as log:
        return [line for line in map(json.loads, log) if line.get("message") == message]


def test_a_loop_that_stands_is_named_in_the_log_and_at_healthz(tmp_path: Path) -> None:
    with served(tmp_path / "state") as stack:
        health = stack.url.removesuffix("/v1") + "/healthz"
        assert httpx.get(health).json() == {"status": "ok"}
        loop = StoppedLoop(stack)
        until(lambda: told(stack, "loop_silent"))
        (silent,) = told(stack, "loop_silent")
        assert silent["seconds"] == limits.LOOP_SILENCE_TOLD_SECONDS
        assert any(place.endswith(":select") for place in silent["where"])
        with pytest.raises(httpx.TimeoutException):
            httpx.get(health, timeout=0.5)
        loop.release()
        until(lambda: told(stack, "loop_turns_again"))
        answer = httpx.get(health).json()
        assert (answer.keys(), answer["status"]) == ({"status", "loop_silent_seconds"}, "ok")
        assert answer["loop_silent_seconds"] >= limits.LOOP_SILENCE_TOLD_SECONDS


def test_a_stop_works_without_the_loop_and_loses_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "state") as stack:
        assert stack.process is not None
        running = stack.client().responses.create(model="demo", input="hello", background=True)
        children = descendants(stack.process.pid)
        StoppedLoop(stack)
        stack.process.send_signal(signal.SIGTERM)
        assert stack.process.wait(60) == GIVEN_UP
        until(lambda: not [pid for pid in children if Path(f"/proc/{pid}").exists()])
    with served(tmp_path / "state") as again:
        client = again.client()
        until(lambda: client.responses.retrieve(running.id).status == "completed")


def test_a_stack_whose_loop_never_turns_again_ends_so_that_its_supervisor_starts_it(tmp_path: Path) -> None:
    """The supervisor is systemd, a container's restart policy, or here the test: it starts what ended with a failure."""
    with served(tmp_path / "state") as stack:
        assert stack.process is not None
        running = stack.client().responses.create(model="demo", input="hello", background=True)
        StoppedLoop(stack)
        assert stack.process.wait(4 * limits.STACK_SILENCE_SECONDS_MAX) == GIVEN_UP
        (given_up,) = told(stack, "loop_given_up")
        assert given_up["seconds"] == limits.STACK_SILENCE_SECONDS_MAX
    with served(tmp_path / "state") as again:
        client = again.client()
        until(lambda: client.responses.retrieve(running.id).status == "completed")
