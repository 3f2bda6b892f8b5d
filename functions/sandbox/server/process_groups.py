"""The owners of processes: finding and killing all that one exec has started."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
from typing import Callable, Counter, Iterator, List, NamedTuple, Optional, Tuple

KILL_ROUNDS_MAX = 50


def kill_session(leader: int, pipe_inodes: Tuple[int, ...], uid: Optional[int]) -> None:
    """Kill a process group and session, and whatever left them but still holds the exec's output pipes.

    New processes may appear while we look, so look again until nothing is left. A service that made a session of its own and
    gave up the pipes is nobody's child any more and lives on.
    """
    for _ in range(KILL_ROUNDS_MAX):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        strays = members(leader, pipe_inodes) if uid is None else members_as(uid, leader, pipe_inodes)
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def members(leader: int, pipe_inodes: Tuple[int, ...]) -> List[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in pids if _belongs(pid, leader, pipe_inodes)]


def members_as(uid: int, leader: int, pipe_inodes: Tuple[int, ...]) -> List[int]:
    """The same, seen by the commands' user: without CAP_SYS_PTRACE even root may not look at others' descriptors."""
    return [int(word) for word in done_as(uid, lambda: " ".join(map(str, members(leader, pipe_inodes)))).split()]


class ProcessGroup(NamedTuple):
    leader: int
    size: int
    """Threads, as RLIMIT_NPROC counts."""
    all: int
    """Of all groups."""


def largest_group(uid: Optional[int]) -> ProcessGroup:
    """The process group with the most threads, of the commands' user if that is another. The server's own does not count."""
    sizes: Counter[int] = collections.Counter()
    for group, threads in _groups(uid):
        sizes[group] += threads
    leader, size = sizes.most_common(1)[0] if sizes else (0, 0)
    return ProcessGroup(leader, size, sum(sizes.values()))


def _groups(uid: Optional[int]) -> Iterator[Tuple[int, int]]:
    """Of each process its group and the number of its threads (proc_pid_stat(5))."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                if uid is not None and os.fstat(file.fileno()).st_uid != uid:
                    continue
                fields = file.read().rsplit(b")", 1)[1].split()
                if fields[0] not in (b"Z", b"X"):
                    yield int(fields[2]), int(fields[17])


def kill_all_of(uid: int) -> None:
    """Kill every process that this user may kill: its own."""

    def kill() -> str:
        os.kill(-1, signal.SIGKILL)
        return ""

    done_as(uid, kill)


def done_as(uid: int, action: Callable[[], str]) -> str:
    """The result of ``action``, if a child of ours does it as another user; empty if it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(writing, action().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = file.read().decode()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return answer


def _belongs(pid: int, leader: int, pipe_inodes: Tuple[int, ...]) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, group, session = file.read().rsplit(b")", 1)[1].split()[:4]
        if state in (b"Z", b"X"):
            return False
        if leader in (int(group), int(session)):
            return True
        targets = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except (OSError, ValueError):
        return False
    return any(f"pipe:[{inode}]" in targets for inode in pipe_inodes)
