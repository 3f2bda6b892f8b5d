"""The exec server: runs commands inside one sandbox and serves its files, over HTTP (protocol 1, see README.md above this folder).

It is the first process of its sandbox, needs nothing but Python 3.9 and knows nothing of the rest. Three ideas carry it:

* **An exec is its list of events** (``transcript.py``): numbered once, kept as bytes, read from any number on.
* **Output is bounded where it arrives** (``transcript.py``): a gigabyte costs the memory of a page.
* **Commands are not trusted.** They cannot read this process (it is not dumpable, its token came through a pipe) nor stop it (it is
  PID 1 and handles no signal of theirs), and if it runs as root they run as somebody else.

``server.py`` knows the protocol, ``execs.py`` what runs and has run, ``workspace.py`` the files.

Run as a folder or a zip of it, ``server --config-fd N``, with a JSON object on that descriptor, or with the object in
``MOORAGE_SANDBOX_CONFIG`` (the server then starts itself anew without that variable, so that no command finds it in ``/proc``), or
``server --config-file PATH``, which waits for that file.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time
from typing import Any, Awaitable, Callable, Coroutine, List, NoReturn, Optional

from configuration import ServerConfig
from forwarder import Forwarder
from owner import Owner
from server import ExecServer
from streams import memory_file

Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEADER_BYTES_MAX = 32 * 1024
PR_GET_DUMPABLE = 3
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
CONFIG_VARIABLE = "MOORAGE_SANDBOX_CONFIG"
FILE_LOOK_SECONDS = 0.1
FORWARDER_PORT = 3128


def main() -> None:
    config = read_config()
    protect(config)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(serve(config, loop))


def read_config() -> ServerConfig:
    if CONFIG_VARIABLE in os.environ:
        start_anew_without_config_in_environment()
    if len(sys.argv) != 3 or sys.argv[1] not in ("--config-fd", "--config-file"):
        raise SystemExit(f"Usage: server --config-fd N, server --config-file PATH, or the configuration in {CONFIG_VARIABLE}")
    if sys.argv[1] == "--config-file":
        while not os.path.exists(sys.argv[2]):
            time.sleep(FILE_LOOK_SECONDS)
    with open(int(sys.argv[2]) if sys.argv[1] == "--config-fd" else sys.argv[2], "rb") as file:
        values = json.loads(file.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null != 0:
        os.close(null)
    return ServerConfig(values)


def start_anew_without_config_in_environment() -> NoReturn:
    environment = dict(os.environ)
    fd = memory_file(environment.pop(CONFIG_VARIABLE).encode())
    os.set_inheritable(fd, True)
    os.execve(sys.executable, [sys.executable, "-I", os.path.abspath(sys.argv[0]), "--config-fd", str(fd)], environment)


def protect(config: ServerConfig) -> None:
    """Close this process to commands of the same user, and take on the duties of PID 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, ctypes.c_ulong(config.closing_key), 0, 0) != 0 or libc.prctl(PR_GET_DUMPABLE) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_DUMPABLE")
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A handler of our own (and not "ignore", which commands would inherit): Python's would raise KeyboardInterrupt in PID 1, at
    # the wish of any command. Signals without a handler do not reach PID 1 from inside its namespace.
    signal.signal(signal.SIGINT, lambda number, frame: None)


async def serve(config: ServerConfig, loop: asyncio.AbstractEventLoop) -> None:
    os.makedirs(config.spool_dir, exist_ok=True)
    server = ExecServer(config, loop)
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, server.reap)
    if config.uid is not None:
        # Commands are another user's and cannot send it; the engine does, to stop the container.
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
    if server.beside is not None:
        server.beside.prepare()
    listener = await listen(config.listen, server)
    forwarder, way_out = None, Forwarder(config.egress)
    if way_out.has_way:
        forwarder = await asyncio.start_server(way_out.forward, "127.0.0.1", FORWARDER_PORT)
    neighbour: Optional[asyncio.AbstractServer] = None
    if config.neighbour_fd is not None:
        neighbour = await asyncio.start_unix_server(server.neighbour.connected, sock=socket.socket(fileno=config.neighbour_fd))
    elif config.neighbour_path:
        neighbour = await listen_at(config.neighbour_path, server.neighbour.connected)
    # Where no command runs, walls alone bound what runs: memory, processes and disk are a browser's.
    watches: List[Coroutine[Any, Any, None]] = [] if config.desk.get("alone") else [server.quota.watch(), server.crowd.watch()]
    owner, control = Owner(server.quota), None
    if config.control_fd is not None:
        watches.append(owner.met(*await asyncio.open_unix_connection(sock=socket.socket(fileno=config.control_fd))))
    elif config.control_path:
        control = await listen_at(config.control_path, owner.met)
    watching = asyncio.gather(*watches)
    await stopping.wait()
    server.stop()
    watching.cancel()
    for each in (listener, forwarder, neighbour, control):
        if each is not None:
            each.close()


async def listen(address: str, server: ExecServer) -> asyncio.AbstractServer:
    kind, _, rest = address.partition(":")
    if kind == "fd":
        return await asyncio.start_unix_server(
            server.connected, sock=socket.socket(fileno=int(rest)), limit=HEADER_BYTES_MAX, backlog=1024
        )
    if kind == "unix":
        return await listen_at(rest, server.connected)
    if kind == "tcp":
        host, _, port = rest.rpartition(":")
        return await asyncio.start_server(server.connected, host, int(port), limit=HEADER_BYTES_MAX, backlog=1024)
    raise ValueError(f"cannot listen on '{address}'")


async def listen_at(path: str, connected: Connected) -> asyncio.AbstractServer:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    # In Docker whoever runs the engine's client is not root. Commands are kept out by the mode of the directory. By the mask and not
    # by chmod, which gVisor refuses on a socket that is shared with its host.
    before = os.umask(0)
    try:
        return await asyncio.start_unix_server(connected, path, limit=HEADER_BYTES_MAX, backlog=1024)
    finally:
        os.umask(before)


if __name__ == "__main__":
    main()
