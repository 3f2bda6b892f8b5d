"""Where clients come in: Unix sockets and TCP ports, and the place that each connection comes from.

Sandboxes on this machine share one Unix socket. The kernel tells who connected (``SO_PEERCRED``): the user, which a root launcher
gives to one sandbox alone, and the process, whose ancestors lead to the first process of its pid namespace, which is the sandbox. What
cannot be told (the process has gone) counts as one place for each user. On a network it is the address; each task has its own.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

_BACKLOG: Final = 512
_ANCESTORS_MAX: Final = 256
_CREDENTIALS: Final = struct.Struct("3i")

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def listen(address: str, handle: Handler) -> asyncio.Server:
    """``unix:PATH`` or ``HOST:PORT``."""
    if not address.startswith("unix:"):
        host, _, port = address.rpartition(":")
        return await asyncio.start_server(handle, host, int(port), backlog=_BACKLOG)

    async def handle_named(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handle(reader, _NamedWriter(writer))  # type: ignore[arg-type]

    return await asyncio.start_unix_server(handle_named, sock=_bound(Path(address.removeprefix("unix:"))), backlog=_BACKLOG)


def name_of(listener: asyncio.Server) -> str:
    sock = listener.sockets[0]
    return f"unix:{sock.getsockname()}" if sock.family == socket.AF_UNIX else "{}:{}".format(*sock.getsockname()[:2])


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
    """A Unix connection for mitmproxy, which asks every connection for an address and a port: it gets the place."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._place = (place_of(writer.get_extra_info("socket")), 0)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._place if name in ("peername", "sockname") else self._writer.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def place_of(connection: socket.socket) -> str:
    """The sandbox at the other end of a Unix connection, as well as it can be told."""
    if not hasattr(socket, "SO_PEERCRED"):
        return "unix"
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return f"unix:{uid}:{_sandbox_of(pid)}"


def _sandbox_of(pid: int) -> int:
    """The first process of the pid namespace of ``pid``; 0 for one of our own namespace, and for one that has gone."""
    own_depth = len(_namespaced(_status("self")))
    for _ in range(_ANCESTORS_MAX):
        status = _status(str(pid))
        ids = _namespaced(status)
        if len(ids) <= own_depth:
            return 0
        if len(ids) == own_depth + 1 and ids[-1] == "1":
            return pid
        pid = int(status["PPid"])
    return 0


def _status(pid: str) -> dict[str, str]:
    try:
        lines = Path("/proc", pid, "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _namespaced(status: dict[str, str]) -> list[str]:
    """A process's numbers, from ours to that of its innermost pid namespace (proc(5), ``NSpid``)."""
    return status.get("NSpid", "").split()
