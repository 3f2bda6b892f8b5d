"""The functions behind the gateway twin: buffered ones are invoked where they are deployed, the streaming one is started here by its
own start command, as the Lambda Web Adapter does it.

The adapter starts ``run.sh``, asks the readiness path until it answers, turns each invocation into one request on the port, with the
invocation's context as headers, and passes bytes on as they come. Around it stands Lambda: one request at a time in an environment, and
an environment that has answered is frozen until the next request, in the middle of whatever it does.
"""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from tests.twin.gateway import FunctionError, Streamed

_START_SECONDS_MAX = 60
BROKE_OFF = b"Lambda-Runtime-Function-Error-Type: Runtime.StreamError\r\nLambda-Runtime-Function-Error-Body: \r\n"
"""What the adapter writes when the function dies in the middle of an answer, which then ends like any other (``make judges``)."""


class Environment:
    """One execution environment: a process that serves one request at a time."""

    def __init__(self, package: Path, layers: list[Path], variables: Mapping[str, str]) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="moorage-twin-"))
        shutil.copytree(package, self._root, dirs_exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        modules = ":".join([*(str(layer / "python") for layer in layers), variables.get("PYTHONPATH", "")]).strip(":")
        paths = {"PYTHONPATH": modules, "PATH": f"{Path(sys.executable).parent}:{os.defpath}"}
        self._readiness = variables["AWS_LWA_READINESS_CHECK_PATH"]
        self._log = (self._root / "environment.log").open("wb")
        self._process = subprocess.Popen(
            ["./run.sh"],
            cwd=self._root,
            env={**variables, "AWS_LWA_PORT": str(self._port), **paths},
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._port}", timeout=None, trust_env=False)

    async def ready(self) -> "Environment":
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise FunctionError(f"the start command ended: {self.log()[-2000:]}")
            with contextlib.suppress(httpx.TransportError):
                if (await self._client.get(self._readiness)).status_code == 200:
                    return self
            await asyncio.sleep(0.05)
        raise FunctionError(f"nothing answered on {self._readiness}")

    def peak_mib(self) -> int:
        """The most memory that its process has held."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:"))

    def log(self) -> str:
        return (self._root / "environment.log").read_text(errors="replace")

    async def answer(self, event: dict[str, Any]) -> httpx.Response:
        query = urlencode([(n, v) for n, values in (event["multiValueQueryStringParameters"] or {}).items() for v in values])
        headers = [(n, v) for n, values in event["multiValueHeaders"].items() for v in values if n.lower() != "content-length"]
        headers += [("x-amzn-request-context", json.dumps(event["requestContext"])), ("x-amzn-lambda-context", "{}")]
        body = (event["body"] or "").encode()
        if event["isBase64Encoded"]:
            body = base64.b64decode(body)
        url = quote(event["path"], safe="/%") + (f"?{query}" if query else "")
        return await self._client.send(self._client.build_request(event["httpMethod"], url, headers=headers, content=body), stream=True)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def freeze(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    async def end(self) -> None:
        await self._client.aclose()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._root, ignore_errors=True)


class StreamingFunction:
    """A function behind the adapter with as many environments as there are requests at once."""

    def __init__(self, package: Path, layers: list[Path], variables: Mapping[str, str], *, concurrency_max: int = 8) -> None:
        self._package, self._layers, self._variables = package, layers, variables
        self._idle: list[Environment] = []
        self._all: list[Environment] = []
        self._room = asyncio.Semaphore(concurrency_max)

    async def stream(self, event: dict[str, Any]) -> Streamed:
        if self._room.locked():
            raise FunctionError("Rate Exceeded.")  # Lambda's 429
        await self._room.acquire()
        try:
            environment = await self._environment()
            answer = await environment.answer(event)
        except BaseException:
            self._room.release()
            raise
        return Streamed(answer.status_code, list(answer.headers.multi_items()), self._body(environment, answer))

    async def _environment(self) -> Environment:
        if self._idle:
            environment = self._idle.pop()
            environment.thaw()
            return environment
        environment = Environment(self._package, self._layers, self._variables)
        self._all.append(environment)
        return await environment.ready()

    async def _body(self, environment: Environment, answer: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        except httpx.TransportError:
            yield BROKE_OFF
        finally:
            await answer.aclose()
            environment.freeze()
            self._idle.append(environment)
            self._room.release()

    async def aclose(self) -> None:
        for environment in self._all:
            await environment.end()


class DeployedFunctions:
    """The functions of a deployment on an emulator."""

    def __init__(self, client: Any, names: Mapping[str, str], streaming: Mapping[str, StreamingFunction]) -> None:
        """``names`` are the deployed functions' by logical id."""
        self._client, self._names, self._streaming = client, names, streaming

    async def invoke(self, function: str, event: dict[str, Any]) -> Any:
        answer = await asyncio.to_thread(self._client.invoke, FunctionName=self._names[function], Payload=json.dumps(event))
        payload = json.loads(await asyncio.to_thread(answer["Payload"].read))
        if "FunctionError" in answer:
            raise FunctionError(payload.get("errorMessage", ""))
        return payload

    async def stream(self, function: str, event: dict[str, Any]) -> Streamed:
        return await self._streaming[function].stream(event)
