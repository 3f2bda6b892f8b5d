"""No faster than the client takes it: what mitmproxy would pile up, were a few bytes to become many, or a client to stop reading.

mitmproxy reads from one side when everything that it has written to the other is on its way, and takes it that one event is written at
once. Two cases break that. A body that is unpacked may grow a thousandfold within one event, so :class:`PacedStream` sends one piece,
waits until the client has taken it, and only then has the next one made. And an HTTP/2 peer that opens no window leaves what it is sent
in mitmproxy's own buffers, which have no end. While either is behind, :class:`PacedConnection` reads nothing more from the other side.
A body that comes before its request is decided waits outside too. What still has to be kept is counted for the client's container.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.http import Message
from mitmproxy.net.http import status_codes
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers import http
from mitmproxy.proxy.layers.http import HttpLayer, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http2 import Http2Connection
from mitmproxy.proxy.layers.websocket import WebsocketLayer
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from moorage.telemetry import tell_error

from functions.egress_proxy.unpacking import UndecodableBody

_HTTP2_BUFFER_BYTES_MAX = 1 << 17
_HTTP2_BUFFER_BYTES_LAST = 1 << 20
"""A client that sends on while neither side takes anything has to be read, or its windows were never seen; here it is cut off."""
_LOOK_AGAIN_SECONDS = 0.02
_STREAM_BYTES = 1 << 14
"""mitmproxy's objects for one request: an estimate on the high side."""
_FRAME_BYTES = 64
"""Python's objects for one short string in a list."""


@dataclass
class NextPieceHook(commands.StartHook):
    """The stream goes on when the client has taken its bytes."""

    client: Connection


class PacedStream(HttpStream):
    is_behind = False
    """More of what came is still to be made and sent."""
    _head_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of bodies that came while the stream waits: for a decision, or for a connection."""
        return sum(len(each.data) for each in self._paused_event_queue if isinstance(each, RequestData | ResponseData))

    @property
    def kept_bytes(self) -> int:
        """What the stream keeps in memory, about."""
        held = len(self.request_body_buf) + len(self.flow.request.raw_content or b"") if self._head_bytes else 0
        return _STREAM_BYTES + self._head_bytes + self.waiting_bytes + held + self._frame_bytes()

    def _frame_bytes(self) -> int:
        """Parts of WebSocket messages that are not whole yet."""
        socket = self.child_layer
        if not isinstance(socket, WebsocketLayer) or not hasattr(socket, "client_ws"):
            return 0
        frames = itertools.chain(socket.client_ws.frame_buf, socket.server_ws.frame_buf)
        return sum(_FRAME_BYTES + len(frame) for frame in frames)

    def state_wait_for_request_headers(self, event: RequestHeaders) -> CommandGenerator[None]:
        self._head_bytes = _head_bytes(event.request) + len(event.request.data.path)
        yield from super().state_wait_for_request_headers(event)

    def state_wait_for_response_headers(self, event: ResponseHeaders) -> CommandGenerator[None]:
        self._head_bytes += _head_bytes(event.response)
        yield from super().state_wait_for_response_headers(event)

    def state_consume_request_body(self, event: events.Event) -> CommandGenerator[None]:
        if not isinstance(event, RequestData) or self.flow.response is None:
            yield from super().state_consume_request_body(event)
        # The body of a refused request goes nowhere: it is read, so that the client hears the refusal, and is not kept.

    def state_stream_response_body(self, event: events.Event) -> CommandGenerator[None]:
        stream = None if self.flow.response is None else self.flow.response.stream
        if not isinstance(event, ResponseData | ResponseEndOfMessage) or not callable(stream):
            yield from super().state_stream_response_body(event)
            return
        self.is_behind = True
        try:
            yield from self._pass_on(stream(event.data if isinstance(event, ResponseData) else b""))
        except UndecodableBody as error:
            yield from self.handle_protocol_error(_unreadable(self.stream_id, str(error)))
            return
        except Exception as error:  # A body that was looked into in part only ends here: mitmproxy would go on with the next part.
            tell_error(error, "egress_error", source="body")
            yield from self.handle_protocol_error(_unreadable(self.stream_id, "the proxy failed"))
            return
        finally:
            self.is_behind = False
        if isinstance(event, ResponseEndOfMessage):
            yield from self.send_response(already_streamed=True)

    def _pass_on(self, pieces: Any) -> CommandGenerator[None]:
        for number, piece in enumerate(pieces):
            if number:
                yield NextPieceHook(self.context.client)
                if self._is_abandoned():
                    return
            if piece:  # mitmproxy would write an empty one as the chunk that ends the body.
                yield SendHttp(ResponseData(self.stream_id, piece), self.context.client)

    def _is_abandoned(self) -> bool:
        """The client has gone, or will be found gone in the next event: nobody wants the rest."""
        is_gone = not self.context.client.state & ConnectionState.CAN_WRITE
        return is_gone or any(isinstance(each, RequestProtocolError) for each in self._paused_event_queue)


def _head_bytes(message: Message) -> int:
    return sum(len(name) + len(value) + _FRAME_BYTES for name, value in message.headers.fields)


def _unreadable(stream_id: int, message: str) -> ResponseProtocolError:
    """What mitmproxy says of an upstream that breaks off, so that the client sees that the body is not whole."""
    codes: Any = getattr(http, "ErrorCode", None)  # mitmproxy 11 has statuses here
    code: Any = status_codes.BAD_GATEWAY if codes is None else codes.GENERIC_SERVER_ERROR
    return ResponseProtocolError(stream_id, message, code)


class PacedConnection(ProxyConnectionHandler):
    """A client's connection, and those to the hosts that it led to."""

    def __init__(self, *arguments: Any, layers_of: Callable[[str], Iterable[HttpLayer]], may_keep: Callable[[str, int], bool]) -> None:
        """``layers_of`` gives the HTTP layers of a client, by its id; ``may_keep`` says whether it may keep so many bytes in memory."""
        super().__init__(*arguments)
        self._layers_of = layers_of
        self._may_keep = may_keep
        self._moved = asyncio.Event()

    async def hook_task(self, hook: commands.StartHook) -> None:
        if not isinstance(hook, NextPieceHook):
            await super().hook_task(hook)
            return
        await self._taken(hook.client)
        await self.server_event(events.HookCompleted(hook))
        self._moved.set()

    async def _taken(self, connection: Connection) -> None:
        transport = self.transports.get(connection)
        if transport is not None and transport.writer is not None:
            async with self._drain_lock:
                with suppress(OSError):
                    await transport.writer.drain()
        while self._buffered(connection) > _HTTP2_BUFFER_BYTES_MAX:
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def drain_writers(self) -> None:
        """Called after each event, before the next read."""
        await super().drain_writers()
        kept = sum(stream.kept_bytes for stream in self._streams())
        handler = self.transports[self.client].handler if self.client in self.transports else None
        if not self._may_keep(self.client.id, kept) and handler is not None:
            handler.cancel("keeps too much")
        task = asyncio.current_task()
        reading = next((connection for connection, io in self.transports.items() if io.handler is task), self.client)
        while self._has_to_wait(reading):
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                    await self._moved.wait()

    def _has_to_wait(self, reading: Connection) -> bool:
        to_client = self._buffered(self.client)
        if reading is not self.client:
            return to_client > _HTTP2_BUFFER_BYTES_MAX or any(stream.is_behind for stream in self._streams())
        to_hosts = sum(self._buffered(connection) for connection in self.transports if connection is not self.client)
        to_hosts += sum(stream.waiting_bytes for stream in self._streams())
        if to_hosts > _HTTP2_BUFFER_BYTES_LAST and (task := asyncio.current_task()) is not None:
            task.cancel("sent on without end")
        return to_hosts > _HTTP2_BUFFER_BYTES_MAX and to_client <= _HTTP2_BUFFER_BYTES_MAX

    def _buffered(self, connection: Connection) -> int:
        """Bytes that wait in mitmproxy for the windows of an HTTP/2 peer."""
        return sum(
            len(waiting.data)
            for layer in self._layers_of(self.client.id)
            if isinstance(peer := _innermost(layer.connections.get(connection)), Http2Connection)
            for buffer in peer.h2_conn.stream_buffers.values()
            for waiting in buffer
        )

    def _streams(self) -> Iterator[PacedStream]:
        for layer in self._layers_of(self.client.id):
            yield from (stream for stream in layer.streams.values() if isinstance(stream, PacedStream))


def _innermost(layer: Layer | None) -> Layer | None:
    """A connection to a host is a stack of layers (TLS, HTTP). The lowest is registered."""
    while layer is not None and not isinstance(layer, Http2Connection) and (child := getattr(layer, "child_layer", None)) is not None:
        layer = child
    return layer
