"""How long a key is one request's, and a lost response its retry's."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from moorage import limits
from moorage.store.idempotency_keys import IdempotencyClaim, IdempotencyKeys
from moorage.store.table import Record

from tests.unit.store.memory import MemoryTable


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repeats(clock: Clock) -> IdempotencyKeys:
    return IdempotencyKeys(MemoryTable(), clock)


def claim(request_id: str, clock: Clock) -> IdempotencyClaim:
    return IdempotencyClaim(request_id, int(clock.now), "digest", response_id=f"resp_{request_id}")


async def test_a_key_is_the_first_requests_of_its_tenant_for_a_day(repeats: IdempotencyKeys, clock: Clock) -> None:
    first = claim("first", clock)
    assert await repeats.claim("ann", "key", first) is None
    clock.now += 24 * 60 * 60 - 1
    assert await repeats.claim("ann", "key", claim("second", clock)) == first
    assert await repeats.claim("bob", "key", claim("theirs", clock)) is None
    clock.now += 1  # The table may take days to remove what has run out.
    assert await repeats.find("ann", "key") is None
    third = claim("third", clock)
    assert await repeats.claim("ann", "key", third) is None
    assert await repeats.find("ann", "key") == third


class Overtaken(MemoryTable):
    """Somebody else acts before its first deletion."""

    before_delete: Callable[[], Awaitable[object]] | None = None

    async def delete(self, pk: str, sk: str, *, condition: Mapping[str, Any] | None = None) -> Record | None:
        hook, self.before_delete = self.before_delete, None
        if hook is not None:
            await hook()
        return await super().delete(pk, sk, condition=condition)


async def test_of_two_that_find_a_key_run_out_one_gets_it(clock: Clock) -> None:
    table = Overtaken()
    repeats = IdempotencyKeys(table, clock)
    await repeats.claim("ann", "key", claim("first", clock))
    clock.now += limits.IDEMPOTENCY_SECONDS
    second, third = claim("second", clock), claim("third", clock)
    table.before_delete = lambda: repeats.claim("ann", "key", second)
    assert await repeats.claim("ann", "key", third) == second
    assert await repeats.find("ann", "key") == second


async def test_a_claim_whose_answer_got_lost_is_still_ones_own(clock: Clock) -> None:
    table = MemoryTable()
    table.lose_answers = 1
    assert await IdempotencyKeys(table, clock).claim("ann", "key", claim("first", clock)) is None


async def test_nobody_but_the_one_who_has_a_key_gives_it_back(repeats: IdempotencyKeys, clock: Clock) -> None:
    first = claim("first", clock)
    await repeats.claim("ann", "key", first)
    await repeats.release("ann", "key", claim("second", clock))
    assert await repeats.find("ann", "key") == first
    await repeats.release("ann", "key", first)
    assert await repeats.find("ann", "key") is None


async def test_a_lost_response_is_one_retrys_and_for_as_long_as_sdks_try(repeats: IdempotencyKeys, clock: Clock) -> None:
    await repeats.leave("ann", "digest", "resp_1")
    await repeats.leave("ann", "digest", "resp_2")
    assert await repeats.adopt("ann", "other") is None
    assert await repeats.adopt("bob", "digest") is None
    assert [await repeats.adopt("ann", "digest") for _ in range(3)] == ["resp_1", "resp_2", None]
    await repeats.leave("ann", "digest", "resp_3")
    clock.now += limits.RETRY_SECONDS_MAX
    assert await repeats.adopt("ann", "digest") is None
