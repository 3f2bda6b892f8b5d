"""The buffered function for files, uploads and skills. API Gateway's events become ASGI requests to the one application."""

from functools import cache
from typing import Any

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from mangum import Mangum
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from moorage.runtime import runtime_of_process


@cache
def _adapter() -> Mangum:
    return Mangum(create_app(runtime_of_process(), ROUTERS), lifespan="off")


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Entry point of the function."""
    return _adapter()(event, context)
