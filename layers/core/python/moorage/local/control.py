"""The messages between the owner of a sandbox and its exec server (``functions/sandbox/server/owner.py``)."""

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Final, Self

CONTROL_LINE_BYTES_MAX: Final = 4_096


class Control:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.setblocking(False)
        self._told = ""
        self._line = b""
        self.used = 0
        """What the exec server says that its container holds on the disk."""
        self.is_closed = False

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """With the server's end, to be handed over."""
        ours, servers = socket.socketpair()
        return cls(ours), servers

    @classmethod
    def met(cls, path: Path) -> Self:
        """With the server that listens at ``path``. Raises :class:`OSError` if none does."""
        connecting = socket.socket(socket.AF_UNIX)
        try:
            connecting.setblocking(False)
            connecting.connect(str(path))
        except OSError:
            connecting.close()
            raise
        return cls(connecting)

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
        if self.is_closed:
            return
        self.is_closed = True
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    def _readable(self) -> None:
        """A server that has ended, or sends an unknown message, is heard no more."""
        try:
            data = self._socket.recv(CONTROL_LINE_BYTES_MAX)
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self.used = max(0, int(json.loads(line)["used"]))
        except (OSError, ValueError, KeyError, TypeError):
            data = b""
        if not data or len(self._line) > CONTROL_LINE_BYTES_MAX:
            self.close()
