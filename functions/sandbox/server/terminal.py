"""A pseudo-terminal: keys go in, output comes out."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from typing import Callable, Optional

from streams import StreamReader

ROWS, COLUMNS = 40, 120
PAUSE_SECONDS = 0.005


class PseudoTerminal(StreamReader):
    """The end that a person would sit at. A command gets ``command_fd``, the other one, and we keep it open beside the command: a
    terminal whose last holder lets go of it is hung up, and a command that does so before it ends would hear of it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None],
        owner: Optional[int],
    ) -> None:
        """``owner`` is the user of the commands, if it is not ours: programs open their terminal by its name too."""
        fd, self.command_fd = os.openpty()
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        if owner is not None:
            os.fchown(self.command_fd, owner, -1)
        self._lock = asyncio.Lock()
        super().__init__(loop, fd, on_data, on_end)

    def let_go(self) -> None:
        """The command has ended: only processes that it has left hold the terminal now."""
        os.close(self.command_fd)

    async def type(self, data: bytes, deadline: float) -> int:
        """Type as much of it as the program takes until then; how many bytes that were."""
        async with self._lock:
            sent = 0
            while sent < len(data) and self.is_open:
                try:
                    sent += os.write(self.fd, data[sent:])
                except BlockingIOError:
                    if self._loop.time() > deadline:
                        break
                    await asyncio.sleep(PAUSE_SECONDS)
                except OSError:
                    break
            return sent


def take_terminal() -> None:
    """In a new process, the leader of its session: its stdin is its terminal from now on."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
