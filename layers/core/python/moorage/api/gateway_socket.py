"""A WebSocket connection that API Gateway holds, served by a function: the same conversation as ``api/websocket.py`` holds itself.

A worker is a function's process for as long as something runs on the connection. It finds frames in the connection's mailbox
(``store/sockets.py``), sends events through the management API, and leaves when nothing runs. What can be continued on the connection
lies in the table meanwhile, and is erased with it. A client that has gone is noticed if an event cannot be sent, or if the
gateway has told it and the connection's record is no more; then the responses are treated as ever: what the state machine has goes on.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.websockets import WebSocketDisconnect

from moorage import limits
from moorage.api.message_limit import fitted
from moorage.api.rate_limits import RateLimits
from moorage.api.unstored_responses import UnstoredResponse, UnstoredResponses
from moorage.api.websocket import Connection
from moorage.errors import ConditionFailed
from moorage.files.store import Clock
from moorage.loop.budget import draws_of
from moorage.net.connections import ConnectionGone, Connections
from moorage.runtime import Identity, Runtime
from moorage.store.api_keys import key_id_of
from moorage.store.sockets import SocketAbandoned, SocketOpening, Sockets, SocketWork
from moorage.wire.types import Item

_ABNORMAL: Final = 1006
_DISCONNECTED: Final = {"type": "websocket.disconnect", "code": _ABNORMAL}
_KEEP_ALIVE: Final = '{"type":"keepalive"}'


async def work(runtime: Runtime, connections: Connections, rate_limits: RateLimits, connection_id: str, holder: str) -> None:
    """Serve the connection under this hold until nothing runs on it. Harmless to run twice: only the first run has the hold."""
    sockets = Sockets(runtime.stores.table, clock=runtime.clock)
    try:
        begun = await sockets.begin(connection_id, holder)
    except SocketAbandoned:
        await connections.close(connection_id)
        await sockets.close(connection_id)
        return
    if begun is not None:
        await GatewaySocket(runtime, sockets, connections, rate_limits, begun, holder).serve()
        await runtime.process.rest(limits.WEBSOCKET_REST_SECONDS)


class GatewaySocket:
    """The socket of ``Connection``."""

    def __init__(
        self, runtime: Runtime, sockets: Sockets, connections: Connections, rate_limits: RateLimits, begun: SocketWork, holder: str
    ) -> None:
        opened, seconds = begun.opened, runtime.settings.stream_seconds_max
        self._clock = runtime.clock
        self._sockets = sockets
        self._connections = connections
        self._id = opened.connection_id
        self._holder = holder
        self._inbox: deque[str] = deque()
        self._arrived = 0
        """Frames that had come when the mailbox was last emptied."""
        self._is_gone = False
        self._sent_at = self._signed_at = self._clock()
        key_id = key_id_of(opened.counts_as)
        self._connection = Connection(
            runtime,
            opened.tenant_id,
            self,
            key_id=key_id,
            draws_on=draws_of(opened.tenant_id, key_id, opened.budgets),
            admit=partial(rate_limits.admit, opened.counts_as),
            is_known=partial(_is_known, runtime.identity, runtime.clock, opened),
            seconds_max=opened.closes_at - runtime.clock(),
            until=None if seconds is None else asyncio.get_running_loop().time() + seconds,
            recent=StoredUnstoredResponses(sockets, opened),
            stream_ids=begun.lanes,
            takes_outputs=opened.takes_outputs,
        )

    async def serve(self) -> None:
        await self._connection.serve()

    async def receive(self) -> Mapping[str, Any]:
        while not self._inbox:
            arrived = None if self._is_gone else await self._sockets.look(self._id, self._holder)
            if arrived is None:
                return _DISCONNECTED
            if arrived != self._arrived:
                frames = await self._sockets.frames(self._id)
                await self._sockets.take(self._id, frames)
                self._inbox.extend(frame.text for frame in frames)
                self._arrived = arrived
            elif self._connection.is_idle:
                lanes = self._connection.stream_ids
                if await self._sockets.leave(self._id, self._holder, arrived=arrived, lanes=lanes):
                    return _DISCONNECTED
            else:
                await self._give_signs()
                await self._connection.work_on(limits.WEBSOCKET_MAILBOX_SECONDS)
        return {"type": "websocket.receive", "text": self._inbox.popleft()}

    async def send_text(self, data: str) -> None:
        if self._is_gone:
            raise WebSocketDisconnect(_ABNORMAL)
        try:
            await self._connections.send(self._id, fitted(data))
        except ConnectionGone:
            self._is_gone = True
            raise WebSocketDisconnect(_ABNORMAL) from None
        self._sent_at = self._clock()

    async def close(self, code: int, reason: str | None = None) -> None:
        """Of the gateway's own code; why has been said in an event before."""
        self._is_gone = True
        await self._connections.close(self._id)
        await self._sockets.close(self._id)

    async def _give_signs(self) -> None:
        """To the table that the worker lives, and to the gateway that the connection is not idle."""
        now = self._clock()
        if now - self._signed_at >= limits.WEBSOCKET_SIGN_SECONDS:
            self._signed_at = now
            try:
                await self._sockets.hold_on(self._id, self._holder)
            except ConditionFailed:
                self._is_gone = True
        if now - self._sent_at >= limits.WEBSOCKET_SILENCE_SECONDS and not self._is_gone:
            try:
                await self.send_text(_KEEP_ALIVE)
            except WebSocketDisconnect:
                return  # The next look says so.


class StoredUnstoredResponses(UnstoredResponses):
    """Unstored responses of a connection with workers that come and go."""

    def __init__(self, sockets: Sockets, opened: SocketOpening) -> None:
        super().__init__()
        self._sockets = sockets
        self._opened = opened

    async def items(self, response_id: str | None) -> list[Item] | None:
        known = await super().items(response_id)
        if known is not None or response_id is None:
            return known
        kept = await self._sockets.kept(self._opened.connection_id, response_id)
        return None if kept is None else kept[0]

    async def remember(self, response_id: str, kept: UnstoredResponse) -> None:
        await super().remember(response_id, kept)
        await self._sockets.keep(self._opened, response_id, kept.stream_id, kept.items)

    async def hold(self, response_id: str, stream_id: str | None, messages: list[Item]) -> bool:
        return await self._sockets.keep(self._opened, _steering_of(response_id), stream_id, messages)

    async def held(self, response_id: str | None, stream_id: str | None) -> list[Item]:
        if response_id is None:
            return []
        kept = await self._sockets.kept(self._opened.connection_id, _steering_of(response_id))
        return kept[0] if kept is not None and kept[1] == stream_id else []

    async def release(self, response_id: str, stream_id: str | None) -> None:
        await self._sockets.forget(self._opened.connection_id, _steering_of(response_id))

    async def fail(self, response_id: str | None, stream_id: str | None) -> None:
        if response_id is None:
            return
        kept = await self._sockets.kept(self._opened.connection_id, response_id)
        if kept is not None and kept[1] == stream_id:
            await self._sockets.forget(self._opened.connection_id, response_id)
        await super().fail(response_id, stream_id)


def _steering_of(response_id: str) -> str:
    """The key of messages that steered a response."""
    return f"steering:{response_id}"


async def _is_known(identity: Identity, clock: Clock, opened: SocketOpening) -> bool:
    """Whether the key or the token that opened the connection still opens its tenant. The token itself is kept nowhere: what ends it is
    its time, or the end of its session."""
    if opened.token_expires_at:
        return opened.token_expires_at > clock() and not await identity.ended.has(opened.digest)
    key = await identity.api_keys.known(opened.digest)
    if key is None or key.tenant_id != opened.tenant_id:
        return False
    return not (key.parent and await identity.ended.has(opened.digest))
