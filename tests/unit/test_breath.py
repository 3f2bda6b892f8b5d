"""Long work lets others of its event loop in."""

import asyncio
import threading
import time

import pytest
from moorage import limits
from moorage.parallel import Breath, beside, outweighs


async def test_long_work_gives_way() -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.ensure_future(other())
    breath = Breath()
    await breath.taken()
    order.append("at once")
    end = time.perf_counter() + limits.LOOP_PIECE_SECONDS
    while time.perf_counter() < end:
        pass
    await breath.taken()
    order.append("after a while")
    await task
    assert order == ["at once", "other", "after a while"]


@pytest.mark.parametrize(("size", "is_here"), [(limits.WORKED_HERE_BYTES_MAX, True), (limits.WORKED_HERE_BYTES_MAX + 1, False)])
async def test_large_work_is_done_beside_the_loop(size: int, is_here: bool) -> None:
    here = threading.get_ident()
    assert (await beside(size, threading.get_ident) == here) is is_here


@pytest.mark.parametrize(
    ("values", "most", "holds"),
    [
        ([], 0, False),
        ([1], 0, True),
        ([{"a": [1, 2]}], 4, False),
        ([{"a": [1, 2]}], 3, True),
        (["a" * 4095], 1, False),
        (["a" * 4096], 1, True),
    ],
)
def test_values_are_counted_as_far_as_the_bound(values: list[object], most: int, holds: bool) -> None:
    assert outweighs(values, most) is holds
