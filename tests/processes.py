"""The processes below a process, from /proc: what the kill tests aim at."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from moorage.local.launcher import NAME as LAUNCHER
from moorage.local.step_worker import NAME as WORKER


def descendants(pid: int) -> dict[int, str]:
    """Every process below ``pid`` with its command line and, in brackets, its name."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found: dict[int, str] = {}
    front = {pid}
    while front:
        front = {child for child, parent in parents.items() if parent in front}
        found |= {child: _command_line(child) for child in front}
    return found


def _command_line(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{line}({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return ""


def kill_all(below: int, chosen: Callable[[str], bool]) -> list[int]:
    """SIGKILL the descendants whose command line is chosen."""
    killed = [pid for pid, line in descendants(below).items() if chosen(line)]
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return killed


def power_cut(process: "subprocess.Popen[bytes] | None") -> None:
    """SIGKILL to it and to every process below it, at once."""
    assert process is not None
    for pid in (process.pid, *descendants(process.pid)):
        with suppress(ProcessLookupError):  # it has gone with its parent
            os.kill(pid, signal.SIGKILL)
    process.wait()


def is_worker(line: str) -> bool:
    """Of the loop, on one machine; also one that still imports its modules, and has no name."""
    return line.endswith(f"({WORKER})") or "moorage.local.step_worker" in line


def is_launcher(line: str) -> bool:
    """Also what it has just forked, which still looks like it."""
    return line.endswith(f"({LAUNCHER})") or "moorage.local.launcher" in line


def until(condition: Callable[[], object], seconds_max: float = 60) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
