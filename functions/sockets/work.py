"""The function that works for one WebSocket connection of API Gateway while something runs on it. Lambda calls it without waiting, and
once more if it dies: the second run then finds the first one's hold, and closes the connection."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from moorage.api.gateway_socket import work
from moorage.api.rate_limits import RateLimits
from moorage.net.aws import aws_client
from moorage.net.connections import Connections
from moorage.runtime import runtime_of_process
from moorage.store.rates import Rates

_loop: Final = cache(asyncio.new_event_loop)
_runtime: Final = cache(runtime_of_process)


@cache
def _connections() -> Connections:
    client = aws_client("apigatewaymanagementapi", endpoint_url=_runtime().settings.websocket_endpoint)
    return Connections(client, ThreadPoolExecutor(16))


@cache
def _rate_limits() -> RateLimits:
    runtime = _runtime()
    settings = runtime.settings
    return RateLimits(settings.requests_per_minute, settings.tokens_per_minute, Rates(runtime.stores.table), runtime.clock)


def handle(event: dict[str, Any], _context: object) -> None:
    """Entry point of the function."""
    _loop().run_until_complete(work(_runtime(), _connections(), _rate_limits(), event["connection_id"], event["holder"]))
