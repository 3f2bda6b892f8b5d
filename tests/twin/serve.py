"""The gateway twin of a deployment on an emulator, listening on this machine."""

import asyncio
import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn

from localstack.deploy import Deployer
from tests.twin.functions import DeployedFunctions, StreamingFunction
from tests.twin.gateway import GatewayTwin
from tests.twin.template import REGION, Template

_STOP_SECONDS_MAX = 20
_PATIENCE = 10


@contextlib.contextmanager
def serving(
    deployer: Deployer,
    assembly: Path,
    variables: Mapping[str, str] | None = None,
    *,
    has_roles: bool,
    seen_by_functions: str | None = None,
) -> Iterator[str]:
    """The twin's address. The streaming function gets ``variables`` besides its own, and with ``has_roles`` the credentials of its
    role, as the emulator gives the others theirs."""
    template, names = template_of(assembly), deployed_names(deployer)
    more = {**(variables or {}), "AWS_ENDPOINT_URL": seen_by_functions or deployer.endpoint}
    streaming = {
        name: _streaming(deployer, assembly, template, name, names[name], more, has_roles)
        for name, properties in template.of_type("AWS::Lambda::Function")
        if properties["Handler"] == "run.sh"
    }
    twin = GatewayTwin(template, DeployedFunctions(deployer.client("lambda"), names, streaming), patience=_PATIENCE)
    server = uvicorn.Server(uvicorn.Config(twin, lifespan="off", log_level="error", timeout_graceful_shutdown=5))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)  # whoever comes before the thread has begun waits
        thread = threading.Thread(target=lambda: asyncio.run(_serve(server, listener, streaming)))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(_STOP_SECONDS_MAX)


async def _serve(server: uvicorn.Server, listener: socket.socket, streaming: Mapping[str, StreamingFunction]) -> None:
    try:
        await server.serve([listener])
    finally:
        for function in streaming.values():
            await function.aclose()


def template_of(assembly: Path) -> Template:
    return Template.of(*(json.loads((assembly / f"{name}.template.json").read_text()) for name in ("moorage-state", "moorage")))


def deployed_names(deployer: Deployer) -> dict[str, str]:
    """Names of the deployed functions by logical id."""
    pages = deployer.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName="moorage")
    return {
        each["LogicalResourceId"]: each["PhysicalResourceId"]
        for page in pages
        for each in page["StackResourceSummaries"]
        if each["ResourceType"] == "AWS::Lambda::Function"
    }


def _streaming(
    deployer: Deployer,
    assembly: Path,
    template: Template,
    logical_id: str,
    name: str,
    more: Mapping[str, str],
    has_roles: bool,
) -> StreamingFunction:
    configuration = deployer.client("lambda").get_function_configuration(FunctionName=name)
    properties = template.resources[logical_id]["Properties"]
    layers = [
        _asset(assembly, template.resources[layer["Ref"]]["Properties"]["Content"]) for layer in properties["Layers"] if "Ref" in layer
    ]
    variables = configuration["Environment"]["Variables"] | {
        **more,
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        **_credentials(deployer, configuration, has_roles),
    }
    return StreamingFunction(_asset(assembly, properties["Code"]), layers, variables)


def _asset(assembly: Path, place: dict[str, Any]) -> Path:
    return assembly / f"asset.{place['S3Key'].removesuffix('.zip')}"


def _credentials(deployer: Deployer, configuration: dict[str, Any], has_roles: bool) -> dict[str, str]:
    """What the emulator gives a function of its own: it makes the session when the function is invoked for the first time."""
    if not has_roles:
        return {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    deployer.client("lambda").invoke(FunctionName=configuration["FunctionName"], Payload=b"{}")
    digest = hashlib.sha256(f"{configuration['FunctionArn']}:{configuration['Role']}".encode()).hexdigest()
    return {
        "AWS_ACCESS_KEY_ID": f"ASIA{digest[:16].upper()}",
        "AWS_SECRET_ACCESS_KEY": hashlib.sha256(f"secret:{digest}".encode()).hexdigest(),
        "AWS_SESSION_TOKEN": hashlib.sha256(f"token:{digest}".encode()).hexdigest(),
    }
