"""``make simulate``: the real steps over a table, a model and a container in memory, under one seed and a clock of its own.

A history is one response (``history.py``), or one with a team of agents (``--team``; ``team_history.py``). Its number alone says what
the model says, at which write a process dies, stands still or finds a full disk, which step is delivered twice or late, when somebody
cancels, how far the clock jumps, and what a webhook's receiver answers. After each the same is asked as of real processes: one log
without gap or repeat and with one end, no command begun twice, an object that is what the log adds up to, and a receiver that has taken
the event of that end.

    python -m tests.simulation.simulate --histories 10000 --from 0

Time passes where everybody waits, and only there (``clock.py``). What is wrong is told with the history's number and what is left of
its blows when all that do not matter are left out; ``--only`` plays that.
"""

import argparse
import gc
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import repeat
from typing import Final

from moorage import limits, sealing
from moorage.runtime import relieve_collector
from moorage.store import packing

from tests.chaos.shrink import shrink
from tests.simulation.history import History, played
from tests.simulation.team_history import TeamHistory

_CHUNK: Final = 100
_TOLD_MAX: Final = 20
_YOUNG_OBJECTS: Final = 100_000
"""Some hundred histories make so many that are still there when they end, because they know each other."""
_DEFLATED: Final = 8
"""In the first byte of what zlib has packed."""


def play(number: int, kind: type[History] = History) -> Counter[str]:
    """One history; raises ``AssertionError`` with its number."""
    history, wrong = played(number, None, kind)
    assert wrong is None, f"history {number}: {wrong}"
    return history.seen


def prepare() -> None:
    """For a process that plays histories and does nothing else."""
    limits.SANDBOX_HOST_WAIT_SECONDS = -1  # type: ignore[misc]  # a tool step leaves at once what the state machine waits for
    relieve_collector()
    gc.set_threshold(_YOUNG_OBJECTS)
    # Nobody here weighs a record. All endpoints have the secret that all histories begin with.
    packing._compressed = zlib.compress = _packed  # type: ignore[assignment]
    zlib.decompress = _unpacked(zlib.decompress)  # type: ignore[assignment]
    sealing.unseal = lru_cache(maxsize=1)(sealing.unseal)


def _packed(data: bytes, level: int = 0) -> bytes:
    """As it is, which is neither JSON nor numbers that begin as zlib does."""
    assert not _is_zlibs(data)
    return data


def _unpacked(truly: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """What modules have packed when they were imported was packed truly."""
    return lambda data: truly(data) if _is_zlibs(data) else data


def _is_zlibs(data: bytes) -> bool:
    """Whether it begins as zlib's own does, with any window (RFC 1950, section 2.2)."""
    return data[0] & 0x0F == _DEFLATED


def play_many(numbers: tuple[int, int], kind: type[History]) -> tuple[Counter[str], list[tuple[int, str]]]:
    """What was seen, and which went wrong."""
    seen: Counter[str] = Counter()
    wrong: list[tuple[int, str]] = []
    for number in range(*numbers):
        history, said = played(number, None, kind)
        seen += history.seen
        if said is not None:
            wrong.append((number, said))
    return seen, wrong


def shortest(number: int, kind: type[History] = History) -> tuple[History, str | None]:
    """A history that goes wrong, played with no blow that does not matter."""
    history, said = played(number, (), kind)
    if said is None:
        history, _ = played(number, None, kind)
        kept = shrink(sorted(history.dealt), lambda tasks: played(number, frozenset(tasks), kind)[1] is not None)
        history, said = played(number, frozenset(kept), kind)
    return history, said


def told(number: int, said: str, kind: type[History] = History) -> str:
    history, still = shortest(number, kind)
    only = ",".join(map(str, sorted(history.dealt)))
    blows = [f"  task {task}, {history.states[task].next}: {blow}" for task, blow in sorted(history.dealt.items())]
    again = f"  Again: python -m tests.simulation.simulate{kind.option} --histories 1 --from {number} --only '{only}'"
    return "\n".join([f"history {number}: {said}", *blows, *([] if still == said else [f"  Then: {still}"]), again])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--team", action="store_true", help="of responses with a team of agents")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--only", help="play the first with the blows upon these tasks alone: '3,7'")
    options = parser.parse_args()
    kind = TeamHistory if options.team else History
    if options.only is not None:
        prepare()
        history, said = played(options.first, {int(task) for task in options.only.split(",") if task}, kind)
        print(said or f"nothing is wrong: {dict(history.seen)}")
        return said is not None
    began = time.monotonic()
    starts = range(options.first, options.first + options.histories, _CHUNK)
    seen: Counter[str] = Counter()
    wrong: list[tuple[int, str]] = []
    with ProcessPoolExecutor(os.cpu_count(), initializer=prepare) as pool:
        ends = [*starts[1:], options.first + options.histories]
        for found, errors in pool.map(play_many, zip(starts, ends, strict=True), repeat(kind)):
            seen += found
            wrong += errors
    seconds = time.monotonic() - began
    print(f"{options.histories} histories in {seconds:.0f} s ({options.histories / seconds:.0f} a second): {dict(seen)}")
    prepare()
    for number, said in wrong[:_TOLD_MAX]:
        print(told(number, said, kind))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
