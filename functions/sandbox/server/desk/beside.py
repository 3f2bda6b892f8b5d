"""A desk in a container of its own, where nobody can hand that container anything: in a task of Fargate's.

The two containers have two folders in common, which lie below one that no command may enter. This server is root in its container. It
writes the browser's policies and the configuration of the desk's exec server, and passes on what is asked of the desk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import urllib.parse
from typing import Any, Dict, Tuple

from messages import HttpRequest, HttpResponse
from request_errors import RequestError

from desk.ways import head_of

START_SECONDS = 20.0
"""For the desk's exec server to listen, which is started with this one."""
LOOK_AGAIN_SECONDS = 0.1
HEALTH_SECONDS = 1.0
GONE = "The container of the browser has ended. The next sandbox of this container has a browser again."

Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class DeskBeside:
    def __init__(self, values: Dict[str, Any]) -> None:
        """``values`` are ``beside`` of the configuration."""
        self._root: str = values["directory"]
        self._policies: Dict[str, Any] = values["policies"]
        self._config: Dict[str, Any] = values["config"]
        self._token = secrets.token_hex(32)
        self._is_met = False

    def prepare(self) -> None:
        """Before any command runs, for each folder is closed to them. The configuration comes last: the desk waits for it."""
        os.makedirs(self._sockets, exist_ok=True)
        os.makedirs(os.path.join(self._root, "policies"), exist_ok=True)
        os.chmod(self._root, 0o700)
        # Whose user the desk's exec server is, its image says alone.
        os.chmod(self._sockets, 0o777)
        write(os.path.join(self._root, "policies", "moorage.json"), self._policies)
        write(self._config_file, {**self._config, "token": self._token})

    async def running(self) -> int:
        """What somebody waits for."""
        if not self._is_met:
            return 0
        with contextlib.suppress(OSError, EOFError, ValueError, asyncio.TimeoutError, RequestError):
            return await asyncio.wait_for(self._health(), HEALTH_SECONDS)
        return 0

    async def route(self, request: HttpRequest, response: HttpResponse) -> None:
        """Answer one request below ``/v1/desk``."""
        body = await request.body()
        reader, writer = await self._connection()
        try:
            target = "/".join(urllib.parse.quote(part, safe="") for part in request.path)
            query = urllib.parse.urlencode(request.query)
            self._ask(writer, request.method, f"/{target}?{query}", body)
            status, headers = await head_of(reader)
            answer = HttpRequest("", "", headers, reader)
            if "chunked" in headers.get("transfer-encoding", ""):
                await response.stream(headers["content-type"], answer.chunks())
            else:
                await response.json(status, await answer.json())
        finally:
            writer.close()

    async def _health(self) -> int:
        reader, writer = await self._connection()
        try:
            self._ask(writer, "GET", "/v1/health", b"")
            _, headers = await head_of(reader)
            return int((await HttpRequest("", "", headers, reader).json())["running"])
        finally:
            writer.close()

    def _ask(self, writer: asyncio.StreamWriter, method: str, target: str, body: bytes) -> None:
        fields = f"authorization: Bearer {self._token}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        writer.write(f"{method} {target} HTTP/1.1\r\n{fields}\r\n".encode() + body)

    async def _connection(self) -> Streams:
        """Raises :class:`RequestError` if nobody listens."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (0.0 if self._is_met else START_SECONDS)
        while True:
            try:
                streams = await asyncio.open_unix_connection(os.path.join(self._sockets, "exec.sock"))
            except OSError:
                if loop.time() >= deadline:
                    raise RequestError(501, "desk_unavailable", GONE) from None
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            else:
                self._meet()
                return streams

    def _meet(self) -> None:
        """No browser has been started yet: from now on none puts another socket in the place of this one, or reads the token."""
        if not self._is_met:
            self._is_met = True
            os.chmod(self._sockets, 0o755)
            os.unlink(self._config_file)

    @property
    def _sockets(self) -> str:
        return os.path.join(self._root, "desk", "run")

    @property
    def _config_file(self) -> str:
        return os.path.join(self._root, "desk", "config.json")


def write(path: str, value: Dict[str, Any]) -> None:
    """Whole, and for every user of the other container."""
    aside = f"{path}.new"
    with open(aside, "w") as file:
        json.dump(value, file)
    os.chmod(aside, 0o644)
    os.rename(aside, path)
