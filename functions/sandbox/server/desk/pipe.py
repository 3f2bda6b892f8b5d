"""Chromium's DevTools protocol over two pipes: JSON messages with a null byte at the end of each. There is no port to be found."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from typing import Any, Callable, Dict, Tuple

READ_BYTES = 1024 * 1024
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
FD_FROM = 10
"""The browser wants the pipes as 3 and 4; what it is handed must not be one of these itself."""


class CdpError(Exception):
    """The browser refused a command."""


class BrowserGone(CdpError):
    """The pipe is closed: the browser has ended."""


class CdpPipe:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_event: Callable[[str, str, Dict[str, Any]], None], on_closed: Callable[[], None]
    ) -> None:
        """``on_event`` gets session, method and parameters."""
        self._loop = loop
        self._on_event = on_event
        self._on_closed = on_closed
        self.browser_fds, (self._reading_fd, self._writing_fd) = pipes()
        self._waiting: Dict[int, "asyncio.Future[Dict[str, Any]]"] = {}
        self._last_id = 0
        self._inbox = bytearray()
        self._outbox = bytearray()
        self.is_open = True
        for fd in (self._reading_fd, self._writing_fd):
            os.set_blocking(fd, False)
        loop.add_reader(self._reading_fd, self._readable)

    def close_browser_ends(self) -> None:
        for fd in self.browser_fds:
            os.close(fd)

    def begin(self, method: str, session: str = "", **params: Any) -> "asyncio.Future[Dict[str, Any]]":
        """Send a command; the answers of those that are sent one behind the other come in any order."""
        future: "asyncio.Future[Dict[str, Any]]" = self._loop.create_future()
        # Whoever does not wait for it wants to hear of no error.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not self.is_open:
            future.set_exception(BrowserGone("The browser has ended."))
            return future
        self._last_id += 1
        message: Dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._waiting[self._last_id] = future
        self._outbox += json.dumps(message).encode() + b"\0"
        self._writable()
        return future

    async def ask(self, method: str, session: str = "", *, seconds: float = 10.0, **params: Any) -> Dict[str, Any]:
        """Raises :class:`CdpError`, and :class:`asyncio.TimeoutError` if there is no answer in time."""
        return await asyncio.wait_for(self.begin(method, session, **params), seconds)

    def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        for watched, remove in ((self._reading_fd, self._loop.remove_reader), (self._writing_fd, self._loop.remove_writer)):
            remove(watched)
            os.close(watched)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BrowserGone("The browser has ended."))
        self._waiting.clear()
        self._on_closed()

    def _writable(self) -> None:
        try:
            del self._outbox[: os.write(self._writing_fd, self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._outbox:
            self._loop.add_writer(self._writing_fd, self._writable)
        else:
            self._loop.remove_writer(self._writing_fd)

    def _readable(self) -> None:
        try:
            data = os.read(self._reading_fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._inbox) > MESSAGE_BYTES_MAX:
            self.close()
            return
        begin = len(self._inbox)
        self._inbox += data
        if self._inbox.find(b"\0", begin) < 0:
            return
        *messages, rest = bytes(self._inbox).split(b"\0")
        self._inbox = bytearray(rest)
        for message in messages:
            self._hear(json.loads(message))

    def _hear(self, message: Dict[str, Any]) -> None:
        if "id" not in message:
            self._on_event(message.get("sessionId", ""), message["method"], message.get("params", {}))
            return
        future = self._waiting.pop(message["id"], None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(CdpError(message["error"].get("message", "The browser refused.")))
        else:
            future.set_result(message.get("result", {}))


def pipes() -> Tuple[Tuple[int, int], Tuple[int, int]]:
    """The browser's ends (what it reads, what it writes) and ours (likewise)."""
    browser_reads, we_write = os.pipe()
    we_read, browser_writes = os.pipe()
    for fd in (we_write, we_read):
        with contextlib.suppress(OSError):  # A screenshot is a megabyte.
            fcntl.fcntl(fd, 1031, 1024 * 1024)  # F_SETPIPE_SZ (linux/fcntl.h)
    handed = []
    for fd in (browser_reads, browser_writes):
        handed.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FD_FROM))
        os.close(fd)
    return (handed[0], handed[1]), (we_read, we_write)
