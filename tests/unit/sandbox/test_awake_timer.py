"""The time of a command does not count the sleep of its MicroVM."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import cast

import pytest
from awake_timer import AwakeTimer
from exec_record import ExecRecord
from health import HealthCounters
from transcript import Transcript


class Loop:
    """An event loop's clock. Timers that came due in sleep are called at waking."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], *arguments: object) -> "Timer":
        timer = Timer(lambda: callback(*arguments))
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: object) -> "Timer":
        return self.call_at(self.now + seconds, callback, *arguments)

    def wakes(self, seconds: float) -> None:
        """The clock goes on while everything works."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            timer.call()
        self.now = end

    def sleeps(self, seconds: float) -> None:
        """The clock goes on while nothing works."""
        self.now += seconds


class Timer:
    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] = call

    def call(self) -> None:
        self._call()

    def cancel(self) -> None:
        self._call = lambda: None


def timer(loop: Loop, seconds: float) -> tuple[AwakeTimer, list[float]]:
    rings: list[float] = []
    return AwakeTimer(cast("asyncio.AbstractEventLoop", loop), seconds, lambda: rings.append(loop.now)), rings


@pytest.mark.parametrize("seconds", [0.05, 5.0, 12.5, 600.0])
def test_without_sleep_it_is_an_ordinary_timer(seconds: float) -> None:
    loop = Loop()
    _, rings = timer(loop, seconds)
    loop.wakes(10_000)
    assert rings == [pytest.approx(1_000 + seconds)]


def test_sleep_does_not_count() -> None:
    loop = Loop()
    _, rings = timer(loop, 60)
    loop.wakes(40)
    loop.sleeps(3_600)
    loop.wakes(19)
    assert rings == []
    loop.wakes(7)
    assert len(rings) == 1


def test_a_short_time_is_not_over_at_waking() -> None:
    loop = Loop()
    _, rings = timer(loop, 3)
    loop.wakes(1)
    loop.sleeps(3_600)
    loop.wakes(2)
    assert rings == []
    loop.wakes(1)
    assert len(rings) == 1


def test_one_that_is_cancelled_never_rings() -> None:
    loop = Loop()
    waiting, rings = timer(loop, 60)
    loop.wakes(30)
    waiting.cancel()
    loop.wakes(100)
    assert rings == []


def test_a_command_lives_through_the_sleep_of_its_machine() -> None:
    loop, killed = Loop(), []
    transcript = cast("Transcript", SilentTranscript())
    record = ExecRecord(cast("asyncio.AbstractEventLoop", loop), "", 60_000, transcript, cast("HealthCounters", Vitals()))
    record.begin(lambda: killed.append(loop.now), lambda: None)
    loop.wakes(10)
    loop.sleeps(3_600)
    loop.wakes(45)
    assert killed == []
    loop.wakes(10)
    assert (len(killed), record.was_killed) == (1, True)


class SilentTranscript:
    is_finished = False

    def started(self) -> None: ...


class Vitals:
    def mark(self) -> int:
        return 0
