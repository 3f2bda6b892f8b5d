"""Browsers beside sandboxes: a second bubblewrap for each, with another user, processes, mounts and network than the sandbox has.

Its first process is the exec server too, which serves nothing but the desk there. The two meet at one socket: the sandbox's exec server
listens on it, and no command has it (``functions/sandbox/server/desk/neighbour.py``).
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import DeskUnavailable, SandboxGone
from moorage.local.bubblewrap_arguments import (
    EGRESS,
    LISTENING_FD,
    BindMount,
    CopiedFile,
    exec_server_files,
    groups_config,
    scratch_of,
    socket_of,
)
from moorage.local.control_groups import ControlGroup
from moorage.local.removal import start_removing
from moorage.local.sandbox_paths import Site
from moorage.local.spawning import FIRST_HANDED_FD, SpawnPlan, ended, kill, listening_socket, spawn
from moorage.sandbox import browser_policies, seccomp
from moorage.sandbox.machine_bounds import SandboxShare
from moorage.sandbox.provisioner import EgressSpec

LINK: Final = "/run/desk"
_LINK_NAME: Final = "link.sock"
_DIRECTORY: Final = "/var/desk"
_BROWSERS: Final = (
    "/usr/lib/chromium/chromium",
    "/usr/bin/chromium",
    "/usr/bin/google-chrome",
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/bin/chromium-headless-shell",
)
NO_BROWSER: Final = "There is no browser on this machine: 'apt install chromium' gives it one, as does 'make setup-dev'."


def browser_here() -> str | None:
    """The browser that desks of this machine start; None if there is none."""
    return next((path for path in _BROWSERS if os.access(path, os.X_OK)), None)


def link_of(site: Site, sandbox_id: str) -> Path:
    """The directory with the socket between a sandbox and its desk, which the desk alone sees."""
    return site.runtime_dir / f"{sandbox_id}.link"


def listen_for_desk(site: Site, sandbox_id: str) -> socket.socket:
    """What the exec server of a sandbox gets of it."""
    directory = link_of(site, sandbox_id)
    directory.mkdir(mode=0o755)
    listener = listening_socket(directory / _LINK_NAME)
    # A desk is another user, where the launcher is root. Only those who see the directory get this far.
    os.chmod(directory / _LINK_NAME, 0o666)
    return listener


@dataclass(slots=True, eq=False)
class DeskSandbox:
    desk_id: str
    directory: Path
    endpoint: str
    process: "subprocess.Popen[bytes]"
    first_process: int
    uid: int
    tenant_id: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def share(self) -> SandboxShare:
        return SandboxShare(self.tenant_id, limits.DESK_MEMORY_GIB)


class Desks:
    def __init__(self, site: Site, free_uid: Callable[[], int]) -> None:
        self._site = site
        self._free_uid = free_uid
        self._by_sandbox: dict[str, DeskSandbox] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._watches: set[asyncio.Task[None]] = set()

    def all(self) -> list[DeskSandbox]:
        return list(self._by_sandbox.values())

    async def start(self, sandbox_id: str, tenant_id: str, egress: EgressSpec | None, token_sha256: str, *, starts: bool) -> str:
        """Its endpoint. Idempotent per sandbox. Raises :class:`DeskUnavailable` where this machine has no browser, or none has been
        asked for and it is not to start, and :class:`SandboxError`."""
        async with self._locks.setdefault(sandbox_id, asyncio.Lock()):
            known = self._by_sandbox.get(sandbox_id)
            if known is not None:
                return known.endpoint
            if not starts:
                raise DeskUnavailable("No browser has been started beside this container.")
            self._site.bounds.check([each.share() for each in self.all()], SandboxShare(tenant_id, limits.DESK_MEMORY_GIB))
            if browser_here() is None:
                raise DeskUnavailable(NO_BROWSER)
            if not link_of(self._site, sandbox_id).exists():
                raise SandboxGone("The container is not running.")
            desk = self._spawn(sandbox_id, tenant_id, egress, token_sha256)
            self._by_sandbox[sandbox_id] = desk
            self._watch(sandbox_id, desk)
            return desk.endpoint

    async def stop(self, sandbox_id: str) -> None:
        desk = self._by_sandbox.get(sandbox_id)
        if desk is not None:
            await kill(desk.first_process, desk.ended)

    def forget(self, sandbox_id: str) -> None:
        """The sandbox has ended: nobody can reach its desk's container any more."""
        self._locks.pop(sandbox_id, None)
        desk = self._by_sandbox.get(sandbox_id)
        if desk is not None:
            desk.process.kill()
        shutil.rmtree(link_of(self._site, sandbox_id), ignore_errors=True)

    def _spawn(self, sandbox_id: str, tenant_id: str, egress: EgressSpec | None, token_sha256: str) -> DeskSandbox:
        desk_id = f"{sandbox_id}-desk"
        site, directory, endpoint = self._site, self._site.state_dir / "sandboxes" / desk_id, self._site.runtime_dir / f"{desk_id}.sock"
        uid = self._free_uid()
        reading, writing = os.pipe()
        try:
            directory.mkdir(mode=0o755, parents=True)
            group = site.groups.create(desk_id, limits.DESK_MEMORY_GIB)
            visible = [BindMount(str(link_of(site, sandbox_id)), LINK)]
            if site.toolbox is not None and site.python == site.toolbox.interpreter:
                visible += [BindMount(prefix, prefix) for prefix in site.toolbox.interpreter_prefixes]
            if egress is not None:
                visible.append(BindMount(str(socket_of(egress).parent), EGRESS))
            plan = SpawnPlan(
                site=site,
                directory=directory,
                endpoint=endpoint,
                visible=visible,
                configuration=reading,
                group=group,
                uid=uid,
                disk=None,
                system_calls=seccomp.program(has_namespaces=True),
                handed=(),
                files=_files(site, egress),
                scratch={**scratch_of(limits.DESK_MEMORY_GIB), _DIRECTORY: limits.DESK_DISK_BYTES},
                has_namespaces=True,
            )
            process, first_process = spawn(plan)
            with os.fdopen(writing, "wb", closefd=False) as pipe:
                pipe.write(json.dumps(_config(egress, token_sha256, group)).encode())
        except BaseException:
            endpoint.unlink(missing_ok=True)
            self._site.groups.remove(desk_id)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        finally:
            os.close(reading)
            os.close(writing)
        return DeskSandbox(desk_id, directory, f"unix:{endpoint}", process, first_process, uid, tenant_id)

    def _clear(self, sandbox_id: str, desk: DeskSandbox) -> None:
        if self._by_sandbox.get(sandbox_id) is desk:
            del self._by_sandbox[sandbox_id]
        Path(desk.endpoint.removeprefix("unix:")).unlink(missing_ok=True)

    def _watch(self, sandbox_id: str, desk: DeskSandbox) -> None:
        task = asyncio.create_task(self._until_ended(sandbox_id, desk))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _until_ended(self, sandbox_id: str, desk: DeskSandbox) -> None:
        await ended(desk.process)
        self._clear(sandbox_id, desk)
        await ended(start_removing(desk.directory))
        await self._site.groups.until_removed(desk.desk_id)
        desk.ended.set()


def _files(site: Site, egress: EgressSpec | None) -> list[CopiedFile]:
    policies = browser_policies.policies(egress.ca_pem if egress is not None else "")
    return [*exec_server_files(site), CopiedFile(browser_policies.PATH, policies)]


def _config(egress: EgressSpec | None, token_sha256: str, group: ControlGroup) -> dict[str, Any]:
    upstream = {}
    if egress is not None:
        socket_path = f"{EGRESS}/{socket_of(egress).name}"
        upstream = {"socket": socket_path, "username": egress.username, "password": egress.password}
    return {
        "token_sha256": token_sha256,
        "listen": f"fd:{LISTENING_FD}",
        "path": "/usr/bin:/bin",
        "groups": groups_config(group, FIRST_HANDED_FD),
        "desk": {
            "alone": True,
            "directory": _DIRECTORY,
            "link": f"{LINK}/{_LINK_NAME}",
            "upstream": upstream,
            "trusted_keys": browser_policies.key_pins(egress.ca_pem) if egress is not None else [],
        },
        "limits": {"processes": limits.CONTAINER_PROCESSES_MAX, "open_files": limits.CONTAINER_OPEN_FILES_MAX},
    }
