"""A real container engine for tests: Debian's ``dockerd`` as a child, with its own data, its own socket and no network."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moorage.cli.sandbox_image import packed
from moorage.sandbox.docker_engine import Engine

ROOT: Final = Path(__file__).parents[2]
BASE_TAR: Final = ROOT / ".build" / "docker" / "base.tar"
IMAGE: Final = "moorage-sandbox"
BASE: Final = "moorage-base"
_START_SECONDS_MAX: Final = 60
_STOP_SECONDS_MAX: Final = 60
_IN_THE_BASE: Final = (
    'ln -s /usr/bin/python3 "$1/usr/local/bin/python3"',
    'chroot "$1" useradd --uid 1000 --create-home --home-dir /home/user --shell /bin/bash user',
    'install --directory --owner=1000 --group=1000 "$1/mnt/data"',
    'install --directory "$1/home/oai/skills"',
    'find "$1" -xdev -type f -perm /6000 -exec chmod a-s {} +',
)
"""As in functions/sandbox/Dockerfile, for no step of the build may start a container: the engine has no network to give it."""


def missing() -> str:
    """Why there can be no engine here; empty if there can."""
    if os.geteuid() != 0:
        return "a container engine is started by root"
    absent = [name for name in ("dockerd", "docker", "mmdebstrap") if shutil.which(name) is None]
    return f"{', '.join(absent)} is not installed (apt-get install docker.io mmdebstrap)" if absent else ""


@contextlib.contextmanager
def started() -> Iterator[str]:
    """The socket of an engine that has the image. Raises :class:`RuntimeError` with what it said where it does not start."""
    folder = tempfile.TemporaryDirectory(prefix="engine-", dir="/tmp", ignore_cleanup_errors=True)  # a short path, for its socket
    with folder, _engine(Path(folder.name)) as socket:
        docker(socket, "import", str(_base()), BASE)
        yield socket


async def build_image(socket: str) -> list[str]:
    """Make the image by the product's own client; answers what the engine said."""
    with tempfile.TemporaryDirectory(prefix="context-") as folder:
        context = Path(folder) / "context"
        shutil.copytree(ROOT / "functions" / "sandbox", context, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(Path(__file__).with_name("Dockerfile"), context / "Dockerfile")
        async with Engine(socket) as engine:
            return [line async for line in engine.build(packed(context), IMAGE, {"BASE_IMAGE": BASE})]


@contextlib.contextmanager
def _engine(folder: Path) -> Iterator[str]:
    socket = str(folder / "docker.sock")
    own = [f"--{name}={folder / place}" for name, place in {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}.items()]
    command = ["dockerd", *own, f"--host=unix://{socket}", "--bridge=none", "--iptables=false"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not _answers(socket):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd does not start here:\n{(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield socket
    finally:
        for container in docker(socket, "ps", "--all", "--quiet").split():
            docker(socket, "rm", "--force", "--volumes", container)
        process.terminate()
        process.wait(_STOP_SECONDS_MAX)


def _answers(socket: str) -> bool:
    done = subprocess.run(["docker", "--host", f"unix://{socket}", "info"], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def _base() -> Path:
    """A small Debian as a tar, made once (three minutes)."""
    if not BASE_TAR.exists():
        BASE_TAR.parent.mkdir(parents=True, exist_ok=True)
        hooks = [f"--customize-hook={hook}" for hook in _IN_THE_BASE]
        packages = "--include=python3,procps,util-linux,passwd"
        made = BASE_TAR.with_suffix(".part.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", packages, *hooks, "bookworm", str(made)]
        subprocess.run(command, check=True, timeout=1800)
        made.rename(BASE_TAR)
    return BASE_TAR


def docker(socket: str, *words: str) -> str:
    """What docker's own client answers."""
    done = subprocess.run(
        ["docker", "--host", f"unix://{socket}", *words], capture_output=True, text=True, timeout=600, check=True, errors="replace"
    )
    return done.stdout.strip()
