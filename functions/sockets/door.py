"""The small function behind API Gateway's WebSocket: every handshake, frame and end comes here."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

import boto3  # noqa: F401  # A function has more of a processor while it starts than in its first call (moorage/net/aws.py).
from botocore.exceptions import ClientError
from moorage.api.gateway_events import GatewayEvents, WorkersBusy
from moorage.identity.ended_sessions import looks_like_token
from moorage.net.aws import aws_client
from moorage.net.connections import Connections
from moorage.settings import Settings
from moorage.store.api_keys import ApiKey, ApiKeys
from moorage.store.dynamodb import DynamoTable
from moorage.store.sockets import Sockets
from moorage.store.table import Table
from moorage.telemetry import open_log

_BUSY: Final = frozenset({"TooManyRequestsException", "ServiceException", "EC2ThrottledException"})
_loop: Final = cache(asyncio.new_event_loop)


@cache
def _door() -> GatewayEvents:
    settings, executor = Settings.from_environment(), ThreadPoolExecutor(4)
    open_log(level=settings.log_level, service=settings.name)
    table = DynamoTable(aws_client("dynamodb", checks_parameters=False), settings.table_name, executor)
    management = aws_client("apigatewaymanagementapi", endpoint_url=settings.websocket_endpoint)
    workers = aws_client("lambda")

    def invoke(connection_id: str, holder: str) -> None:
        payload = json.dumps({"connection_id": connection_id, "holder": holder}).encode()
        try:
            workers.invoke(FunctionName=settings.websocket_worker or "", InvocationType="Event", Payload=payload)
        except ClientError as error:
            if error.response["Error"]["Code"] in _BUSY:
                raise WorkersBusy from error
            raise

    async def call(connection_id: str, holder: str) -> None:
        await asyncio.get_running_loop().run_in_executor(executor, invoke, connection_id, holder)

    return GatewayEvents(
        Sockets(table, clock=time.time),
        _caller_of(settings, table),
        Connections(management, executor),
        call=call,
        clock=time.time,
    )


def _caller_of(settings: Settings, table: Table) -> Callable[[str], Awaitable[ApiKey | None]]:
    api_keys = ApiKeys(table, clock=time.time)
    if settings.oidc_issuer is None:
        return api_keys.find
    from moorage.identity.tokens import Tokens  # With libraries that others have no use for.

    tokens = Tokens.of(settings, table, time.time)

    async def find(secret: str) -> ApiKey | None:
        return await tokens.find(secret) if looks_like_token(secret) else await api_keys.find(secret)

    return find


def handle(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Entry point of the function."""
    return _loop().run_until_complete(_door().handle(event))
