"""A WebSocket API of the gateway in front of a stack on this machine: the functions of the deployment, run by AWS's runtime client, on
the stack's table, with its loop and its sandboxes."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

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


def told_by(aws: Any) -> dict[str, str]:
    """What a local stack tells its model step, and how its emulator is reached. ``aws`` are arguments of boto3's clients."""
    client = boto3.client("lambda", **aws)
    with contextlib.closing(client):
        functions = {each["FunctionName"]: each for each in client.list_functions()["Functions"]}
    variables: dict[str, str] = functions["moorage-model_step"]["Environment"]["Variables"]
    return variables | {
        "AWS_ENDPOINT_URL": aws["endpoint_url"],
        "AWS_REGION": aws["region_name"],
        "AWS_DEFAULT_REGION": aws["region_name"],
        "AWS_ACCESS_KEY_ID": aws["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": aws["aws_secret_access_key"],
    }
