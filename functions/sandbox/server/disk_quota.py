from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import sys
import time
from typing import Any, Tuple

from configuration import ServerConfig
from execs import Execs
from open_files import DeletedFiles, holdings, written_by_ended
from process_groups import done_as


class DiskQuota:
    """Watches what commands write, and ends them when it is too much.

    Looked at about twice a second while something runs, so that a command can overshoot by what a disk takes in that time. Beyond the
    quota everything that runs is killed with a notice, and files are refused. Commands may be started again (they must be able to
    delete), until they write yet more. One file never grows beyond the quota (RLIMIT_FSIZE).

    If the container has a file system of its own, that knows exactly what is taken, however it is held, and lets nobody pass a
    bound a little above the quota. Elsewhere the tree is walked (more seldom when it is large), and nothing may hide: directories that
    their owner has closed are opened again, files without a name count as far as processes hold them (``open_files.py``), and a tree
    too deep to be measured counts as full, as does a process that lets nobody look.
    """

    INTERVAL_SECONDS = 0.5
    OWN_DISK_INTERVAL_SECONDS = 0.1
    """Asking a file system costs microseconds."""
    INTERVAL_SECONDS_MAX = 5.0
    SLACK_BYTES = 4 * 1024 * 1024
    SLACK_ENTRIES = 1_000

    def __init__(self, config: ServerConfig, execs: Execs) -> None:
        self._config = config
        self._execs = execs
        self._roots = [config.workspace, config.home, config.spool_dir]
        self._tripped_at = (0, 0)
        self._is_settling = False
        self._had_room_with = 0
        self.used = 0
        self._entries = 0
        self._was_closed = False
        self._owners_reason = ""
        self.reason = ""
        """Why nothing more may be written; empty while it may."""

    @property
    def charged(self) -> int:
        """The container's bytes: its quota if they cannot be measured, so that it counts in a sum with its maximum."""
        return self.used if self.used < sys.maxsize else self._config.disk_bytes_max

    async def watch(self) -> None:
        while True:
            await self._execs.until_busy()
            started = time.monotonic()
            await self.look()
            shortest = self.OWN_DISK_INTERVAL_SECONDS if self._config.owns_disk else self.INTERVAL_SECONDS
            await asyncio.sleep(min(self.INTERVAL_SECONDS_MAX, max(shortest, 20 * (time.monotonic() - started))))
            if not self._execs.processes.has_children():
                await self.look()  # what the last one has written before it ended

    async def look(self) -> None:
        self.used, self._entries = self._own_disk() if self._config.owns_disk else await self._walked()
        self._judge(self.used, self._entries, has_looked=True)

    def hear(self, reason: str) -> None:
        """The owner of the sandbox may have a reason that nothing more be written."""
        self._owners_reason = reason
        self._judge(self.used, self._entries, has_looked=False)

    def _judge(self, used: int, entries: int, *, has_looked: bool) -> None:
        config = self._config
        self.reason = self._reason(used, entries)
        # What cannot be measured must not become the mark that later looks are compared with. What can be measured becomes it as it is:
        # a mark below it would end each later command, also the one that deletes.
        mark = self.charged, entries if entries < sys.maxsize else config.disk_entries_max
        if not self.reason:
            self._tripped_at = (0, 0)
            self._is_settling = False
        elif self._is_settling:
            # Those that were stopped have written after the look that counted against them. The next command pays only for its own.
            if has_looked:
                self._tripped_at, self._is_settling = mark, False
        elif used > self._tripped_at[0] + self.SLACK_BYTES or entries > self._tripped_at[1] + self.SLACK_ENTRIES:
            self._tripped_at = mark
            self._is_settling = True
            self._execs.kill_all(f"\n{self.reason} All processes were stopped. Delete files to go on.\n")

    def _reason(self, used: int, entries: int) -> str:
        config = self._config
        if used > config.disk_bytes_max or entries > config.disk_entries_max:
            return (
                f"The disk of the container is full: more than {config.disk_bytes_max} bytes or {config.disk_entries_max} files "
                f"under {config.workspace} and {config.home}; deleted files count while a process holds them."
            )
        if self._owners_reason:
            return self._owners_reason
        if not self._is_machine_full():
            self._had_room_with = used
        elif used > self._had_room_with + self.SLACK_BYTES:
            return f"The disk of this machine is nearly full: less than {config.disk_reserve_bytes} bytes are left."
        return ""

    def _is_machine_full(self) -> bool:
        """With any accounting, the last of a shared disk is not for sandboxes."""
        try:
            disk = os.statvfs(self._config.workspace)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < self._config.disk_reserve_bytes

    def _own_disk(self) -> Tuple[int, int]:
        disk = os.statvfs(self._config.spool_dir)
        return (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_files - disk.f_ffree

    async def _walked(self) -> Tuple[int, int]:
        used = entries = 0
        stack = list(self._roots)
        while stack:
            try:
                with opened_directory(stack.pop()) as iterator:
                    for entry in iterator:
                        entries += 1
                        if entries % 500 == 0:
                            await asyncio.sleep(0)
                        with contextlib.suppress(FileNotFoundError):
                            used += entry.stat(follow_symlinks=False).st_blocks * 512
                            if entry.is_dir(follow_symlinks=False):
                                stack.append(entry.path)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    return used, sys.maxsize
        return used + self._nameless(used), entries

    def _nameless(self, named: int) -> int:
        """The bytes of deleted files, now or at most; ``named`` are those of the others."""
        uid = self._execs.processes.other_uid
        if uid is None:
            held = holdings(self._roots)
        else:
            held = DeletedFiles(*json.loads(done_as(uid, lambda: json.dumps(holdings(self._roots))) or "[0, false, false, 0]"))
        # For a moment a process that begins may be closed. Where commands are another user's, programs close themselves for good
        # reasons, and the disk is this container's alone.
        if held.is_closed and self._was_closed and self._config.control_fd is not None:
            self._was_closed = False  # all of them are ended now; what begins next is given its moment too
            return sys.maxsize
        self._was_closed = held.is_closed
        # Of processes that are not all the container's, what they have written says nothing.
        is_alone = os.getpid() == 1 or uid is not None
        written = held.written_bytes + written_by_ended() if held.has_unseen and is_alone else 0
        return max(held.open_bytes, written - named)


def opened_directory(path: str) -> Any:
    """``os.scandir``, also of a directory of ours that was closed to ourselves."""
    try:
        return os.scandir(path)
    except PermissionError:
        if os.path.islink(path):
            raise
        os.chmod(path, 0o700)
        return os.scandir(path)
