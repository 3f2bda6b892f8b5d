"""The listeners for clients: Unix sockets and TCP ports, and the place of origin of each connection.

Sandboxes on this machine share one Unix socket. The kernel names the peer (``SO_PEERCRED``). A root launcher gives its user to one
sandbox alone. The process leads by its ancestors to the first process of its pid namespace, and so to the sandbox. If the process has
gone, its connections count as one place for each user. On a network the place is the address: each Fargate task has its own. If
sandboxes share an address, a connection may begin with a line that names its container (``moorage/egress/places.py``). One that does
not is the address's, and so are all that say nothing: those wait outside, the latest so many, and take no room from the others.
"""

import asyncio
import socket
import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from moorage import limits
from moorage.egress.places import LINE_BYTES_MAX, PREFACE, place_in

from functions.egress_proxy.admission import Admission

_BACKLOG: Final = 512
_NO_FILES_SECONDS: Final = 0.1
_ANCESTORS_MAX: Final = 256
_CREDENTIALS: Final = struct.Struct("3i")

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class ClientListener:
    """Takes connections from the kernel as they come, and lets them wait in front of ``admission``."""

    def __init__(self, address: str, admission: Admission, handle: Handler, places_key: bytes | None = None) -> None:
        """``address`` is ``unix:PATH`` or ``HOST:PORT``. With ``places_key`` connections over TCP may name their container."""
        self._places_key = places_key
        self._silent: OrderedDict[asyncio.Task[None], None] = OrderedDict()
        """Those that have said nothing yet, the oldest first."""
        self._admission = admission
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._serving: set[asyncio.Task[None]] = set()
        if address.startswith("unix:"):
            self._socket = _bound(Path(address.removeprefix("unix:")))
        else:
            host, _, port = address.rpartition(":")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host.strip("[]"), int(port)), family=family)
        self._socket.listen(_BACKLOG)
        self._socket.setblocking(False)
        self._listen()

    @property
    def name(self) -> str:
        at = self._socket.getsockname()
        return f"unix:{at}" if self._socket.family == socket.AF_UNIX else "{}:{}".format(*at[:2])

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._silent:
            task.cancel()

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(limits.EGRESS_ACCEPTED_AT_ONCE_MAX):
            try:
                connection, at = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # Too many open files: some close meanwhile.
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_NO_FILES_SECONDS, self._listen)
                return
            connection.setblocking(False)
            if connection.family == socket.AF_UNIX:
                self._admission.knock(connection, place_of(connection), self._serve)
            elif self._places_key is None:
                self._admission.knock(connection, at[0], self._serve)
            else:
                self._hear(connection, at[0], self._places_key)

    def _hear(self, connection: socket.socket, address: str, key: bytes) -> None:
        """Let it name its container. A forwarder says so at once; of those that are silent the oldest goes when there are too many."""
        if len(self._silent) >= limits.EGRESS_SILENT_MAX:
            self._silent.popitem(last=False)[0].cancel()
        task = self._loop.create_task(self._preface(connection, address, key))
        self._silent[task] = None
        task.add_done_callback(lambda task: self._silent.pop(task, None))

    async def _preface(self, connection: socket.socket, address: str, key: bytes) -> None:
        said = b""
        try:
            async with asyncio.timeout(limits.EGRESS_HELLO_SECONDS_MAX):
                while may_go_on(said):
                    data = await self._loop.sock_recv(connection, LINE_BYTES_MAX)
                    if not data:
                        break
                    said += data
        except (OSError, TimeoutError):
            connection.close()
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        line, _, rest = said.partition(b"\n")
        container_id = place_in(line, key)
        place, rest = (address, said) if container_id is None else (container_id, rest)
        self._admission.knock(connection, place, lambda connection, place: self._serve(connection, place, rest))

    def _serve(self, connection: socket.socket, place: str, said: bytes = b"") -> None:
        task = self._loop.create_task(self._converse(connection, place, said))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _converse(self, connection: socket.socket, place: str, said: bytes) -> None:
        has_own_address = connection.family != socket.AF_UNIX and self._places_key is None
        reader = asyncio.StreamReader(loop=self._loop)
        reader.feed_data(said)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:
            connection.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        named: Any = writer if has_own_address else _NamedWriter(writer, place)
        await self._handle(reader, named)


def _bound(path: Path) -> socket.socket:
    """A Unix socket at ``path``, in place of one that an earlier proxy left there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    # Whoever reaches the socket still needs a credential; sandboxes run as other users.
    path.chmod(0o666)
    return bound


class _NamedWriter:
    """A connection for mitmproxy. It asks every connection for an address and a port, and gets the place."""

    def __init__(self, writer: asyncio.StreamWriter, place: str) -> None:
        self._writer = writer
        self._place = (place, 0)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._place if name in ("peername", "sockname") else self._writer.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def may_go_on(said: bytes) -> bool:
    """Whether it may still become a line that names a container."""
    return b"\n" not in said and len(said) < LINE_BYTES_MAX and (said.startswith(PREFACE) or PREFACE.startswith(said))


def place_of(connection: socket.socket) -> str:
    """The sandbox at the other end of a Unix connection, as well as it can be told."""
    if not hasattr(socket, "SO_PEERCRED"):
        return "unix"
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return f"unix:{uid}:{_sandbox_of(pid)}"


def _sandbox_of(pid: int) -> int:
    """The first process of the pid namespace of ``pid``; 0 for one of our own namespace, and for one that has gone."""
    own_depth = _own_depth()
    for _ in range(_ANCESTORS_MAX):
        status = _status(str(pid))
        ids = _namespaced(status)
        if len(ids) <= own_depth:
            return 0
        if len(ids) == own_depth + 1 and ids[-1] == "1":
            return pid
        pid = int(status["PPid"])
    return 0


@cache
def _own_depth() -> int:
    return len(_namespaced(_status("self")))


def _status(pid: str) -> dict[str, str]:
    try:
        lines = Path("/proc", pid, "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _namespaced(status: dict[str, str]) -> list[str]:
    """A process's numbers, from ours to that of its innermost pid namespace (proc(5), ``NSpid``)."""
    return status.get("NSpid", "").split()
