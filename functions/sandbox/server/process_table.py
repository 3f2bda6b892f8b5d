"""What runs in the sandbox: all that commands have left behind, with the ports on which it listens.

Everything that descends from the server: what outlives its parent becomes a child of it (``PR_SET_CHILD_SUBREAPER``), so nothing hides
by forking away, and if the server is not alone, nothing of others is told.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Set

from process_groups import done_as

PROCESSES_TOLD_MAX = 500
COMMAND_CHARS_MAX = 1_000
DESCRIPTORS_MAX = 50_000
"""Looked at for one answer: a tenth of a second."""
LISTENS = "0A"
"""TCP_LISTEN in ``/proc/net/tcp`` (include/net/tcp_states.h)."""

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessStat(NamedTuple):
    """Of ``/proc/<pid>/stat`` (proc_pid_stat(5))."""

    name: str
    state: str
    parent: int
    ticks: int
    start_ticks: int
    pages: int


def census(uid: Optional[int]) -> Dict[str, Any]:
    """``uid``: the commands' user, if it is another. Its descriptors are its own to see, even for root without CAP_SYS_PTRACE."""
    server = os.getpid()
    if uid is None:
        return taken(server)
    answer = done_as(uid, lambda: json.dumps(taken(server)))
    return json.loads(answer) if answer else {"processes": [], "complete": False}


def taken(server: int) -> Dict[str, Any]:
    stats = {int(name): stat for name in os.listdir("/proc") if name.isdigit() for stat in [stat_of(name)] if stat is not None}
    mine = descendants(server, {pid: stat.parent for pid, stat in stats.items()}) - {os.getpid()}
    shown = sorted(pid for pid in mine if stats[pid].state not in ("Z", "X"))
    ports = ListeningPorts()
    begun = boot_seconds()
    return {
        "processes": [told(pid, stats[pid], begun, ports.of(pid)) for pid in shown[:PROCESSES_TOLD_MAX]],
        "complete": len(shown) <= PROCESSES_TOLD_MAX,
    }


def told(pid: int, stat: ProcessStat, begun: float, ports: Optional[List[int]]) -> Dict[str, Any]:
    return {
        "pid": pid,
        "parent_pid": stat.parent,
        "command": command_of(pid) or f"[{stat.name}]",
        "started_at_ms": int((begun + stat.start_ticks / TICKS) * 1000),
        "cpu_seconds": round(stat.ticks / TICKS, 2),
        "memory_bytes": stat.pages * PAGE_BYTES,
        "ports": ports,
    }


def stat_of(pid: str) -> Optional[ProcessStat]:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        head, tail = file.read().rsplit(b")", 1)
        fields = tail.split()
        name = head.split(b"(", 1)[1].decode("utf-8", "replace")
        ticks = int(fields[11]) + int(fields[12])
        return ProcessStat(name, fields[0].decode(), int(fields[1]), ticks, int(fields[19]), int(fields[21]))
    return None


def descendants(server: int, parents: Dict[int, int]) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: Set[int] = set()
    waiting = [server]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read(4 * COMMAND_CHARS_MAX).rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")[:COMMAND_CHARS_MAX]
    return ""


def boot_seconds() -> float:
    with open("/proc/stat", "rb") as file:
        return next((float(line.split()[1]) for line in file if line.startswith(b"btime ")), 0.0)


class ListeningPorts:
    """The TCP ports of listening processes, by the inodes of their sockets."""

    def __init__(self) -> None:
        self._by_inode = listening()
        self._left = DESCRIPTORS_MAX

    def of(self, pid: int) -> Optional[List[int]]:
        """None of a process that lets nobody look, or that nobody could look into any more."""
        found: Set[int] = set()
        if not self._by_inode:
            return []
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if self._left <= 0:
                    return None
                self._left -= 1
                with contextlib.suppress(FileNotFoundError):
                    target = os.readlink(f"/proc/{pid}/fd/{fd}")
                    if target.startswith("socket:[") and target[8:-1] in self._by_inode:
                        found.add(self._by_inode[target[8:-1]])
        except OSError:
            return None
        return sorted(found)


def listening() -> Dict[str, int]:
    found = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{table}") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == LISTENS:
                    found[fields[9]] = int(fields[1].rsplit(":", 1)[1], 16)
    return found
