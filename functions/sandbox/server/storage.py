from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import ssl
import urllib.parse
from typing import Any, AsyncIterator, Awaitable, Dict

from messages import READ_BYTES
from request_errors import RequestError, field
from transcript import HEARTBEAT_SECONDS

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
HEAD_LINES_MAX = 100


class StoredObject:
    """An object in the bucket, by a URL that its sender has signed. The sender looks the address up: there may be no resolver here."""

    def __init__(self, body: Dict[str, Any]) -> None:
        url = urllib.parse.urlsplit(field(body, "url", str))
        if url.scheme not in ("http", "https") or not url.hostname:
            raise RequestError(400, "invalid_request", "'url' must be an address of HTTP or HTTPS.")
        self._host = url.hostname
        self._authority = url.netloc
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._target = "%s?%s" % (url.path or "/", url.query)
        self._address = field(body, "address", str)
        self._tls = ssl.create_default_context() if url.scheme == "https" else None

    async def fetch(self, fd: int) -> Dict[str, Any]:
        """Write the object's content to ``fd``; answers its bytes and their SHA-256."""
        reader, writer = await self._connect()
        try:
            writer.write(self._head("GET"))
            left = await self._answer(reader)
            size, digest = left, hashlib.sha256()
            while left > 0:
                piece = await asyncio.wait_for(reader.read(min(left, READ_BYTES)), SILENCE_SECONDS)
                if not piece:
                    raise failed("it broke off")
                left -= len(piece)
                digest.update(piece)
                while piece:
                    piece = piece[os.write(fd, piece) :]
        finally:
            writer.close()
        return {"bytes": size, "sha256": digest.hexdigest()}

    async def store(self, fd: int, size: int, sha256: bytes) -> Dict[str, Any]:
        """Make an object of the file's first ``size`` bytes. The URL is signed for these bytes alone: the storage refuses others."""
        checksum = base64.b64encode(sha256).decode("ascii")
        reader, writer = await self._connect()
        try:
            writer.write(self._head("PUT", "Content-Length: %d" % size, "x-amz-checksum-sha256: %s" % checksum))
            async for piece in beginning(fd, size):
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), SILENCE_SECONDS)
            await self._answer(reader)
        finally:
            writer.close()
        return {"bytes": size, "sha256": sha256.hex()}

    def _head(self, method: str, *headers: str) -> bytes:
        lines = ["%s %s HTTP/1.1" % (method, self._target), "Host: %s" % self._authority, "Connection: close", *headers]
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    async def _connect(self) -> Any:
        name = self._host if self._tls is not None else None
        try:
            connecting = asyncio.open_connection(self._address, self._port, ssl=self._tls, server_hostname=name)
            return await asyncio.wait_for(connecting, CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            raise failed("it cannot be reached") from error

    async def _answer(self, reader: asyncio.StreamReader) -> int:
        """The bytes of a good answer's body."""
        try:
            status = (await asyncio.wait_for(reader.readline(), SILENCE_SECONDS)).split(b" ", 2)
            length = 0
            for _ in range(HEAD_LINES_MAX):
                name, _, value = (await asyncio.wait_for(reader.readline(), SILENCE_SECONDS)).partition(b":")
                if name.strip().lower() == b"content-length":
                    length = int(value)
                if not name.strip():
                    break
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            raise failed("its answer is not HTTP") from error
        if len(status) < 2 or status[1] != b"200":
            raise failed("it answered %s" % status[1].decode("ascii", "replace") if len(status) > 1 else "it hung up")
        return length


async def beginning(fd: int, size: int) -> AsyncIterator[bytes]:
    while size > 0:
        piece = os.read(fd, min(size, READ_BYTES))
        if not piece:
            raise RequestError(409, "changed", "The file became shorter while it was stored.")
        size -= len(piece)
        yield piece


async def digest_of(fd: int, size: int) -> Dict[str, Any]:
    """The SHA-256 of the file's first ``size`` bytes."""
    digest = hashlib.sha256()
    async for piece in beginning(fd, size):
        digest.update(piece)
        await asyncio.sleep(0)
    return {"bytes": size, "sha256": digest.hexdigest()}


def failed(why: str) -> RequestError:
    """The URL is a secret: it is in no message."""
    return RequestError(502, "storage_failed", "The storage of files failed: %s." % why)


async def lines_of(work: Awaitable[Dict[str, Any]]) -> AsyncIterator[bytes]:
    """Heartbeats, and last what came of it."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=HEARTBEAT_SECONDS)
            if not task.done():
                yield b'{"type":"heartbeat"}\n'
        try:
            last: Dict[str, Any] = {"type": "transfer", **task.result()}
        except RequestError as error:
            last = {"type": "error", **error.body["error"]}
        except (OSError, asyncio.TimeoutError):
            last = {"type": "error", **failed("it fell silent").body["error"]}
        yield json.dumps(last).encode() + b"\n"
    finally:
        task.cancel()
