"""Sandboxes by bubblewrap: how one is built, started and cleared away. The launcher (``local/launcher.py``) serves this.

A sandbox is one ``bwrap`` whose first process is the exec server (``functions/sandbox``). Its listening socket is made here and
handed over as an open descriptor, so that no command can see or replace it and a caller may connect before the server is up; its
token goes through a file in memory. When the owner ends, however it ends, the kernel kills its sandboxes (``--die-with-parent``).

Where the owner is root, each sandbox runs as a user of its own: user namespaces alone would leave it root's right to files that
belong to root, ``/proc/sys`` above all. The walls and their reasons are in ``docs/sandbox.md``.
"""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.errors import SandboxCapacity, SandboxError, SandboxGone
from moorage.local.removal import start_removing
from moorage.local.site import Site
from moorage.local.spawning import ended, last_words, spawn
from moorage.local.users import HOST_UIDS, HOST_UIDS_FROM
from moorage.local.walls import binds, server_config, socket_of
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import Handle, SandboxSpec, SandboxStatus

_GROUP_REMOVALS_MAX: Final = 100


@dataclass(slots=True, eq=False)
class Sandbox:
    sandbox_id: str
    tenant_id: str
    container_id: str
    directory: Path
    endpoint: str
    process: subprocess.Popen[bytes]
    first_process: int
    """The exec server's process id, seen from here."""
    uid: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Bubblewrap:
    """All sandboxes of one owner. Not a :class:`Provisioner` itself: it lives in the owner's process, and others ask by HTTP."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._by_id: dict[str, Sandbox] = {}
        self._by_container: dict[tuple[str, str], Sandbox] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._uids = itertools.cycle(range(HOST_UIDS_FROM, HOST_UIDS_FROM + HOST_UIDS))
        self._starting = 0

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Idempotent per container; two callers at once get the same sandbox."""
        key = (spec.tenant_id, spec.container_id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = self._by_container.get(key)
            if known is not None:
                return known
            if len(self._by_id) + self._starting >= self._site.sandboxes_max:
                raise SandboxCapacity(f"{self._site.sandboxes_max} sandboxes are running on this machine; it takes no more.")
            self._starting += 1
            try:
                return await self._start(key, spec)
            finally:
                self._starting -= 1

    async def stop(self, sandbox_id: str) -> None:
        """Kill it and wait until it is cleared away."""
        sandbox = self._by_id.get(sandbox_id)
        if sandbox is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(sandbox.first_process, signal.SIGKILL)
        await asyncio.wait_for(sandbox.ended.wait(), limits.SANDBOX_START_SECONDS)

    async def stop_all(self) -> None:
        await asyncio.gather(*(self.stop(sandbox_id) for sandbox_id in list(self._by_id)))

    def describe(self, sandbox_id: str) -> SandboxStatus:
        return SandboxStatus.RUNNING if sandbox_id in self._by_id else SandboxStatus.STOPPED

    def running(self) -> list[Sandbox]:
        return list(self._by_id.values())

    async def _start(self, key: tuple[str, str], spec: SandboxSpec) -> Sandbox:
        sandbox = self._spawn(spec)
        self._by_id[sandbox.sandbox_id] = sandbox
        self._watch(sandbox)
        try:
            await self._until_healthy(sandbox, spec.token)
        except BaseException:
            await self.stop(sandbox.sandbox_id)
            raise
        if not sandbox.ended.is_set():
            self._by_container[key] = sandbox
        return sandbox

    def _spawn(self, spec: SandboxSpec) -> Sandbox:
        sandbox_id = f"sbx_{secrets.token_hex(12)}"
        directory = self._site.state_dir / "sandboxes" / sandbox_id
        uid = self._free_uid()
        visible = binds(self._site, directory, spec.egress)
        for bind in visible:
            if bind.is_writable:
                os.makedirs(bind.source, mode=0o755)
                os.chown(bind.source, uid, uid if self._site.runs_as_other_users else -1)
            elif not os.path.exists(bind.source):
                shutil.rmtree(directory, ignore_errors=True)
                raise SandboxError(f"{bind.source} does not exist, which the sandbox should see as {bind.target}.")
        if spec.egress is not None and self._site.runs_as_other_users:
            # Connecting takes the right to write. Only those who see the directory get this far.
            with contextlib.suppress(FileNotFoundError):
                os.chmod(socket_of(spec.egress), 0o666)
        endpoint = self._site.runtime_dir / f"{sandbox_id}.sock"
        config = json.dumps(server_config(self._site, spec)).encode()
        try:
            joins = self._site.groups.create(sandbox_id, spec.memory_gib)
            process, first_process = spawn(self._site, directory, endpoint, visible, config, joins, uid)
        except BaseException:
            endpoint.unlink(missing_ok=True)
            self._site.groups.remove(sandbox_id)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return Sandbox(sandbox_id, spec.tenant_id, spec.container_id, directory, f"unix:{endpoint}", process, first_process, uid)

    def _free_uid(self) -> int:
        if not self._site.runs_as_other_users:
            return os.geteuid()
        taken = {sandbox.uid for sandbox in self._by_id.values()}
        return next(uid for uid in self._uids if uid not in taken)

    def _watch(self, sandbox: Sandbox) -> None:
        task = asyncio.create_task(self._until_ended(sandbox))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _until_ended(self, sandbox: Sandbox) -> None:
        """Notice the end of a sandbox, whoever brought it about, and clear it away."""
        await ended(sandbox.process)
        self._forget(sandbox)
        await ended(start_removing(sandbox.directory))
        for _ in range(_GROUP_REMOVALS_MAX):
            if self._site.groups.remove(sandbox.sandbox_id):
                break
            await asyncio.sleep(0.05)  # processes that are on their way out still hold it
        sandbox.ended.set()

    def _forget(self, sandbox: Sandbox) -> None:
        del self._by_id[sandbox.sandbox_id]
        key = (sandbox.tenant_id, sandbox.container_id)
        if self._by_container.get(key) is sandbox:
            del self._by_container[key]
        Path(sandbox.endpoint.removeprefix("unix:")).unlink(missing_ok=True)

    async def _until_healthy(self, sandbox: Sandbox, token: str) -> None:
        async with ExecClient(Handle(sandbox.endpoint, token, sandbox.sandbox_id)) as client:
            try:
                await asyncio.wait_for(client.health(), limits.SANDBOX_START_SECONDS)
            except (SandboxGone, TimeoutError) as error:
                raise SandboxError(f"The sandbox did not come up. {last_words(sandbox.directory)}") from error
