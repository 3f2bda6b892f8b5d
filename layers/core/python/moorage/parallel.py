"""Work beside the event loop, and many small pieces of it side by side."""

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from time import perf_counter
from typing import Any, Final, TypeVar

import orjson

from moorage import limits

_ALONE: Final = ThreadPoolExecutor(1, "large")

T = TypeVar("T")
R = TypeVar("R")


async def imported(name: str) -> None:
    """Return when a module is there that takes long to import: on a thread, since neighbours wait for the loop."""
    if name not in sys.modules:
        await asyncio.to_thread(import_module, name)


async def beside(size_bytes: int, work: Callable[[], R]) -> R:
    """What ``work`` answers, of an input of this size: here if it is small, on a thread otherwise. The interpreter lets the loop in
    between two steps of a thread's Python; a single call into C holds it up to its end. So large inputs come one after the other, and
    the loop has its turn between two of them."""
    if size_bytes <= limits.WORKED_HERE_BYTES_MAX:
        return work()
    if size_bytes < limits.WORKED_ALONE_BYTES_MIN:
        return await asyncio.to_thread(work)
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(_ALONE, lambda: run(work))


def outweighs(values: Iterable[Any], most: int) -> bool:
    """Whether more than ``most`` values are in there, a text counting one for each 256 characters: as long as it takes to write them as
    JSON where each is escaped. Looks at no more than that."""
    count, rest = 0, list(values)
    while rest and count <= most:
        value = rest.pop()
        count += 1
        if isinstance(value, str):
            count += len(value) // 256
        elif isinstance(value, dict):
            rest.extend(value.values())
        elif isinstance(value, list | tuple):
            rest.extend(value)
    return count > most


async def as_json(value: Any) -> bytes:
    """Its JSON, written on a thread where that takes long. Nobody may change it meanwhile."""
    if outweighs([value], limits.LOWERED_HERE_MAX):
        return await asyncio.to_thread(orjson.dumps, value)
    return orjson.dumps(value)


class Breath:
    """Lets others of the event loop in, in work that goes on for long without waiting for anything. Tasks may share one."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def taken(self) -> None:
        """Call it often; it gives way after ``LOOP_PIECE_SECONDS`` of work."""
        while perf_counter() - self._since >= limits.LOOP_PIECE_SECONDS:
            before = self._since
            await asyncio.sleep(0)
            if self._since == before:  # Of those who gave way together, the first one begins the next piece.
                self._since = perf_counter()


async def side_by_side(work: Callable[[T], Awaitable[R]], things: Iterable[T], *, at_once: int) -> list[R]:
    """What ``work`` made of each, in their order. What one raises is raised when all have been tried: one that hangs or fails must not
    keep the others from being done."""
    wanted = list(things)
    if len(wanted) <= 1:
        return [await work(thing) for thing in wanted]
    room, breath = asyncio.Semaphore(at_once), Breath()

    async def one(thing: T) -> R:
        async with room:
            await breath.taken()  # On one machine the table answers without a wait.
            return await work(thing)

    results = await asyncio.gather(*(one(thing) for thing in wanted), return_exceptions=True)
    problems = [result for result in results if isinstance(result, BaseException)]
    if problems:
        raise problems[0]
    return [result for result in results if not isinstance(result, BaseException)]
