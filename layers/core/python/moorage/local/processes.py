"""Child processes that end with their parent, in order, and files that are there whole or not at all."""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol, TypeVar

from moorage.dataclass import dataclass
from moorage.disk import flush_folder
from moorage.terminal import say

START_SECONDS_MAX = 30
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_WAIT_SECONDS = 0.01
_LEFTOVER_SECONDS_MAX = 5
"""SIGKILL is slow where a process waits for a disk."""
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_STATE, _STARTED = 0, 19
"""proc(5), counted from the third field."""


def dying_with(parent: int) -> Callable[[], None]:
    """Called in a child before exec, so that it gets SIGTERM when its parent ends. An earlier end is seen here."""

    def prepare() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)

    return prepare


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until a child that is being started is known: one that nobody knows would not be stopped. And Python loses what a
    signal raises in the moment of a fork."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ChildProcess(Protocol):
    """What is asked of a child: ``subprocess.Popen`` of a program, or a :class:`ForkedProcess`."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...


Begun = TypeVar("Begun", bound=ChildProcess)


@dataclass(slots=True)
class ForkedProcess:
    """A child that began as a copy of this process, with the interface of ``subprocess.Popen``."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(_WAIT_SECONDS)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def fork(work: Callable[[], None], output: Path) -> ForkedProcess:
    """Run ``work`` in a copy of this process, which has all modules already. The copy ends with ``work``, or with its parent, and
    writes into ``output``. Only a process without threads can be copied: their locks would stay taken."""
    assert not has_threads(), "a process with threads is copied"
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with uninterrupted():
        pid = os.fork()
        if pid == 0:
            _be_child(work, output, parent)
    return ForkedProcess(pid)


def has_threads() -> bool:
    """Whether this process has threads beside this one, Python's or others."""
    return len(os.listdir("/proc/self/task")) > 1


def _be_child(work: Callable[[], None], output: Path, parent: int) -> None:
    """Never returns: what is above in the stack belongs to the parent."""
    code = 1
    try:
        os.setsid()
        dying_with(parent)()
        nothing, log = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, number)
        os.close(nothing)
        os.close(log)
        work()
        code = 0
    except SystemExit as end:
        say(str(end.code), out=sys.stderr)  # As Python does for a program.
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def close_all_files() -> None:
    """All descriptors but the standard ones, as a program is begun."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # The one that this list was read by.
                os.close(int(name))


def take_name(name: str) -> None:
    """Show this process under a name of at most 15 bytes (``ps -o comm``): a copy has its parent's command line."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def stop_process(process: ChildProcess, seconds_max: int) -> None:
    """SIGTERM, patience, then SIGKILL. A process that was stopped (SIGSTOP) goes on, so that it can end."""
    if process.poll() is None:
        process.terminate()
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def identity(pid: int) -> str:
    """A process by its id and the time of its start, because ids are given again; empty if there is none that runs."""
    stat = _stat(pid)
    return f"{pid} {stat[_STARTED]}" if stat and stat[_STATE] not in "ZX" else ""


def is_running(named: str) -> bool:
    pid = named.partition(" ")[0]
    return pid.isdigit() and identity(int(pid)) == named


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped it (SIGSTOP), or holds it in a debugger."""
    stat = _stat(pid)
    return bool(stat) and stat[_STATE] in "Tt"


def _stat(pid: int) -> list[str]:
    """proc(5): the fields after the name. A name may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def end_leftover(noted: Path) -> None:
    """Kill the noted processes of an earlier stack; they are gone when this returns."""
    named = noted.read_text() if noted.exists() else ""
    deadline = time.monotonic() + _LEFTOVER_SECONDS_MAX
    while is_running(named) and time.monotonic() < deadline:
        with suppress(ProcessLookupError):
            os.kill(int(named.partition(" ")[0]), signal.SIGKILL)
        time.sleep(0.01)


def write_private(path: Path, text: str) -> None:
    """A file for this user alone, on disk when this returns; a full disk leaves the one that was there."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    flush_folder(path.parent)


def noted(place: Path, begin: Callable[[], Begun]) -> Begun:
    """The process that ``begin`` starts, noted at ``place``. The one that is noted there is ended first."""
    end_leftover(place)
    process = begin()
    write_private(place, identity(process.pid))
    return process


def begin_program(
    command: Sequence[str],
    log_file: Path,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    lock: IO[str] | None = None,
) -> "subprocess.Popen[bytes]":
    """A program that ends with this process, and holds the ``lock`` until then."""
    with log_file.open("ab") as log, uninterrupted():
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            pass_fds=() if lock is None else (lock.fileno(),),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=dying_with(os.getpid()),
        )


def end_now(process: ChildProcess) -> None:
    """Without a chance to end by itself."""
    process.kill()
    process.wait()


def comes_up(process: ChildProcess, path: Path) -> bool:
    """Whether it listens at ``path`` before it ends, and before its time is up."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(str(path)) == 0 and _listener_of(connection) == process.pid:
                return True
        time.sleep(0.01)
    return False


def _listener_of(connection: socket.socket) -> int:
    """unix(7): the process that called ``listen``. It may be of an earlier start that has not ended yet."""
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid)


def inherited_environment() -> dict[str, str]:
    """This process's environment without AWS credentials: the egress proxy has no use for them."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
