from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import sys
import time
from typing import Any, Dict, List, NoReturn, Tuple

from configuration import Config
from execs import Execs
from families import done_as


class DiskQuota:
    """Watches what commands write where the file system itself has no quota.

    Looked at about twice a second while something runs (more seldom when the tree is large), so that a command can overshoot by
    what a disk takes in that time. Beyond the quota everything that runs is killed with a notice, and files are refused. Commands
    may be started again (they must be able to delete), until they write yet more. One file never grows beyond the quota
    (RLIMIT_FSIZE). Nothing may hide: directories that their owner has closed are opened again, files without a name are counted
    while they are open, and a tree too deep to be measured counts as full.
    """

    INTERVAL_SECONDS = 0.5
    INTERVAL_SECONDS_MAX = 5.0
    SLACK_BYTES = 4 * 1024 * 1024
    SLACK_ENTRIES = 1_000

    def __init__(self, config: Config, execs: Execs) -> None:
        self._config = config
        self._execs = execs
        self._roots = [config.workspace, config.home, config.spool_dir]
        self._tripped_at = (0, 0)
        self.is_full = False

    async def watch(self) -> NoReturn:
        while True:
            self._execs.activity.clear()
            if not self._execs.processes.has_children():
                await self._execs.activity.wait()
            started = time.monotonic()
            self._judge(*await self._used())
            await asyncio.sleep(min(self.INTERVAL_SECONDS_MAX, max(self.INTERVAL_SECONDS, 20 * (time.monotonic() - started))))

    def _judge(self, used: int, entries: int) -> None:
        config = self._config
        self.is_full = used > config.disk_bytes_max or entries > config.disk_entries_max or self._is_machine_full()
        if not self.is_full:
            self._tripped_at = (0, 0)
        elif used > self._tripped_at[0] + self.SLACK_BYTES or entries > self._tripped_at[1] + self.SLACK_ENTRIES:
            # An immeasurable tree must not become the mark that later ones are compared with.
            self._tripped_at = (used, min(entries, config.disk_entries_max))
            self._execs.kill_all(
                f"\nThe disk of the container is full: more than {config.disk_bytes_max} bytes or {config.disk_entries_max} files "
                f"under {config.workspace} and {config.home}. All processes were stopped. Delete files to go on.\n"
            )

    def _is_machine_full(self) -> bool:
        """Whatever the accounting says, the last of a shared disk is not for sandboxes."""
        try:
            disk = os.statvfs(self._config.workspace)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < self._config.disk_reserve_bytes

    async def _used(self) -> Tuple[int, int]:
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
        uid = self._execs.processes.other_uid
        nameless = nameless_bytes(self._roots) if uid is None else int(done_as(uid, lambda: str(nameless_bytes(self._roots))) or 0)
        return used + nameless, entries


def opened_directory(path: str) -> Any:
    """``os.scandir``, also of a directory of ours that was closed to ourselves."""
    try:
        return os.scandir(path)
    except PermissionError:
        if os.path.islink(path):
            raise
        os.chmod(path, 0o700)
        return os.scandir(path)


def nameless_bytes(roots: List[str]) -> int:
    """The size of files that were deleted and are still open in some process, on the disks of ``roots``."""
    disks = {os.stat(root).st_dev for root in roots if os.path.isdir(root)}
    sizes: Dict[Tuple[int, int], int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{name}/fd"):
                    status = os.stat(f"/proc/{name}/fd/{fd}")
                    if status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and status.st_dev in disks:
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())
