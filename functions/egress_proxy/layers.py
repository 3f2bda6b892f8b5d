"""The protocol layers that mitmproxy does not have: bounds on both sides' bytes, a counted tunnel, a clear refusal."""

import re

from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers import TCPLayer, http
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server
from moorage import limits

from functions.egress_proxy.pacing import PacedStream

UNRECOGNIZED_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""A fatal TLS alert (RFC 8446, section 6.2): programs report it as "unrecognized name" rather than as a lost connection."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"The request's headers are too large for the egress proxy.\n"
)


class BoundedHttp1Server(Http1Server):
    """mitmproxy's reader, with an end to headers that never end and to requests sent ahead of their turn."""

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        yield from super().read_headers(event)
        if self.state == self.read_headers and len(self.buf) > limits.EGRESS_HEADER_BYTES_MAX:
            yield commands.SendData(self.conn, _TOO_LARGE)
            yield commands.CloseConnection(self.conn)
            self.state = self.done

    def wait(self, event: events.Event) -> CommandGenerator[None]:
        yield from super().wait(event)
        if len(self.buf) > limits.EGRESS_HEADER_BYTES_MAX:
            yield commands.CloseConnection(self.conn)
            self.state = self.done


_INTERIM_MAX = 32
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[ \r\n]")
"""The status line of an answer that precedes the answer: every 1xx but ``101 Switching Protocols``, which is one."""


class PatientHttp1Client(Http1Client):
    """mitmproxy's reader of answers, which takes the first for the last. Interim ones (100, 103) are left out, as a proxy may for
    clients that it does not know to understand them; the one that a client waits for before it sends its body is mitmproxy's own.
    And a host's headers end somewhere too."""

    _interim = 0

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        if isinstance(event, events.DataReceived):
            while _INTERIM.match(bytes(self.buf)) and self.buf.maybe_extract_lines():
                self._interim += 1
        if self.buf or not isinstance(event, events.DataReceived):
            yield from super().read_headers(event)
        if self.state != self.read_headers:
            self._interim = 0
        elif self._interim > _INTERIM_MAX or len(self.buf) > limits.EGRESS_HEADER_BYTES_MAX:
            self.buf.maybe_extract_at_most(len(self.buf))
            yield from super().read_headers(events.ConnectionClosed(self.conn))
            self.state = self.done


# mitmproxy makes the reader of a host's answers itself, deep inside of what chooses a connection, and has no place to give it another.
http.Http1Client = PatientHttp1Client  # type: ignore[attr-defined]


class BoundedHttpLayer(HttpLayer):
    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Start) and self.context.client.alpn != b"h2":
            self.connections[self.context.client] = BoundedHttp1Server(self.context.fork())
        yield from super()._handle_event(event)

    def make_stream(self, stream_id: int) -> CommandGenerator[None]:
        self.streams[stream_id] = PacedStream(self.context.fork(), stream_id)
        yield from self.event_to_child(self.streams[stream_id], events.Start())


class Tunnel(TCPLayer):
    """Bytes both ways, unopened and counted."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, ignore=True)
        self.bytes_sent = 0
        self.bytes_received = 0

    def relay_messages(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.DataReceived):
            if event.connection == self.context.client:
                self.bytes_sent += len(event.data)
            else:
                self.bytes_received += len(event.data)
        yield from super().relay_messages(event)


class RefusalLayer(Layer):
    """One last message to the client, and the end of both connections."""

    def __init__(self, context: Context, message: bytes) -> None:
        super().__init__(context)
        self._message = message

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Start | events.DataReceived) and self._message:
            message, self._message = self._message, b""
            yield commands.SendData(self.context.client, message)
        if isinstance(event, events.DataReceived | events.ConnectionClosed):
            if self.context.server.connected:
                yield commands.CloseConnection(self.context.server)
            yield commands.CloseConnection(self.context.client)
