"""Sandboxes by bubblewrap: how one is built, started and cleared away. The launcher (``local/launcher.py``) serves this.

A sandbox is one ``bwrap`` whose first process is the exec server (``functions/sandbox``). Its listening socket is made here and
handed over as an open descriptor, so that no command can see or replace it and a caller may connect before the server is up; its
token goes through a pipe. When the owner ends, however it ends, the kernel kills its sandboxes (``--die-with-parent``).

Making one takes a tenth of a second, so that one more than is asked for stands ready: a sandbox like the last one, or of the usual size
before there was one, whose exec server waits for its configuration. It has never been anybody's, runs nothing, and answers nobody.

If the owner is root, each sandbox runs as a user of its own: user namespaces alone would leave it root's right to files that
belong to root, ``/proc/sys`` above all. The walls and their reasons are in ``docs/sandbox.md``.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import IO, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxError, SandboxGone
from moorage.local import skills
from moorage.local.bubblewrap_arguments import DATA, WORKSPACE, BindMount, binds, files, scratch_of, server_config, socket_of
from moorage.local.control import Control
from moorage.local.control_groups import ControlGroup
from moorage.local.desks import Desks, link_of, listen_for_desk
from moorage.local.disk_guard import DiskGuard, DiskUse, account_of
from moorage.local.disks import IMAGE
from moorage.local.removal import start_removing
from moorage.local.sandbox_paths import Site
from moorage.local.spawning import SpawnPlan, ended, kill, last_words, make_workspace, spawn
from moorage.local.users import HOST_UIDS, HOST_UIDS_FROM
from moorage.sandbox import seccomp
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.machine_bounds import SandboxShare
from moorage.sandbox.provisioner import USUAL_MEMORY_GIB, EgressSpec, Handle, SandboxSpec, SandboxStatus

_SPARE_AFTER_SECONDS: Final = 0.1
"""Until the one that was just taken has run its first command."""
log = logging.getLogger("moorage.launcher")


@dataclass(slots=True, eq=False)
class BubblewrapSandbox:
    sandbox_id: str
    memory_gib: int
    directory: Path
    endpoint: str
    process: subprocess.Popen[bytes]
    first_process: int
    """The exec server's process id, seen from here."""
    uid: int
    control: Control
    group: ControlGroup
    closing_key: int | None
    """See ``seccomp.py``; None for a sandbox that owns its disk."""
    configuration: IO[bytes]
    """Where its exec server is told whom it serves."""
    tenant_id: str = ""
    container_id: str = ""
    egress: EgressSpec | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def owns_disk(self) -> bool:
        return self.closing_key is None

    def share(self) -> SandboxShare:
        return SandboxShare(self.tenant_id, self.memory_gib)

    def use(self) -> DiskUse:
        return DiskUse(self.sandbox_id, account_of(self.tenant_id, self.container_id), self._used())

    def unwritten(self) -> int:
        """The bytes that its file system has taken and the disk under it has not been given yet."""
        if not self.owns_disk:
            return 0
        with contextlib.suppress(OSError):
            return max(0, self._used() - os.stat(self.directory / IMAGE).st_blocks * 512)
        return 0

    def _used(self) -> int:
        if not self.owns_disk:
            return self.control.used
        with contextlib.suppress(OSError):
            disk = os.statvfs(f"/proc/{self.first_process}/root/mnt/data")
            return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        return 0


class Bubblewrap:
    """All sandboxes of one owner. Not a :class:`Provisioner` itself: it lives in the owner's process, and others ask by HTTP."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._by_id: dict[str, BubblewrapSandbox] = {}
        self._by_container: dict[tuple[str, str], BubblewrapSandbox] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._uids = itertools.cycle(range(HOST_UIDS_FROM, HOST_UIDS_FROM + HOST_UIDS))
        self._starting: list[SandboxShare] = []
        """Of those that are on their way."""
        self._spare: BubblewrapSandbox | None = None
        """Nobody's yet, and in no list."""
        self._sparing: asyncio.Task[None] | None = None
        self._guard = DiskGuard(site.disk_limits)
        self._desks = Desks(site, self._free_uid)

    async def start(self, spec: SandboxSpec) -> BubblewrapSandbox:
        """Idempotent per container; two callers at once get the same sandbox."""
        key = (spec.tenant_id, spec.container_id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = self._by_container.get(key)
            if known is not None:
                return known
            share = SandboxShare(spec.tenant_id, spec.memory_gib)
            self._site.bounds.check([each.share() for each in self._by_container.values()] + self._starting, share)
            self._starting.append(share)
            try:
                return await self._start(key, spec)
            finally:
                self._starting.remove(share)

    def prewarm(self) -> None:
        """Have a sandbox of the usual size stand ready for whoever comes first."""
        self._sparing = asyncio.create_task(self._prepare(USUAL_MEMORY_GIB, after_seconds=0))

    async def stop(self, sandbox_id: str) -> None:
        """Kill it and wait until it is cleared away."""
        sandbox = self._by_id.get(sandbox_id)
        if sandbox is not None:
            await kill(sandbox.first_process, sandbox.ended)

    async def stop_all(self) -> None:
        if self._sparing is not None:
            self._sparing.cancel()
        if self._spare is not None:
            self._by_id[self._spare.sandbox_id] = self._spare
        await asyncio.gather(*(self.stop(sandbox_id) for sandbox_id in list(self._by_id)))

    async def add_skill(self, sandbox_id: str, directory: str, archive: bytes) -> None:
        """Put a bundle's folder into the sandbox's view, from outside its walls. Raises :class:`SandboxError`."""
        if sandbox_id not in self._by_id:
            raise SandboxGone("The container is not running.")
        await asyncio.to_thread(skills.add, skills.shelf(self._site.runtime_dir, sandbox_id), directory, archive)

    async def desk(self, sandbox_id: str, token_sha256: str, *, starts: bool) -> str:
        """The endpoint of the desk beside a sandbox, which ``starts`` if there is none. Raises :class:`SandboxError`."""
        sandbox = self._by_id.get(sandbox_id)
        if sandbox is None:
            raise SandboxGone("The container is not running.")
        return await self._desks.start(sandbox_id, sandbox.tenant_id, sandbox.egress, token_sha256, starts=starts)

    def describe(self, sandbox_id: str) -> SandboxStatus:
        return SandboxStatus.RUNNING if sandbox_id in self._by_id else SandboxStatus.STOPPED

    def running(self) -> list[BubblewrapSandbox]:
        return list(self._by_id.values())

    async def watch_disk(self) -> None:
        """Look after the shared parts of all sandboxes, until cancelled."""
        while True:
            await asyncio.sleep(limits.DISK_LOOK_SECONDS)
            for sandbox_id in self.look_at_disk():
                log.warning("%s has filled the disk of this machine, and is stopped.", sandbox_id)
                await self.stop(sandbox_id)

    def look_at_disk(self) -> list[str]:
        """Tell sandboxes to write no more, or that they may again. Returns those that must go."""
        sandboxes = self.running()
        disk = os.statvfs(self._site.state_dir)
        free = disk.f_bavail * disk.f_frsize - sum(each.unwritten() for each in sandboxes)
        verdicts = self._guard.look([each.use() for each in sandboxes], free)
        for sandbox in sandboxes:
            sandbox.control.tell(verdicts[sandbox.sandbox_id])
        return self._guard.to_stop(free)

    async def _start(self, key: tuple[str, str], spec: SandboxSpec) -> BubblewrapSandbox:
        spare = self._spare
        if spare is not None and (spare.memory_gib, spec.egress, spec.is_read_only) == (spec.memory_gib, None, False):
            self._spare = None
            with contextlib.suppress(SandboxError):  # It has died where it stood, and was not seen to.
                return await self._begin(spare, key, spec)
        return await self._begin(self._spawn(spec.memory_gib, spec.egress, is_read_only=spec.is_read_only), key, spec)

    async def _begin(self, sandbox: BubblewrapSandbox, key: tuple[str, str], spec: SandboxSpec) -> BubblewrapSandbox:
        sandbox.tenant_id, sandbox.container_id = key
        sandbox.egress = spec.egress
        self._by_id[sandbox.sandbox_id] = sandbox
        try:
            await self._configure(sandbox, spec)
            await self._until_healthy(sandbox, spec.token)
        except BaseException:
            await self.stop(sandbox.sandbox_id)
            raise
        if not sandbox.ended.is_set():
            self._by_container[key] = sandbox
        if self._sparing is None or self._sparing.done():
            self._sparing = asyncio.create_task(self._prepare(spec.memory_gib, after_seconds=_SPARE_AFTER_SECONDS))
        return sandbox

    async def _prepare(self, memory_gib: int, *, after_seconds: float) -> None:
        """Have a sandbox stand ready, in place of one that is unlike those that are wanted."""
        await asyncio.sleep(after_seconds)
        if self._spare is not None and self._spare.memory_gib != memory_gib:
            self._spare.process.kill()
            self._spare = None
        if self._spare is None:
            with contextlib.suppress(SandboxError):  # Whoever wants the next one is told what is wrong.
                self._spare = self._spawn(memory_gib, None)

    async def _configure(self, sandbox: BubblewrapSandbox, spec: SandboxSpec) -> None:
        config = {**server_config(self._site, spec, sandbox.group), "closing_key": sandbox.closing_key}
        pipe, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.Protocol, sandbox.configuration)
        if not sandbox.configuration.closed:  # As it is by the time it is seen to have died.
            pipe.write(json.dumps(config).encode())
        pipe.close()

    def _spawn(self, memory_gib: int, egress: EgressSpec | None, *, is_read_only: bool = False) -> BubblewrapSandbox:
        """Raises :class:`SandboxError`, also if the disk is full."""
        try:
            return self._made(memory_gib, egress, is_read_only)
        except OSError as error:
            raise SandboxError(f"The sandbox could not be made: {error.strerror}.") from error

    def _made(self, memory_gib: int, egress: EgressSpec | None, is_read_only: bool) -> BubblewrapSandbox:
        sandbox_id = f"sbx_{secrets.token_hex(12)}"
        directory = self._site.state_dir / "sandboxes" / sandbox_id
        shelf = skills.shelf(self._site.runtime_dir, sandbox_id)
        endpoint = self._site.runtime_dir / f"{sandbox_id}.sock"
        uid = self._free_uid()
        (control, ours), disk, neighbour = Control.pair(), None, None
        reading, writing = os.pipe()
        try:
            shelf.mkdir(mode=0o755, parents=True)
            visible = binds(self._site, directory, shelf, egress, is_read_only=is_read_only)
            _check(bind for bind in visible if Path(bind.source).parent != directory)
            if egress is not None and self._site.runs_as_other_users:
                # Connecting takes the right to write. Only those who see the directory get this far.
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(socket_of(egress), 0o666)
            directory.mkdir(mode=0o755, parents=True)
            if self._site.disks is not None:
                disk = self._site.disks.make(directory)
            else:
                make_workspace(directory, uid)
            group = self._site.groups.create(sandbox_id, memory_gib)
            key = None if disk is not None else secrets.randbits(64)
            neighbour = listen_for_desk(self._site, sandbox_id)
            plan = SpawnPlan(
                site=self._site,
                directory=directory,
                endpoint=endpoint,
                visible=visible,
                configuration=reading,
                group=group,
                uid=uid,
                disk=disk,
                system_calls=seccomp.program(closing_key=key),
                handed=(ours.fileno(), neighbour.fileno()),
                files=files(self._site),
                scratch=scratch_of(memory_gib),
                directory_inside=WORKSPACE[DATA],
                hands_workspace=is_read_only,
            )
            process, first_process = spawn(plan)
        except BaseException:
            control.close()
            ours.close()
            os.close(writing)
            endpoint.unlink(missing_ok=True)
            self._site.groups.remove(sandbox_id)
            shutil.rmtree(shelf, ignore_errors=True)
            shutil.rmtree(directory, ignore_errors=True)
            shutil.rmtree(link_of(self._site, sandbox_id), ignore_errors=True)
            raise
        finally:
            os.close(reading)
            if neighbour is not None:
                neighbour.close()
            if disk is not None:
                disk.close()
        ours.close()
        control.attach()
        place, configuration = f"unix:{endpoint}", os.fdopen(writing, "wb", buffering=0)
        sandbox = BubblewrapSandbox(
            sandbox_id, memory_gib, directory, place, process, first_process, uid, control, group, key, configuration
        )
        self._watch(sandbox)
        return sandbox

    def _free_uid(self) -> int:
        if not self._site.runs_as_other_users:
            return os.geteuid()
        taken = {sandbox.uid for sandbox in (*self._by_id.values(), *filter(None, [self._spare]))}
        taken |= {desk.uid for desk in self._desks.all()}
        return next(uid for uid in self._uids if uid not in taken)

    def _watch(self, sandbox: BubblewrapSandbox) -> None:
        task = asyncio.create_task(self._until_ended(sandbox))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _until_ended(self, sandbox: BubblewrapSandbox) -> None:
        """Notice the end of a sandbox, for any cause, and clear it away."""
        await ended(sandbox.process)
        self._forget(sandbox)
        await ended(start_removing(skills.shelf(self._site.runtime_dir, sandbox.sandbox_id)))
        await ended(start_removing(sandbox.directory))
        await self._site.groups.until_removed(sandbox.sandbox_id)
        sandbox.ended.set()

    def _forget(self, sandbox: BubblewrapSandbox) -> None:
        self._by_id.pop(sandbox.sandbox_id, None)
        if self._spare is sandbox:
            self._spare = None
        self._desks.forget(sandbox.sandbox_id)
        sandbox.configuration.close()
        sandbox.control.close()
        key = (sandbox.tenant_id, sandbox.container_id)
        if self._by_container.get(key) is sandbox:
            del self._by_container[key]
        Path(sandbox.endpoint.removeprefix("unix:")).unlink(missing_ok=True)

    async def _until_healthy(self, sandbox: BubblewrapSandbox, token: str) -> None:
        async with ExecClient(Handle(sandbox.endpoint, token, sandbox.sandbox_id)) as client:
            try:
                await asyncio.wait_for(client.health(), limits.SANDBOX_START_SECONDS)
            except (SandboxGone, TimeoutError) as error:
                raise SandboxError(f"The sandbox did not come up. {last_words(sandbox.directory)}") from error


def _check(visible: Iterable[BindMount]) -> None:
    for bind in visible:
        if not bind.is_writable and not os.path.exists(bind.source):
            raise SandboxError(f"{bind.source} does not exist, which the sandbox should see as {bind.target}.")
