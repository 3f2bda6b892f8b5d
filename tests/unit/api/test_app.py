"""The application as it is put together."""

from fastapi import FastAPI
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from starlette.routing import BaseRoute, Mount

from tests.unit.loop.lab import Lab


def test_routes_are_made_once_in_a_process() -> None:
    """By the routers themselves, and not by each application at its first request."""
    first, second = (create_app(Lab().runtime, ROUTERS) for _ in range(2))
    assert routes_of(first) == routes_of(second) == [route for router in ROUTERS for route in router.routes]


def routes_of(app: FastAPI) -> list[BaseRoute]:
    (mounted,) = [route for route in app.routes if isinstance(route, Mount) and route.path == "/v1"]
    return mounted.routes
