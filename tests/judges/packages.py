"""The functions of a deployment, in the packages and with the layers that ``cdk deploy`` would upload, run by AWS's own clients here:
the Web Adapter before the streaming one (``adapter.py``), ``awslambdaric`` for all others, the twin of API Gateway before them, and a
local stack's table, bucket and sandboxes behind.

Two things differ from a deployment: the packages' dependencies are for this machine's Python; and who walks through the states of the
loop is :class:`Loop`, which invokes the steps' functions as the state machine does.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import uvicorn

from tests.judges.adapter import AdaptedFunction
from tests.twin.calls import own_name
from tests.twin.gateway import GatewayTwin, Streamed
from tests.twin.runtime_api import Function
from tests.twin.serve import template_of
from tests.twin.template import ACCOUNT, REGION

_STEP_SECONDS_MAX: Final = 120
_STOP_SECONDS_MAX: Final = 20
_PATIENCE: Final = 10
_SERVICE: Final = "service"


@dataclass(frozen=True)
class Package:
    """A function as it is uploaded."""

    name: str
    folder: Path
    layers: tuple[Path, ...]
    handler: str
    seconds_max: float
    variables: Mapping[str, str]
    """Those that name nothing of the deployment."""


def packages(assembly: Path) -> dict[str, Package]:
    """By their own names, such as ``ModelStep``."""
    template = template_of(assembly)

    def asset(place: Mapping[str, Any]) -> Path:
        return assembly / f"asset.{place['S3Key'].removesuffix('.zip')}"

    def package(logical_id: str, properties: Mapping[str, Any]) -> Package:
        layers = [layer.strip("<>") for layer in properties.get("Layers", []) if layer.startswith("<")]
        variables = properties.get("Environment", {}).get("Variables", {})
        return Package(
            own_name(logical_id),
            asset(properties["Code"]),
            tuple(asset(template.resources[layer]["Properties"]["Content"]) / "python" for layer in layers),
            properties["Handler"],
            properties["Timeout"],
            {name: value for name, value in variables.items() if isinstance(value, str) and "<" not in value},
        )

    found = (package(name, p) for name, p in template.of_type("AWS::Lambda::Function") if "S3Key" in p["Code"] and "Handler" in p)
    return {each.name: each for each in found if (each.folder / "settings.json").exists()}


class Invoked:
    """All functions of a deployment, for the gateway's twin and for the loop."""

    def __init__(self, found: Mapping[str, Package], told: Mapping[str, str]) -> None:
        """``told`` are variables in place of those that name something of the deployment."""
        self.streaming: dict[str, AdaptedFunction] = {}
        self.buffered: dict[str, Function] = {}
        for name, package in found.items():
            variables = {**package.variables, **told}
            if package.handler == "run.sh":
                self.streaming[name] = AdaptedFunction(package.folder, package.layers, variables, seconds_max=_STEP_SECONDS_MAX)
            else:
                self.buffered[name] = Function(
                    name, package.folder, package.handler, variables, paths=package.layers, seconds_max=package.seconds_max
                )

    async def invoke(self, function: str, event: dict[str, Any]) -> Any:
        return await asyncio.to_thread(self.buffered[own_name(function)].invoke, event)

    async def stream(self, function: str, event: dict[str, Any]) -> Streamed:
        return await self.streaming[own_name(function)].stream(event)

    def end(self) -> None:
        for function in self.buffered.values():
            function.end()


@dataclass
class Loop:
    """The state machine's walk (``loop/agent_loop.asl.json``) through functions, and what of Step Functions the others ask for."""

    functions: Invoked | None = None
    begun: list[dict[str, Any]] = field(default_factory=list)
    """What executions were started with."""
    failures: list[str] = field(default_factory=list)

    def start(self, state: dict[str, Any]) -> None:
        self.begun.append(state)
        threading.Thread(target=self._walk, args=(state,), daemon=True).start()

    def _walk(self, state: dict[str, Any]) -> None:
        try:
            while (following := self._step(state)) is not None:
                state = following
        except Exception as error:
            self.failures.append(f"{type(error).__name__} at {state}: {error}")

    def _step(self, state: dict[str, Any]) -> dict[str, Any] | None:
        match state["next"]:
            case "model":
                return self._ask("ModelStep", state)
            case "tool" | "tools" | "service" | "mixed":
                for call_id in state["calls"]:
                    self._ask("ServiceStep" if self._is_service(state, call_id) else "ToolStep", {**state, "call_id": call_id})
                return self._ask("ModelStep", state)
            case "wait":
                time.sleep(state["wait_seconds"])
                return self._ask("ModelStep", state)
            case "continue":
                self._ask("ContinueStep", state)
                return None
            case "index":
                return self._ask("IndexStep", state)
            case "parse":
                return self._ask("ParseStep", state)
            case "done":
                return None
            case unknown:
                raise AssertionError(unknown)

    def _is_service(self, state: dict[str, Any], call_id: str) -> bool:
        routed = {call["call_id"]: call["place"] for call in state.get("routed", [])}
        return state["next"] == _SERVICE or routed.get(call_id) == _SERVICE

    def _ask(self, function: str, event: dict[str, Any]) -> dict[str, Any]:
        assert self.functions is not None
        answer: dict[str, Any] = self.functions.buffered[function].invoke(event)
        return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    loop: Loop


class _StepFunctions(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["x-amz-target"].endswith(".StartExecution"):
            self.server.loop.start(json.loads(request["input"]))
        arn = f"arn:aws:states:{REGION}:{ACCOUNT}:execution:loop:{request.get('name', 'any')}"
        body = json.dumps({"executionArn": arn, "startDate": time.time(), "status": "RUNNING"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/x-amz-json-1.0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@dataclass(frozen=True)
class Deployed:
    origin: str
    key: str
    functions: Invoked
    loop: Loop
    packages: Mapping[str, Package]


@contextlib.contextmanager
def deployed(assembly: Path, told: Mapping[str, str], key: str) -> Iterator[Deployed]:
    """``told`` is what a local stack tells its functions, ``key`` one of its API keys."""
    loop = Loop()
    states = _Server(("127.0.0.1", 0), _StepFunctions)
    states.loop = loop
    threading.Thread(target=states.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    found = packages(assembly)
    address = f"http://127.0.0.1:{states.server_address[1]}"
    loop.functions = functions = Invoked(found, {**told, "AWS_ENDPOINT_URL_SFN": address})
    twin = GatewayTwin(template_of(assembly), functions, patience=_PATIENCE)
    server = uvicorn.Server(uvicorn.Config(twin, lifespan="off", log_level="error", timeout_graceful_shutdown=5))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        thread = threading.Thread(target=lambda: asyncio.run(_serve(server, listener, functions)))
        thread.start()
        try:
            yield Deployed(f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1", key, functions, loop, found)
        finally:
            server.should_exit = True
            thread.join(_STOP_SECONDS_MAX)
            functions.end()
            states.shutdown()
            states.server_close()


async def _serve(server: uvicorn.Server, listener: socket.socket, functions: Invoked) -> None:
    try:
        await server.serve([listener])
    finally:
        for function in functions.streaming.values():
            await function.aclose()
