"""A WebSocket API of the gateway in front of a stack on this machine: the functions of the deployment, run by AWS's runtime client, on
the stack's table, with its loop and its sandboxes."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.local import step_worker

from tests.processes import descendants, is_worker, until
from tests.stack import Stack
from tests.twin.calls import own_name
from tests.twin.runtime_api import Function
from tests.twin.socket_gateway import ManagementApi, SocketGateway
from tests.twin.template import Template

ROOT = Path(__file__).resolve().parents[2]
_LAYERS = (ROOT / "layers/core/python",)


@dataclass
class Deployed:
    gateway: SocketGateway
    management: ManagementApi
    door: Function
    worker: Function


@contextlib.contextmanager
def sockets_of(template: Template, variables: Mapping[str, str]) -> Iterator[Deployed]:
    """``variables`` are what the stack tells its own functions, and its credentials."""
    management = ManagementApi()
    told = {
        **variables,
        "MOORAGE_WEBSOCKET_ENDPOINT": f"{management.url}/responses",
        "MOORAGE_WEBSOCKET_WORKER": "worker",
        "AWS_ENDPOINT_URL_LAMBDA": management.url,
        "MOORAGE_STREAM_SECONDS_MAX": "870",
    }
    sockets, authorizer = ROOT / "functions/sockets", ROOT / "functions/authorizer"
    functions = {
        "SocketDoor": Function("door", sockets, "door.handle", told, paths=_LAYERS, seconds_max=29),
        "SocketWork": Function("worker", sockets, "work.handle", told, paths=_LAYERS, seconds_max=900),
        "Authorizer": Function("authorizer", authorizer, "handler.handle", told, paths=_LAYERS, seconds_max=5),
    }

    async def invoke(function: str, event: dict[str, Any]) -> Any:
        return await asyncio.to_thread(functions[own_name(function)].invoke, event)

    gateway = SocketGateway(template, invoke)
    management.gateway, management.worker = gateway, functions["SocketWork"]
    gateway.start()
    try:
        yield Deployed(gateway, management, functions["SocketDoor"], functions["SocketWork"])
    finally:
        gateway.stop()
        for function in functions.values():
            function.end()
        management.stop()


def _worker_programs(below: int) -> list[int]:
    return [pid for pid, line in descendants(below).items() if step_worker.__name__ in line]


def told_by(stack: Stack) -> dict[str, str]:
    """What a local stack tells the workers of its loop, and how its emulator of AWS is reached.

    Those that began as copies show the environment of their parent. One that is started again is a program, with its own.
    """
    assert stack.process is not None
    below = stack.process.pid
    if not (programs := _worker_programs(below)):
        os.kill(next(pid for pid, line in descendants(below).items() if is_worker(line)), signal.SIGKILL)
        until(lambda: _worker_programs(below))
        programs = _worker_programs(below)
    worker = programs[0]
    pairs = (pair.partition("=") for pair in Path(f"/proc/{worker}/environ").read_text().split("\0"))
    return {name: value for name, _, value in pairs if name.startswith(("MOORAGE_", "AWS_"))}
