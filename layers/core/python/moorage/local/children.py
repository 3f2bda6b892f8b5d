"""Children of a stack that have no part of its store: the owner of the sandboxes, and their way out."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import IO

from moorage.dataclass import dataclass
from moorage.errors import SandboxError, SettingsConflict
from moorage.local.environments import EGRESS_PYTHON, ToolEnvironment, ensure, environment
from moorage.local.processes import (
    START_SECONDS_MAX,
    ChildProcess,
    begin_program,
    close_all_files,
    comes_up,
    end_now,
    fork,
    has_threads,
    noted,
    take_name,
)
from moorage.local.resource_paths import PACKAGE, ROOT, start_cache_folder
from moorage.local.supervision import Child
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.terminal import say

log = logging.getLogger(__name__)

LAUNCHER_STOP_SECONDS_MAX = 10
PROXY_STOP_SECONDS_MAX = 5


def prepare_environments(find: Callable[[str], ToolEnvironment] = environment) -> None:
    """Install the missing packages, once. Without the toolbox sandboxes offer Python alone: better than no start."""
    if os.environ.get("MOORAGE_ALLOWED_EGRESS_DOMAINS") and (note := old_parts(ensure(find("egress")))):
        say(f"moorage: {note}", out=sys.stderr)
    if not os.environ.get("MOORAGE_TOOLBOX"):
        try:
            ensure(find("toolbox"))
        except SettingsConflict as error:
            say(f"moorage: {error} Until then commands find Python without packages.", out=sys.stderr)


def old_parts(egress: ToolEnvironment) -> str:
    """A note about an egress proxy on an old Python; empty for a new one."""
    if egress.version >= EGRESS_PYTHON:
        return ""
    have, want = (".".join(map(str, version)) for version in (egress.version, EGRESS_PYTHON))
    return (
        f"The egress proxy runs on Python {have}, for which there are only older versions of mitmproxy, h2, h11 and brotli "
        f"(docs/egress.md says what that means). Install Python {want} or newer and remove {egress.folder}: the next start makes it "
        "anew."
    )


def toolbox_folder() -> Path:
    """Of the packages that sandboxes offer; an operator may name an environment of their own."""
    return Path(os.environ.get("MOORAGE_TOOLBOX") or environment("toolbox").folder)


@dataclass(frozen=True, slots=True)
class LauncherProcess:
    """The owner of the sandboxes."""

    state_dir: Path
    socket_path: Path
    began: list[int] = field(default_factory=list)
    """From which byte of the log the words of the last start are."""

    @property
    def log_file(self) -> Path:
        return self.state_dir / "launcher.log"

    def begin(self) -> ChildProcess:
        """Start it; it takes a while to answer."""
        command = [sys.executable, "-m", "moorage.local.launcher", *self._arguments()]
        return self._begun(partial(begin_program, command, self.log_file))

    def child(self) -> Child:
        """Started, and not waited for. It begins as a copy of this process, as workers do, without its files and sockets. A copy has
        all that this process knows: the stack reads its secrets later."""
        from moorage.local import launcher  # Here, so that the copy has it.

        def work() -> None:
            take_name(launcher.NAME)
            close_all_files()
            launcher.main(self._arguments())

        process = self.begin() if has_threads() else self._begun(partial(fork, work, self.log_file))
        return Child("The owner of the sandboxes", process, self.start, str(self.log_file), str(self.socket_path))

    def _begun(self, begin: Callable[[], ChildProcess]) -> ChildProcess:
        self.began[:] = [self.log_file.stat().st_size if self.log_file.exists() else 0]
        return noted(self.state_dir / "launcher.process", begin)

    def _arguments(self) -> list[str]:
        toolbox, cache = toolbox_folder(), start_cache_folder()
        found = ["--socket", str(self.socket_path), "--state-dir", str(self.state_dir / "sandboxes")]
        found += ["--toolbox", str(toolbox)] if toolbox.exists() else []
        return found + (["--cache", str(cache)] if cache is not None else [])

    def await_answer(self, process: ChildProcess) -> None:
        """Return when it answers. A launcher that cannot work says why, and then nothing here is of use."""
        if comes_up(process, self.socket_path):
            return
        end_now(process)
        said = self.log_file.read_bytes()[self.began[0] :].decode(errors="replace").strip()
        raise SystemExit(said or f"The owner of the sandboxes did not start in {START_SECONDS_MAX} seconds.")

    def start(self) -> ChildProcess:
        process = self.begin()
        self.await_answer(process)
        return process


async def programs_here(launcher_socket: Path) -> str:
    """The model's text about the programs in its container; a launcher that cannot say is no reason not to start."""
    async with LauncherProvisioner(str(launcher_socket)) as launcher:
        try:
            return await launcher.programs()
        except SandboxError as error:
            log.warning("What programs sandboxes have is not known: %s", error.message)
            return ""


def egress_socket(state_dir: Path) -> Path:
    """Of all sockets the one with the longest name."""
    return state_dir / "egress" / "proxy.sock"


def egress_settings(state_dir: Path, key: str) -> dict[str, str]:
    """Variables of the egress proxy for the others. It exists only if the operator allows domains. ``key`` seals its secrets."""
    return {
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": os.environ["MOORAGE_ALLOWED_EGRESS_DOMAINS"],
        "MOORAGE_EGRESS_PROXY": f"unix:{egress_socket(state_dir)}",
        "MOORAGE_EGRESS_KEY": key,
    }


@dataclass(frozen=True, slots=True)
class ProxyProcess:
    """The way out of the sandboxes."""

    state_dir: Path
    environment: dict[str, str] = field(repr=False)
    lock: IO[str]
    """As of :class:`WorkerProcess`."""
    started: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def log_file(self) -> Path:
        return self.state_dir / "egress.log"

    def begin(self) -> "subprocess.Popen[bytes]":
        """Start it; it takes a while to answer."""
        command = [str(environment("egress").python), "-m", "functions.egress_proxy.main"]
        command += ["--listen", f"unix:{egress_socket(self.state_dir)}"]
        for option in ("hosts", "upstream-ca"):
            value = self.environment.get(f"MOORAGE_EGRESS_{option.upper().replace('-', '_')}")
            command += [f"--{option}", value] if value else []
        environment_of_proxy = self.environment | {"PYTHONPATH": f"{ROOT}:{_package_alone(self.state_dir)}"}
        begin = partial(begin_program, command, self.log_file, environment=environment_of_proxy, folder=ROOT, lock=self.lock)
        process = noted(self.state_dir / "egress.process", begin)
        self.started[:] = [process]
        return process

    def await_answer(self) -> None:
        """Return when it answers: a sandbox that starts before it finds no way out."""
        if not comes_up(self.started[0], egress_socket(self.state_dir)):
            end_now(self.started[0])
            raise SystemExit(f"moorage: The egress proxy did not start; its last words are in {self.log_file}.")

    def start(self) -> "subprocess.Popen[bytes]":
        process = self.begin()
        self.await_answer()
        return process


def _package_alone(folder: Path) -> Path:
    """A folder that holds this package and nothing else: the neighbours of an installed one are not for the proxy's own environment."""
    link = folder / "egress-packages" / PACKAGE.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(PACKAGE)
    return link.parent
