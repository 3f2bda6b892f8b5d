"""The streaming function: an HTTP server behind the Lambda Web Adapter (``run.sh``).

The adapter turns each invocation into a request to ``AWS_LWA_PORT`` and passes the answer on while it is written. A managed Python
runtime that streams would replace ``run.sh`` and this file, and nothing else. If the gateway does not stream (emulators),
``handle`` serves the same application in one piece.
"""

from functools import cache
from typing import Any

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from fastapi import FastAPI
from mangum import Mangum
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from moorage.runtime import relieve_collector, runtime_of_process


def make_app() -> FastAPI:
    """The application for uvicorn (``--factory``)."""
    app = create_app(runtime_of_process(), ROUTERS)
    relieve_collector()
    return app


@cache
def _adapter() -> Mangum:
    return Mangum(make_app(), lifespan="off")


def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Entry point without the adapter, whose answers are text: what is compressed would need to be named as binary by the client."""
    for name in ("headers", "multiValueHeaders"):
        event[name] = {key: value for key, value in (event.get(name) or {}).items() if key.lower() != "accept-encoding"}
    return _adapter()(event, context)
