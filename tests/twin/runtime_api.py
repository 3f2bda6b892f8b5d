"""Lambda's Runtime API, and functions that AWS's own runtime client (``awslambdaric``) runs against it.

What a managed Python runtime does is the client's work: it finds the handler in the package, asks for the next event, gives it to the
handler, and tells what it answered or raised. Here stands what it asks (Lambda developer guide, "Using the Lambda runtime API").
"""

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.twin.gateway import FunctionError
from tests.twin.template import ACCOUNT, REGION

HAS_CLIENT: Final = importlib.util.find_spec("awslambdaric") is not None
REASON: Final = "AWS's runtime client is not installed: awslambdaric has packages for Linux"
_VERSION: Final = "2018-06-01"
_SECONDS_MAX: Final = 60


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        event = self.server.environment.next()
        if event is None:
            self.close_connection = True
            return
        identity, payload = event
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.server.environment.name}"
        deadline = int((time.time() + self.server.environment.seconds_max) * 1000)
        self._answer(
            200,
            payload,
            **{
                "Lambda-Runtime-Aws-Request-Id": identity,
                "Lambda-Runtime-Deadline-Ms": str(deadline),
                "Lambda-Runtime-Invoked-Function-Arn": arn,
                "Lambda-Runtime-Trace-Id": "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.environment.told(self.path.rsplit("/", 1)[1], body)
        self._answer(202, b'{"status":"OK"}')

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    environment: "Environment"


class Environment:
    """One execution environment: a process of the runtime client, which handles one event at a time."""

    def __init__(
        self, name: str, package: Path, handler: str, variables: Mapping[str, str], *, paths: Sequence[Path] = (), seconds_max: float
    ) -> None:
        """``paths`` are searched for modules after the package: the layers."""
        assert HAS_CLIENT, REASON
        self.name, self.seconds_max = name, seconds_max
        self._events: queue.Queue[tuple[str, bytes] | None] = queue.Queue()
        self._answers: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._server = _Server(("127.0.0.1", 0), _Api)
        self._server.environment = self
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "awslambdaric", handler],
            cwd=package,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                **variables,
                "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_address[1]}",
                "AWS_LAMBDA_FUNCTION_NAME": name,
                "AWS_LAMBDA_FUNCTION_VERSION": "1",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
                "LAMBDA_TASK_ROOT": str(package),
                "_HANDLER": handler,
            },
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def next(self) -> tuple[str, bytes] | None:
        return self._events.get()

    def told(self, word: str, body: bytes) -> None:
        self._answers.put((word, body))

    def invoke(self, event: Any) -> Any:
        """Raises :class:`FunctionError` with what the handler raised, or when its process has died."""
        self._events.put((str(uuid.uuid4()), json.dumps(event).encode()))
        deadline = time.monotonic() + self.seconds_max + _SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                word, body = self._answers.get(timeout=0.1)
            except queue.Empty:
                if self._process.poll() is not None:
                    raise FunctionError(f"Runtime exited: {self.log()[-2000:]}") from None
                continue
            if word == "error":
                raise FunctionError(json.loads(body).get("errorMessage", ""))
            return json.loads(body)
        raise FunctionError("Task timed out")

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        self.kill()
        self._events.put(None)
        self._server.shutdown()
        self._server.server_close()
        self._log.close()


class Function:
    """As many environments as there are events at once; they are kept for the next ones."""

    def __init__(
        self, name: str, package: Path, handler: str, variables: Mapping[str, str], *, paths: Sequence[Path] = (), seconds_max: float
    ) -> None:
        self._make: Callable[[], Environment] = partial(
            Environment, name, package, handler, variables, paths=paths, seconds_max=seconds_max
        )
        self._idle: list[Environment] = []
        self.busy: list[Environment] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.is_throttled = False

    def invoke(self, event: Any) -> Any:
        with self._lock:
            environment = self._idle.pop() if self._idle else self._make()
            self.busy.append(environment)
        is_alive = False
        try:
            answer = environment.invoke(event)
            is_alive = True
            return answer
        except FunctionError as error:
            is_alive = not str(error).startswith("Runtime exited")
            raise
        finally:
            with self._lock:
                self.busy.remove(environment)
                if is_alive:
                    self._idle.append(environment)
            if not is_alive:
                environment.end()

    def call_type(self, event: Any, *, retries: int, pause_seconds: float) -> None:
        """Without waiting: Lambda runs one that has failed again, after a while."""

        def run() -> None:
            for left in range(retries, -1, -1):
                try:
                    self.invoke(event)
                    return
                except FunctionError:
                    if left:
                        time.sleep(pause_seconds)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        for environment in [*self._idle, *self.busy]:
            environment.kill()
        for thread in self._threads:
            thread.join(_SECONDS_MAX)
        for environment in self._idle:
            environment.end()
