"""Long turns of the API's event loop, each with the place where it spent its time (``MOORAGE_LOOP_TURN_MS``).

A turn is what the loop runs between two looks for what is ready: everybody waits for its end. The selector is called once in each, so
it knows where a turn begins and ends. Processor time of the loop's thread is counted, because on a busy machine every turn takes long.
A second thread looks into a long turn while it runs, since afterwards its stack is gone.
"""

import asyncio
import gc
import os
import selectors
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

from moorage.settings import SettingsError
from moorage.telemetry import tell

_FRAMES_MAX: Final = 12
VARIABLE: Final = "MOORAGE_LOOP_TURN_MS"


def frames(thread: int) -> list[str]:
    """The innermost frames of a thread, as ``file:line:function``; never their values."""
    frame: FrameType | None = sys._current_frames().get(thread)
    found = traceback.extract_stack(frame)[-_FRAMES_MAX:] if frame is not None else []
    return [f"{os.path.basename(each.filename)}:{each.lineno}:{each.name}" for each in found]


def turn_ms(environ: Mapping[str, str]) -> float | None:
    """From how many milliseconds of processor time a turn is told; None if nobody wants to know. Raises SettingsError."""
    said = environ.get(VARIABLE)
    if not said:
        return None
    if not said.isdigit() or int(said) == 0:
        raise SettingsError(f"{VARIABLE} takes a whole number of milliseconds from 1, not '{said}'.")
    return float(said)


def event_loop(environ: Mapping[str, str]) -> asyncio.AbstractEventLoop:
    """A new event loop. It reports its long turns if the environment asks for it. Raises SettingsError."""
    long_ms = turn_ms(environ)
    return asyncio.new_event_loop() if long_ms is None else asyncio.SelectorEventLoop(TurnMeter(long_ms))


class TurnMeter(selectors.DefaultSelector):
    def __init__(self, long_ms: float) -> None:
        super().__init__()
        self._long_seconds = long_ms / 1_000
        self._turn = 0
        self._began: float | None = None
        """Processor time of the loop's thread when the turn began; None between two turns."""
        self._collecting = 0.0
        self._collection_began = 0.0
        self._seen: tuple[int, float, Counter[tuple[str, ...]]] = (0, 0.0, Counter())
        """Of the turn that was looked into last: its number, how long it ran at the last look, and the microseconds before each
        look by the stack that it found."""
        self._thread = threading.get_ident()
        self._is_closed = threading.Event()
        gc.callbacks.append(self._collected)
        threading.Thread(target=self._look, name="turn-meter", daemon=True).start()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._end_turn()
        try:
            return super().select(timeout)
        finally:
            self._thread = threading.get_ident()
            self._turn += 1
            self._collecting = 0.0
            self._began = time.thread_time()

    def close(self) -> None:
        self._is_closed.set()
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)
        super().close()

    def _end_turn(self) -> None:
        began, self._began = self._began, None
        if began is None or (took := time.thread_time() - began) < self._long_seconds:
            return
        turn, _, stacks = self._seen
        tell(
            "loop_turn",
            {
                "ms": round(took * 1_000, 1),
                "collecting_ms": round(self._collecting * 1_000, 1),
                "where": stacks.most_common(1)[0][0] if turn == self._turn else None,
            },
        )

    def _look(self) -> None:
        """Sample the loop's frames several times in each long turn."""
        while not self._is_closed.wait(self._long_seconds / 4):
            turn, began = self._turn, self._began
            if began is None:
                continue
            so_far = time.clock_gettime(time.pthread_getcpuclockid(self._thread)) - began
            if so_far >= self._long_seconds / 2:
                _, before, stacks = self._seen if self._seen[0] == turn else (turn, 0.0, Counter[tuple[str, ...]]())
                stacks[tuple(frames(self._thread))] += round((so_far - before) * 1e6)
                self._seen = turn, so_far, stacks

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        """Called by the collector, in any thread: only the loop's own counts are changed here."""
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self._collecting += time.thread_time() - self._collection_began
