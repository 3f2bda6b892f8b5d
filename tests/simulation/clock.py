"""An event loop in which nobody waits: where every task does, its time jumps to the first that wakes."""

import asyncio
import selectors
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class _Jumping(selectors.DefaultSelector):
    """Without a deadline somebody outside of the loop is waited for, such as a thread, and that is done in earnest."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout > 0:
            self._loop.jump(timeout)
            timeout = 0
        return super().select(timeout)
