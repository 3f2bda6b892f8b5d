"""The container's side of a desk: what the browser beside it may have. A listening socket of its own leads here, and no command has it.

* ``POST /v1/ports/{port}`` becomes a connection to a server that a command has started, and to no other port.
* ``PUT /v1/downloads/{name}`` puts a file below ``downloads`` of the workspace, under a name that is free: ``{"path"}``.
* ``GET /v1/files/content?path=P`` is a file of the workspace.
* ``GET /v1/placeholders/{name}`` is what stands for a secret in the commands' environment: ``{"placeholder"}``, empty if there is none.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from functools import partial
from typing import AsyncIterator, Callable, Dict, FrozenSet, Tuple

from disk_quota import DiskQuota
from forwarder import pump
from messages import READ_BYTES, HttpRequest, HttpResponse, parse_head
from process_table import census
from processes import Processes
from request_errors import RequestError, disk_full
from workspace import Workspace

DOWNLOADS = "downloads"
NAME_CHARS_MAX = 120
NAMES_TRIED_MAX = 1_000
CENSUS_SECONDS = 0.5
"""Every picture of a page is a connection: for so long the ports are taken to be the same."""
HEAD_SECONDS = 30.0
PLACEHOLDER = "MOORAGE_SECRET_"
"""How what stands for a secret begins; its value is with the egress proxy alone."""
UNFIT = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|]+")


class ContainerSide:
    def __init__(
        self,
        processes: Processes,
        workspace: Workspace,
        quota: DiskQuota,
        on_written: Callable[[], None],
        variables: Callable[[], Dict[str, str]],
    ) -> None:
        """``variables`` are those of the commands' environment."""
        self._variables = variables
        self._processes = processes
        self._workspace = workspace
        self._quota = quota
        self._on_written = on_written
        self._ports: Tuple[float, FrozenSet[int]] = (0.0, frozenset())

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of the desk's."""
        try:
            request = parse_head(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS), reader)
            response = HttpResponse(writer, request)
            try:
                await self._route(request, response, reader, writer)
            except RequestError as refusal:
                if not response.has_begun:
                    await response.json(refusal.status, refusal.body)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            pass  # torn or silent
        finally:
            writer.close()

    async def connect(self, port: int) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if port not in self._listening():
            raise RequestError(404, "no_such_port", f"No server that a command has started listens on port {port}.")
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return await asyncio.open_connection("::1", port)

    async def save(self, name: str, pieces: AsyncIterator[bytes]) -> str:
        self._workspace.seal()
        if self._quota.reason:
            raise disk_full(self._quota.reason)
        path = self._free_path(cleaned(name))
        with self._workspace.writing(path) as fd:
            async for piece in pieces:
                while piece:
                    piece = piece[os.write(fd, piece) :]
        self._on_written()
        return f"{self._workspace.root}/{path}"

    def placeholder(self, name: str) -> str:
        value = self._variables().get(name, "")
        return value if value.startswith(PLACEHOLDER) else ""

    def pieces(self, path: str) -> AsyncIterator[bytes]:
        return pieces_of(partial(self._workspace.open_for_reading, path))

    async def _route(
        self, request: HttpRequest, response: HttpResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method, path = request.method, request.path
        if len(path) == 3 and (method, path[:2]) == ("POST", ["v1", "ports"]) and path[2].isdigit():
            far_reader, far_writer = await self.connect(int(path[2]))
            writer.write(b"HTTP/1.1 101 -\r\n\r\n")
            try:
                await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
            finally:
                far_writer.close()
        elif len(path) == 3 and (method, path[:2]) == ("PUT", ["v1", "downloads"]):
            await response.json(200, {"path": await self.save(path[2], request.chunks())})
        elif len(path) == 3 and (method, path[:2]) == ("GET", ["v1", "placeholders"]):
            await response.json(200, {"placeholder": self.placeholder(path[2])})
        elif (method, path) == ("GET", ["v1", "files", "content"]):
            await self._send_file(request.query.get("path", ""), writer)
        else:
            raise RequestError(404, "not_found", "The desk may not ask for this.")

    async def _send_file(self, path: str, writer: asyncio.StreamWriter) -> None:
        fd = self._workspace.open_for_reading(path)
        size = os.fstat(fd).st_size
        os.close(fd)
        writer.write(f"HTTP/1.1 200 -\r\ncontent-length: {size}\r\n\r\n".encode())
        async for piece in self.pieces(path):
            writer.write(piece)
            await writer.drain()

    def _listening(self) -> FrozenSet[int]:
        at, ports = self._ports
        if time.monotonic() - at > CENSUS_SECONDS:
            running = census(self._processes.other_uid)["processes"]
            ports = frozenset(port for each in running for port in each["ports"] or ())
            self._ports = (time.monotonic(), ports)
        return ports

    def _free_path(self, name: str) -> str:
        stem, dot, ending = name.rpartition(".")
        if not stem:
            stem, dot, ending = name, "", ""
        for number in range(1, NAMES_TRIED_MAX):
            path = f"{DOWNLOADS}/{stem}{'' if number == 1 else f'-{number}'}{dot}{ending}"
            if not os.path.lexists(os.path.join(self._workspace.root, path)):
                return path
        raise RequestError(409, "not_writable", f"{NAMES_TRIED_MAX} downloads have the name '{name}'.")


def cleaned(name: str) -> str:
    """A file name without what systems read as more than a name; the ending is kept."""
    name = UNFIT.sub("_", name).strip(" .") or "download"
    stem, dot, ending = name.rpartition(".")
    if not stem or len(ending) > 20:
        return name[:NAME_CHARS_MAX]
    return f"{stem[: NAME_CHARS_MAX - len(ending) - 1]}{dot}{ending}"


async def pieces_of(opened: Callable[[], int]) -> AsyncIterator[bytes]:
    """What a file holds; it is opened when its first piece is asked for."""
    fd = opened()
    try:
        while True:
            piece = os.read(fd, READ_BYTES)
            if not piece:
                return
            yield piece
    finally:
        os.close(fd)
