"""uvicorn's HTTP protocol, with bounds on what comes before anybody has shown a key.

httptools reads headers of any number and length, and waits for their end for ever. Whoever can reach the port could fill the process's
memory, or its descriptors, without a key. So the head of a request has a size and a time.

An answer without a length goes out in chunks, as uvicorn does it, also to a client that says HTTP/1.0 and need not know them. Some
proxies ask by HTTP/1.0 unless told otherwise, and do read chunks as they come; an answer gathered up to know its length is no stream.
"""

import asyncio
from typing import Any, Final, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from moorage import limits

_TOO_LARGE: Final = (431, "Request Header Fields Too Large", f"The head of a request has at most {limits.HEAD_BYTES_MAX} bytes.")
_TOO_SLOW: Final = (408, "Request Timeout", f"The head of a request must come within {limits.HEAD_SECONDS_MAX} seconds.")
_INVALID: Final = (400, "Bad Request", "Invalid HTTP request received.")


class GatheringTransport:
    """A connection on which the head of an answer leaves with the first part of its body: one call of the kernel, one piece at the
    client. A body that does not come in the same turn of the loop does not hold the head up."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._send_head)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data)

    def close(self) -> None:
        self._send_head()
        self._transport.close()

    def _send_head(self) -> None:
        if self._head:
            self.write(b"")


class BoundedHttp(HttpToolsProtocol):
    _head_bytes = 0
    """Of the parts that have come whole."""
    _received_bytes = 0
    """Of the pieces that brought no end of the head."""
    _head_timer: asyncio.TimerHandle | None = None
    _is_in_head = True
    _refusal = _INVALID

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", GatheringTransport(transport, self.loop)))
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._is_in_head
        super().data_received(data)
        if was_in_head and self._is_in_head and not self.transport.is_closing():
            # A header that has not ended yet was not counted.
            self._received_bytes += len(data)
            if self._received_bytes > limits.HEAD_BYTES_MAX:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # A trailer field, which is never taken for a header field (RFC 9110, section 6.5.1).
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        status, reason, message = self._refusal
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        body = orjson.dumps({"error": error})
        self._end_head()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
            % (status, reason.encode(), len(body), body)
        )
        self.transport.close()

    def _begin_head(self) -> None:
        self._end_head()
        self._is_in_head, self._head_bytes, self._received_bytes = True, 0, 0
        self._head_timer = self.loop.call_later(limits.HEAD_SECONDS_MAX, self._refuse, _TOO_SLOW)

    def _end_head(self) -> None:
        self._is_in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _count(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > limits.HEAD_BYTES_MAX:
            self._refusal = _TOO_LARGE
            raise httptools.HttpParserError  # uvicorn answers it by send_400_response.

    def _refuse(self, refusal: tuple[int, str, str]) -> None:
        if not self.transport.is_closing():
            self._refusal = refusal
            self.send_400_response("")
