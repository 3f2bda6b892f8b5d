"""What systemd is told of the stack over the socket that it names: ready, alive, ending (sd_notify(3)).

The stack watches its children; nobody inside it can see that the stack itself is stopped or hangs. A unit with ``WatchdogSec`` kills a
service that has been silent for so long, and starts it again.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Final, Self

from moorage.dataclass import dataclass

_SOCKET: Final = "NOTIFY_SOCKET"
_MICROSECONDS: Final = "WATCHDOG_USEC"
_PID: Final = "WATCHDOG_PID"


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """``address`` is None if nobody listens, ``watchdog_seconds`` if nobody counts."""

    address: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def taken_from(cls, environ: MutableMapping[str, str]) -> Self:
        """Takes the variables out, so that no child speaks for the stack."""
        address, microseconds, pid = (environ.pop(name, "") for name in (_SOCKET, _MICROSECONDS, _PID))
        is_meant = pid in ("", str(os.getpid()))
        return cls(address or None, int(microseconds) / 1e6 if microseconds.isdecimal() and is_meant else None)

    def tell(self, state: str) -> None:
        """A state such as ``READY=1``. A manager that is gone or has no room is not waited for: it asks nothing of the stack."""
        if self.address is None:
            return
        name = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
            channel.setblocking(False)
            channel.sendto(state.encode(), name)

    async def keep_told(self) -> None:
        """That the event loop turns, twice in each of its spans, until cancelled."""
        while self.watchdog_seconds:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 2)
