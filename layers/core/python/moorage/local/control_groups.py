"""Limits of memory, processes and CPU for a sandbox as a whole, through Linux control groups."""

import contextlib
import os
import secrets
from pathlib import Path

from moorage import limits


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

    def create(self, name: str, memory_gib: int) -> list[Path]:
        """Make the group and return the files that a process joins it by writing its id to."""
        joins = []
        for controller, parent in self.parents.items():
            group = parent / f"moorage-{name}"
            group.mkdir(exist_ok=True)
            for file, value in _group_limits(self._version, controller, memory_gib):
                with contextlib.suppress(OSError):
                    (group / file).write_text(value)
            joins.append(group / "cgroup.procs")
        return joins

    def remove(self, name: str) -> bool:
        """False while there are processes in it."""
        is_removed = True
        for parent in self.parents.values():
            try:
                (parent / f"moorage-{name}").rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                is_removed = False
        return is_removed


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


def _group_limits(version: int, controller: str, memory_gib: int) -> list[tuple[str, str]]:
    memory, processes = memory_gib * 1024**3, limits.CONTAINER_PROCESSES_MAX + 8
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
