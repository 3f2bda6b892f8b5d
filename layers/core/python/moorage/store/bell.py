"""The wake-up for readers of a log on one machine: writers ring after an append, so readers need not poll.

The API listens on a datagram socket beside the executions, and the processes that play the loop send the response's id there. Nothing
relies on it: a bell that is not heard is a log that is looked at a little later.
"""

import asyncio
import os
import socket
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

BELL: Final = "bell.sock"
_ID_BYTES_MAX: Final = 256
_HELD_MIN: Final = 10
"""So many datagrams wait in a socket at least, by Linux's own setting (net.unix.max_dgram_qlen); what comes then is refused."""
_TAKEN_MAX: Final = 1_000
"""At once, so that the loop is not held up."""


class Bell:
    def __init__(self, path: Path) -> None:
        """``path`` is the listener's socket."""
        self._path = path
        self._sender: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @property
    def is_heard(self) -> bool:
        """Whether this process listens."""
        return self._listener is not None

    def listen(self) -> None:
        """Hear the others from now on; one process does. Its socket is of this user's alone."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._listener.bind(str(self._path))
        os.chmod(self._path, 0o600)
        asyncio.get_running_loop().add_reader(self._listener, self._hear)

    def close(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def ring(self, response_id: str) -> None:
        """Something was appended to its log. Never waits, and never fails."""
        if self.is_heard:
            self._wake(response_id)
            return
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with suppress(OSError):  # Nobody listens, or too much waits there already.
            self._sender.sendto(response_id.encode(), str(self._path))

    @contextmanager
    def awaited(self, response_id: str) -> Iterator[asyncio.Event]:
        """An event that is set by each ring for the response."""
        woken = asyncio.Event()
        self._waiting[response_id].add(woken)
        try:
            yield woken
        finally:
            self._waiting[response_id].discard(woken)
            if not self._waiting[response_id]:
                del self._waiting[response_id]

    def _hear(self) -> None:
        assert self._listener is not None
        taken = 0
        with suppress(BlockingIOError):
            while taken < _TAKEN_MAX:
                self._wake(self._listener.recv(_ID_BYTES_MAX).decode(errors="replace"))
                taken += 1
        if taken >= _HELD_MIN:  # It was full: others may have been refused.
            for response_id in tuple(self._waiting):
                self._wake(response_id)

    def _wake(self, response_id: str) -> None:
        for woken in self._waiting.get(response_id, ()):
            woken.set()
