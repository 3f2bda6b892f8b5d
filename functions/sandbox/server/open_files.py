"""What processes keep of files that have no name any more.

A deleted file takes its room until nobody has it: open, mapped, or in a message between two sockets that nobody has read. The first can
be measured. Of the others only that they are can be seen from outside; so where a process has one of them, all that was ever written
counts, as far as it does not stand in a file with a name. A program that has none of them is charged nothing for what it has deleted.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
from typing import Dict, List, NamedTuple, Set, Tuple

SECTOR_BYTES = 512
"""What ``ru_oublock`` counts in."""


class DeletedFiles(NamedTuple):
    open_bytes: int
    """Deleted files that are open."""
    has_unseen: bool
    """Whether there may be others: mapped, or on their way from one process to another."""
    is_closed: bool
    """Whether a process lets nobody look: its program cannot be read, or it has asked for that."""
    written_bytes: int
    """What the processes that live have written in their lives, whatever became of it."""


def holdings(roots: List[str]) -> DeletedFiles:
    """Of all processes that this one may look into, on the disks of ``roots``."""
    disks = {os.stat(root).st_dev for root in roots if os.path.isdir(root)}
    sizes: Dict[Tuple[int, int], int] = {}
    mapped: Set[Tuple[int, int]] = set()
    in_flight = is_closed = False
    written = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            for fd in os.listdir(f"/proc/{name}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(f"/proc/{name}/fd/{fd}")
                    if status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and status.st_dev in disks:
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
                    elif stat.S_ISSOCK(status.st_mode):
                        in_flight |= has_files_in_flight(name, fd)
            mapped |= deleted_and_mapped(name, disks)
            written += written_by(name)
        except PermissionError:
            is_closed |= is_alive(name)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return DeletedFiles(sum(sizes.values()), in_flight or not mapped <= sizes.keys(), is_closed, written)


def written_by_ended() -> int:
    """The writes of processes that have ended under this one, the first of its namespace."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock * SECTOR_BYTES


def has_files_in_flight(pid: str, fd: str) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}", "rb") as file:
        for line in file:
            if line.startswith(b"scm_fds:"):
                return int(line.split()[1]) > 0
    return False


def deleted_and_mapped(pid: str, disks: Set[int]) -> Set[Tuple[int, int]]:
    found = set()
    with open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            if line.rstrip().endswith(b"(deleted)"):
                device, inode = line.split()[3:5]
                major, minor = device.split(b":")
                disk = os.makedev(int(major, 16), int(minor, 16))
                if disk in disks:
                    found.add((disk, int(inode)))
    return found


def written_by(pid: str) -> int:
    with open(f"/proc/{pid}/io", "rb") as file:
        counts = dict(line.split(b":") for line in file)
    return int(counts[b"write_bytes"])


_EXITING = 0x4
"""PF_EXITING among the flags of a process, in the ninth field of its ``stat`` (proc_pid_stat(5), include/linux/sched.h)."""
_KILL_PENDING = 1 << (signal.SIGKILL - 1)


def is_alive(pid: str) -> bool:
    """Whether it goes on: not one that has ended, is ending, or was killed and has not had its turn since."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rsplit(b")", 1)[1].split()
        return fields[0] not in (b"Z", b"X") and not int(fields[6]) & _EXITING and not is_being_killed(pid)
    return False


def is_being_killed(pid: str) -> bool:
    with open(f"/proc/{pid}/status", "rb") as file:
        pending = [int(line.split()[1], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return any(signals & _KILL_PENDING for signals in pending)
