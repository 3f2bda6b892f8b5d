"""Work side by side: bounded, in order, and one that fails keeps none of the others from being done."""

import asyncio
from time import perf_counter

import pytest
from moorage import limits
from moorage.parallel import side_by_side


async def test_results_come_in_the_order_of_their_things() -> None:
    async def later(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return number * 2

    assert await side_by_side(later, range(10), at_once=3) == [number * 2 for number in range(10)]


async def test_no_more_run_at_once_than_there_is_room_for() -> None:
    running, most = 0, 0

    async def work(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await side_by_side(work, range(20), at_once=4)
    assert (most, running) == (4, 0)


async def test_one_that_fails_is_told_when_all_others_are_done() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        if number == 0:
            raise ValueError("the first")
        done.append(number)

    with pytest.raises(ValueError, match="the first"):
        await side_by_side(work, range(5), at_once=1)
    assert done == [1, 2, 3, 4]


async def test_work_that_waits_for_nothing_lets_others_in_between() -> None:
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def work(_: int) -> int:
        ends = perf_counter() + limits.LOOP_PIECE_SECONDS
        while perf_counter() < ends:
            pass
        return turns

    watching = asyncio.create_task(watch())
    try:
        seen = await side_by_side(work, range(10), at_once=10)
    finally:
        watching.cancel()
    assert len(set(seen)) == 10, "each in a turn of its own"
