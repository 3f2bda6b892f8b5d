"""The arena (servers, table, proxy: ``arena.py``) and a real bubblewrap sandbox whose only way out is the proxy's socket."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from command_environment import SYSTEM_BUNDLES
from moorage.egress.trust import environment, proxy_url

ROOT = Path(__file__).resolve().parents[2]
TENANT = "tenant-1"
_WAIT_SECONDS_MAX = 60.0


_ELSEWHERE = {"uv": shutil.which("uv"), "cargo": os.path.expanduser("~/.cargo"), "rustup": os.path.expanduser("~/.rustup")}
TOOLS = {name: Path(found).resolve() for name, found in _ELSEWHERE.items() if found and Path(found).exists()}
"""Tools that live outside /usr."""


@dataclass(frozen=True)
class Opened:
    """A container's grant, and what its commands see of it."""

    container_id: str
    username: str
    password: str
    placeholders: dict[str, str]

    @property
    def basic(self) -> str:
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    @property
    def environment(self) -> dict[str, str]:
        return environment(proxy_url("127.0.0.1:3128", self.username, self.password), "/run/ca/bundle.pem") | self.placeholders


class ArenaClient:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(directory / "control.sock"))
        self._file = self._socket.makefile("rw")
        self._containers = 0

    def __call__(self, operation: str, /, **argument: Any) -> Any:
        self._file.write(json.dumps([operation, argument]) + "\n")
        self._file.flush()
        answer = json.loads(self._file.readline())
        assert "ok" in answer, answer
        return answer["ok"]

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def open(
        self, *domains: str, secrets: list[dict[str, Any]] | None = None, container: str | None = None, asks: Any = None
    ) -> Opened:
        self._containers += 1
        container = container or f"cntr_{self._containers}"
        policy: dict[str, Any] = {"type": "allowlist", "allowed_domains": list(domains)}
        if secrets:
            policy["domain_secrets"] = secrets
        if asks is not None:
            policy["require_approval"] = asks
        grant = self("open", tenant=TENANT, container=container, network_policy=policy)
        return Opened(container, grant["username"], grant["password"], grant["placeholders"])

    @property
    def log_file(self) -> Path:
        return self.directory / "proxy.log"

    def lines_since(self, offset: int) -> list[dict[str, Any]]:
        with self.log_file.open("rb") as log:
            log.seek(offset)
            return [json.loads(line) for line in log.read().splitlines() if line.startswith(b"{")]

    def wait_for_line(self, offset: int, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line of the proxy's log after ``offset`` that is the one."""
        wait_until(lambda: any(map(is_it, self.lines_since(offset))), self.log_file.read_text()[-1500:])
        return next(filter(is_it, self.lines_since(offset)))


def wait_until(is_so: Callable[[], bool], what: str = "it never came true") -> None:
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@dataclass
class Sandbox:
    process: "subprocess.Popen[str]"

    def order(self, what: str, **details: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": what, **details}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the sandbox died"
        report = json.loads(line)
        assert "ok" in report, report["error"]
        return report["ok"]

    def talk(self, *steps: list[Any], seconds: float = 5) -> list[tuple[str, str]]:
        return [(text, state) for text, state in self.order("steps", steps=list(steps), seconds=seconds)]

    def shell(self, command: str, env: dict[str, str], seconds: float = 120) -> dict[str, Any]:
        answer: dict[str, Any] = self.order("shell", command=command, env=env, seconds=seconds)
        return answer

    @cached_property
    def pids(self) -> list[int]:
        """All processes of the sandbox, as the machine numbers them."""
        children = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        parents = {int(pid): int(parent) for pid, parent in (line.split() for line in children.splitlines())}
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found


def why_no_arena() -> str | None:
    """Why this machine cannot run the arena; None if it can."""
    if not (ROOT / ".venv-egress" / "bin" / "python").exists():
        return "the egress proxy's environment is missing: make it from requirements/egress.txt as .venv-egress"
    for tool in ("bwrap", "unshare", "ip"):
        if shutil.which(tool) is None:
            return f"'{tool}' is not installed"
    for attempt in (["unshare", "--user", "--map-root-user", "--net", "ip", "link", "set", "lo", "up"], ["bwrap", *_WALLS, "true"]):
        done = subprocess.run(attempt, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"'{attempt[0]}' cannot make namespaces here: {done.stderr.strip()}"
    return None


_WALLS = [
    *("--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin"),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
]


@pytest.fixture(scope="session")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArenaClient]:
    reason = why_no_arena()
    if reason is not None:
        print(f"egress: no attack can be run here, since {reason}")
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("arena")
    process = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-m", "tests.egress.arena", str(directory)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'layers/core/python'}:{ROOT}:{ROOT / 'functions/sandbox/server'}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n", "the arena did not start"
        client = ArenaClient(directory)
        yield client
        client.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


@pytest.fixture(scope="session")
def sandbox(arena: ArenaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with a_sandbox(arena, tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="session")
def other_sandbox(arena: ArenaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A neighbour of the first."""
    with a_sandbox(arena, tmp_path_factory) as made:
        yield made


@contextmanager
def a_sandbox(arena: ArenaClient, tmp_path_factory: pytest.TempPathFactory, socket_name: str = "egress.sock") -> Iterator[Sandbox]:
    """``socket_name``: of the way out, in the proxy's directory. It is the proxy's own, or leads to a forwarder."""
    certificates = tmp_path_factory.mktemp("certificates")
    arena.open("any.example")
    ca = (arena.directory / "egress-ca.pem").read_text()
    upstream = (arena.directory / "upstream-ca.pem").read_text()
    system = next(Path(path) for path in SYSTEM_BUNDLES if Path(path).is_file())
    (certificates / "bundle.pem").write_text("\n".join((system.read_text(), ca, upstream)))
    binds = [
        ROOT / ".venv",
        ROOT / ".venv-toolbox",
        Path(sys.base_prefix),
        Path("/etc/ssl"),
        Path("/etc/alternatives"),
        *TOOLS.values(),
    ]
    command = ["bwrap", *_WALLS, "--tmpfs", "/root", "--tmpfs", "/home"]
    for path in binds:
        command += ["--ro-bind-try", str(path), str(path)]
    # wget and other users of GnuTLS read no variable: they find the bundle in the system's place.
    command += ["--ro-bind", str(certificates / "bundle.pem"), "/etc/ssl/certs/ca-certificates.crt"]
    command += ["--bind", str(arena.directory / "proxy"), "/run/egress", "--ro-bind", str(certificates), "/run/ca"]
    command += ["--ro-bind", str(Path(__file__).with_name("puppet.py")), "/run/puppet.py", "--chdir", "/tmp"]
    command += ["--setenv", "PATH", "/usr/bin:/bin:/usr/sbin", "--setenv", "HOME", "/tmp", "--setenv", "LC_ALL", "C.UTF-8"]
    command += ["--setenv", "PROXY_SOCKET", f"/run/egress/{socket_name}"]
    command += ["/usr/bin/python3", "/run/puppet.py"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline()) == "ready"
        yield Sandbox(process)
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
        with suppress(BrokenPipeError):  # An order that it died of may still wait to be written.
            process.stdin.close()
