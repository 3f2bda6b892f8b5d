"""A server as a part of a process that has more to do when it ends."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator

import uvicorn


class SignalledServer(uvicorn.Server):
    """Returns from a signal: uvicorn's own raises it again. Before it serves, signals have their usual effect."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
