"""Many small pieces of work side by side, so many at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(work: Callable[[T], Awaitable[R]], things: Iterable[T], *, at_once: int) -> list[R]:
    """What ``work`` made of each, in their order. What one raises is raised when all have been tried: one that hangs or fails must not
    keep the others from being done."""
    wanted = list(things)
    if len(wanted) <= 1:
        return [await work(thing) for thing in wanted]
    room = asyncio.Semaphore(at_once)

    async def one(thing: T) -> R:
        async with room:
            return await work(thing)

    results = await asyncio.gather(*(one(thing) for thing in wanted), return_exceptions=True)
    problems = [result for result in results if isinstance(result, BaseException)]
    if problems:
        raise problems[0]
    return [result for result in results if not isinstance(result, BaseException)]
