"""WebSocket connections that API Gateway holds: its management API, to send on them and close them."""

import asyncio
from concurrent.futures import Executor
from typing import Any, Final

from botocore.exceptions import ClientError

_GONE: Final = "GoneException"


class ConnectionGone(Exception):
    """The client has closed it, or the gateway has."""


class Connections:
    def __init__(self, client: Any, executor: Executor) -> None:
        """``client`` is boto3's of ``apigatewaymanagementapi`` for the stage's address."""
        self._client = client
        self._executor = executor

    async def send(self, connection_id: str, text: str) -> None:
        """One message. Raises :class:`ConnectionGone`."""
        try:
            await self._call(self._client.post_to_connection, ConnectionId=connection_id, Data=text.encode())
        except ClientError as error:
            if error.response["Error"]["Code"] == _GONE:
                raise ConnectionGone from error
            raise

    async def close(self, connection_id: str) -> None:
        """One that is closed already is no error."""
        try:
            await self._call(self._client.delete_connection, ConnectionId=connection_id)
        except ClientError as error:
            if error.response["Error"]["Code"] != _GONE:
                raise

    async def _call(self, operation: Any, **request: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, lambda: operation(**request))
