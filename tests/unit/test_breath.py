"""Long work lets others of its event loop in."""

import asyncio
import threading
import time
from contextvars import ContextVar

import orjson
import pytest
from moorage import limits
from moorage.parallel import Breath, as_json, beside, outweighs


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
        (["a" * 255], 1, False),
        (["a" * 256], 1, True),
    ],
)
def test_values_are_counted_as_far_as_the_bound(values: list[object], most: int, holds: bool) -> None:
    assert outweighs(values, most) is holds


async def test_large_inputs_are_worked_on_one_after_the_other() -> None:
    """Of several threads that parse, each would hold the interpreter before the loop has its turn."""
    running, most = 0, 0

    def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.01)  # Long enough for another thread to begin.
        running -= 1
        return str(said.get())

    said: ContextVar[str] = ContextVar("said", default="")
    said.set("its own context")
    assert await asyncio.gather(*(beside(limits.WORKED_ALONE_BYTES_MIN, work) for _ in range(5))) == ["its own context"] * 5
    assert most == 1


@pytest.mark.parametrize("value", [{"a": [1, "é"]}, {"a": "\n" * 2_000_000}], ids=["small", "large"])
async def test_what_is_written_as_json_is_read_again(value: object) -> None:
    assert orjson.loads(await as_json(value)) == value
