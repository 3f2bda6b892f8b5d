"""Places are shared out between tenants: told by a clock that is only counted."""

import asyncio
from contextlib import suppress

from moorage.local.tenant_places import TenantPlaces, share_of

from tests.simulation.clock import run

PLACES = 16


class Work:
    """What begins when, by its tenant."""

    def __init__(self, places: int = PLACES) -> None:
        self.places = TenantPlaces(places)
        self.began: list[tuple[str, float]] = []

    async def of(self, tenant_id: str, seconds: float) -> None:
        async with self.places.place(tenant_id):
            self.began.append((tenant_id, asyncio.get_running_loop().time()))
            await asyncio.sleep(seconds)

    def times_of(self, tenant_id: str) -> list[float]:
        return [at for each, at in self.began if each == tenant_id]


def test_one_tenant_leaves_a_place_to_the_others() -> None:
    async def story() -> None:
        work = Work()
        many = [asyncio.create_task(work.of("many", 240)) for _ in range(10_000)]
        await asyncio.sleep(1)
        await work.of("one", 2)
        assert (len(work.times_of("many")), work.times_of("one")) == (share_of(PLACES), [1.0])
        for task in many:
            task.cancel()

    run(story())


def test_a_place_goes_to_the_tenant_that_has_the_fewest() -> None:
    async def story() -> None:
        work = Work()
        several = [
            asyncio.create_task(work.of(name, seconds)) for name, seconds in (("a", 10), ("b", 20), ("c", 30)) for _ in range(100)
        ]
        await asyncio.sleep(1)
        await asyncio.create_task(work.of("one", 1))
        assert work.times_of("one") == [10.0]
        for task in several:
            task.cancel()

    run(story())


def test_work_of_one_tenant_begins_in_its_order_and_all_of_it() -> None:
    async def story() -> None:
        work = Work(2)
        await asyncio.gather(*(work.of(name, 1) for name in ("a", "a", "b", "a", "b")))
        assert work.began == [("a", 0), ("a", 0), ("b", 1), ("a", 1), ("b", 2)]

    run(story())


def test_who_is_cancelled_takes_no_place() -> None:
    async def story() -> None:
        work = Work(1)
        holding = asyncio.create_task(work.of("a", 5))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(work.of("b", 5)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(4.9999)
        holding.cancel()  # The place goes to the second, which is cancelled in the same moment.
        waiting[1].cancel()
        for task in (holding, *waiting):
            with suppress(asyncio.CancelledError):
                await task
        await work.of("c", 1)
        assert [tenant for tenant, _ in work.began] == ["a", "c"]

    run(story())
