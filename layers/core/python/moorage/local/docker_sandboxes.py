"""Sandboxes of a container engine in place of bubblewrap's, for a stack on one machine (``MOORAGE_PROVISIONER=docker``)."""

import asyncio
import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage.errors import SandboxError, SettingsConflict
from moorage.local.programs import programs_of
from moorage.runtime import docker_provisioner
from moorage.settings import Settings

log = logging.getLogger(__name__)

_SOCKET_OF_ONE: Final = "moorage-0123456789abcdef01234567-desk/run/exec.sock"
_SOCKET_PATH_BYTES_MAX: Final = 107
"""unix(7): sun_path has 108 bytes, the last of them null."""


def docker_environment(environ: Mapping[str, str], state_dir: Path) -> dict[str, str]:
    """The owner of these containers, and the folder of their sockets, by default. Raises :class:`SettingsConflict`."""
    named = environ.get("MOORAGE_DOCKER_RUNTIME_DIR")
    folder = Path(named or state_dir / "docker")
    if _is_too_long(folder) and not named:
        folder = Path("/tmp", f"moorage-{hashlib.sha256(bytes(state_dir)).hexdigest()[:16]}")
    if _is_too_long(folder):
        raise SettingsConflict(f"Sockets cannot lie in {folder}: its path is too long. MOORAGE_DOCKER_RUNTIME_DIR takes another one.")
    _make_private(folder)
    return {"MOORAGE_DOCKER_DEPLOYMENT": str(state_dir), "MOORAGE_DOCKER_RUNTIME_DIR": str(folder)}


def _is_too_long(folder: Path) -> bool:
    return len(bytes(folder / _SOCKET_OF_ONE)) > _SOCKET_PATH_BYTES_MAX


def _make_private(folder: Path) -> None:
    """Its readers can speak to sandboxes. Raises :class:`SettingsConflict` for another user's folder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise SettingsConflict(f"Sockets cannot lie in {folder}: {error.strerror}.") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise SettingsConflict(f"Sockets cannot lie in {folder}: it must be a folder that only its owner may enter, and yours.")


def begin(settings: Settings, *, asks_programs: bool) -> str:
    """End what an earlier stack of this state has left on the engine, and answer what programs sandboxes have. Raises
    :class:`SettingsConflict` if no sandbox can start."""
    return asyncio.run(_begin(settings, asks_programs))


async def _begin(settings: Settings, asks_programs: bool) -> str:
    async with docker_provisioner(settings) as sandboxes:
        await sandboxes.check()
        await sandboxes.stop_all()
        if not asks_programs:
            return ""
        try:
            return await programs_of(sandboxes)
        except SandboxError as error:
            log.warning("What programs sandboxes have is not known: %s", error.message)
            return ""
        finally:
            await sandboxes.stop_all()


def has_browsers(settings: Settings) -> bool:
    """Whether the engine has the image of browsers."""
    return asyncio.run(_has_browsers(settings))


async def _has_browsers(settings: Settings) -> bool:
    async with docker_provisioner(settings) as sandboxes:
        return await sandboxes.has_desks()


def end(settings: Settings) -> None:
    """End all containers of this stack; an engine that does not answer is told to the log, and keeps them until the next start."""
    asyncio.run(_end(settings))


async def _end(settings: Settings) -> None:
    async with docker_provisioner(settings) as sandboxes:
        try:
            await sandboxes.stop_all()
        except SandboxError as error:
            log.warning("Containers of this stack may be left on the engine: %s", error.message)
