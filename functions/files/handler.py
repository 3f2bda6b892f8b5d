"""The buffered function for files, uploads and skills. API Gateway's events become ASGI requests to the one application."""

from functools import cache
from typing import Any

from mangum import Mangum
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from moorage.runtime import build_runtime
from moorage.settings import Settings


@cache
def _adapter() -> Mangum:
    return Mangum(create_app(build_runtime(Settings.from_environment()), ROUTERS), lifespan="off")


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Entry point of the function."""
    return _adapter()(event, context)
