"""A streaming function behind AWS's own Web Adapter, in an execution environment of ours.

What Lambda does is here: it starts the extension and the function's process, hands out one event at a time, takes the answer while it
is written, and freezes both processes in between (Lambda developer guide, "Building a custom runtime": the body is chunked, its prelude
is JSON and ends with eight NUL bytes).

An error in the middle of an answer should be a trailer. The adapter's runtime library writes it as the last piece of the body instead
(``BROKE_OFF``), after which the answer ends like any other: so a client does not learn by the connection that the function has died.
"""

import asyncio
import contextlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.judges.dynamodb_local import ROOT
from tests.twin.gateway import FunctionError, Streamed
from tests.twin.template import ACCOUNT, REGION

PROGRAM: Final = ROOT / ".build/judges/adapter-1.0.0-rc1/bin/lambda-adapter"
"""Of the version that the Makefile builds."""
_SECONDS_MAX: Final = 60
_PRELUDE_ENDS: Final = b"\0" * 8
BROKE_OFF: Final = b"Lambda-Runtime-Function-Error-Type: Runtime.StreamError\r\nLambda-Runtime-Function-Error-Body: "


def reason_without() -> str | None:
    """Why it cannot judge here."""
    return None if PROGRAM.exists() else "the Web Adapter is not here: `make judges` builds it with cargo"


@dataclass
class Invocation:
    event: bytes
    seconds_max: float
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    pieces: "queue.Queue[bytes | FunctionError | None]" = field(default_factory=queue.Queue)
    """What has been written of the answer; None at its end."""


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        if "/extension/" in self.path:
            self.server.environment.over.wait()
            self.close_connection = True
        elif (invocation := self.server.environment.next()) is None:
            self.close_connection = True
        else:
            self._answer(
                200,
                invocation.event,
                **{
                    "Lambda-Runtime-Aws-Request-Id": invocation.id,
                    "Lambda-Runtime-Deadline-Ms": str(int((time.time() + invocation.seconds_max) * 1000)),
                    "Lambda-Runtime-Invoked-Function-Arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:streaming",
                    "Lambda-Runtime-Trace-Id": "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=0",
                },
            )

    def do_POST(self) -> None:
        if self.path.endswith("/extension/register"):
            list(self._pieces())
            self._answer(200, b'{"functionName":"streaming"}', **{"Lambda-Extension-Identifier": str(uuid.uuid4())})
            return
        *_, invocation_id, word = self.path.split("/")
        invocation = self.server.environment.invocations[invocation_id]
        if word == "error":
            told = json.loads(b"".join(self._pieces()))
            invocation.pieces.put(FunctionError(f"{told['errorType']}: {told['errorMessage']}"))
        else:
            assert self.headers["lambda-runtime-function-response-mode"] == "streaming"
            for piece in self._pieces():
                invocation.pieces.put(piece)
            invocation.pieces.put(self._error)
        self._answer(202, b'{"status":"OK"}')

    _error: FunctionError | None = None

    def _pieces(self) -> Iterator[bytes]:
        """The body as it comes; afterwards ``_error`` says whether it is whole."""
        self._error = None
        if "chunked" not in (self.headers.get("transfer-encoding") or ""):
            yield self.rfile.read(int(self.headers.get("content-length") or 0))
            return
        while size := int(self.rfile.readline().split(b";")[0] or b"-1", 16):
            if size < 0:
                self._error = FunctionError("the answer broke off")
                return
            yield self.rfile.read(size)
            self.rfile.readline()
        for _ in iter(self.rfile.readline, b"\r\n"):
            """Nothing is said after the last piece."""

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
    """The extension and the function's process, which take one event at a time."""

    def __init__(self, package: Path, layers: Sequence[Path], variables: Mapping[str, str]) -> None:
        self.over, self.is_ready = threading.Event(), threading.Event()
        self.invocations: dict[str, Invocation] = {}
        self._waiting: queue.Queue[Invocation | None] = queue.Queue()
        self.root = Path(tempfile.mkdtemp(prefix="judge-"))
        shutil.copytree(package, self.root, dirs_exist_ok=True)
        self._server = _Server(("127.0.0.1", 0), _Api)
        self._server.environment = self
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        modules = ":".join([*map(str, layers), variables.get("PYTHONPATH", "")]).strip(":")
        told = {
            **variables,
            "PYTHONPATH": modules,
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_address[1]}",
            "AWS_LAMBDA_FUNCTION_NAME": "streaming",
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": "streaming",
            "AWS_LAMBDA_LOG_STREAM_NAME": "streaming",
            "AWS_LWA_PORT": str(_free_port()),
            "LAMBDA_TASK_ROOT": str(self.root),
            "_HANDLER": "run.sh",
        }
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the processes)
        # The layer's wrapper does no more than to run the handler.
        self.extension, self.function = (self._start(program, told) for program in (PROGRAM, self.root / "run.sh"))

    def _start(self, program: Path, told: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [str(program)],
            cwd=self.root,
            env=dict(told),
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def next(self) -> Invocation | None:
        self.is_ready.set()
        return self._waiting.get()

    async def ready(self) -> "Environment":
        if not await asyncio.to_thread(self.is_ready.wait, _SECONDS_MAX):
            raise FunctionError(f"the adapter asked for nothing: {self.log()[-2000:]}")
        return self

    def begin(self, event: dict[str, Any], seconds_max: float) -> Invocation:
        invocation = Invocation(json.dumps(event).encode(), seconds_max)
        self.invocations[invocation.id] = invocation
        self._waiting.put(invocation)
        return invocation

    @property
    def is_alive(self) -> bool:
        return self.extension.poll() is None and self.function.poll() is None

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def signal(self, number: int) -> None:
        for process in (self.extension, self.function):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        for process in (self.extension, self.function):
            process.wait()
        self.over.set()
        self._waiting.put(None)
        self._server.shutdown()
        self._server.server_close()
        self._log.close()
        shutil.rmtree(self.root, ignore_errors=True)


class AdaptedFunction:
    """One environment, which serves one event after the other and is made anew when one of its processes has died."""

    def __init__(self, package: Path, layers: Sequence[Path], variables: Mapping[str, str], *, seconds_max: float) -> None:
        self._package, self._layers, self._variables, self._seconds_max = package, layers, variables, seconds_max
        self._turn = asyncio.Lock()
        self.environment: Environment | None = None

    async def stream(self, event: dict[str, Any]) -> Streamed:
        """Raises :class:`FunctionError` where there is no prelude."""
        await self._turn.acquire()
        try:
            environment = await self._environment()
            invocation = environment.begin(event, self._seconds_max)
            prelude, rest = await self._prelude(invocation)
        except BaseException:
            self._turn.release()
            raise
        headers = prelude["headers"]
        assert all(isinstance(value, str) for value in headers.values()), f"the gateway takes each header once: {headers}"
        return Streamed(prelude["statusCode"], list(headers.items()), self._body(environment, invocation, rest))

    async def _environment(self) -> Environment:
        if self.environment is not None and not self.environment.is_alive:
            self.environment.end()
            self.environment = None
        if self.environment is None:
            self.environment = await Environment(self._package, self._layers, self._variables).ready()
        self.environment.signal(signal.SIGCONT)
        return self.environment

    async def _prelude(self, invocation: Invocation) -> tuple[dict[str, Any], bytes]:
        written = b""
        while _PRELUDE_ENDS not in written:
            piece = await self._piece(invocation)
            if piece is None:
                raise FunctionError(f"no prelude: {written[:200]!r}")
            written += piece
        prelude, _, rest = written.partition(_PRELUDE_ENDS)
        return json.loads(prelude), rest

    async def _body(self, environment: Environment, invocation: Invocation, rest: bytes) -> AsyncIterator[bytes]:
        try:
            if rest:
                yield rest
            while (piece := await self._piece(invocation)) is not None:
                yield piece
        finally:
            environment.signal(signal.SIGSTOP)
            self._turn.release()

    async def _piece(self, invocation: Invocation) -> bytes | None:
        piece = await asyncio.to_thread(invocation.pieces.get, True, self._seconds_max)
        if isinstance(piece, FunctionError):
            raise piece
        return piece

    async def aclose(self) -> None:
        if self.environment is not None:
            await asyncio.to_thread(self.environment.end)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
