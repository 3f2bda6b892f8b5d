"""The hosted computer on this machine: a browser is started beside a sandbox, behind the walls that it would have, and ended again."""

import asyncio
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from moorage.cli.checks.findings import CheckProgress, Finding, Said, fail, ok, warn
from moorage.errors import DeskUnavailable, SandboxError
from moorage.local.children import LAUNCHER_STOP_SECONDS_MAX, LauncherProcess
from moorage.local.processes import stop_process
from moorage.sandbox.desk_client import DeskClient, DeskState
from moorage.sandbox.docker import NO_DESK_IMAGE, DockerProvisioner, DockerSettings
from moorage.sandbox.docker_engine import Engine, engine_socket
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec

_WHO: Final = "moorage-doctor"
_ELSEWHERE: Final = "Without one, requests whose computer has a 'container' are refused; all else works."


def of_computer(environ: Mapping[str, str]) -> Iterator[Said]:
    """Beside the sandboxes that a stack of this environment would have."""
    if environ.get("MOORAGE_PROVISIONER") == "docker":
        yield asyncio.run(desk_image_finding(environ))
        return
    yield CheckProgress("a browser is started")
    yield computer_finding()


async def desk_image_finding(environ: Mapping[str, str]) -> Finding:
    image = environ.get("MOORAGE_DOCKER_DESK_IMAGE") or "moorage-desk"
    async with DockerProvisioner(DockerSettings(Path(), "doctor", desk_image=image), Engine(engine_socket(environ))) as sandboxes:
        if await sandboxes.has_desks():
            return ok(f"a hosted computer can run here: the container engine has the image '{image}'")
        return warn("this machine can have no hosted computer", f"{NO_DESK_IMAGE.format(image=image)} {_ELSEWHERE}")


def started_here() -> DeskState:
    """Of a launcher of its own, which is gone again. Raises :class:`SandboxError`."""
    with tempfile.TemporaryDirectory(prefix="moorage-doctor-", ignore_cleanup_errors=True) as name:
        launcher = LauncherProcess(Path(name), Path(name) / "launcher.sock")
        try:
            process = launcher.start()
        except SystemExit as ended:
            raise SandboxError(str(ended.code)) from ended
        try:
            return asyncio.run(_started(launcher.socket_path))
        finally:
            stop_process(process, LAUNCHER_STOP_SECONDS_MAX)


async def _started(launcher_socket: Path) -> DeskState:
    async with LauncherProvisioner(str(launcher_socket)) as sandboxes:
        handle = await sandboxes.start(SandboxSpec(_WHO, _WHO, secrets.token_hex(32)))
        async with ExecClient(await sandboxes.desk(handle)) as client:
            return await DeskClient(client).start()


def computer_finding(start: Callable[[], DeskState] = started_here) -> Finding:
    try:
        desk = start()
    except DeskUnavailable as error:
        return warn("this machine can have no hosted computer", f"{error.message} {_ELSEWHERE}")
    except SandboxError as error:
        return fail("no browser starts beside a sandbox", error.message)
    told = f"a hosted computer can run here: {desk.browser}"
    if not desk.is_whole:
        return warn(
            f"{told}, without its windows",
            "It reads no policies and shows no PDF files. 'apt install chromium' gives the whole one.",
        )
    if not desk.has_own_sandbox:
        return warn(
            f"{told}, without Chromium's own sandbox",
            "This machine refuses user namespaces inside bubblewrap's: the walls of the desk hold alone (docs/computer.md#walls).",
        )
    return ok(f"{told}, with Chromium's own sandbox")
