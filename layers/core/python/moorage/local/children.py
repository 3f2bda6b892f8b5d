"""The stack's other processes: the workers of the loop, the owner of the sandboxes, and their way out."""

import asyncio
import logging
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from moorage.dataclass import dataclass
from moorage.errors import SandboxError, SettingsConflict
from moorage.local import step_worker
from moorage.local.environments import EGRESS_PYTHON, ToolEnvironment, ensure, environment
from moorage.local.processes import (
    ChildProcess,
    dying_with,
    end_leftover,
    fork,
    has_threads,
    identity,
    take_name,
    uninterrupted,
    write_private,
)
from moorage.local.resource_paths import PACKAGE, ROOT, start_cache_folder
from moorage.local.supervision import Child
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.store.execution_rows import worker_socket
from moorage.terminal import say

log = logging.getLogger(__name__)

LAUNCHER_STOP_SECONDS_MAX = 10
WORKER_STOP_SECONDS_MAX = 5
PROXY_STOP_SECONDS_MAX = 5
_START_SECONDS_MAX = 30
Begun = TypeVar("Begun", bound=ChildProcess)


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

    def begin(self) -> "subprocess.Popen[bytes]":
        """Start it; it takes a while to answer."""
        toolbox = toolbox_folder()
        command = [sys.executable, "-m", "moorage.local.launcher", "--socket", str(self.socket_path)]
        command += ["--state-dir", str(self.state_dir / "sandboxes")]
        if toolbox.exists():
            command += ["--toolbox", str(toolbox)]
        if (cache := start_cache_folder()) is not None:
            command += ["--cache", str(cache)]
        self.began[:] = [self.log_file.stat().st_size if self.log_file.exists() else 0]
        return _noted(self.state_dir / "launcher.process", partial(_program, command, self.log_file))

    def await_answer(self, process: ChildProcess) -> None:
        """Return when it answers. A launcher that cannot work says why, and then nothing here is of use."""
        if _answers(process, self.socket_path):
            return
        _end(process)
        said = self.log_file.read_bytes()[self.began[0] :].decode(errors="replace").strip()
        raise SystemExit(said or f"The owner of the sandboxes did not start in {_START_SECONDS_MAX} seconds.")

    def start(self) -> "subprocess.Popen[bytes]":
        process = self.begin()
        self.await_answer(process)
        return process


def _noted(place: Path, begin: Callable[[], Begun]) -> Begun:
    """The process that ``begin`` starts, noted at ``place``. The one that is noted there is ended first."""
    end_leftover(place)
    process = begin()
    write_private(place, identity(process.pid))
    return process


def _program(
    command: Sequence[str],
    log_file: Path,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    lock: IO[str] | None = None,
) -> "subprocess.Popen[bytes]":
    """A program that ends with this process, and holds the ``lock`` until then."""
    with log_file.open("ab") as log, uninterrupted():
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            pass_fds=() if lock is None else (lock.fileno(),),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=dying_with(os.getpid()),
        )


def _end(process: ChildProcess) -> None:
    process.kill()
    process.wait()


def _answers(process: ChildProcess, path: Path) -> bool:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(str(path)) == 0 and _listener_of(connection) == process.pid:
                return True
        time.sleep(0.01)
    return False


def _listener_of(connection: socket.socket) -> int:
    """unix(7): the process that called ``listen``. It may be of an earlier start that has not ended yet."""
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid)


async def programs_here(launcher_socket: Path) -> str:
    """The model's text about the programs in its container; a launcher that cannot say is no reason not to start."""
    async with LauncherProvisioner(str(launcher_socket)) as launcher:
        try:
            return await launcher.programs()
        except SandboxError as error:
            log.warning("What programs sandboxes have is not known: %s", error.message)
            return ""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One of those that play the loop (``step_worker.py``)."""

    state_dir: Path
    number: int
    workers: int
    environment: dict[str, str] = field(repr=False)
    lock: IO[str]
    """Of the state folder: it holds it until it ends, for it has the store open."""

    @property
    def log_file(self) -> Path:
        return self.state_dir / f"worker-{self.number}.log"

    @property
    def socket_path(self) -> Path:
        return worker_socket(self.state_dir, self.number)

    def child(self, closes: Sequence[socket.socket]) -> Child:
        """Started, and not waited for: executions wait until it takes them. It begins as a copy of this process, without the sockets
        that it ``closes``: so it has nothing to import, and shares the memory of modules. One that is started again is a program of its
        own, because by then this process has threads."""

        def work() -> None:
            take_name(step_worker.NAME)
            for each in closes:
                each.close()
            os.environ.clear()
            os.environ.update(self.environment)
            asyncio.run(step_worker.serve(self.number, self.workers))

        process = _noted(self._process_note, self._program if has_threads() else partial(fork, work, self.log_file))
        return Child("A worker of the loop", process, self.start, str(self.log_file), str(self.socket_path))

    @property
    def _process_note(self) -> Path:
        return self.state_dir / f"worker-{self.number}.process"

    def _program(self) -> ChildProcess:
        command = [sys.executable, "-m", "moorage.local.step_worker", str(self.number), str(self.workers)]
        return _program(command, self.log_file, environment=self.environment, lock=self.lock)

    def start(self) -> ChildProcess:
        process = _noted(self._process_note, self._program)
        if not _answers(process, self.socket_path):
            _end(process)
            raise SystemExit(f"moorage: A worker of the loop did not start; its last words are in {self.log_file}.")
        return process


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
        begin = partial(_program, command, self.log_file, environment=environment_of_proxy, folder=ROOT, lock=self.lock)
        process = _noted(self.state_dir / "egress.process", begin)
        self.started[:] = [process]
        return process

    def await_answer(self) -> None:
        """Return when it answers: a sandbox that starts before it finds no way out."""
        if not _answers(self.started[0], egress_socket(self.state_dir)):
            _end(self.started[0])
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
