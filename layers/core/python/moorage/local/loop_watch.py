"""A thread that watches the event loop of the API, as the stack watches its children.

A loop that is busy with one piece of work answers nobody, and hears no signal. The thread names the work in the log, tells the loop of
signals, ends the process if it does not obey, and gives a loop up that does not turn for a minute: whoever started the stack starts it
again, and what was stored is taken up. It counts its own looks, so that time in which the whole process was stopped does not count.
"""

import asyncio
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from moorage import limits
from moorage.local.turn_meter import frames
from moorage.telemetry import tell
from moorage.terminal import say

_LOOK_SECONDS: Final = 1.0
GIVEN_UP: Final = 75
"""The exit code: sysexits(3), EX_TEMPFAIL."""
_log = logging.getLogger("moorage.local")

OnSignal = Callable[[int, FrameType | None], None]


class LoopWatch:
    def __init__(self, *, leave: Callable[[int], object] = os._exit, clock: Callable[[], float] = time.time) -> None:
        """``leave`` ends the process at once; children end with it."""
        self._leave = leave
        self._clock = clock
        self._has_turned = True
        self._silent_looks = 0
        self._looks_since_signal: int | None = None
        self._longest: tuple[float, float] | None = None
        """Seconds of the longest silence of late, and when it ended (Unix seconds)."""
        self._loop_thread = threading.get_ident()

    @property
    def late_silence_seconds(self) -> float | None:
        """How long the loop has not turned, at the longest in the last five minutes; None if it did."""
        if self._longest is None or self._clock() - self._longest[1] > limits.LOOP_SILENCE_REMEMBERED_SECONDS:
            return None
        return self._longest[0]

    @contextmanager
    def watching(self, on_signal: OnSignal) -> Iterator[None]:
        """Watch the running loop of this thread; signals to end go to ``on_signal``, by the loop."""
        loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        ours, kernels = socket.socketpair()
        ours.setblocking(False)
        kernels.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _nothing)
        # The kernel's side of a signal writes here, also while the loop's thread is in the middle of something.
        before = signal.set_wakeup_fd(kernels.fileno(), warn_on_full_buffer=False)
        ending = threading.Event()

        def beat() -> None:
            self.turned()
            if not ending.is_set():
                loop.call_later(_LOOK_SECONDS / 2, beat)

        def watch() -> None:
            while not ending.is_set():
                if select.select([ours], [], [], _LOOK_SECONDS)[0]:
                    for number in ours.recv(64):
                        if number in (signal.SIGINT, signal.SIGTERM):
                            self.heard()
                            loop.call_soon_threadsafe(on_signal, number, None)
                else:
                    self.look()

        beat()
        thread = threading.Thread(target=watch, name="loop-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            signal.set_wakeup_fd(before)
            kernels.send(b"\0")
            thread.join(_LOOK_SECONDS)

    def turned(self) -> None:
        """The loop has taken a turn."""
        self._has_turned = True

    def heard(self) -> None:
        """A signal to end has come."""
        if self._looks_since_signal is None:
            self._looks_since_signal = 0

    def look(self) -> None:
        """Once a second."""
        has_turned, self._has_turned = self._has_turned, False
        if has_turned:
            self._end_silence()
            return
        self._silent_looks += 1
        if self._looks_since_signal is not None:
            self._looks_since_signal += 1
        if self._silent_looks == limits.LOOP_SILENCE_TOLD_SECONDS:
            tell("loop_silent", {"seconds": self._silent_looks, "where": frames(self._loop_thread)})
            _log.error("the API's event loop has not turned for %d seconds", self._silent_looks)
        if self._looks_since_signal is not None and self._looks_since_signal >= limits.STOP_LOOP_SECONDS_MAX:
            self._give_up("did not hear the signal to end")
        elif self._silent_looks >= limits.STACK_SILENCE_SECONDS_MAX:
            self._give_up(f"did not turn for {self._silent_looks} seconds")

    def _end_silence(self) -> None:
        if self._silent_looks >= limits.LOOP_SILENCE_TOLD_SECONDS:
            self._longest = max(float(self._silent_looks), self.late_silence_seconds or 0.0), self._clock()
            tell("loop_turns_again", {"seconds": self._silent_looks})
        self._silent_looks = 0

    def _give_up(self, why: str) -> None:
        tell("loop_given_up", {"seconds": self._silent_looks, "where": frames(self._loop_thread)})
        say(f"moorage: The API's event loop {why}, so the stack ends. Start it again: what was stored is taken up.", out=sys.stderr)
        self._leave(GIVEN_UP)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up channel tells of it."""
