"""The first process of a Lambda MicroVM: the run hook brings it the exec server's configuration, and it starts the server.

A MicroVM image is a snapshot that was taken while this process waited, so nothing of a container can be in it. The hook's answer
means that the exec server listens. **Not yet run on AWS.**
"""

import base64
import hmac
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from contextlib import suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional

HOOKS = "/aws/lambda-microvms/runtime/v1/"
PAYLOAD_BYTES_MAX = 64 * 1024
"""The hook's whole body; the payload in it has 4,096 bytes at most (``RunMicrovm``)."""

START_SECONDS = 50
"""Less than the run hook's minute, which the image sets (``infra/microvms.py``): a disk that is read for the first time is slow."""

TOUCHED = (
    ("bash", "-c", "true"),
    ("python3", "-c", "import pandas, matplotlib.pyplot"),
    ("node", "-e", "1"),
    ("git", "--version"),
)
"""What commands start most. AWS fetches before a start what the validate hook has read; without one the first Python of a VM took 45
seconds (reported). An image of somebody else's may lack some of them."""
TOUCH_SECONDS = 60


class HookRefused(Exception):
    """A hook's task cannot be done: a status and a sentence that quotes nothing of the payload."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ServerStarter:
    """Starts the exec server once. A hook that is repeated with the same payload is answered as the first was."""

    def __init__(self) -> None:
        self._started: Optional[bytes] = None
        self._lock = threading.Lock()

    def run(self, body: bytes) -> None:
        payload = run_payload(body)
        digest = sha256(payload.encode()).digest()
        with self._lock:
            if self._started is None:
                self._start(payload)
                self._started = digest
            elif not hmac.compare_digest(self._started, digest):
                raise HookRefused(409, "The sandbox runs with another configuration.")

    def _start(self, payload: str) -> None:
        port = exec_port(payload)
        child = exec_server(payload)
        threading.Thread(target=lambda: os._exit(child.wait() & 0xFF), daemon=True).start()
        wait_until_listening(port)

    def validate(self) -> None:
        """Read the files of a start and its first commands from the disk. AWS calls it in a trial VM without a container."""
        with self._lock:
            if self._started is not None:
                raise HookRefused(409, "The sandbox serves its container.")
            touch_server()
            for program in TOUCHED:
                with suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=TOUCH_SECONDS, check=False)


def touch_server() -> None:
    """Start the exec server for nobody, and end it."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        directories = {name: os.path.join(folder, name) for name in ("workspace", "home", "spool_dir")}
        config = {"token_sha256": secrets.token_hex(32), "listen": "tcp:127.0.0.1:%d" % port, **directories}
        child = exec_server(json.dumps(config))
        try:
            wait_until_listening(port)
        finally:
            child.kill()
            child.wait()


def exec_server(payload: str) -> "subprocess.Popen[bytes]":
    reading, writing = os.pipe()
    os.write(writing, payload.encode())  # it fits: a pipe holds 64 KiB
    os.close(writing)
    server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "server")
    child = subprocess.Popen([sys.executable, "-I", "-S", server, "--config-fd", str(reading)], pass_fds=[reading])
    os.close(reading)
    return child


def wait_until_listening(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_listening(port):
        if time.monotonic() > deadline:
            raise HookRefused(500, "The exec server did not start.")
        time.sleep(0.02)


def run_payload(body: bytes) -> str:
    """The ``runHookPayload`` of ``RunMicrovm``: AWS's words leave open whether it is the body or a field of it."""
    try:
        envelope = json.loads(body)
        payload = envelope.get("runHookPayload", envelope)
        values = json.loads(payload) if isinstance(payload, str) else payload
        if "zlib" in values:
            values = json.loads(unpacked(values["zlib"]))
        return json.dumps(values)
    except (ValueError, AttributeError, TypeError):
        raise HookRefused(400, "The run hook takes a JSON object.") from None


def unpacked(text: str) -> bytes:
    """A payload has 4,096 bytes, and the variables of a way out have half of that."""
    machine = zlib.decompressobj()
    try:
        content = machine.decompress(base64.b64decode(text, validate=True), PAYLOAD_BYTES_MAX)
    except zlib.error:
        raise HookRefused(400, "The payload cannot be unpacked.") from None
    if not machine.eof:
        raise HookRefused(400, "The payload is too large, or a part of it is missing.")
    return content


def exec_port(payload: str) -> int:
    """The port of ``listen``, of a payload with the exec server's configuration."""
    try:
        config: Any = json.loads(payload)
        assert len(config["token_sha256"]) == 64
        kind, _, port = config["listen"].split(":")
        assert kind == "tcp"
        return int(port)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
        raise HookRefused(400, "The payload is not a configuration of the exec server that listens on TCP.") from None


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class LifecycleHooks(BaseHTTPRequestHandler):
    """Side by side: a connection that asks for nothing holds no hook up. Commands can reach it too, and achieve nothing: the server
    runs by then, and never twice."""

    timeout = 10
    launcher = ServerStarter()

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("content-length") or 0), PAYLOAD_BYTES_MAX))
        try:
            if self.path == HOOKS + "run":
                self.launcher.run(body)
            elif self.path == HOOKS + "validate":
                self.launcher.validate()
            elif self.path != HOOKS + "ready":
                raise HookRefused(404, "There is no such hook.")
        except HookRefused as refused:
            self._answer(refused.status, str(refused))
        else:
            self._answer(200, "")

    def _answer(self, status: int, message: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(message)))
        self.end_headers()
        self.wfile.write(message.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it: a VM without execution role has no log."""


def main() -> None:
    """``microvm.py PORT``: the port of the image's hooks."""
    with ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), LifecycleHooks) as hooks:
        print(hooks.server_port, flush=True)
        hooks.serve_forever()


if __name__ == "__main__":
    main()
