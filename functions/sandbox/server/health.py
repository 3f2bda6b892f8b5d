"""The kernel's refusals to the commands: memory and processes. It counts both in their control group."""

from __future__ import annotations

import contextlib
import os
from typing import Dict, FrozenSet, NamedTuple, Optional

from configuration import ServerConfig

COUNTERS_BYTES_MAX = 4_096
GROUPS = "/sys/fs/cgroup"
MEMORY_EVENTS = ("memory.events", "memory/memory.oom_control")
"""Where groups of version 2 and of version 1 count. Both have a line ``oom_kill`` (Linux, admin-guide/cgroup-v2.rst and
cgroup-v1/memory.rst)."""
SCRATCH_FULL_BYTES = 64 * 1024
"""A scratch directory with less room than this is full."""


class HealthMark(NamedTuple):
    """How things stood when a command began."""

    memory_kills: int
    full: FrozenSet[str]


class HealthCounters:
    def __init__(self, config: ServerConfig, groups: str = GROUPS) -> None:
        self._scratch = config.scratch
        self._workspace = config.workspace
        self._memory_bytes_max = config.memory_bytes_max
        # In a container of an engine the group is the container's own, and stands where groups always stand.
        self._memory_fd = config.memory_events_fd or opened(*(os.path.join(groups, name) for name in MEMORY_EVENTS))
        # That group leaves the server a reserve above the commands' own bound, RLIMIT_NPROC. What that one refuses, no group counts.
        self._process_fd = config.process_events_fd

    def mark(self) -> HealthMark:
        return HealthMark(self._memory_kills(), frozenset(path for path in self._scratch if room(path) < SCRATCH_FULL_BYTES))

    def news_since(self, mark: HealthMark) -> str:
        """A command's notes of failures since ``mark``; empty if there are none."""
        news = ""
        if self._memory_kills() > mark.memory_kills:
            share = f"has {self._memory_bytes_max >> 20} MiB" if self._memory_bytes_max else "has a limit"
            news += (
                f"\nOut of memory: the container {share} for all of its commands together; {self._scratch_counts()}"
                "The kernel ended a process.\n"
            )
        for path in sorted(self.mark().full - mark.full):
            news += (
                f"\n{path} is full: it is memory of the container, and holds {taken(path) >> 20} MiB at most. "
                f"Large files belong in {self._workspace}.\n"
            )
        return news

    def refused_forks(self) -> Optional[int]:
        """How often a process was refused for their number; None if nobody counts it."""
        return counters(self._process_fd).get("max")

    def _memory_kills(self) -> int:
        return counters(self._memory_fd).get("oom_kill", 0)

    def _scratch_counts(self) -> str:
        if not self._scratch:
            return ""
        size = sum(taken(path) for path in self._scratch)
        return f"files in {' and '.join(self._scratch)} count ({size >> 20} MiB now). "


def opened(*paths: str) -> Optional[int]:
    """The first that is there."""
    for path in paths:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def counters(fd: Optional[int]) -> Dict[str, int]:
    if fd is None:
        return {}
    try:
        words = os.pread(fd, COUNTERS_BYTES_MAX, 0).split()
    except OSError:
        return {}
    return {name.decode(): int(value) for name, value in zip(words[::2], words[1::2])}


def room(path: str) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def taken(path: str) -> int:
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize
