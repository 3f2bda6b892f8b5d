from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import secrets
import struct
import traceback
from typing import Any, AsyncIterator, Dict, List, Optional

from configuration import ServerConfig
from desk.beside import DeskBeside
from desk.desk import Desk
from desk.neighbour import ContainerSide
from desk.ways import Ways
from disk_quota import DiskQuota
from exec_record import ExecRecord
from execs import Execs
from messages import READ_BYTES, HttpRequest, HttpResponse, parse_head
from process_limit import ProcessLimit
from process_table import census
from request_errors import RequestError, disk_full, field
from skills import SkillFolders
from storage import StoredObject, digest_of, lines_of
from terminals import WAIT_MS_MAX, size_of
from workspace import Workspace

PROTOCOL = 1
CONNECTIONS_MAX = 1_000
FILES_LISTED_MAX = 100_000
REQUEST_SECONDS_MAX = 75.0
"""A connection that sends no request for this long is closed."""

TOKEN_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
LENGTH = struct.Struct(">q")
EXEC_ID = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")


class ExecServer:
    """Reads requests and answers them; knows the protocol and nothing else."""

    def __init__(self, config: ServerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._token_sha256 = config.token_sha256
        self._is_unclaimed = config.is_unclaimed
        self._execs = Execs(config, loop)
        self._workspace = Workspace(config)
        self._skills = SkillFolders(config)
        self.quota = DiskQuota(config, self._execs)
        self.crowd = ProcessLimit(config, self._execs)
        self.neighbour = ContainerSide(
            self._execs.processes, self._workspace, self.quota, self._execs.activity.set, lambda: self._execs.surroundings.variables({})
        )
        ways = Ways(config, None if config.desk.get("link") else self.neighbour)
        self._desk = Desk(loop, config, self._execs.processes, ways)
        self._is_desk_alone = bool(config.desk.get("alone"))
        self.beside: Optional[DeskBeside] = DeskBeside(config.beside) if config.beside else None
        self._boot_id = secrets.token_hex(16)
        self._connections = 0

    def reap(self) -> None:
        self._execs.processes.reap()

    def stop(self) -> None:
        self._execs.kill_all("")

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            while self._connections <= CONNECTIONS_MAX and await self._serve_one(reader, writer):
                pass
        except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            pass  # torn, silent or not HTTP: the exec lives on, the reader may come again
        except Exception:
            traceback.print_exc()
        finally:
            self._connections -= 1
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; True if the connection can take another."""
        # Unlike ``wait_for`` it takes no task.
        timer = self._loop.call_later(REQUEST_SECONDS_MAX, reader.set_exception, asyncio.TimeoutError())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        finally:
            timer.cancel()
        request = parse_head(head, reader)
        response = HttpResponse(writer, request)
        try:
            self._authorize(request)
            if request.headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._route(request, response)
        except RequestError as refusal:
            if response.has_begun:
                return False
            await response.json(refusal.status, refusal.body)
        return request.is_body_read and request.headers.get("connection", "").lower() != "close"

    def _authorize(self, request: HttpRequest) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        presented = hashlib.sha256(token.encode("latin-1")).hexdigest()
        if scheme.lower() != "bearer" or not hmac.compare_digest(presented, self._token_sha256):
            raise RequestError(401, "unauthorized", "The token is missing or wrong.")
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            raise RequestError(403, "cross_site", "The exec server answers no web page.")

    async def _route(self, request: HttpRequest, response: HttpResponse) -> None:
        method, path = request.method, request.path
        if method == "PUT" and path[1:2] not in (["files"], ["skills"], ["variables"]):
            self._workspace.seal()  # Something begins that is not trusted.
        if (method, path) == ("GET", ["v1", "health"]):
            at_desk = self._desk.running if self.beside is None else await self.beside.running()
            await response.json(200, {"protocol": PROTOCOL, "boot_id": self._boot_id, "running": self._execs.running + at_desk})
        elif (method, path) == ("POST", ["v1", "claim"]):
            await self._claim(request, response)
        elif self._is_unclaimed:
            raise RequestError(403, "unclaimed", "The sandbox waits in a pool and must be claimed first.")
        elif path[:2] == ["v1", "desk"] and all(map(EXEC_ID.match, path)):
            await (self.beside or self._desk).route(request, response)
        elif self._is_desk_alone:
            raise RequestError(404, "not_found", "This exec server serves a desk, and runs no commands.")
        elif (method, path) == ("GET", ["v1", "processes"]):
            await response.json(200, census(self._execs.processes.other_uid))
        elif (method, path) == ("GET", ["v1", "files"]):
            await self._list_files(request, response)
        elif (method, path) == ("POST", ["v1", "files", "read"]):
            await self._read_files(request, response)
        elif method == "POST" and path[:2] == ["v1", "files"] and path[2:] in (["fetch"], ["digest"], ["store"]):
            await self._transfer(request, response, path[2])
        elif path == ["v1", "files", "content"] and method in ("GET", "PUT", "DELETE"):
            await self._file_content(request, response)
        elif len(path) == 3 and (method, path[:2]) == ("PUT", ["v1", "skills"]):
            await self._skills.add(path[2], request.chunks())
            await response.json(200, {})
        elif (method, path) == ("PUT", ["v1", "variables"]):
            await self._set_variables(request, response)
        elif len(path) in (3, 4) and path[:2] == ["v1", "terminals"] and EXEC_ID.match(path[2]):
            await self._terminal(request, response, path[2], path[3:])
        elif len(path) in (3, 4) and path[:2] == ["v1", "looks"] and EXEC_ID.match(path[2]):
            await self._look(request, response, path[2], path[3:])
        elif len(path) in (3, 4) and path[:2] in (["v1", "execs"], ["v1", "python"], ["v1", "javascript"]) and EXEC_ID.match(path[2]):
            await self._exec(request, response, path[1], path[2], path[3:])
        else:
            raise RequestError(404, "not_found", f"Unknown: {method} /{'/'.join(path)}")

    async def _claim(self, request: HttpRequest, response: HttpResponse) -> None:
        """Give the sandbox to its one container with another token. The old one is dead at once."""
        token_sha256 = field(await request.json(), "token_sha256", str)
        if not TOKEN_SHA256.match(token_sha256):
            raise RequestError(400, "invalid_request", "A claim takes the hash of a token.")
        # Nothing is awaited from here on: of two claims at once the second finds the first one done.
        if not self._is_unclaimed:
            raise RequestError(409, "already_claimed", "The sandbox belongs to a container.")
        self._is_unclaimed = False
        self._token_sha256 = token_sha256
        await response.json(200, {})

    async def _set_variables(self, request: HttpRequest, response: HttpResponse) -> None:
        variables = field(await request.json(), "variables", dict)
        if any(not isinstance(value, str) or "\0" in name + value or "=" in name for name, value in variables.items()):
            raise RequestError(400, "invalid_request", "'variables' takes texts by name, without null characters.")
        self._execs.surroundings.add(variables)
        await response.json(200, {})

    async def _exec(self, request: HttpRequest, response: HttpResponse, kind: str, exec_id: str, rest: List[str]) -> None:
        action = (request.method, *rest)
        if action == ("PUT",):
            body = await request.json()
            after = request.after
            execs = self._execs
            listed = request.number("files", 0, FILES_LISTED_MAX)
            record = execs.start_command(exec_id, body) if kind == "execs" else execs.start_code(kind, exec_id, body)
            await response.stream("application/x-ndjson", self._events(record, after, listed))
        elif action == ("GET",):
            listed = request.number("files", 0, FILES_LISTED_MAX)
            record = self._execs.get(exec_id)
            await response.stream("application/x-ndjson", self._events(record, request.after, listed))
        elif action == ("POST", "kill"):
            await request.body()
            await response.json(200, {"killed": self._execs.get(exec_id).kill("killed")})
        else:
            raise RequestError(405, "not_found", f"Unknown: {request.method} /{'/'.join(request.path)}")

    async def _events(self, record: ExecRecord, after: int, listed: int) -> AsyncIterator[bytes]:
        """The events of an exec to its end, and then up to so many files of the workspace: who stores them need not ask again."""
        async for lines in record.transcript.lines_after(after):
            yield lines
        if listed:
            async for lines in self._listing(self._workspace.root, listed):
                yield lines

    async def _look(self, request: HttpRequest, response: HttpResponse, look_id: str, rest: List[str]) -> None:
        action = (request.method, *rest)
        if action == ("PUT",):
            look = self._execs.sessions.look(look_id, await request.json())
            await response.stream("application/x-ndjson", look.lines())
        elif action == ("POST", "kill"):
            await request.body()
            await response.json(200, {"killed": self._execs.sessions.kill(look_id)})
        else:
            raise RequestError(405, "not_found", f"Unknown: {request.method} /{'/'.join(request.path)}")

    async def _terminal(self, request: HttpRequest, response: HttpResponse, terminal_id: str, rest: List[str]) -> None:
        terminals, action = self._execs.terminals, (request.method, *rest)
        if action == ("PUT",):
            terminals.open(terminal_id, await request.json())
            await response.json(200, {})
        elif action == ("GET",):
            wait_ms = request.number("wait_ms", 0, WAIT_MS_MAX)
            session = terminals.get(terminal_id)
            await response.stream("application/x-ndjson", session.read(max(0, request.after), wait_ms / 1000))
        elif action == ("POST", "input"):
            data = await request.body()
            became = terminals.get(terminal_id).write(request.query.get("id", ""), data)
            await response.json(200, {"input": became})
        elif action == ("POST", "size"):
            body = await request.json()
            terminals.get(terminal_id).resize(*size_of(body))
            await response.json(200, {})
        elif action == ("POST", "kill"):
            await request.body()
            await response.json(200, {"killed": terminals.close(terminal_id)})
        else:
            raise RequestError(405, "not_found", f"Unknown: {request.method} /{'/'.join(request.path)}")

    async def _list_files(self, request: HttpRequest, response: HttpResponse) -> None:
        listing = self._listing(request.query.get("root", ""), int(request.query.get("limit", str(FILES_LISTED_MAX))))
        await response.stream("application/x-ndjson", listing)

    def _listing(self, root: str, limit: int) -> AsyncIterator[bytes]:
        has_processes = self._execs.processes.has_children()  # Before: one that ends meanwhile may have written behind the listing.
        entries = self._workspace.entries(root)

        async def lines() -> AsyncIterator[bytes]:
            count, is_complete, batch = 0, True, []
            for entry in entries:
                if entry is None or count >= limit:
                    is_complete = False
                    if entry is None:
                        continue
                    break
                count += 1
                batch.append(json.dumps(entry).encode() + b"\n")
                if len(batch) == 200:
                    yield b"".join(batch)
                    batch = []
                    await asyncio.sleep(0)
            end = {"type": "end", "complete": is_complete, "processes": has_processes}
            batch.append(json.dumps(end).encode() + b"\n")
            yield b"".join(batch)

        return lines()

    async def _read_files(self, request: HttpRequest, response: HttpResponse) -> None:
        paths = field(await request.json(), "paths", list)
        if not all(isinstance(path, str) for path in paths):
            raise RequestError(400, "invalid_request", "'paths' must be a list of texts.")

        async def pieces() -> AsyncIterator[bytes]:
            batch, size = [], 0
            for path in paths:
                content = self._workspace.small_content(path)
                batch += [LENGTH.pack(-1 if content is None else len(content)), content or b""]
                size += LENGTH.size + len(content or b"")
                if size >= READ_BYTES:
                    yield b"".join(batch)
                    batch, size = [], 0
                    await asyncio.sleep(0)
            if batch:
                yield b"".join(batch)

        await response.stream("application/octet-stream", pieces())

    async def _transfer(self, request: HttpRequest, response: HttpResponse, direction: str) -> None:
        body = await request.json()
        path = field(body, "path", str)
        if direction == "fetch":
            if self.quota.reason:
                raise disk_full(self.quota.reason)
            await response.stream("application/x-ndjson", lines_of(self._fetch(path, StoredObject(body))))
            return
        size = field(body, "bytes", int)
        fd = self._workspace.open_for_reading(path)
        try:
            if direction == "digest":
                work = digest_of(fd, size)
            else:
                work = StoredObject(body).store(fd, size, bytes.fromhex(field(body, "sha256", str)))
            await response.stream("application/x-ndjson", lines_of(work))
        finally:
            os.close(fd)

    async def _fetch(self, path: str, place: StoredObject) -> Dict[str, Any]:
        with self._workspace.writing(path) as fd:
            fetched = await place.fetch(fd)
        self._execs.activity.set()
        return fetched

    async def _file_content(self, request: HttpRequest, response: HttpResponse) -> None:
        path = request.query.get("path", "")
        if request.method == "GET":
            fd = self._workspace.open_for_reading(path)
            try:
                await response.stream("application/octet-stream", file_pieces(fd))
            finally:
                os.close(fd)
        elif request.method == "PUT":
            if self.quota.reason:
                raise disk_full(self.quota.reason)
            with self._workspace.writing(path) as fd:
                async for piece in request.chunks():
                    while piece:
                        piece = piece[os.write(fd, piece) :]
            self._execs.activity.set()
            await response.json(200, {})
        else:
            await request.body()
            self._workspace.delete(path)
            await response.json(200, {})


async def file_pieces(fd: int) -> AsyncIterator[bytes]:
    while True:
        piece = os.read(fd, READ_BYTES)
        if not piece:
            return
        yield piece
