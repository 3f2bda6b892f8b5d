"""Limits of memory, processes and CPU for a sandbox as a whole, through Linux control groups.

A sandbox has one group with two in it: the exec server's, and that of everything it starts. The limits are the commands'; the server
has a reserve beside them. So commands that use up their memory, their processes or their CPU leave it what it needs to say so.
"""

import asyncio
import contextlib
import os
import secrets
import signal
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass

_JOIN: Final = {1: "tasks", 2: "cgroup.procs"}
"""What a process joins a group by, writing ``0``. Moving a process with all of its threads stops every fork of the machine and waits
until the kernel is sure of that, 5 to 20 ms in each command that is not right behind another one. What has just been forked is one
thread, and one that moves itself waits for nothing (Linux 5.4); but version 2 lets threads move within one group of memory only."""

_REMOVALS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The control group of one sandbox; without any path if there are none."""

    server: tuple[Path, ...] = ()
    """The files that the exec server joins its own by (``_JOIN``)."""
    commands: tuple[Path, ...] = ()
    memory_events: Path | None = None
    """Where the kernel counts the processes that it ended for want of memory ..."""
    process_events: Path | None = None
    """... and the forks that it refused."""


class ControlGroups:
    """The groups that this user may make.

    Version 2: the nearest ancestor of our own group below which we may make groups and whose controllers are switched on for its
    children (systemd delegates such a one to a user's session). Version 1: below our own group in each hierarchy.
    """

    def __init__(self, root: Path, own: str) -> None:
        """``root`` is ``/sys/fs/cgroup``, ``own`` the content of ``/proc/self/cgroup``."""
        self.parents = _v2_parent(root, own) or _v1_parents(root, own)
        self._version = 2 if "unified" in self.parents else 1

    @property
    def are_available(self) -> bool:
        return bool(self.parents)

    def create(self, name: str, memory_gib: int) -> ControlGroup:
        """Make the groups of one sandbox."""
        inner: list[Path] = []
        for controller, parent in self.parents.items():
            group = parent / f"moorage-{name}"
            group.mkdir(exist_ok=True)
            _write(group, _outer_limits(self._version, controller, memory_gib))
            for part in ("server", "commands"):
                (group / part).mkdir(exist_ok=True)
            _write(group / "server", _server_limits(self._version, controller))
            _write(group / "commands", _commands_limits(self._version, controller, memory_gib))
            inner.append(group)
        if not inner:
            return ControlGroup()
        join = _JOIN[self._version]
        memory, processes = (self._of(controller, name) / "commands" for controller in ("memory", "pids"))
        return ControlGroup(
            tuple(group / "server" / join for group in inner),
            tuple(group / "commands" / join for group in inner),
            memory / ("memory.events" if self._version == 2 else "memory.oom_control"),
            processes / "pids.events",
        )

    def remove(self, name: str) -> bool:
        """End what is left in it; False until that has gone. bubblewrap leaves a process behind if it is killed while it starts: its
        child waits to be told of its user."""
        is_removed = True
        for parent in self.parents.values():
            group = parent / f"moorage-{name}"
            for each in (group / "server", group / "commands", group):
                _end_processes(each)
                try:
                    each.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    is_removed = False
        return is_removed

    async def until_removed(self, name: str) -> None:
        """Processes that are on their way out still hold it for a while."""
        for _ in range(_REMOVALS_MAX):
            if self.remove(name):
                return
            await asyncio.sleep(0.05)

    def _of(self, controller: str, name: str) -> Path:
        return (self.parents.get("unified") or self.parents[controller]) / f"moorage-{name}"


def _write(group: Path, values: list[tuple[str, str]]) -> None:
    for file, value in values:
        with contextlib.suppress(OSError):
            (group / file).write_text(value)


def _end_processes(group: Path) -> None:
    with contextlib.suppress(OSError):  # It is gone, or was never made.
        for line in (group / "cgroup.procs").read_text().split():
            if line != "0":  # A process that our namespace does not show.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line), signal.SIGKILL)


def _v2_parent(root: Path, own: str) -> dict[str, Path]:
    paths = [line.removeprefix("0::/") for line in own.splitlines() if line.startswith("0::/")]
    candidates = [root / paths[0], *(root / paths[0]).parents] if paths else []
    for candidate in candidates:
        if not candidate.is_relative_to(root):
            return {}
        with contextlib.suppress(OSError):
            if {"memory", "pids"} <= set((candidate / "cgroup.subtree_control").read_text().split()) and _may_make(candidate):
                return {"unified": candidate}
    return {}


def _v1_parents(root: Path, own: str) -> dict[str, Path]:
    parents = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in set(controllers.split(",")) & {"memory", "pids", "cpu"}:
            parent = root / controllers / path.lstrip("/")
            if _may_make(parent):
                parents[controller] = parent
    return parents if {"memory", "pids"} <= parents.keys() else {}


def _may_make(parent: Path) -> bool:
    probe = parent / f"moorage-probe-{secrets.token_hex(4)}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return os.access(parent / "cgroup.procs", os.W_OK)


def _outer_limits(version: int, controller: str, memory_gib: int) -> list[tuple[str, str]]:
    """Of commands and server together: a wall behind the others, and the switches of version 2."""
    memory = memory_gib * 1024**3 + limits.SANDBOX_RESERVE_BYTES
    processes = limits.CONTAINER_PROCESSES_MAX + limits.SANDBOX_RESERVE_PROCESSES
    if version == 2:
        # Each by itself: one that is not there must not cost the others.
        switches = [("cgroup.subtree_control", f"+{name}") for name in ("memory", "pids", "cpu")]
        return [("memory.max", str(memory)), ("memory.swap.max", "0"), ("pids.max", str(processes)), *switches]
    return {
        "memory": [("memory.limit_in_bytes", str(memory)), ("memory.memsw.limit_in_bytes", str(memory))],
        "pids": [("pids.max", str(processes))],
        "cpu": [],
    }[controller]


def _commands_limits(version: int, controller: str, memory_gib: int) -> list[tuple[str, str]]:
    memory, processes = memory_gib * 1024**3, limits.CONTAINER_PROCESSES_MAX
    cpus = min(os.cpu_count() or 1, {1: 1, 4: 2, 16: 4, 64: 16}.get(memory_gib, 1))
    if version == 2:
        return [
            ("memory.max", str(memory)),
            ("memory.swap.max", "0"),
            ("pids.max", str(processes)),
            ("cpu.max", f"{cpus * 100_000} 100000"),
        ]
    return {
        "memory": [("memory.limit_in_bytes", str(memory)), ("memory.memsw.limit_in_bytes", str(memory))],
        "pids": [("pids.max", str(processes))],
        "cpu": [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", str(cpus * 100_000))],
    }[controller]


def _server_limits(version: int, controller: str) -> list[tuple[str, str]]:
    """No bound of its own, but the first turn: it sleeps most of the time."""
    if version == 2:
        return [("cpu.weight", "1000")]
    return [("cpu.shares", "10240")] if controller == "cpu" else []
