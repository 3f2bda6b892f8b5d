"""Large bodies of one tenant have their turn, and those of another one are not kept waiting by them."""

import asyncio

import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.large_bodies import BodiesInWork, answered, left


class Request:
    """It comes, is worked on, and asks a model, which answers when it is told to."""

    def __init__(self, bodies: BodiesInWork, tenant_id: str, size: int, *, is_whole: bool = True) -> None:
        self.state = "new"
        self._is_whole = is_whole
        self._asks, self._ends = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._serve(bodies, tenant_id, size))

    async def _serve(self, bodies: BodiesInWork, tenant_id: str, size: int) -> None:
        with bodies.of(tenant_id) as body:
            await body.count(size)
            self.state = "coming"
            if self._is_whole:
                await body.enter()
                self.state = "in work"
                await self._asks.wait()
                body.leave()
                self.state = "waiting for the model"
            await self._ends.wait()

    def ask(self) -> None:
        self._asks.set()

    async def end(self) -> None:
        self._asks.set()
        self._ends.set()
        await self.task


async def settled(*requests: Request) -> list[str]:
    """Their states when all have gone as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)
    return [request.state for request in requests]


async def test_a_large_body_waits_for_those_of_its_tenant() -> None:
    bodies, whole = BodiesInWork(), limits.TENANT_INPUT_BYTES_MAX
    first, second = Request(bodies, "acme", whole), Request(bodies, "acme", limits.WORKED_HERE_BYTES_MAX + 1)
    small, other = Request(bodies, "acme", limits.WORKED_HERE_BYTES_MAX), Request(bodies, "other", whole)
    assert await settled(first, second, small, other) == ["in work", "coming", "in work", "in work"]
    first.ask()
    assert await settled(first, second) == ["waiting for the model", "in work"]
    for request in (first, second, small, other):
        await request.end()


async def test_long_answers_that_clients_do_not_read_are_bounded() -> None:
    bodies, most = BodiesInWork(), limits.TENANT_INPUT_BYTES_HELD_MAX
    with bodies.of("acme"):
        answered(most, may_refuse=True)
        left()  # As the answer begins.
        with bodies.of("acme"):
            answered(1, may_refuse=False)
        with bodies.of("acme"), pytest.raises(ApiError) as refused:
            answered(1, may_refuse=True)
        with bodies.of("other"):
            answered(most, may_refuse=True)
    assert refused.value.status == 429
    with bodies.of("acme"):
        answered(1, may_refuse=True)


async def test_pieces_of_several_large_bodies_come_at_a_bounded_rate() -> None:
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)

    bodies, second_long = BodiesInWork(sleep), limits.TENANT_INPUT_BYTES_PER_SECOND
    with bodies.of("acme") as one, bodies.of("acme") as another, bodies.of("other") as elsewhere:
        for body, size in [(one, second_long // 10), (another, 1), (elsewhere, second_long // 10), (another, second_long // 10)]:
            await body.count(size)
        assert rests == [pytest.approx(0.2)]
        await one.enter()
        await another.count(second_long // 10)
        assert rests == [pytest.approx(0.2)], "it comes alone"


async def test_bodies_that_fit_together_are_in_work_together() -> None:
    bodies = BodiesInWork()
    first = Request(bodies, "acme", limits.TENANT_INPUT_BYTES_MAX // 2)
    assert await settled(first) == ["in work"]
    second = Request(bodies, "acme", limits.TENANT_INPUT_BYTES_MAX // 2)
    assert await settled(first, second) == ["in work", "in work"]
    for request in (first, second):
        await request.end()


async def test_one_that_goes_away_while_it_waits_gives_up_its_turn() -> None:
    bodies, requests = BodiesInWork(), list[Request]()
    for _ in range(3):
        requests.append(Request(bodies, "acme", limits.TENANT_INPUT_BYTES_MAX))
        await settled()
    first, gone, last = requests
    assert await settled(*requests) == ["in work", "coming", "coming"]
    gone.task.cancel()
    await asyncio.wait({gone.task})
    first.task.cancel()  # A request that fails leaves too.
    assert await settled(last) == ["in work"]
    await last.end()


async def test_too_much_at_once_is_refused_with_the_time_to_try_again() -> None:
    bodies, held = BodiesInWork(), list[Request]()
    while len(held) * limits.REQUEST_BODY_BYTES_MAX < limits.TENANT_INPUT_BYTES_HELD_MAX:
        held.append(Request(bodies, "acme", limits.REQUEST_BODY_BYTES_MAX, is_whole=False))
    await settled()
    one_more = Request(bodies, "acme", 1)
    with pytest.raises(ApiError) as refused:
        await one_more.task
    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "5")
    held.pop().task.cancel()
    await settled()
    later = Request(bodies, "acme", 1)
    assert await settled(later) == ["in work"]
    for request in held:
        request.task.cancel()
    await later.end()
