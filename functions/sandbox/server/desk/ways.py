"""How the desk reaches the container that it stands beside: its servers, its files, and its way out.

In a local sandbox both have walls of their own, and a Unix socket between them (``neighbour.py``). Elsewhere one exec server has both.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.parse
from functools import partial
from typing import AsyncIterator, Dict, Optional, Tuple

from configuration import ServerConfig
from messages import READ_BYTES
from request_errors import RequestError

from desk.neighbour import ContainerSide, pieces_of
from desk.proxy import Connection, ProxyAddress, basic

FILE_BYTES_MAX = 256 * 1024 * 1024
"""Of one upload or download."""


class Ways:
    def __init__(self, config: ServerConfig, own: Optional[ContainerSide]) -> None:
        """``own`` is the container's side where it is in this process."""
        self._own = own
        self._link = str(config.desk.get("link", ""))
        self.upstream = upstream_of(config.desk.get("upstream") or {})

    async def to_container(self, port: int) -> Connection:
        """Raises :class:`RequestError` if no server of the container's listens there."""
        if self._own is not None:
            return await self._own.connect(port)
        status, _, connection = await self._ask("POST", f"/v1/ports/{port}", 0)
        if status != 101:
            body = await connection[0].read()
            connection[1].close()
            raise refusal_of(status, body)
        return connection

    async def save(self, name: str, source: str) -> str:
        """Bring a file to the container's downloads, and return its path there."""
        pieces = pieces_of(partial(os.open, source, os.O_RDONLY | os.O_CLOEXEC))
        if self._own is not None:
            return await self._own.save(name, pieces)
        path = f"/v1/downloads/{urllib.parse.quote(name, safe='')}"
        status, body = await self._send("PUT", path, os.stat(source).st_size, pieces)
        if status != 200:
            raise refusal_of(status, body)
        return str(json.loads(body)["path"])

    async def placeholder(self, name: str) -> str:
        """What stands for a secret of the container's; empty if it has none of that name."""
        if self._own is not None:
            return self._own.placeholder(name)
        status, headers, (reader, writer) = await self._ask("GET", f"/v1/placeholders/{name}", 0)
        try:
            body = await reader.readexactly(int(headers["content-length"]))
            return str(json.loads(body)["placeholder"]) if status == 200 else ""
        finally:
            writer.close()

    async def fetch(self, path: str, target: str) -> None:
        """Bring a file of the workspace here. Raises :class:`RequestError`."""
        if self._own is not None:
            await write_pieces(target, self._own.pieces(path))
            return
        query = urllib.parse.urlencode({"path": path})
        status, headers, (reader, writer) = await self._ask("GET", f"/v1/files/content?{query}", 0)
        try:
            if status != 200:
                raise refusal_of(status, await reader.read(READ_BYTES))
            await write_pieces(target, exactly(reader, int(headers["content-length"])))
        finally:
            writer.close()

    async def _send(self, method: str, target: str, size: int, pieces: AsyncIterator[bytes]) -> Tuple[int, bytes]:
        reader, writer = await asyncio.open_unix_connection(self._link)
        try:
            writer.write(f"{method} {target} HTTP/1.1\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n".encode())
            async for piece in pieces:
                writer.write(piece)
                await writer.drain()
            status, headers = await head_of(reader)
            return status, await reader.readexactly(int(headers["content-length"]))
        finally:
            writer.close()

    async def _ask(self, method: str, target: str, size: int) -> Tuple[int, Dict[str, str], Connection]:
        reader, writer = await asyncio.open_unix_connection(self._link)
        writer.write(f"{method} {target} HTTP/1.1\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n".encode())
        status, headers = await head_of(reader)
        return status, headers, (reader, writer)


async def head_of(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    return int(lines[0].split(" ")[1]), headers


async def exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size > 0:
        piece = await reader.read(min(size, READ_BYTES))
        if not piece:
            raise ConnectionResetError("the file ended early")
        size -= len(piece)
        yield piece


async def write_pieces(target: str, pieces: AsyncIterator[bytes]) -> None:
    size, fd = 0, os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        async for piece in pieces:
            size += len(piece)
            if size > FILE_BYTES_MAX:
                raise RequestError(413, "request_too_large", f"A file for a page has {FILE_BYTES_MAX >> 20} MiB at most.")
            while piece:
                piece = piece[os.write(fd, piece) :]
    finally:
        os.close(fd)


def refusal_of(status: int, body: bytes) -> RequestError:
    try:
        error = json.loads(body)["error"]
        return RequestError(status, str(error["code"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return RequestError(status, "unreadable", "The container does not answer.")


def upstream_of(values: Dict[str, str]) -> Optional[ProxyAddress]:
    """The egress proxy: ``socket`` or ``proxy`` (``host:port``), ``username``, ``password``."""
    if not values:
        return None
    authorization = basic(values["username"], values["password"])
    if values.get("socket"):
        return ProxyAddress(lambda: asyncio.open_unix_connection(values["socket"]), authorization)
    host, _, port = values["proxy"].rpartition(":")
    return ProxyAddress(lambda: asyncio.open_connection(host, int(port)), authorization)
