"""Long work lets others of its event loop in."""

import asyncio
import threading
import time
from concurrent.futures import Future
from contextvars import ContextVar

import orjson
import pytest
from moorage import limits
from moorage.parallel import Breath, FairThreads, as_json, beside, outweighs, worked, working_for


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


class Workshop:
    """Work that lasts until it is let go, and who is at it."""

    def __init__(self) -> None:
        self.threads = FairThreads()
        self.begun: list[str] = []
        self._gates: dict[str, threading.Event] = {}

    def send(self, tenant_id: str, name: str, *, is_large: bool = False) -> "Future[str]":
        gate = self._gates[name] = threading.Event()

        def work() -> str:
            self.begun.append(name)
            assert gate.wait(60)
            return name

        return self.threads.begin(tenant_id, work, is_large=is_large)

    def let_go(self, name: str) -> None:
        self._gates[name].set()

    def await_begun(self, *names: str) -> None:
        end = time.monotonic() + 60
        while not set(names) <= set(self.begun):
            assert time.monotonic() < end, self.begun
            time.sleep(0.001)


def test_a_tenant_leaves_threads_to_others() -> None:
    shop = Workshop()
    many = [shop.send("acme", f"acme {number}") for number in range(6)]
    shop.await_begun("acme 0", "acme 1")
    other = shop.send("other", "other 0")
    shop.await_begun("other 0")
    assert sorted(shop.begun) == ["acme 0", "acme 1", "other 0"]
    for name in ["other 0", *(f"acme {number}" for number in range(6))]:
        shop.let_go(name)
    assert [one.result(60) for one in [*many, other]] == [*(f"acme {number}" for number in range(6)), "other 0"]


def test_large_work_is_done_one_at_a_time_and_tenants_take_turns() -> None:
    """Of several threads that parse, each would hold the interpreter before the loop has its turn."""
    shop = Workshop()
    sent = [shop.send("acme", "acme 0", is_large=True)]
    shop.await_begun("acme 0")
    sent += [shop.send("acme", f"acme {number}", is_large=True) for number in (1, 2)]
    sent += [shop.send("other", "other 0", is_large=True), shop.send("other", "small")]
    shop.await_begun("small")
    for name in ("small", "acme 0", "acme 1", "other 0", "acme 2"):
        shop.let_go(name)
    assert {one.result(60) for one in sent} == {"acme 0", "acme 1", "acme 2", "other 0", "small"}
    assert shop.begun == ["acme 0", "small", "acme 1", "other 0", "acme 2"]


def test_work_that_is_given_up_before_its_turn_is_left_out() -> None:
    shop = Workshop()
    first, gone, last = (shop.send("acme", name, is_large=True) for name in ("first", "gone", "last"))
    shop.await_begun("first")
    assert gone.cancel()
    shop.let_go("first")
    shop.let_go("last")
    assert (first.result(60), last.result(60), shop.begun) == ("first", "last", ["first", "last"])


async def test_what_fails_on_a_thread_is_raised_to_who_waits_in_its_own_context() -> None:
    said: ContextVar[str] = ContextVar("said", default="")
    said.set("its own context")

    def fail() -> None:
        raise ValueError(said.get())

    with working_for("acme"), pytest.raises(ValueError, match="its own context"):
        await worked(fail)


@pytest.mark.parametrize("value", [{"a": [1, "é"]}, {"a": "\n" * 2_000_000}], ids=["small", "large"])
async def test_what_is_written_as_json_is_read_again(value: object) -> None:
    assert orjson.loads(await as_json(value)) == value
