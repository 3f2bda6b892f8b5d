"""An exec server or a launcher as a process, and short ways to run commands through them."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.sandbox.exec_client import ExecClient, ExecEnded, ExecEvent, ExecOutput, Heartbeat, PythonEnded, Stream
from moorage.sandbox.provisioner import Handle

ROOT = Path(__file__).resolve().parents[3]
EXEC_SERVER = ROOT / "functions" / "sandbox" / "server"
LAUNCHER = ("-m", "moorage.local.launcher")
TOKEN = "a-token-of-at-least-32-characters"


@dataclass(frozen=True)
class Result:
    stdout: str
    stderr: str
    outcome: str
    exit_code: int

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


async def run(client: ExecClient, command: str, *, timeout_ms: int = 20_000, chars: int = 20_000, **more: Any) -> Result:
    """Run a command under a fresh id to its end."""
    return result_of([event async for event in execute(client, command, timeout_ms=timeout_ms, chars=chars, **more)])


def execute(
    client: ExecClient, command: str, *, timeout_ms: int = 20_000, chars: int = 20_000, **more: Any
) -> AsyncGenerator[ExecEvent, None]:
    return client.exec(new_id(), command, timeout_ms=timeout_ms, max_output_length=chars, **more)


def new_id() -> str:
    return f"exec_{os.urandom(8).hex()}"


def text_of(events: list[ExecEvent], stream: Stream) -> str:
    return "".join(event.text for event in events if isinstance(event, ExecOutput) and event.stream == stream)


def result_of(events: list[ExecEvent]) -> Result:
    last = events[-1]
    assert isinstance(last, ExecEnded)
    return Result(text_of(events, "stdout"), text_of(events, "stderr"), last.outcome, last.exit_code)


async def collect(events: AsyncIterator[ExecEvent]) -> list[ExecEvent]:
    """All events but heartbeats, which come when they like."""
    return [event async for event in events if not isinstance(event, Heartbeat)]


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def collect_bytes(client: ExecClient, path: str) -> bytes:
    return b"".join([piece async for piece in client.read_file(path)])


async def python(
    client: ExecClient, code: str, *, timeout_ms: int = 20_000, chars: int = 10_000, exec_id: str | None = None
) -> tuple[tuple[str, str], PythonEnded]:
    events = [event async for event in client.python(exec_id or new_id(), code, timeout_ms=timeout_ms, max_output_length=chars)]
    last = events[-1]
    assert isinstance(last, PythonEnded)
    texts = {
        stream: "".join(e.text for e in events if isinstance(e, ExecOutput) and e.stream == stream) for stream in ("stdout", "stderr")
    }
    return (texts["stdout"], texts["stderr"]), last


@dataclass(frozen=True)
class ServerProcess:
    handle: Handle
    workspace: Path
    pid: int


@contextmanager
def exec_server(directory: Path, **config: Any) -> Iterator[ServerProcess]:
    """A bare exec server, without a sandbox around it."""
    values = {
        "token_sha256": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "listen": f"unix:{directory / 'exec.sock'}",
        "workspace": str(directory / "data"),
        "home": str(directory / "home"),
        "spool_dir": str(directory / "spool"),
        "path": os.environ["PATH"],
        "python": sys.executable,
        **config,
    }
    reading, writing = os.pipe()
    os.write(writing, json.dumps(values).encode())
    os.close(writing)
    with open(directory / "log", "wb") as log:
        command = [sys.executable, "-I", str(_readable(directory)), "--config-fd", str(reading)]
        process = subprocess.Popen(command, pass_fds=(reading,), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    os.close(reading)
    try:
        yield ServerProcess(Handle(values["listen"], TOKEN, "sbx_bare"), directory / "data", process.pid)
    finally:
        process.kill()
        process.wait()


def _readable(directory: Path) -> Path:
    """The server where any user can read it: the checkout may lie in a folder that is closed to others."""
    copy = directory / "program" / EXEC_SERVER.parent.name
    if not copy.exists():
        shutil.copytree(EXEC_SERVER.parent, copy, ignore=shutil.ignore_patterns("__pycache__", "packages"))
        copy.parent.chmod(0o755)
    return copy / EXEC_SERVER.name


SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65_534


def can_be_ordinary() -> bool:
    """Whether a launcher can run as a user who is not root: who that is, and which Python they can read."""
    if os.geteuid() != 0:
        return True
    version = subprocess.run([SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
    return version.stdout.strip() == str(sys.version_info[:2]) and can_be_read_by_all(ROOT)


def can_be_read_by_all(folder: Path) -> bool:
    """Whether every user can list this folder and come to it. The home of root has mode 0700, and so has what ``mktemp -d`` makes."""
    return folder.stat().st_mode & 0o5 == 0o5 and all(above.stat().st_mode & 0o1 for above in folder.parents)


@contextmanager
def ordinary_launcher(*options: str) -> Iterator[Path]:
    """A launcher of somebody who is not root."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if os.geteuid() != 0:
            with launcher(directory, *options) as path:
                yield path
            return
        os.chown(directory, NOBODY, NOBODY)
        readable = [path for path in sys.path if "site-packages" in path or Path(path).is_relative_to(ROOT)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(readable), "TMPDIR": name}
        with launcher_process(directory, *options, python=SYSTEM_PYTHON, user=NOBODY, env=environment) as (process, path):
            assert process.poll() is None, (directory / "launcher.log").read_text()
            yield path


@contextmanager
def launcher(directory: Path, *options: str) -> Iterator[Path]:
    """A launcher that is up; yields its socket."""
    with launcher_process(directory, *options) as (process, path):
        assert process.poll() is None, (directory / "launcher.log").read_text()
        yield path


@contextmanager
def launcher_process(
    directory: Path, *options: str, python: str | list[str] = sys.executable, **process_options: Any
) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A launcher and the socket that it will make."""
    path = directory / "launcher.sock"
    command = [*([python] if isinstance(python, str) else python), *LAUNCHER]
    command += ["--socket", str(path), "--state-dir", str(directory / "state"), *options]
    with open(directory / "launcher.log", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **process_options)
    try:
        while not answers(path) and process.poll() is None:
            time.sleep(0.005)
        yield process, path
    finally:
        process.terminate()
        process.wait()


def answers(path: Path) -> bool:
    """Whether somebody listens there; a launcher that was killed leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0
