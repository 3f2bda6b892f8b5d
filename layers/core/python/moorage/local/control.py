"""What the launcher and the exec server of one sandbox tell each other (``functions/sandbox/server/owner.py``)."""

import asyncio
import contextlib
import json
import socket
from typing import Final

CONTROL_LINE_BYTES_MAX: Final = 4_096


class Control:
    def __init__(self) -> None:
        self._socket, self.servers_end = socket.socketpair()
        self._socket.setblocking(False)
        self._told = ""
        self._line = b""
        self.used = 0
        """What the exec server says that its container holds on the disk."""

    def attach(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._readable)

    def tell(self, reason: str) -> None:
        """Why the container should write no more, empty if it may; nothing is sent twice."""
        if self._told == reason:
            return
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps({"reason": reason}).encode() + b"\n")
            self._told = reason

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self.servers_end.close()

    def _readable(self) -> None:
        data = self._socket.recv(CONTROL_LINE_BYTES_MAX)
        if not data:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self.used = int(json.loads(line)["used"])
