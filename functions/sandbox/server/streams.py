"""Pipes between the server and a command."""

from __future__ import annotations

import asyncio
import os
from typing import Callable

READ_BYTES = 64 * 1024
DRAIN_BYTES_MAX = 1024 * 1024


class StreamReader:
    """The end of a pipe or a terminal with a command's output."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_data = on_data
        self._on_end = on_end
        self.fd = fd
        os.set_blocking(fd, False)
        self.is_open = True
        loop.add_reader(fd, self._readable)

    def drain(self) -> None:
        """Read the bytes that are there now."""
        left = DRAIN_BYTES_MAX
        while self.is_open and left > 0:
            count = self._readable()
            if count == 0:
                return
            left -= count

    def discard_from_now(self) -> None:
        """Keep reading for a background service that would die of a closed pipe, but forget its output."""
        self._on_data = lambda data: None
        self._on_end = lambda: None

    def _readable(self) -> int:
        try:
            data = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""  # nobody holds the other end of a terminal any more
        if data:
            self._on_data(data)
            return len(data)
        self._loop.remove_reader(self.fd)
        os.close(self.fd)
        self.is_open = False
        self._on_end()
        return 0


class PipeReader(StreamReader):
    """The reading end of a command's stdout or stderr."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        reading_fd, self.writing_fd = os.pipe()
        self.inode = os.fstat(reading_fd).st_ino
        super().__init__(loop, reading_fd, on_data, on_end)

    def close_writing_end(self) -> None:
        os.close(self.writing_fd)


def memory_file(content: bytes) -> int:
    fd = os.memfd_create("command", 0)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
