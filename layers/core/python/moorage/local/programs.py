"""What a command finds in a sandbox of this machine: not what should be there, but what starts and says its version.

A sandbox sees ``/usr`` of the machine and little of ``/etc``, so that a program may be there and still not work.
"""

import asyncio
import os
import re
import secrets
import time
from pathlib import Path
from typing import Final, Protocol

from moorage import __version__, limits
from moorage.errors import SandboxStarting
from moorage.local.bubblewrap_arguments import COMPILED_SERVER, SYSTEM_PATH, binds, bwrap_arguments, files
from moorage.local.sandbox_paths import Site
from moorage.local.start_cache import StartCache, key_of, programs_on_disk
from moorage.sandbox.exec_client import ExecClient, ExecOutput
from moorage.sandbox.provisioner import Handle, SandboxSpec

PROGRAMS: Final = {
    "python": "--version",
    "node": "--version",
    "npm": "--version",
    "java": "-version",
    "javac": "-version",
    "go": "version",
    "php": "--version",
    "ruby": "--version",
    "perl": "-v",
    "gcc": "--version",
    "g++": "--version",
    "make": "--version",
    "cmake": "--version",
    "rustc": "--version",
    "git": "--version",
    "sqlite3": "--version",
    "rg": "--version",
    "jq": "--version",
    "curl": "--version",
    "ffmpeg": "-version",
    "pandoc": "--version",
    "pdftotext": "-v",
    "libreoffice": "--version",
    "chromium": "--version",
}
"""Those that a task may depend on, and how each is asked for its version."""

_ASK: Final = "".join(
    f"(command -v {program} >/dev/null && said=$(timeout 5 {program} {option} </dev/null 2>&1) && echo {program} $said) &\n"
    for program, option in PROGRAMS.items()
)
_STARTS_MAX: Final = 10
_VERSION: Final = re.compile(r"\d+\.\d+(\.\d+)?")


class SandboxStarter(Protocol):
    """Bubblewrap's owner, or a provisioner."""

    async def start(self, spec: SandboxSpec) -> "StartedSandbox": ...
    async def stop(self, sandbox_id: str) -> None: ...


class StartedSandbox(Protocol):
    @property
    def endpoint(self) -> str: ...
    @property
    def sandbox_id(self) -> str: ...


_KEPT: Final = "programs"
_DAY_SECONDS: Final = 86_400


async def known_programs(sandboxes: SandboxStarter, site: Site, cache: StartCache) -> str:
    """What :func:`programs_of` answers, or has answered an earlier start today on the same machine."""
    key = _key(site)
    known = cache.find(_KEPT, key)
    if known is not None:
        return known.decode()
    found = await programs_of(sandboxes)
    if found:
        cache.keep(_KEPT, key, found.encode())
    return found


def _key(site: Site) -> str:
    """Of all that decides which programs a sandbox of this site finds. A change that is not seen here is found out a day later."""
    own = [(file.target, file.mode, file.content) for file in files(site) if file.target != COMPILED_SERVER]
    view = bwrap_arguments(site, binds(site, Path("/directory"), Path("/skills"), None), None, {})
    walls = (site.groups.are_available, site.has_disable_userns, site.runs_as_other_users, site.has_terminals)
    toolbox = [f"{site.toolbox.venv}/bin"] if site.toolbox is not None else []
    on_disk = programs_on_disk(PROGRAMS, (*toolbox, *SYSTEM_PATH.split(":")))
    return key_of(__version__, _ASK, own, view, walls, tuple(os.uname()), on_disk, time.time() // _DAY_SECONDS)


async def programs_of(sandboxes: SandboxStarter) -> str:
    """Their names and versions, such as ``python 3.11.7, node 18.20.4``. Starts a sandbox for it, and ends it."""
    spec = SandboxSpec("", "programs", secrets.token_hex(16))
    sandbox = await _started(sandboxes, spec)
    try:
        async with ExecClient(Handle(sandbox.endpoint, spec.token, sandbox.sandbox_id)) as client:
            return named(await _said(client))
    finally:
        await sandboxes.stop(sandbox.sandbox_id)


async def _started(sandboxes: SandboxStarter, spec: SandboxSpec) -> StartedSandbox:
    """A container that is on its way is asked for again by the same token: another would have it made anew."""
    for _ in range(_STARTS_MAX):
        try:
            return await sandboxes.start(spec)
        except SandboxStarting as error:
            await asyncio.sleep(error.retry_after_seconds)
    return await sandboxes.start(spec)


async def _said(client: ExecClient) -> str:
    events = client.exec("programs", f"{_ASK}wait", timeout_ms=limits.PROGRAMS_SECONDS_MAX * 1000, max_output_length=100_000)
    return "".join([event.text async for event in events if isinstance(event, ExecOutput) and event.stream == "stdout"])


def named(said: str) -> str:
    """Of lines that begin with a program's name and go on with what it said."""
    versions = {}
    for line in said.splitlines():
        program, _, words = line.partition(" ")
        version = _VERSION.search(words)
        if program in PROGRAMS:
            versions[program] = f"{program} {version[0]}" if version else program
    return ", ".join(versions[program] for program in PROGRAMS if program in versions)
