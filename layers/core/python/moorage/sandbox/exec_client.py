"""The client of a sandbox's exec server (protocol 1, written down in ``functions/sandbox/README.md``).

Every request may be repeated: ``exec`` and ``python`` start what is not known yet and attach to what is, so a caller that lost the
connection (:class:`SandboxGone`) asks again with ``after`` set to the last number it has seen and gets exactly the rest.
"""

import json
import ssl
import struct
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from functools import cache
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote, urlencode

import httpx

from moorage.dataclass import dataclass
from moorage.errors import DeskHeld, DeskNotStarted, DeskUnavailable, SandboxError, SandboxFileMissing, SandboxGone
from moorage.limits import (
    BATCH_FILE_BYTES_MAX,
    EXEC_CONNECT_SECONDS,
    EXEC_SILENCE_SECONDS,
    SANDBOX_CONNECTIONS_KEPT_MAX,
    SANDBOX_FILES_MAX,
    SANDBOX_JUST_ANSWERED_SECONDS,
    SANDBOX_LAST_SECONDS,
)
from moorage.net.transport import UpstreamTransport
from moorage.sandbox.microvm_endpoint import MAY_WAKE, MicrovmAuth
from moorage.sandbox.over_http import AsyncClosing
from moorage.sandbox.provisioner import Handle

T = TypeVar("T")

_LENGTH: Final = struct.Struct(">q")
_BEHIND_SOCKET: Final = httpx.URL("http://sandbox")
Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class ExecStarted:
    n: int


@dataclass(frozen=True, slots=True)
class ExecOutput:
    n: int
    stream: Stream
    text: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing happened for some seconds; a good moment to look whether the response was cancelled."""


@dataclass(frozen=True, slots=True)
class ExecEnded:
    """The last event of an exec."""

    n: int
    outcome: Literal["exit", "timeout", "killed"]
    exit_code: int
    """128 + signal number where a signal ended the shell."""
    truncated_chars: int
    spool_path: str | None
    """Where the full output lies inside the container, if the output was truncated."""


@dataclass(frozen=True, slots=True)
class PythonEnded:
    """The last event of one run in the Python session."""

    n: int
    outcome: Literal["exit", "timeout", "killed"]
    exit_code: int
    """0, or 1 after an exception."""
    truncated_chars: int
    spool_path: str | None
    result: str | None
    """``repr`` of the last expression, None if there is none."""
    images: tuple[str, ...]
    """Paths of the figures that were drawn, under /mnt/data."""
    session_started: bool
    """True when this run began a new session: nothing of earlier runs is left in it."""


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """A command that goes on between looks at it."""

    command: str
    cwd: str = ""
    """Relative to the workspace, or absolute."""
    shell: str = ""
    """Its path or name; empty for the container's."""
    is_login: bool = False
    has_terminal: bool = False


@dataclass(frozen=True, slots=True)
class SessionOutput:
    """A session's output since the last look, and its state."""

    session_id: int
    output: str
    chars: int
    """All that was printed; more than ``output`` has where it was too much to be kept."""
    outcome: Literal["exit", "timeout", "killed"] | None
    """None while it runs."""
    exit_code: int | None
    seconds: float
    untyped_bytes: int
    """Of what was to be typed: its program did not take them in time."""


@dataclass(frozen=True, slots=True)
class SandboxHealth:
    protocol: int
    boot_id: str
    """Changes with every start of the exec server: another one means that processes and execs are gone."""
    running: int


@dataclass(frozen=True, slots=True)
class SandboxFile:
    path: str
    """Relative to the listed root."""
    size: int
    mtime_ns: int
    inode: int
    kind: Literal["file", "symlink", "other", "not_utf8"]
    """``not_utf8``: whatever it is, it cannot be asked for by its name; ``path`` only resembles it."""


@dataclass(frozen=True, slots=True)
class FileListing:
    files: tuple[SandboxFile, ...]
    is_complete: bool
    """False when there are more files than the bound."""
    has_processes: bool = True
    """Whether a process of commands or sessions lived when it was begun. True where the server does not say."""


ExecEvent = ExecStarted | ExecOutput | Heartbeat | ExecEnded | FileListing
PythonEvent = ExecStarted | ExecOutput | Heartbeat | PythonEnded | FileListing


@dataclass(frozen=True, slots=True)
class SignedPlace:
    """Where a sandbox gets or puts a file by itself."""

    url: str = field(repr=False)
    address: str
    """Of the URL's host: a sandbox may have no resolver."""


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """Something that a command has started and that lives."""

    pid: int
    parent_pid: int
    command: str
    started_at_ms: int
    cpu_seconds: float
    memory_bytes: int
    ports: tuple[int, ...] | None
    """The TCP ports on which it listens; None where it lets nobody look."""


@dataclass(frozen=True, slots=True)
class RunningProcesses:
    processes: tuple[RunningProcess, ...]
    is_complete: bool
    """False when there are more than the bound."""


class ExecClient(AsyncClosing):
    """One sandbox. Use as ``async with ExecClient(handle) as client`` or call :meth:`aclose`.

    Raises :class:`SandboxGone` when the server cannot be reached, the connection tears, or the asked exec is unknown, and
    :class:`SandboxError` when it refuses.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        auth: httpx.Auth | None = None,
        clock: Callable[[], float] = time.time,
        reaches_bucket: bool = False,
    ) -> None:
        """``auth`` adds the header of the way to the server beside the server's own token (a MicroVM's endpoint). ``reaches_bucket``:
        large files go by :meth:`fetch_file` and :meth:`store_file`."""
        self.reaches_bucket = reaches_bucket
        self.has_just_answered = isinstance(transport, _LentTransport) and transport.is_connected
        """An earlier client has got an answer a moment ago, over a connection that is still open: the server lives."""
        self.handle = handle
        self._clock = clock
        self.auth = auth
        if transport is None and not handle.endpoint.startswith("https:"):
            transport = _Transport(handle.endpoint.removeprefix("unix:") if handle.endpoint.startswith("unix:") else None)
        self._extensions: dict[str, Any] = {"timeout": _TIMEOUT}
        self._base = _BEHIND_SOCKET if handle.endpoint.startswith("unix:") else httpx.URL(handle.endpoint)
        if transport is None or auth is not None:
            transport = _OverInternet(transport, auth)
        self._transport: httpx.AsyncBaseTransport = transport
        # What an httpx.AsyncClient adds is not needed, and takes longer than the request.
        self._headers = {"authorization": f"Bearer {handle.token}", "accept-encoding": "identity"}

    async def aclose(self) -> None:
        await self._transport.aclose()

    def looks_only(self) -> None:
        """From now on wake no sandbox that sleeps: requests raise :class:`SandboxError` in its place."""
        self._extensions[MAY_WAKE] = False

    async def health(self) -> SandboxHealth:
        body = await self.ask("GET", "/v1/health")
        return SandboxHealth(body["protocol"], body["boot_id"], body["running"])

    async def claim(self, token_sha256: str) -> None:
        """Give an unclaimed sandbox its container's token, by its hash; this client's token is dead afterwards."""
        _refuse_errors(await self._request("POST", "/v1/claim", json={"token_sha256": token_sha256}))

    async def exec(
        self,
        exec_id: str,
        command: str,
        *,
        timeout_ms: int,
        max_output_length: int,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        after: int = -1,
        files_max: int = 0,
    ) -> AsyncGenerator[ExecEvent, None]:
        """Start the command, or attach to it if it was started under this id, and yield its events after number ``after``.

        ``max_output_length`` is in characters, stdout and stderr together. The command runs once however often this is called. With
        ``files_max`` the last thing is a listing of so many files of the workspace as they are behind the command. An older server
        gives none.
        """
        body = {
            "command": command,
            "timeout_ms": self._within_life(timeout_ms),
            "max_output_length": max_output_length,
            "env": dict(env or {}),
            "cwd": cwd,
        }
        async for event in self._started("execs", exec_id, after, body, files_max, _exec_event):
            yield event

    async def attach(self, exec_id: str, *, after: int = -1) -> AsyncGenerator[ExecEvent, None]:
        """The events of a known exec; :class:`SandboxGone` if the sandbox does not know it (it was started anew)."""
        async for line in self._lines("GET", f"/v1/execs/{quote(exec_id, safe='')}", after, None):
            yield _exec_event(line)

    async def python(
        self, exec_id: str, code: str, *, timeout_ms: int, max_output_length: int, after: int = -1, files_max: int = 0
    ) -> AsyncGenerator[PythonEvent, None]:
        """Run ``code`` in the container's Python session; as idempotent as :meth:`exec`. Runs queue up one after the other."""
        body = {"code": code, "timeout_ms": self._within_life(timeout_ms), "max_output_length": max_output_length}
        async for event in self._started("python", exec_id, after, body, files_max, _python_event):
            yield event

    async def javascript(
        self,
        exec_id: str,
        code: str,
        *,
        timeout_ms: int,
        max_output_length: int,
        is_reset: bool = False,
        after: int = -1,
        files_max: int = 0,
    ) -> AsyncGenerator[PythonEvent, None]:
        """The same in the container's Node session; ``is_reset`` ends that one, and runs nothing."""
        body = {"code": code, "timeout_ms": self._within_life(timeout_ms), "max_output_length": max_output_length, "reset": is_reset}
        async for event in self._started("javascript", exec_id, after, body, files_max, _python_event):
            yield event

    async def kill(self, exec_id: str) -> bool:
        """Kill the exec's processes; False if it had ended already or is unknown."""
        response = await self._request("POST", f"/v1/execs/{quote(exec_id, safe='')}/kill")
        if response.status_code == httpx.codes.NOT_FOUND:
            return False
        _refuse_errors(response)
        return bool(response.json()["killed"])

    async def look(self, look_id: str, session: SessionCommand | int, *, wait_ms: int, chars: str = "") -> SessionOutput:
        """Start a session, or type into one (an id), and wait until it ends, at most so long. Done once under its id: asked again, it
        gives the same answer."""
        body: dict[str, Any] = {"wait_ms": wait_ms, "chars": chars}
        match session:
            case SessionCommand():
                body |= {"command": session.command, "cwd": session.cwd, "program": session.shell}
                body |= {"login": session.is_login, "terminal": session.has_terminal}
            case session_id:
                body["session_id"] = session_id
        return SessionOutput(**await self.last_line("look", "PUT", f"/v1/looks/{quote(look_id, safe='')}", json=body))

    async def kill_session(self, look_id: str) -> bool:
        """Kill the session that a look has begun; False if it had ended already or is unknown."""
        response = await self._request("POST", f"/v1/looks/{quote(look_id, safe='')}/kill")
        _refuse_errors(response)
        return bool(response.json()["killed"])

    async def processes(self) -> RunningProcesses:
        """The running processes, by id."""
        body = await self.ask("GET", "/v1/processes")
        running = [each | {"ports": None if each["ports"] is None else tuple(each["ports"])} for each in body["processes"]]
        return RunningProcesses(tuple(RunningProcess(**each) for each in running), body["complete"])

    async def list_files(self, root: str = "/mnt/data") -> FileListing:
        """All files below ``root``, without directories, links not followed; at most ``SANDBOX_FILES_MAX``."""
        files: list[SandboxFile] = []
        end: dict[str, Any] | None = None
        async with self._stream("GET", "/v1/files", params={"root": root, "limit": str(SANDBOX_FILES_MAX)}) as response:
            async for line in _lines(response):  # To the end of the answer: its connection serves the next request then.
                entry = json.loads(line)
                if entry.get("type") == "end":
                    end = entry
                else:
                    files.append(_file(entry))
        if end is None:
            raise SandboxGone("The container broke off in the middle of a file listing.")
        return _listing(files, end)

    async def read_file(self, path: str) -> AsyncGenerator[bytes, None]:
        """The bytes of a regular file; ``path`` absolute or relative to /mnt/data. Memory stays flat."""
        async with self._stream("GET", "/v1/files/content", params={"path": path}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def read_files(self, paths: Sequence[str]) -> AsyncGenerator[bytes | None, None]:
        """The contents of small files by one request, in the order of ``paths``, one at a time in memory. None for one that
        :meth:`read_file` must be asked for: it is larger than ``BATCH_FILE_BYTES_MAX``, or cannot be read."""
        async with self._stream("POST", "/v1/files/read", json={"paths": list(paths)}) as response:
            pieces = _Pieces(response.aiter_bytes())
            for _ in paths:
                (length,) = _LENGTH.unpack(await pieces.take(_LENGTH.size))
                if length > BATCH_FILE_BYTES_MAX:
                    raise SandboxError("The container sent a file that is too large.")
                yield None if length < 0 else await pieces.take(length)

    async def write_file(self, path: str, content: AsyncIterator[bytes]) -> None:
        """Create or replace a file (as a whole: a reader sees the old bytes or the new ones) with its parent directories."""
        _refuse_errors(await self._request("PUT", "/v1/files/content", params={"path": path}, content=content))

    async def fetch_file(self, path: str, place: SignedPlace) -> str:
        """Have the sandbox get a file as :meth:`write_file` would put it; answers its SHA-256."""
        return str((await self._transfer("fetch", path, place))["sha256"])

    async def file_digest(self, path: str, size: int) -> str:
        """The SHA-256 of the first ``size`` bytes of a regular file."""
        return str((await self._transfer("digest", path, bytes=size))["sha256"])

    async def store_file(self, path: str, place: SignedPlace, *, size: int, sha256: str) -> None:
        """Have the sandbox put these bytes of a regular file there."""
        await self._transfer("store", path, place, bytes=size, sha256=sha256)

    async def _transfer(self, kind: str, path: str, place: SignedPlace | None = None, **more: Any) -> dict[str, Any]:
        body = {"path": path, **more, **({} if place is None else {"url": place.url, "address": place.address})}
        return await self.last_line("transfer", "POST", f"/v1/files/{kind}", json=body)

    async def put_skill(self, directory: str, archive: bytes) -> None:
        """Unpack a skill's bundle as a folder of its own that commands cannot change. One that is there stays as it is."""
        _refuse_errors(await self._request("PUT", f"/v1/skills/{quote(directory, safe='')}", content=archive))

    async def set_variables(self, variables: Mapping[str, str]) -> None:
        """Give all that begins from now on these environment variables, beside those that it has."""
        _refuse_errors(await self._request("PUT", "/v1/variables", json={"variables": dict(variables)}))

    async def delete_file(self, path: str) -> None:
        """Remove a file or a link; one that is not there is no error."""
        response = await self._request("DELETE", "/v1/files/content", params={"path": path})
        if response.status_code != httpx.codes.NOT_FOUND:
            _refuse_errors(response)

    def _within_life(self, timeout_ms: int) -> int:
        """The time of a run that ends before the sandbox does, so that its files can be stored."""
        if not self.handle.ends_at:
            return timeout_ms
        left = self.handle.ends_at - SANDBOX_LAST_SECONDS - self._clock()
        return min(timeout_ms, max(1, int(left * 1000)))

    async def _started(
        self, kind: str, exec_id: str, after: int, body: dict[str, Any], files_max: int, event_of: Callable[[dict[str, Any]], T]
    ) -> AsyncIterator[T | FileListing]:
        """The events of a run, and behind them the files."""
        files: list[SandboxFile] = []
        async for line in self._lines("PUT", f"/v1/{kind}/{quote(exec_id, safe='')}", after, body, files_max):
            match line.get("type"):
                case None:
                    files.append(_file(line))
                case "end":
                    yield _listing(files, line)
                case _:
                    yield event_of(line)

    async def _lines(
        self, method: str, path: str, after: int, body: dict[str, Any] | None, files_max: int = 0
    ) -> AsyncIterator[dict[str, Any]]:
        # A stream that ends by the rules is whole: with ``after`` at the last number there is nothing in it. One that was torn
        # raises a TransportError.
        params = {"after": str(after)} | ({"files": str(files_max)} if files_max else {})
        async with self._stream(method, path, params=params, json=body) as response:
            async for line in _lines(response):
                yield json.loads(line)

    async def last_line(self, kind: str, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """The last line of a stream of heartbeats."""
        last: dict[str, Any] = {}
        async with self._stream(method, path, **arguments) as response:
            async for line in _lines(response):
                last = json.loads(line)
        found = last.pop("type", None)
        if found == "error":
            raise _refusal(last["code"], last["message"])
        if found != kind:
            raise SandboxGone(f"The container broke off in the middle of a {kind}.")
        return last

    async def ask(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        """An answer in one piece."""
        response = await self._request(method, path, **arguments)
        _refuse_errors(response)
        body: dict[str, Any] = response.json()
        return body

    async def _request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, **arguments: Any) -> httpx.Response:
        try:
            response = await self._transport.handle_async_request(self._built(method, path, params, arguments))
            try:
                await response.aread()
            finally:
                await response.aclose()
            return response
        except httpx.TransportError as error:
            if isinstance(self.auth, MicrovmAuth):
                raise await self.auth.after_break() from error
            raise SandboxGone("The container does not answer.") from error

    def _built(self, method: str, path: str, params: Mapping[str, str] | None, arguments: dict[str, Any]) -> httpx.Request:
        extensions = self._extensions | arguments.pop("extensions", {})
        return httpx.Request(method, self._url(path, params), headers=self._headers, extensions=extensions, **arguments)

    def _url(self, path: str, params: Mapping[str, str] | None) -> httpx.URL:
        """The whole address: httpx takes longer to put it together than to send the request."""
        query = f"?{urlencode(params)}" if params else ""
        return self._base.copy_with(raw_path=self._base.raw_path.rstrip(b"/") + f"{path}{query}".encode("ascii"))

    @asynccontextmanager
    async def _stream(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, **arguments: Any
    ) -> AsyncIterator[httpx.Response]:
        try:
            response = await self._transport.handle_async_request(self._built(method, path, params, arguments))
            try:
                if response.is_error:
                    await response.aread()
                    _refuse_errors(response)
                yield response
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise SandboxGone("The container does not answer.") from error


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Lines of JSON, not decoded yet."""
    begun: list[bytes] = []
    """Of a line whose end has not come: it is put together once."""
    async for piece in response.aiter_bytes():
        if b"\n" not in piece:
            begun.append(piece)
            continue
        *lines, rest = b"".join((*begun, piece)).split(b"\n")
        begun = [rest]
        for line in lines:
            yield line
    if last := b"".join(begun):
        yield last


class _OverInternet(httpx.AsyncBaseTransport):
    """httpx's client: it asks ``auth`` about each answer."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None, auth: httpx.Auth | None) -> None:
        self._client = httpx.AsyncClient(
            verify=_public_tls() if transport is None else _NO_TLS, transport=transport, auth=auth, trust_env=False
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._client.send(request, stream=True)

    async def aclose(self) -> None:
        await self._client.aclose()


class _Transport(httpx.AsyncBaseTransport):
    """The quick way for all but uploads, which go out while they are read: that only httpx's own transport can do."""

    def __init__(self, uds: str | None) -> None:
        self._quick = UpstreamTransport(uds=uds)
        self._uds = uds
        self._uploads: httpx.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if "transfer-encoding" not in request.headers:
            return await self._quick.handle_async_request(request)
        if self._uploads is None:
            self._uploads = httpx.AsyncHTTPTransport(uds=self._uds, verify=_NO_TLS, limits=_CONNECTIONS)
        return await self._uploads.handle_async_request(request)

    @property
    def is_connected(self) -> bool:
        return self._quick.is_connected(SANDBOX_JUST_ANSWERED_SECONDS)

    async def aclose(self) -> None:
        await self._quick.aclose()
        if self._uploads is not None:
            await self._uploads.aclose()


class ExecConnections:
    """Clients of sandboxes behind sockets of this machine, which hand their connections down: a loop runs one command after another
    in the same sandbox."""

    def __init__(self) -> None:
        self._idle: OrderedDict[Handle, _Transport] = OrderedDict()
        """The one used last is last."""

    def connect(self, handle: Handle) -> ExecClient:
        if not handle.endpoint.startswith("unix:"):
            return ExecClient(handle)
        transport = self._idle.pop(handle, None) or _Transport(handle.endpoint.removeprefix("unix:"))
        return ExecClient(handle, transport=_LentTransport(handle, transport, self))

    async def take_back(self, handle: Handle, transport: "_Transport") -> None:
        others = [self._idle.pop(handle)] if handle in self._idle else []
        self._idle[handle] = transport
        if len(self._idle) > SANDBOX_CONNECTIONS_KEPT_MAX:
            others.append(self._idle.popitem(last=False)[1])
        for other in others:
            await other.aclose()

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.popitem()[1].aclose()


@dataclass(slots=True)
class _LentTransport(httpx.AsyncBaseTransport):
    """A transport that goes back when its client is closed."""

    handle: Handle
    transport: _Transport
    owner: ExecConnections

    @property
    def is_connected(self) -> bool:
        return self.transport.is_connected

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self.transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self.owner.take_back(self.handle, self.transport)


class _Pieces:
    """Bytes by number out of a stream of chunks."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._held = bytearray()

    async def take(self, count: int) -> bytes:
        while len(self._held) < count:
            try:
                self._held += await anext(self._chunks)
            except StopAsyncIteration:
                raise SandboxGone("The container broke off in the middle of its files.") from None
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken


@cache
def _public_tls() -> ssl.SSLContext:
    """For endpoints on the open internet: their certificates are checked."""
    return ssl.create_default_context()


_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, and is not used: loading the usual certificates would take 25 ms for each client."""
_TIMEOUT: Final = httpx.Timeout(EXEC_SILENCE_SECONDS, connect=EXEC_CONNECT_SECONDS).as_dict()
_CONNECTIONS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=8)


def _file(line: dict[str, Any]) -> SandboxFile:
    return SandboxFile(line["path"], line["size"], line["mtime_ns"], line["inode"], line["kind"])


def _listing(files: Iterable[SandboxFile], end: dict[str, Any]) -> FileListing:
    return FileListing(tuple(files), end["complete"], end.get("processes", True))


def _exec_event(line: dict[str, Any]) -> ExecEvent:
    match line["type"]:
        case "exit" | "timeout" | "killed" as outcome:
            return ExecEnded(line["n"], outcome, line["exit_code"], line["truncated_chars"], line["spool_path"])
        case _:
            return _running_event(line)


def _python_event(line: dict[str, Any]) -> PythonEvent:
    match line["type"]:
        case "exit" | "timeout" | "killed" as outcome:
            return PythonEnded(
                n=line["n"],
                outcome=outcome,
                exit_code=line["exit_code"],
                truncated_chars=line["truncated_chars"],
                spool_path=line["spool_path"],
                result=line["result"],
                images=tuple(line["images"]),
                session_started=line["session_started"],
            )
        case _:
            return _running_event(line)


def _running_event(line: dict[str, Any]) -> ExecStarted | ExecOutput | Heartbeat:
    match line["type"]:
        case "started":
            return ExecStarted(line["n"])
        case "output":
            return ExecOutput(line["n"], line["stream"], line["text"])
        case "heartbeat":
            return Heartbeat()
        case other:
            raise SandboxError(f"The container sent an unknown event '{other}'.")


def _refuse_errors(response: httpx.Response) -> None:
    if not response.is_error:
        return
    try:
        error = response.json()["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        code, message = "unreadable", f"The container answered {response.status_code}."
    raise _refusal(code, message)


def _refusal(code: str, message: str) -> SandboxError:
    match code:
        case "unknown_exec" | "forgotten_exec":
            return SandboxGone(message)
        case "no_such_file":
            return SandboxFileMissing(message)
        case "desk_unavailable":
            return DeskUnavailable(message)
        case "desk_not_started":
            return DeskNotStarted(message)
        case "desk_held":
            return DeskHeld(message)
        case _:
            return SandboxError(message)
