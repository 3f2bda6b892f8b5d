"""What the server and the owner of its sandbox tell each other: lines of JSON over a socket that no command has.

The owner sees all sandboxes and the machine's disk. It says ``{"reason": text}``: why this container should write no more, empty if it
may. The server says ``{"used": bytes}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

from disk_quota import DiskQuota

LINE_BYTES_MAX = 4_096
REPORT_SECONDS = 0.5


class Owner:
    def __init__(self, fd: int, quota: DiskQuota) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._quota = quota
        self._line = b""

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._socket.fileno(), self._readable, loop)

    async def report(self) -> None:
        """Say what is used, whenever that has changed."""
        told = -1
        while True:
            if self._quota.used != told:
                with contextlib.suppress(OSError):
                    self._socket.send(json.dumps({"used": self._quota.used}).encode() + b"\n")
                    told = self._quota.used
            await asyncio.sleep(REPORT_SECONDS)

    def _readable(self, loop: asyncio.AbstractEventLoop) -> None:
        data = self._socket.recv(LINE_BYTES_MAX)
        if not data:
            loop.remove_reader(self._socket.fileno())
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._quota.hear(message["reason"])
