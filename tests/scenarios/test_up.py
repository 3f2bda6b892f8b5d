"""``moorage up`` and ``make up`` as a user runs them: a terminal, a port, Ctrl-C."""

import json
import os
import pty
import queue
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from moorage.command_hints import typed_here
from moorage.local.processes import identity
from openai import APIConnectionError, OpenAI

from tests.processes import descendants, is_launcher
from tests.stack import ROOT, TOLD_PROGRAMS, Stack, clean_environment, raw_events, say, script

_SECONDS_MAX = 60
_IS_SET_UP = ("make", "--question", ".venv/.local", ".venv-toolbox/.done", ".venv-egress/.done")


class Terminal:
    """A program in the foreground of a process group of its own."""

    def __init__(self, *command: str, environment: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            env=clean_environment() | TOLD_PROGRAMS | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # A shell lets what it runs in the background ignore Ctrl-C, and whoever is started from there inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def wait_for(self, pattern: str) -> "re.Match[str]":
        """Read what it says until that is there."""
        assert self.process.stdout is not None
        said = ""
        deadline = time.monotonic() + _SECONDS_MAX
        while not (found := re.search(pattern, said)):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert chunk, f"ended without {pattern!r}: {said}"
            said += chunk.decode()
        return found

    def press_ctrl_c(self) -> tuple[int, str, list[str]]:
        """The exit code, the errors, and the command lines of the processes that are left. A program that its launcher was killed over
        has no parent but the system's first process, which may take a moment to see its end."""
        below = descendants(self.process.pid)
        assert below
        os.killpg(self.process.pid, signal.SIGINT)
        _, errors = self.process.communicate(timeout=_SECONDS_MAX)
        return self.process.returncode, errors.decode(), [line for pid, line in below.items() if identity(pid)]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


def up(state_dir: Path, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "moorage", "up", "--state-dir", str(state_dir), *arguments)


def started(terminal: Terminal) -> tuple[Terminal, OpenAI]:
    """The stack, and the SDK as its own words configure it."""
    shown = terminal.wait_for(r"URL +(\S+)\n +key +(\S+)\n(?s:.*)Ctrl-C stops it.*\n")
    return terminal, OpenAI(base_url=shown[1], api_key=shown[2], max_retries=0)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def refused(state_dir: Path, *arguments: str, **environment: str) -> str:
    """What it says when it does not start, without a trace of Python."""
    terminal = Terminal(*up(state_dir, *arguments), environment=environment)
    out, errors = terminal.process.communicate(timeout=_SECONDS_MAX)
    assert (terminal.process.returncode, out) == (1, b"")
    return errors.decode()


def test_it_serves_stops_by_ctrl_c_without_a_trace_and_finds_its_state_again(state_dir: Path) -> None:
    terminal, client = started(Terminal(*up(state_dir, "--port", "0")))
    with client:
        first = client.responses.create(model="demo", input=script(say("hello")))
        assert first.output_text == "hello"
        assert terminal.press_ctrl_c() == (0, "", [])
    terminal, client = started(Terminal(*up(state_dir, "--port", "0")))
    with client:
        assert client.responses.retrieve(first.id) == first
        assert terminal.press_ctrl_c() == (0, "", [])


@pytest.mark.skipif(subprocess.run(_IS_SET_UP, cwd=ROOT, check=False).returncode != 0, reason="'make setup' has not run here")
def test_make_up_is_the_same(state_dir: Path) -> None:
    terminal, client = started(Terminal("make", "up", environment={"MOORAGE_STATE_DIR": str(state_dir), "MOORAGE_PORT": "0"}))
    with client:
        assert client.responses.create(model="demo", input=script(say("hello"))).output_text == "hello"
        assert terminal.press_ctrl_c() == (-signal.SIGINT, "", [])


def test_ctrl_c_during_the_start_leaves_nothing(state_dir: Path) -> None:
    terminal = Terminal(*up(state_dir, "--port", "0"))
    deadline = time.monotonic() + _SECONDS_MAX
    while not any(is_launcher(line) for line in descendants(terminal.process.pid).values()):
        assert time.monotonic() < deadline
    assert terminal.press_ctrl_c() == (130, "", [])


def memory_of(pid: int) -> Iterator[bytes]:
    """All that a process may have written."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            if rights.startswith("rw"):
                begin, end = (int(address, 16) for address in span.split("-"))
                memory.seek(begin)
                yield memory.read(end - begin)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """And its private key."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=moorage.test", "-days", "1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def prime_of(key: Path) -> bytes:
    """Of a private key, as OpenSSL keeps it in memory."""
    read = load_pem_private_key(key.read_bytes(), None)
    assert isinstance(read, RSAPrivateKey)
    return read.private_numbers().p.to_bytes(128, "little")


def test_the_owner_of_the_sandboxes_has_no_secrets_and_no_files_of_the_stack(state_dir: Path, certificate: tuple[Path, Path]) -> None:
    """It is a copy of the process that has them later. The second start finds the secrets of the first."""
    Stack(state_dir).start().stop()
    secrets = {name: value.encode() for name, value in json.loads((state_dir / "secrets.json").read_text()).items()}
    secrets["tls_key"] = prime_of(certificate[1])
    stack = Stack(state_dir, {"MOORAGE_TLS_CERT": str(certificate[0]), "MOORAGE_TLS_KEY": str(certificate[1])}).start()
    try:
        assert stack.process is not None
        (launcher,) = (pid for pid, line in descendants(stack.process.pid).items() if is_launcher(line))
        found = {
            pid: {name for part in memory_of(pid) for name, secret in secrets.items() if secret in part}
            for pid in (stack.process.pid, launcher)
        }
        assert found == {stack.process.pid: {"api_key", "content_key", "tls_key"}, launcher: set()}
        held = {os.readlink(each) for each in Path(f"/proc/{launcher}/fd").iterdir()}
        files = {each for each in held if each.startswith(f"{state_dir}/")}
        assert files == {f"{state_dir}/{name}" for name in ("launcher.log", "sandboxes/launcher.lock")}
        shared = held & {os.readlink(each) for each in Path(f"/proc/{stack.process.pid}/fd").iterdir()}
        assert {each for each in shared if each.startswith(("socket:", "pipe:"))} == set()
    finally:
        assert stack.stop() == 0


def test_on_a_terminal_the_start_says_what_it_waits_for(state_dir: Path) -> None:
    master, screen = pty.openpty()
    try:
        command = up(state_dir, "--port", "0")
        process = subprocess.Popen(command, cwd=ROOT, env=clean_environment(), stdout=subprocess.DEVNULL, stderr=screen)
        os.close(screen)
        seen = b""
        while b"Starting the owner of the sandboxes" not in seen and select.select([master], [], [], _SECONDS_MAX)[0]:
            seen += os.read(master, 65536)
        process.terminate()
        process.wait(_SECONDS_MAX)
    finally:
        os.close(master)
    assert b"Starting the owner of the sandboxes" in seen


class Systemd:
    """What a service manager hears on its socket (sd_notify(3)). It always listens, for the kernel keeps ten messages alone."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("")  # the kernel chooses an abstract name
        self._name = self._socket.getsockname()
        self.environment = {"NOTIFY_SOCKET": f"@{self._name.decode()[1:]}", "WATCHDOG_USEC": "200000"}
        self._heard: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        while heard := self._socket.recv(4096).decode():
            self._heard.put(heard)

    def hears(self, state: str) -> bool:
        """Waits for it among signs of life; False where something else was said."""
        while (heard := self._heard.get(timeout=_SECONDS_MAX)) == "WATCHDOG=1" != state:
            pass
        return heard == state

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._name)
        self._listener.join()
        self._socket.close()


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    manager = Systemd()
    yield manager
    manager.close()


def test_a_stack_that_was_killed_is_started_again_at_once_with_its_state(state_dir: Path, systemd: Systemd) -> None:
    terminal, client = started(Terminal(*up(state_dir, "--port", "0"), environment=systemd.environment))
    assert systemd.hears("READY=1")
    with client:
        first = client.responses.create(model="demo", input=script(say("hello")))
    assert systemd.hears("WATCHDOG=1")
    terminal.process.kill()  # as systemd does with a service that has been silent
    terminal.process.communicate(timeout=_SECONDS_MAX)
    terminal, client = started(Terminal(*up(state_dir, "--port", "0"), environment=systemd.environment))
    assert systemd.hears("READY=1")
    with client:
        assert client.responses.retrieve(first.id) == first
        assert terminal.press_ctrl_c() == (0, "", [])
    assert systemd.hears("STOPPING=1")


def test_others_are_served_over_tls_alone_and_by_key(state_dir: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    terminal = Terminal(*up(state_dir, "--port", "0", "--host", "0.0.0.0", "--tls-cert", cert, "--tls-key", key))
    terminal, stranger = started(terminal)
    with stranger, pytest.raises(APIConnectionError):  # Its machine knows nothing of who signed the certificate.
        stranger.models.list()
    url, trusting = str(stranger.base_url), ssl.create_default_context(cafile=cert)
    assert url.startswith("https://127.0.0.1:")
    with httpx.Client(verify=trusting, headers={"authorization": f"Bearer {stranger.api_key}"}) as client:
        streamed = client.post(f"{url}responses", json={"model": "demo", "input": "hello", "stream": True})
        assert raw_events(streamed.iter_lines())[-1]["type"] == "response.completed"
    assert httpx.get(f"{url}models", verify=trusting).status_code == 401
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}models".replace("https:", "http:"))
    code, errors, left = terminal.press_ctrl_c()
    assert (code, left) == (0, [])
    assert "moorage: Other machines can reach 0.0.0.0." in errors


def test_a_second_stack_with_the_same_state_is_refused(state_dir: Path) -> None:
    terminal, client = started(Terminal(*up(state_dir, "--port", "0")))
    with client:
        said = refused(state_dir, "--port", str(client.base_url.port))
        assert said == typed_here(
            f"moorage: A stack with its state in {state_dir} is running already. Use that one, stop it first, or take another folder "
            "with MOORAGE_STATE_DIR or 'moorage up --state-dir'.\n"
        )
        assert client.models.list().data[0].id == "demo"
        assert terminal.press_ctrl_c() == (0, "", [])


def test_a_port_in_use_is_named_before_anything_starts(state_dir: Path, taken_port: int) -> None:
    assert refused(state_dir, "--port", str(taken_port)) == typed_here(
        f"moorage: Port {taken_port} cannot be had: Address already in use. MOORAGE_PORT or 'moorage up --port' takes another; "
        "0 is any free one.\n"
    )
    assert not (state_dir / "store").exists()


WRONG = {
    "less than no time": (
        "MOORAGE_RETENTION_SECONDS",
        "-5",
        "moorage: MOORAGE_RETENTION_SECONDS is '-5'; it takes no negative number.\n",
    ),
    "a port that is none": ("MOORAGE_PORT", "http", "moorage: MOORAGE_PORT must be a whole number, not 'http'.\n"),
    "a port beyond the last": ("MOORAGE_PORT", "80800", "moorage: MOORAGE_PORT takes a port number, not '80800'.\n"),
    "a log level that is none": (
        "MOORAGE_LOG_LEVEL",
        "loud",
        "moorage: MOORAGE_LOG_LEVEL is 'loud'; it takes DEBUG, INFO, WARNING, ERROR.\n",
    ),
    "a model server without an address": (
        "MOORAGE_UPSTREAM_KIND",
        "chat_completions",
        "moorage: MOORAGE_UPSTREAM_KIND is 'chat_completions'; it needs MOORAGE_UPSTREAM_URL, the server's address.\n",
    ),
}


@pytest.mark.parametrize(("name", "value", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_ends_the_start_with_a_sentence(name: str, value: str, said: str, state_dir: Path) -> None:
    assert refused(state_dir, **{"MOORAGE_PORT": "0"} | {name: value}) == said


def test_a_folder_whose_name_is_too_long_for_sockets_is_named(state_dir: Path) -> None:
    folder = state_dir / ("long" * 30)
    said = f"moorage: Sockets cannot lie in {folder}: its path is too long. MOORAGE_STATE_DIR takes another folder.\n"
    assert refused(folder, "--port", "0") == said


@pytest.mark.skipif(shutil.which("curl") is None, reason="the line calls curl")
def test_the_line_to_try_can_be_pasted(tmp_path: Path) -> None:
    terminal = Terminal(*up(tmp_path / "with space", "--port", "0"))
    line = terminal.wait_for(r"  try +(.*)\n(?s:.*)Ctrl-C stops it.*\n")[1]
    tried = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    assert "You said: hello" in tried.stdout, tried.stderr
    assert terminal.press_ctrl_c() == (0, "", [])


def test_a_folder_that_cannot_hold_state_is_named() -> None:
    assert refused(Path("/proc/none"), "--port", "0") == (
        "moorage: State cannot be kept in /proc/none: No such file or directory. MOORAGE_STATE_DIR takes another folder.\n"
    )


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for temporary files whose name leaves room for the sockets in it (unix(7): 107 bytes)."""
    with tempfile.TemporaryDirectory(prefix="mo-", dir="/tmp") as folder:
        yield Path(folder)


def demo(folder: Path, *options: str, cwd: Path = ROOT, delta_ms: int = 200) -> Terminal:
    environment = {"TMPDIR": str(folder), "MOORAGE_DEMO_DELTA_MS": str(delta_ms)}
    return Terminal(sys.executable, "-m", "moorage", "demo", *options, environment=environment, cwd=cwd)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_demonstration_that_is_ended_leaves_nothing(number: signal.Signals, short: Path) -> None:
    terminal = demo(short)
    terminal.wait_for("runs in cntr_")
    below = descendants(terminal.process.pid)
    terminal.process.send_signal(number)
    _, errors = terminal.process.communicate(timeout=_SECONDS_MAX)
    assert (terminal.process.returncode, errors) == (130 if number is signal.SIGINT else 128 + number, b"")
    assert [line for pid, line in below.items() if identity(pid)] == []
    assert list(short.glob("moorage-demo-*")) == []


def test_ctrl_c_while_a_demonstration_starts_leaves_no_trace(short: Path) -> None:
    terminal = demo(short)
    terminal.wait_for("Starting the embedded stack")
    os.killpg(terminal.process.pid, signal.SIGINT)
    _, errors = terminal.process.communicate(timeout=_SECONDS_MAX)
    assert (terminal.process.returncode, errors, list(short.glob("moorage-demo-*"))) == (130, b"", [])


def test_a_demonstration_that_is_kept_ends_in_the_console_with_its_run(short: Path, tmp_path: Path) -> None:
    terminal = demo(short, "--keep", cwd=tmp_path, delta_ms=0)
    response_id = terminal.wait_for(r"(resp_\w+) runs in cntr_")[1]
    address = terminal.wait_for(r"(http://127.0.0.1:\d+/)console/#k=(\S+)&run=(\S+)\n(?s:.*)Ctrl-C ends the demo and its stack\.")
    assert address[3] == response_id
    session = httpx.post(f"{address[1]}v1/console/session", headers={"authorization": f"Bearer {address[2]}"}).json()
    bearer = {"authorization": f"Bearer {session['key']}"}
    assert httpx.get(f"{address[1]}v1/responses/{response_id}", headers=bearer).json()["status"] == "completed"
    assert terminal.press_ctrl_c() == (0, "", [])
    assert list(short.glob("moorage-demo-*")) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chart.png", "report.xlsx"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed ('make setup-dev' installs it).")
def test_a_demonstration_builds_a_page_and_mends_what_its_browser_shows(short: Path, tmp_path: Path) -> None:
    terminal = demo(short, "computer", "--no-keep", cwd=tmp_path, delta_ms=0)
    terminal.wait_for(r"shows 'Cart: 0'(?s:.*)count \+= 1(?s:.*)shows 'Cart: 2'(?s:.*)after two presses the title is 'Cart: 2'")
    _, errors = terminal.process.communicate(timeout=_SECONDS_MAX)
    assert (terminal.process.returncode, errors) == (0, b"")
    made = {path.name: path.read_bytes()[:2] for path in tmp_path.iterdir()}
    assert made == {"index.html": b"<!", "screen-1.jpg": b"\xff\xd8", "screen-2.jpg": b"\xff\xd8"}


def test_a_demonstration_that_is_killed_takes_its_stack_along(short: Path) -> None:
    terminal = demo(short)
    terminal.wait_for("runs in cntr_")
    below = descendants(terminal.process.pid)
    terminal.process.kill()
    terminal.process.communicate(timeout=_SECONDS_MAX)
    deadline = time.monotonic() + _SECONDS_MAX
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < deadline, below
        time.sleep(0.1)


def test_a_mistyped_setting_is_named_when_the_stack_starts(state_dir: Path) -> None:
    terminal = Terminal(*up(state_dir, "--port", "0"), environment={"MOORAGE_UPSTREAM_URI": "http://127.0.0.1:8000/v1"})
    terminal, client = started(terminal)
    with client:
        code, errors, left = terminal.press_ctrl_c()
    assert (code, errors, left) == (0, "moorage: MOORAGE_UPSTREAM_URI is no setting; MOORAGE_UPSTREAM_URL is.\n", [])
