"""HTTP/1.1 as far as the protocol uses it."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from typing import Any, AsyncIterator, Dict, List

from request_errors import RequestError

READ_BYTES = 64 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024


class HttpRequest:
    def __init__(self, method: str, target: str, headers: Dict[str, str], reader: asyncio.StreamReader) -> None:
        self.method = method
        path, _, query = target.partition("?")
        self.path = [urllib.parse.unquote(part) for part in path.split("/")[1:]]
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.headers = headers
        self.is_body_read = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        self._reader = reader

    @property
    def after(self) -> int:
        try:
            return max(-1, int(self.query.get("after", "-1")))
        except ValueError:
            raise RequestError(400, "invalid_request", "'after' must be a whole number.") from None

    def number(self, name: str, least: int, most: int) -> int:
        """A whole number of the query; ``least`` if it is left out."""
        try:
            number = int(self.query.get(name, str(least)))
        except ValueError:
            raise RequestError(400, "invalid_request", f"'{name}' must be a whole number.") from None
        if not least <= number <= most:
            raise RequestError(400, "invalid_request", f"'{name}' is out of range.")
        return number

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while True:
                size = int((await self._reader.readline()).split(b";")[0], 16)
                if size == 0:
                    while (await self._reader.readline()) not in (b"\r\n", b"\n", b""):
                        pass
                    break
                async for piece in self._exactly(size):
                    yield piece
                await self._reader.readline()
        else:
            async for piece in self._exactly(int(self.headers.get("content-length", "0"))):
                yield piece
        self.is_body_read = True

    async def body(self) -> bytes:
        pieces, size = [], 0
        async for piece in self.chunks():
            size += len(piece)
            if size > BODY_BYTES_MAX:
                raise RequestError(413, "request_too_large", f"The body is larger than {BODY_BYTES_MAX} bytes.")
            pieces.append(piece)
        return b"".join(pieces)

    async def json(self) -> Dict[str, Any]:
        try:
            body = json.loads(await self.body())
        except ValueError:
            raise RequestError(400, "invalid_request", "The body is not JSON.") from None
        if not isinstance(body, dict):
            raise RequestError(400, "invalid_request", "The body must be an object.")
        return body

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size > 0:
            piece = await self._reader.read(min(size, READ_BYTES))
            if not piece:
                raise ConnectionResetError("the body ended early")
            size -= len(piece)
            yield piece


class HttpResponse:
    def __init__(self, writer: asyncio.StreamWriter, request: HttpRequest) -> None:
        self._writer = writer
        self._request = request
        self._gathered: List[bytes] = []
        self._gathered_bytes = 0
        self.has_begun = False

    async def json(self, status: int, body: Dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self._head(status, "application/json", f"content-length: {len(content)}")
        self._gather(content)
        self._send()
        await self._writer.drain()

    async def stream(self, content_type: str, pieces: AsyncIterator[bytes]) -> None:
        """A chunked body at the reader's pace: no more is asked of ``pieces`` than goes out at once."""
        self._head(200, content_type, "transfer-encoding: chunked")
        try:
            async for piece in pieces:
                self._gather(b"%x\r\n%b\r\n" % (len(piece), piece))
                if self._gathered_bytes >= READ_BYTES:
                    self._send()
                await self._writer.drain()
            self._gather(b"0\r\n\r\n")
        finally:
            self._send()
        await self._writer.drain()

    def _head(self, status: int, content_type: str, framing: str) -> None:
        self.has_begun = True
        # What is left of a body would be taken for the next request, so there is none.
        last = "" if self._request.is_body_read else "connection: close\r\n"
        # It waits for what it heads.
        self._gathered = [f"HTTP/1.1 {status} -\r\ncontent-type: {content_type}\r\n{last}{framing}\r\n\r\n".encode()]

    def _gather(self, data: bytes) -> None:
        """Send it with all that is ready in this turn of the loop: each write is a system call, and wakes the reader."""
        if not self._gathered_bytes:
            asyncio.get_running_loop().call_soon(self._send)
        self._gathered.append(data)
        self._gathered_bytes += len(data)

    def _send(self) -> None:
        if self._gathered:
            self._writer.write(b"".join(self._gathered))
            self._gathered, self._gathered_bytes = [], 0


def parse_head(head: bytes, reader: asyncio.StreamReader) -> HttpRequest:
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers = {}
    for line in lines[1:]:
        if line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    return HttpRequest(method, target, headers, reader)
