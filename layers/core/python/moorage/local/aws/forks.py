"""Processes of steps that are forked (``nursery.py``), as ministack handles those that it starts."""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any, Final, TextIO, cast

from ministack.core import lambda_runtime

from moorage.local.aws import nursery

_PR_SET_CHILD_SUBREAPER: Final = 36
_START_SECONDS_MAX: Final = 30.0
"""Of a nursery on a machine that is busy; a fork takes milliseconds."""


def take_in_orphans(yes: bool = True) -> None:
    """Whether processes whose parent ends become children of this one. A nursery's do, so that they are waited for and found here as
    others are."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)


class Fork:
    """As much of ``subprocess.Popen`` as ministack uses."""

    def __init__(self, pid: int, stdin: TextIO, stdout: TextIO, stderr: TextIO) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # whoever ends all children has waited for it
                    self.returncode = -signal.SIGKILL
                else:
                    self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                ended = os.pidfd_open(self.pid)
                try:
                    look = select.poll()
                    look.register(ended, select.POLLIN)
                    look.poll(timeout * 1000)
                finally:
                    os.close(ended)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Nursery:
    """One that has died is started again by whoever next wants a process of it."""

    def __init__(self, *, patience_seconds: float = _START_SECONDS_MAX) -> None:
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Begin; who asks before it is ready waits."""
        with self._lock:
            self._started()

    def stop(self) -> None:
        with self._lock:
            self._end()

    def fork(self, arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> Fork:
        """Raises OSError where none can be had."""
        wanted = json.dumps({"arguments": list(arguments), "folder": folder, "environment": dict(environment)}).encode()
        try:
            return self._forked(wanted)
        except OSError:  # It was killed, or hung; a second one in a row is no accident.
            return self._forked(wanted)

    def _forked(self, wanted: bytes) -> Fork:
        """Each try has pipes of its own: who comes of one that was given up finds them closed, and ends."""
        with ExitStack() as stack:
            (stdin, writing), (reading, stdout), (reading_errors, stderr) = (_pipe(stack) for _ in range(3))
            request = stack.enter_context(open(os.memfd_create("step"), "wb", buffering=0))
            request.write(wanted)
            pid = self._asked([request.fileno(), stdin, stdout, stderr])
            return Fork(pid, _text(writing, "w"), _text(reading, "r"), _text(reading_errors, "r"))

    def _asked(self, descriptors: list[int]) -> int:
        with self._lock:
            asked = self._started()
            try:
                socket.send_fds(asked, [b"\0"], descriptors)
                said = asked.recv(32)
            except OSError:
                self._end()  # Its late answer would be taken for that to the next question.
                raise
            if not said:
                self._end()
                raise ConnectionResetError("the process that forks steps has ended")
            return int(said)

    def _started(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked.settimeout(self._patience_seconds)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", nursery.__name__, str(theirs.fileno()), nursery.TITLE],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._socket = asked
        return asked

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None


def fork_workers(found: Nursery) -> None:
    """``_spawn`` starts a Python program with pipes for its streams, and nothing else in that module starts one that we have."""

    def started(arguments: Sequence[str], *, cwd: str, env: Mapping[str, str], **_: Any) -> Fork:
        return found.fork(arguments, cwd, env)

    lambda_runtime.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": started})


def _text(descriptor: int, mode: str) -> TextIO:
    return cast("TextIO", os.fdopen(os.dup(descriptor), mode, buffering=1))


def _pipe(stack: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        stack.callback(os.close, end)
    return ends
