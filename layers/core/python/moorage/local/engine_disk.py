"""Looks after the disk that containers of an engine share, as the launcher does for its sandboxes (``disk_guard.py``).

Volumes belong to the engine, and measuring them takes root. So each exec server says what its container holds, over a socket beside the
one that it serves.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from moorage import limits
from moorage.errors import SandboxError
from moorage.local.control import Control
from moorage.local.disk_guard import DiskGuard, DiskLimits, DiskUse, account_of
from moorage.sandbox.docker import CONTROL_SOCKET, DockerProvisioner, DockerSandbox

log = logging.getLogger(__name__)

_Identity = tuple[str, int, int]
"""Of a socket: the name of its container, and what a new one has otherwise (inode, time)."""


class EngineDisk:
    def __init__(self, sandboxes: DockerProvisioner, bounds: DiskLimits) -> None:
        self._sandboxes = sandboxes
        self._sockets = sandboxes.settings.runtime_dir
        self._guard = DiskGuard(bounds)
        self._by_name: Mapping[str, DockerSandbox] = {}
        self._controls: dict[_Identity, Control | None] = {}
        """None for a server that does not listen, yet or any more."""
        self._root: str | None = None

    async def watch(self) -> None:
        """Until cancelled. While the engine does not answer, nothing new is seen."""
        try:
            while True:
                await asyncio.sleep(limits.DISK_LOOK_SECONDS)
                try:
                    await self._look()
                except (SandboxError, OSError) as error:
                    log.debug("the disk of the containers could not be looked at: %s", error)
        finally:
            for control in filter(None, self._controls.values()):
                control.close()

    async def _look(self) -> None:
        await self._meet()
        met = {name: control for (name, _, _), control in self._controls.items() if control is not None and name in self._by_name}
        if not met:
            return
        free = await self._free()
        verdicts = self._guard.look([self._use(name, control) for name, control in met.items()], free)
        for name, control in met.items():
            control.tell(verdicts[name])
        for name in self._guard.to_stop(free):
            log.warning("%s has filled the disk of this machine, and is stopped.", name)
            await self._sandboxes.stop(self._by_name[name].sandbox_id)

    def _use(self, name: str, control: Control) -> DiskUse:
        sandbox = self._by_name[name]
        return DiskUse(name, account_of(sandbox.tenant_id, sandbox.container_id), control.used)

    async def _meet(self) -> None:
        """Connect with the exec servers that are new, and forget those that are gone."""
        found = self._found()
        for identity in self._controls.keys() - found:
            if (control := self._controls.pop(identity)) is not None:
                control.close()
        if found - self._controls.keys():
            self._by_name = {each.name: each for each in await self._sandboxes.running()}
        for identity in found:
            control = self._controls.get(identity)
            if control is None or control.is_closed:
                self._controls[identity] = self._connected(identity[0])

    def _connected(self, name: str) -> Control | None:
        try:
            control = Control.met(self._sockets / name / CONTROL_SOCKET)
        except OSError:
            return None
        control.attach()
        return control

    def _found(self) -> set[_Identity]:
        found = set()
        for folder in self._sockets.iterdir():
            try:
                status = (folder / CONTROL_SOCKET).stat()
            except OSError:
                continue
            found.add((folder.name, status.st_ino, status.st_mtime_ns))
        return found

    async def _free(self) -> int:
        """Of the disk of the engine's volumes. If the engine's own path is not in sight, the sockets lie on that disk
        (docs/docker.md)."""
        if self._root is None:
            self._root = await self._sandboxes.data_root()
        return _free_at(self._root, self._sockets)


def _free_at(*paths: str | Path) -> int:
    disk = os.statvfs(next(path for path in paths if os.path.isdir(path)))
    return disk.f_bavail * disk.f_frsize
