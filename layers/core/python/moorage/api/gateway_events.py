"""What API Gateway tells of its WebSocket connections: one is opened, one has ended, one brings a frame.

Each is an invocation of a small function that may take 29 seconds at most, so no response runs in it: it checks the key, writes into
the table, and calls a worker (``api/gateway_socket.py``) if the connection has none.
"""

import base64
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
from starlette.datastructures import Headers

from moorage.api.credentials import check_scope, secret_of, takes_teams
from moorage.errors import ApiError, foreign_api_key, invalid_api_key, missing_api_key, rate_limited
from moorage.identity.ended_sessions import session_digest
from moorage.ids import KEY_PREFIX
from moorage.net.connections import ConnectionGone, Connections
from moorage.store.api_keys import ApiKey
from moorage.store.sockets import SocketOpening, Sockets

_OK: Final = {"statusCode": 200}


class WorkersBusy(Exception):
    """No worker can be called now."""


class GatewayEvents:
    def __init__(
        self,
        sockets: Sockets,
        caller_of: Callable[[str], Awaitable[ApiKey | None]],
        connections: Connections,
        *,
        call: Callable[[str, str], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        """``caller_of`` finds whom a key or a token stands for, and raises :class:`ApiError` for a token that opens nothing. ``call``
        begins a worker for a connection, under a hold. Raises :class:`WorkersBusy`."""
        self._sockets = sockets
        self._caller_of = caller_of
        self._connections = connections
        self._call = call
        self._clock = clock

    async def handle(self, event: dict[str, Any]) -> dict[str, Any]:
        """The answer to the gateway; to a frame it is no answer to the client."""
        connection_id: str = event["requestContext"]["connectionId"]
        match event["requestContext"]["routeKey"]:
            case "$connect":
                return await self._open(connection_id, Headers({k.lower(): v for k, v in (event.get("headers") or {}).items()}))
            case "$disconnect":
                await self._sockets.close(connection_id)
            case _:
                await self._take(connection_id, event)
        return _OK

    async def _open(self, connection_id: str, headers: Headers) -> dict[str, Any]:
        """Refusals end the handshake with their status; the gateway passes on no body."""
        try:
            await self._sockets.open(await self._opened(connection_id, headers))
        except ApiError as error:
            return {"statusCode": error.status, "body": orjson.dumps(error.envelope()).decode()}
        return _OK

    async def _opened(self, connection_id: str, headers: Headers) -> SocketOpening:
        secret = secret_of(headers)
        if not secret:
            raise missing_api_key()
        key = await self._caller_of(secret)
        if key is None:
            raise invalid_api_key() if secret.startswith(KEY_PREFIX) else foreign_api_key(KEY_PREFIX)
        check_scope(key, {"type": "websocket", "path": "/v1/responses"})
        digest = session_digest(secret)
        return SocketOpening(
            connection_id,
            key.tenant_id,
            digest,
            key.parent or digest,
            key.budgets,
            int(self._clock()),
            token_expires_at=key.expires_at if key.subject else 0,
            takes_outputs=takes_teams(headers),
        )

    async def _take(self, connection_id: str, event: dict[str, Any]) -> None:
        context = event["requestContext"]
        text = event.get("body") or ""
        if event.get("isBase64Encoded"):
            text = base64.b64decode(text).decode(errors="replace")
        arrived = await self._sockets.arrive(connection_id, context["messageId"], context["requestTimeEpoch"], text)
        if arrived is None:
            return  # It has been closed meanwhile.
        if arrived.is_abandoned:
            await self._connections.close(connection_id)
            await self._sockets.close(connection_id)
        elif arrived.call is not None:
            try:
                await self._call(connection_id, arrived.call)
            except WorkersBusy:
                await self._refuse(connection_id, arrived.call)

    async def _refuse(self, connection_id: str, holder: str) -> None:
        error = rate_limited("This deployment has no room for another response now. Please retry shortly.", 1)
        for frame in await self._sockets.give_up(connection_id, holder):
            event = {"type": "error", "status": error.status, "error": error.payload() | {"headers": error.headers}}
            lane = _lane_of(frame.text)
            with contextlib.suppress(ConnectionGone):
                await self._connections.send(connection_id, orjson.dumps(event | ({"stream_id": lane} if lane else {})).decode())


def _lane_of(text: str) -> str | None:
    """Of a frame that nobody has checked."""
    try:
        lane = orjson.loads(text)["stream_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return lane if isinstance(lane, str) else None
