"""Loaded by every Python process of a stack that is played with: its clock may be set, and its disk may be slow.

``MOORAGE_CHAOS`` names a folder. ``clock`` in it holds seconds that are added to the time of day, ``faults`` how many of a thousand
commits to the store are late: they are read at each use, so that a running stack can be told. ``count`` gets a line for each.
"""

import os
import random
import time
from typing import Any

_FOLDER = os.environ.get("MOORAGE_CHAOS")
_LATE_SECONDS = (0.2, 2.0)


class Told:
    """A number in a file that somebody else writes. It is opened for each use: a copied process closes what it has not opened."""

    def __init__(self, name: str) -> None:
        self._path = f"{_FOLDER}/{name}"

    def __call__(self) -> float:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return float(os.read(descriptor, 32) or b"0")
        finally:
            os.close(descriptor)


def _set_clock(offset: Told) -> None:
    of_day, of_day_ns = time.time, time.time_ns
    time.time = lambda: of_day() + offset()
    time.time_ns = lambda: of_day_ns() + int(offset() * 1e9)


def _slow_disk(rate: Told) -> None:
    from moorage.store import journal

    original = journal._WriteTurn.__enter__
    dice = random.Random(os.environ["MOORAGE_CHAOS_SEED"] + str(os.getpid()))

    def slow(self: Any) -> None:
        if dice.random() * 1000 < rate():
            _note("journal write", "late")
            time.sleep(dice.uniform(*_LATE_SECONDS))
        original(self)

    journal._WriteTurn.__enter__ = slow  # type: ignore[method-assign]


def _note(what: str, fault: str) -> None:
    descriptor = os.open(f"{_FOLDER}/count", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\t{fault}\n".encode())
    os.close(descriptor)


if _FOLDER:
    _set_clock(Told("clock"))
    _slow_disk(Told("faults"))
