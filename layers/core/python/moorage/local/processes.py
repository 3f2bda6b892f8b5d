"""Child processes that end with their parent, in order, and files that are there whole or not at all."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_ROUNDS_MAX = 5
"""A thread that waits for a child may start it again once; it cannot for ever."""
REFUSED_WRITES = 3
"""Exit code of an emulator whose disk had no room for the last write."""


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent ends; to be called in a child before exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until a child that is being started is known: one that nobody knows would not be stopped."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_process(process: "subprocess.Popen[bytes]", seconds_max: int) -> None:
    """SIGTERM, patience, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def kill_children() -> None:
    """Whatever this process has started and still runs; they are gone when this returns."""
    for _ in range(_ROUNDS_MAX):
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def kill_group(pid: int) -> None:
    """What a process that led a session has left running in it."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


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


def flush_folder(folder: Path) -> None:
    """A new name is on disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inherited_environment() -> dict[str, str]:
    """This process's environment without AWS credentials: the emulator must never be handed real ones."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
