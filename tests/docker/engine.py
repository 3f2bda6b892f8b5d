"""A real container engine for tests: Debian's ``dockerd`` as a child, with its own data, its own socket and its own bridge.

There may be no registry of images, so Debians by mmdebstrap stand in for the base images. The engine's data stay between runs, for its
cache of layers: an image is built anew from where its inputs differ.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from moorage.cli.sandbox_image import packed
from moorage.sandbox.docker_engine import Engine

ROOT: Final = Path(__file__).parents[2]
BASES: Final = ROOT / ".build" / "docker"
IMAGE: Final = "moorage-sandbox"
_IDENTITY: Final = hashlib.sha256(bytes(ROOT)).hexdigest()[:8]
DATA: Final = Path(f"/var/tmp/moorage-engine-{_IDENTITY}")
"""A short path, for sockets in volumes."""
_START_SECONDS_MAX: Final = 60
_STOP_SECONDS_MAX: Final = 60
_BUILD_SECONDS_MAX: Final = 3000

_OF_THIS_MACHINE: Final = (
    'mkdir -p "$1/usr/local/share/ca-certificates"',
    'cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/" 2>/dev/null || true',
    'chroot "$1" update-ca-certificates >/dev/null 2>&1',
    'cp /etc/pip.conf "$1/etc/" 2>/dev/null || true',
)
"""So that builds reach the indexes of packages as this machine does."""
_PYTHON: Final = (
    'for name in python python3; do ln -s /usr/bin/python3 "$1/usr/local/bin/$name"; done',
    'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
)
_USERS: Final = (
    'ln -s /usr/bin/python3 "$1/usr/local/bin/python3"',
    'chroot "$1" useradd --uid 1000 --create-home --home-dir /home/user --shell /bin/bash user',
    'install --directory --owner=1000 --group=1000 "$1/mnt/data"',
    'ln -s /mnt/data "$1/workspace"',
    'install --directory "$1/home/oai/skills"',
    'find "$1" -xdev -type f -perm /6000 -exec chmod a-s {} +',
)
"""As in functions/sandbox/Dockerfile."""


@dataclass(frozen=True)
class Base:
    suite: str
    packages: str
    hooks: tuple[str, ...] = ()


BASE_IMAGES: Final = {
    "moorage-base": Base("bookworm", "python3,procps,util-linux,passwd", _USERS),
    "moorage-debian": Base("trixie", "ca-certificates", _OF_THIS_MACHINE),
    "moorage-python-3.11": Base("bookworm", "ca-certificates,python3-pip,python3-venv", _OF_THIS_MACHINE + _PYTHON),
    "moorage-python-3.13": Base("trixie", "ca-certificates,python3-pip,python3-venv", _OF_THIS_MACHINE + _PYTHON),
}
"""The first is what sandboxes of the ring are made from, the others stand for ``debian:trixie-slim`` and ``python:3.*-slim``."""


def missing() -> str:
    """Why there can be no engine here; empty if there can."""
    if os.geteuid() != 0:
        return "a container engine is started by root"
    absent = [name for name in ("dockerd", "docker", "mmdebstrap", "ip") if shutil.which(name) is None]
    return f"{', '.join(absent)} is not installed (apt-get install docker.io mmdebstrap iproute2)" if absent else ""


@dataclass
class Dockerd:
    """An engine, which may be stopped and started again."""

    folder: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def socket(self) -> str:
        return str(self.folder / "docker.sock")

    def start(self) -> None:
        """Raises :class:`RuntimeError` with what it said where it does not start."""
        own = {"data-root": DATA, "exec-root": self.folder / "exec", "pidfile": self.folder / "pid", "bridge": _bridge()}
        command = ["dockerd", *(f"--{name}={place}" for name, place in own.items())]
        # Ports are published by the engine's proxy, and builds have the network of this machine: no rule of a firewall is touched.
        command += [f"--host=unix://{self.socket}", "--iptables=false", "--ip6tables=false", f"--config-file={self._config()}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not _answers(self.socket):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd does not start here:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def _config(self) -> Path:
        """gVisor's runtime where it is installed, as docs/sandbox.md has it; this machine has no groups for it."""
        file, gvisor = self.folder / "daemon.json", shutil.which("runsc")
        arguments = ["--host-uds=create", "--network=none", "--ignore-cgroups"]
        file.write_text(json.dumps({"runtimes": {"runsc": {"path": gvisor, "runtimeArgs": arguments}}} if gvisor else {}))
        return file

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(_STOP_SECONDS_MAX)


@contextlib.contextmanager
def started() -> Iterator[Dockerd]:
    """An engine without containers and volumes."""
    folder = tempfile.TemporaryDirectory(prefix="engine-", dir="/tmp", ignore_cleanup_errors=True)  # a short path, for its socket
    with folder:
        engine = Dockerd(Path(folder.name))
        engine.start()
        try:
            _remove_all(engine.socket)
            yield engine
        finally:
            _remove_all(engine.socket)
            docker(engine.socket, "image", "prune", "--force", "--filter", "until=24h")
            engine.stop()
            # The network of containers that share the machine's stays mounted, and would keep the folder.
            subprocess.run(["umount", str(engine.folder / "exec" / "netns" / "default")], check=False, capture_output=True)
            subprocess.run(["ip", "link", "delete", _bridge()], check=False, capture_output=True)


def _remove_all(socket: str) -> None:
    for container in docker(socket, "ps", "--all", "--quiet").split():
        docker(socket, "rm", "--force", "--volumes", container)
    for volume in docker(socket, "volume", "ls", "--quiet").split():
        docker(socket, "volume", "rm", "--force", volume)


def _bridge() -> str:
    """A bridge of this working copy's own, in a part of 172.16.0.0/12 that follows from its path."""
    name, number = f"moor-{_IDENTITY}", int(_IDENTITY, 16)
    if subprocess.run(["ip", "link", "show", name], capture_output=True, check=False).returncode:
        subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
        address = f"172.{20 + number % 11}.{number // 11 % 256}.1/24"
        subprocess.run(["ip", "address", "add", address, "dev", name], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return name


async def build_image(socket: str) -> list[str]:
    """Make the ring's sandbox by the product's own client; answers what the engine said."""
    base(socket, "moorage-base")
    with tempfile.TemporaryDirectory(prefix="context-") as folder:
        context = Path(folder) / "context"
        shutil.copytree(ROOT / "functions" / "sandbox", context, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(Path(__file__).with_name("Dockerfile"), context / "Dockerfile")
        async with Engine(socket) as engine:
            return [line async for line in engine.build(packed(context), IMAGE, {"BASE_IMAGE": "moorage-base"})]


def build(socket: str, tag: str, context: Path, arguments: Mapping[str, str], dockerfile: str = "Dockerfile") -> None:
    """By docker's own client, on this machine's network. What it said is the error where it fails."""
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    done = subprocess.run(
        ["docker", "build", "--network=host", *words, "--file", dockerfile, "--tag", tag, "."],
        cwd=context,
        env=os.environ | {"DOCKER_HOST": f"unix://{socket}", "DOCKER_BUILDKIT": "0"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_BUILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def base(socket: str, name: str) -> str:
    """The stand-in for a base image, made once (half a minute) and imported where the engine has it not."""
    known, recipe = BASES / f"{name}.tar", BASE_IMAGES[name]
    if not known.exists():
        BASES.mkdir(parents=True, exist_ok=True)
        made = known.with_suffix(".part.tar")
        hooks = [f"--customize-hook={hook}" for hook in recipe.hooks]
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={recipe.packages}", *hooks, recipe.suite, str(made)]
        subprocess.run(command, check=True, timeout=1800)
        made.rename(known)
    if not docker(socket, "images", "--quiet", name):
        certificates = "/etc/ssl/certs/ca-certificates.crt"
        trust = ["--change", f"ENV SSL_CERT_FILE={certificates} NODE_EXTRA_CA_CERTS={certificates}"]
        docker(socket, "import", *(trust if "ca-certificates" in recipe.packages else []), str(known), name)
    return name


def _answers(socket: str) -> bool:
    done = subprocess.run(["docker", "--host", f"unix://{socket}", "info"], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def docker(socket: str, *words: str) -> str:
    """What docker's own client answers."""
    done = subprocess.run(
        ["docker", "--host", f"unix://{socket}", *words], capture_output=True, text=True, timeout=600, check=False, errors="replace"
    )
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


def compose_missing() -> str:
    """Why Docker Compose cannot be driven here; empty if it can."""
    found = subprocess.run(["docker", "compose", "version"], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else "docker compose is not installed (go install github.com/docker/compose/v2/cmd@v2.40.3)"


def compose(socket: str, *words: str, **environment: str) -> str:
    """What Docker Compose does with ``compose.yaml`` of this project, in a shell that has nothing but ``environment``."""
    known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        ["docker", "compose", *words],
        cwd=ROOT,
        env=known | {"DOCKER_HOST": f"unix://{socket}"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"docker compose {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()
