"""HTTP/1.1 to model upstreams and exec servers, behind httpx's own seam for transports.

httpx's default transport spends more processor time on one streamed answer than the rest of this service together: it goes through
three layers for every piece of a body. This one is an asyncio protocol over httptools' parser: what has come is handed on at once, in
one piece. It does what upstreams need and no more: whole request bodies, one answer at a time on a connection, no upgrade, no proxy.
If the environment names a proxy, httpx's own client takes its place (:func:`upstream_transport`).

A connection is used again only after an answer that was read to its end and that allows it. One that its server closed meanwhile is
noticed when that happens, not when the next request is lost on it. A request that has been written is never sent again here.
"""

import asyncio
import ssl
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import field
from typing import Final, cast

import httptools
import httpx

from moorage import limits
from moorage.dataclass import dataclass

_HEAD_BYTES_MAX: Final = 64 * limits.KIB
"""What a server may send without getting to a body: a head, or trailers and chunk extensions."""
_BUFFERED_BYTES_MAX: Final = limits.MIB
"""Bytes of a body that wait for their reader; beyond that the socket is left alone."""
_HAPPY_EYEBALLS_SECONDS: Final = 0.25
"""Pause before the next address of a host is tried (RFC 8305, section 5)."""
_PIECE_BYTES: Final = 256 * limits.KIB
"""Of a request's body that is handed on at once: TLS holds what it is given three times."""
_PROXY_SCHEMES: Final = frozenset({"http", "https", "all"})

Origin = tuple[str, str, int]
"""Scheme, host, port."""


def upstream_transport() -> httpx.AsyncBaseTransport:
    """The way to model upstreams that this process's environment asks for."""
    return ThroughProxy() if _PROXY_SCHEMES & urllib.request.getproxies().keys() else UpstreamTransport()


class ThroughProxy(httpx.AsyncBaseTransport):
    """httpx's client: it knows ``HTTPS_PROXY`` and ``NO_PROXY``."""

    def __init__(self) -> None:
        connections = httpx.Limits(max_connections=None, max_keepalive_connections=limits.UPSTREAM_IDLE_CONNECTIONS_MAX)
        self._client = httpx.AsyncClient(limits=connections)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._client.send(request, stream=True)

    async def aclose(self) -> None:
        await self._client.aclose()


@dataclass(slots=True)
class UpstreamTransport(httpx.AsyncBaseTransport):
    """Connections to any number of upstreams. Time-outs are those of the request's ``timeout`` extension, in seconds."""

    uds: str | None = None
    """The Unix socket that all requests go to, whatever host they name."""
    idle_max: int = limits.UPSTREAM_IDLE_CONNECTIONS_MAX
    idle_seconds: float = limits.UPSTREAM_IDLE_CONNECTION_SECONDS
    _idle: dict[Origin, list["_HttpConnection"]] = field(default_factory=dict)
    """The one used last is last."""
    _active: set["_HttpConnection"] = field(default_factory=set)
    _tls: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(f"no transport for '{url.scheme}'", request=request)
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        timeouts = request.extensions.get("timeout", {})
        head, body = _head(request), await request.aread()
        connection = self._take(origin) or await self._open(origin, timeouts.get("connect"))
        self._active.add(connection)
        try:
            status, headers = await connection.ask(head, body, timeouts.get("read"))
        except BaseException:
            self._release(connection)
            raise
        return httpx.Response(status, headers=headers, stream=_ReceivedBody(connection, self._release), request=request)

    async def aclose(self) -> None:
        for connection in [*self._active, *(one for some in self._idle.values() for one in some)]:
            connection.abort()
        self._active.clear()
        self._idle.clear()

    def is_connected(self, seconds: float) -> bool:
        """Whether a connection is open that has brought an answer within so many seconds."""
        oldest = asyncio.get_running_loop().time() - seconds
        return any(each.is_reusable and each.idle_since > oldest for some in self._idle.values() for each in some)

    def _take(self, origin: Origin) -> "_HttpConnection | None":
        """An idle connection that is still open."""
        oldest = asyncio.get_running_loop().time() - self.idle_seconds
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_reusable and connection.idle_since > oldest:
                return connection
            connection.abort()
        return None

    async def _open(self, origin: Origin, seconds: float | None) -> "_HttpConnection":
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                if self.uds is not None:
                    _, connection = await loop.create_unix_connection(lambda: _HttpConnection(origin), self.uds)
                    return connection
                _, connection = await loop.create_connection(
                    lambda: _HttpConnection(origin),
                    host,
                    port,
                    ssl=self._context() if scheme == "https" else None,
                    server_hostname=host if scheme == "https" else None,
                    happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {host} in {seconds} seconds") from error
        except OSError as error:  # ssl.SSLError is one.
            raise httpx.ConnectError(str(error)) from error
        return connection

    def _context(self) -> ssl.SSLContext:
        """Made when it is first needed: reading the certificates takes long."""
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    def _release(self, connection: "_HttpConnection") -> None:
        """Keep a connection with an answer that has been read to its end, close any other."""
        self._active.discard(connection)
        if not connection.is_reusable:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if sum(map(len, self._idle.values())) > self.idle_max:
            oldest = min((some for some in self._idle.values() if some), key=lambda some: some[0].idle_since)
            oldest.pop(0).abort()


def _head(request: httpx.Request) -> bytes:
    """The request's head. httpx has checked method, target and headers."""
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%b: %b" % header for header in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n"


class _ReceivedBody(httpx.AsyncByteStream):
    def __init__(self, connection: "_HttpConnection", release: Callable[["_HttpConnection"], None]) -> None:
        self._connection: _HttpConnection | None = connection
        self._release = release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        connection = self._connection
        while connection is not None and (piece := await connection.read()):
            yield piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._release(connection)


class _HttpConnection(asyncio.Protocol):
    """One connection, and the answer that is coming over it. httptools calls the ``on_`` methods."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._is_paused = False
        self._is_full = False
        """No more is to be written now."""
        self._left = memoryview(b"")
        """Of the request's body."""
        self._timer: asyncio.TimerHandle | None = None
        self._silence_seconds: float | None = None
        self._since = 0.0
        """When the wait began, or something last came."""
        self._unsent = 0
        self._begin()

    def _begin(self) -> None:
        """Nothing of the next answer has come."""
        self._parser = httptools.HttpResponseParser(self)
        # A length beside chunks is against the rules but seen; the chunks count then (RFC 9112, section 6.3).
        self._parser.set_dangerous_leniencies(lenient_chunked_length=True)
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_head = False
        self._has_ended = False
        self._ends_with_connection = False
        self._is_kept_alive = False
        self._error: httpx.TransportError | None = None
        self._pieces: deque[bytes] = deque()
        self._buffered = 0
        self._without_body = 0

    # --- what the transport asks ---

    @property
    def is_reusable(self) -> bool:
        """Between two answers, on a connection that its server has not closed."""
        is_at_rest = self._has_ended and self._is_kept_alive and not self._pieces and not self._left
        return is_at_rest and self._error is None and not self._is_closed

    async def ask(self, head: bytes, body: bytes, silence_seconds: float | None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Send a request; the answer's status and headers. The rest of the body goes out while the answer comes."""
        assert self._transport is not None
        self._begin()
        self._transport.write(head + body[:_PIECE_BYTES])
        self._left = memoryview(body)[_PIECE_BYTES:]
        self._send()
        self._watch(silence_seconds)
        while not self._has_head:
            await self._wait()
        return self._parser.get_status_code(), self._headers

    def _send(self) -> None:
        """As much of the body as the connection takes."""
        assert self._transport is not None
        while self._left and not self._is_full and not self._is_closed:
            piece, self._left = self._left[:_PIECE_BYTES], self._left[_PIECE_BYTES:]
            self._transport.write(piece)
        if not self._left:
            self._left = memoryview(b"")  # The empty rest of a body keeps all of it, and the connection lives on.

    def _unsent_bytes(self) -> int:
        assert self._transport is not None
        return self._transport.get_write_buffer_size() + len(self._left)

    async def read(self) -> bytes:
        """The new bytes of the body, at least one; empty at its end."""
        while not self._pieces and not self._has_ended:
            await self._wait()
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            cast("asyncio.Transport", self._transport).resume_reading()
        return piece

    def abort(self) -> None:
        self._is_closed = True
        self._left = memoryview(b"")
        self._rest()
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        """Until bytes have come. Raises the connection's error."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        self._since = self._loop.time()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: httpx.TransportError) -> None:
        """Earlier bytes are still read; the error is raised after them."""
        if self._error is None:
            self._error = error
        self._wake()

    # --- silence ---

    def _watch(self, seconds: float | None) -> None:
        """Look after the answer from now to its end. One timer that is late serves for all the waits between."""
        self._silence_seconds = seconds
        self._since = self._loop.time()
        self._unsent = self._unsent_bytes()
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._look)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        assert self._silence_seconds is not None
        now = self._loop.time()
        unsent = self._unsent_bytes()
        if self._waiter is None or unsent < self._unsent:
            self._since = now  # Nobody waits, or the request is still going out.
        self._unsent = unsent
        left = self._since + self._silence_seconds - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
            return
        self._timer = None
        self._fail(httpx.WriteTimeout("the request was not taken") if unsent else httpx.ReadTimeout("nothing came"))

    # --- what the event loop tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._send()

    def data_received(self, data: bytes) -> None:
        self._since = self._loop.time()
        self._without_body += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx.RemoteProtocolError(str(error)))
        if self._without_body > _HEAD_BYTES_MAX:
            self._fail(httpx.RemoteProtocolError(f"more than {_HEAD_BYTES_MAX} bytes of headers"))
        if self._buffered > _BUFFERED_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            cast("asyncio.Transport", self._transport).pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._left = memoryview(b"")
        if error is not None:
            self._fail(httpx.ReadError(str(error)))
        elif self._has_head and self._ends_with_connection:
            self._has_ended = True
        elif not self._has_ended:
            self._fail(httpx.RemoteProtocolError("the server closed the connection before the end of its answer"))
        self._rest()
        self._wake()

    # --- what the parser tells ---

    def on_message_begin(self) -> None:
        if self._has_ended:
            self._fail(httpx.RemoteProtocolError("the server sent more than it was asked for"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # What follows a body is of no interest.
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._has_ended:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = []  # 100 Continue, 103 Early Hints: the answer is still to come.
            return
        fields = {name.lower(): value for name, value in self._headers}
        is_chunked = fields.get(b"transfer-encoding", b"").lower().endswith(b"chunked")
        self._ends_with_connection = not is_chunked and b"content-length" not in fields and status not in (204, 304)
        self._is_kept_alive = self._parser.should_keep_alive() and not (is_chunked and b"content-length" in fields)
        self._has_head = True

    def on_body(self, piece: bytes) -> None:
        if self._has_ended:
            return
        self._pieces.append(piece)
        self._buffered += len(piece)
        self._without_body = 0

    def on_message_complete(self) -> None:
        if self._has_head:
            self._has_ended = True
            self._rest()
