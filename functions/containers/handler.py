"""The buffered function for containers. API Gateway's events become ASGI requests to the one application."""

from collections.abc import Callable
from functools import cache
from typing import Any

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from mangum import Mangum
from moorage.api.app import create_app
from moorage.api.inside_relay import InsideRelay
from moorage.api.routers import ROUTERS
from moorage.net.aws import aws_client
from moorage.runtime import runtime_of_process


@cache
def _serve() -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    runtime = runtime_of_process()
    adapter, inside = Mangum(create_app(runtime, ROUTERS), lifespan="off"), runtime.settings.screens_function
    return InsideRelay(adapter, aws_client("lambda"), inside) if inside else adapter


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Entry point of the function."""
    return _serve()(event, context)
