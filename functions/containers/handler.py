"""The buffered function for containers. API Gateway's events become ASGI requests to the one application."""

from collections.abc import Callable
from functools import cache
from typing import Any

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from mangum import Mangum
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from moorage.api.screen_relay import ScreenRelay
from moorage.net.aws import aws_client
from moorage.runtime import build_runtime
from moorage.settings import Settings
from moorage.telemetry import open_log


@cache
def _serve() -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    settings = Settings.from_environment()
    open_log(level=settings.log_level, service=settings.name)
    adapter = Mangum(create_app(build_runtime(settings), ROUTERS), lifespan="off")
    return ScreenRelay(adapter, aws_client("lambda"), settings.screens_function) if settings.screens_function else adapter


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Entry point of the function."""
    return _serve()(event, context)
