from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, Optional

from awake_timer import AwakeTimer
from health import HealthCounters
from transcript import Transcript

FLUSH_SECONDS = 0.02
"""Output that arrives within this time becomes one event ..."""
FLUSH_CHARS = 16_000
"""... unless it is this much."""
SLOW_FLUSH_SECONDS = 0.5
SLOW_FLUSH_EVENTS = 2_000
"""An exec with more events than this is flushed more seldom, so that single characters do not fill the memory."""


class ExecRecord:
    """One run: a command, or a piece of code in the Python session."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fingerprint: str, timeout_ms: int, transcript: Transcript, vitals: HealthCounters
    ) -> None:
        self.fingerprint = fingerprint
        self.transcript = transcript
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._vitals = vitals
        self._mark = vitals.mark()
        self.leader: Optional[int] = None
        """The process that leads its session, if it has one."""
        self._flush_timer: Optional[asyncio.TimerHandle] = None
        self._timeout_timer: Optional[AwakeTimer] = None
        self._killed_as: Optional[str] = None
        self._is_settled = False
        self._on_finished: Callable[[], None] = lambda: None
        self._kill: Callable[[], None] = lambda: None

    @property
    def is_finished(self) -> bool:
        return self.transcript.is_finished

    @property
    def was_killed(self) -> bool:
        return self._killed_as is not None

    def begin(self, kill: Callable[[], None], on_finished: Callable[[], None]) -> None:
        self._kill = kill
        self._on_finished = on_finished
        self.transcript.started()
        self._mark = self._vitals.mark()
        self._timeout_timer = AwakeTimer(self._loop, self._timeout_ms / 1000, lambda: self.kill("timeout"))

    def settle(self) -> None:
        """Its process has ended; only output is still awaited. From now on it can be neither killed nor timed out."""
        self._is_settled = True

    def kill(self, outcome: str) -> bool:
        """End it early as ``timeout`` or ``killed``; False if it has ended."""
        if self._is_settled or self.is_finished:
            return False
        if self._killed_as is None:
            self._killed_as = outcome
        self._kill()
        return True

    def output(self, stream: str, data: bytes) -> None:
        transcript = self.transcript
        if transcript.is_finished:
            return
        transcript.feed(stream, data)
        if transcript.pending_chars >= FLUSH_CHARS:
            transcript.flush()
        elif transcript.pending_chars and self._flush_timer is None:
            seconds = FLUSH_SECONDS if len(transcript.events) < SLOW_FLUSH_EVENTS else SLOW_FLUSH_SECONDS
            self._flush_timer = self._loop.call_later(seconds, self._flush)

    def finish(self, exit_code: int, extra: Optional[Dict[str, Any]] = None) -> None:
        if self.is_finished:
            return
        for timer in (self._flush_timer, self._timeout_timer):
            if timer is not None:
                timer.cancel()
        news = self._vitals.news_since(self._mark)
        if news:
            self.transcript.feed("stderr", news.encode())
        self.transcript.finish(self._killed_as or "exit", exit_code, extra)
        self._on_finished()

    def _flush(self) -> None:
        self._flush_timer = None
        if not self.is_finished:
            self.transcript.flush()
