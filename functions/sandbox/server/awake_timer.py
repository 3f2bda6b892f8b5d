from __future__ import annotations

import asyncio
from typing import Callable

STEP_SECONDS = 5.0
ASLEEP_SECONDS = 10.0
"""A step that is so much too late was interrupted by sleep: a busy server is late by less."""


class AwakeTimer:
    """Calls back after so many seconds in which the sandbox was awake.

    A MicroVM sleeps with its processes, and the monotonic clock jumps on by the time that it slept. A timer of the event loop would
    end each command at waking. So time is counted in steps, and a step that was slept in begins anew: a sleep of less than
    ``ASLEEP_SECONDS`` counts as awake.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._left = seconds
        self._callback = callback
        self._wait()

    def cancel(self) -> None:
        self._handle.cancel()

    def _wait(self) -> None:
        self._step = min(STEP_SECONDS, self._left)
        self._due = self._loop.time() + self._step
        self._handle = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        late = self._loop.time() - self._due
        if late < ASLEEP_SECONDS:
            self._left -= self._step + late
        if self._left > 0:
            self._wait()
        else:
            self._callback()
