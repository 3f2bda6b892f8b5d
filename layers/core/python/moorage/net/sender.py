"""How the table's requests travel: what stands between botocore and its socket.

botocore builds, signs, repeats and understands requests. Sending one through urllib3 and ``http.client`` takes more processor time
than all of that together, so ``before-send``, botocore's own seam for it, is answered here: one write to a connection that is kept,
and httptools' parser over what comes back.

What is unusual is left to botocore, which sends by itself what gets no answer here: if the environment names a proxy, if no
connection can be opened, and if a server's certificate is not known, because botocore can be told of other authorities.
"""

import select
import socket
import ssl
import time
import urllib.request
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import SplitResult, urlsplit

import httptools
import httpx
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from moorage import limits

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_PIECE_BYTES: Final = 64 * limits.KIB


def sends_directly(client: "DynamoDBClient", *, read_seconds: float, clock: Callable[[], float] = time.time) -> "DynamoDBClient":
    """The client sends its requests this way from now on. ``clock`` gives seconds and goes on while a function is frozen."""
    if urlsplit(client.meta.endpoint_url).scheme not in urllib.request.getproxies():
        sender = Sender(read_seconds=read_seconds, clock=clock)
        client.meta.events.register("before-send.dynamodb", sender.send)  # type: ignore[arg-type]  # the stubs know of no answers
    return client


class Sender:
    """Connections that are kept, to any number of origins. Threads may share it: each takes a connection for itself."""

    def __init__(self, *, read_seconds: float, clock: Callable[[], float]) -> None:
        self._read_seconds = read_seconds
        self._clock = clock
        self._idle: dict[str, deque[_PooledConnection]] = {}
        """By scheme and authority; the one used last is last."""
        self._tls: ssl.SSLContext | None = None
        self._is_distrusted = False
        weakref.finalize(self, _close, self._idle)  # botocore tells nobody when a client is closed.

    def send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        """The answer, or None if botocore is to send the request itself. Raises botocore's errors: it repeats them."""
        url = urlsplit(request.url)
        idle = self._idle.setdefault(f"{url.scheme}://{url.netloc}", deque())
        connection = self._kept(idle) or self._open(url)
        if connection is None:
            return None
        try:
            status, headers, body = connection.exchange(_payload(request, url))
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except (OSError, EOFError, httptools.HttpParserError) as error:
            raise ConnectionClosedError(endpoint_url=request.url, request=request, error=error) from error
        finally:
            if connection.is_reusable:
                connection.rests_since = self._clock()
                idle.append(connection)
            else:
                connection.close()
        return _Answer(request.url, status, headers, body)

    def _kept(self, idle: "deque[_PooledConnection]") -> "_PooledConnection | None":
        """A connection that its server has not closed meanwhile, and that nothing on the way can have forgotten."""
        with suppress(IndexError):
            while True:
                connection = idle.pop()
                rested = self._clock() - connection.rests_since
                if rested <= limits.TABLE_IDLE_SECONDS and not connection.is_closed_by_server():
                    return connection
                connection.close()
        return None

    def _open(self, url: SplitResult) -> "_PooledConnection | None":
        if self._is_distrusted:
            return None
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            opened = socket.create_connection((url.hostname, port), limits.TABLE_CONNECT_SECONDS)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if url.scheme == "https":
                opened = self._secured(opened, url)
        except OSError as error:
            self._is_distrusted = isinstance(error, ssl.SSLCertVerificationError)
            return None
        opened.settimeout(self._read_seconds)
        return _PooledConnection(opened)

    def _secured(self, opened: socket.socket, url: SplitResult) -> socket.socket:
        try:
            return self._context().wrap_socket(opened, server_hostname=url.hostname)
        except OSError:
            opened.close()
            raise

    def _context(self) -> ssl.SSLContext:
        """Made when it is first needed: reading the certificates takes long."""
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return self._tls


def _close(idle: "dict[str, deque[_PooledConnection]]") -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()


def _payload(request: Any, url: SplitResult) -> bytes:
    """The bytes of botocore's prepared request on the wire. Its headers are text or bytes."""
    lines = [f"{request.method} {url.path or '/'} HTTP/1.1\r\nHost: {url.netloc}".encode()]
    for name, value in request.headers.items():
        lines.append(b"%b: %b" % (name.encode(), value if isinstance(value, bytes) else value.encode()))
    return b"\r\n".join([*lines, b"", request.body])


class _Answer(AWSResponse):
    """An answer with its body there already."""

    def __init__(self, url: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(url, status, cast("Any", headers), None)
        self._content = body


class _PooledConnection:
    """One connection, and the answer that is coming over it. httptools calls the ``on_`` methods."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)
        self.is_reusable = False
        self.rests_since = 0.0
        self._parser: Any = None
        self._is_kept_alive = False
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._has_ended = False

    def exchange(self, payload: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        self._headers, self._pieces, self._has_ended, self.is_reusable = {}, [], False, False
        self._socket.sendall(payload)
        self._parser = httptools.HttpResponseParser(self)
        while not self._has_ended:
            piece = self._socket.recv(_PIECE_BYTES)
            if not piece:
                raise EOFError("the server closed the connection before the end of its answer")
            self._parser.feed_data(piece)
        self.is_reusable = self._is_kept_alive
        return self._parser.get_status_code(), self._headers, b"".join(self._pieces)

    def is_closed_by_server(self) -> bool:
        """Between two answers nothing comes but the end."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._socket.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._is_kept_alive = self._parser.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self._has_ended = True
