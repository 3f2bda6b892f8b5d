"""Requests and tokens a minute, for each key, over all processes."""

import asyncio

import pytest
from moorage.api.rate_limits import RateLimits
from moorage.errors import ApiError
from moorage.store.rates import Rates

from tests.unit.store.memory import MemoryTable


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table() -> MemoryTable:
    return MemoryTable()


async def admitted(limited: RateLimits, times: int) -> int:
    """How many of so many requests of one key pass."""
    passed = 0
    for _ in range(times):
        try:
            await limited.admit("a", 0)
        except ApiError:
            continue
        passed += 1
    return passed


async def test_without_limits_nothing_is_counted_or_said(clock: Clock, table: MemoryTable) -> None:
    unlimited = RateLimits(0, 0, Rates(table), clock)
    assert [await unlimited.admit("a", 10**9) for _ in range(100)] == [{}] * 100
    assert table.writes == 0


async def test_the_headers_tell_what_is_left(clock: Clock, table: MemoryTable) -> None:
    assert await RateLimits(60, 1000, Rates(table), clock).admit("a", 400) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1.0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "6.0s",
    }


async def test_a_key_that_asks_too_often_waits_and_others_do_not(clock: Clock, table: MemoryTable) -> None:
    limited = RateLimits(2, 0, Rates(table), clock)
    assert await admitted(limited, 2) == 2
    with pytest.raises(ApiError) as refusal:
        await limited.admit("a", 0)
    assert (refusal.value.status, refusal.value.code, refusal.value.type) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert refusal.value.message == "Rate limit reached for requests: 2 a minute. Try again in 30.0s."
    assert refusal.value.headers == {
        "retry-after": "30",
        "retry-after-ms": "30000",
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "60.0s",
    }
    await limited.admit("b", 0)
    clock.now += 30
    await limited.admit("a", 0)


async def test_tokens_are_limited_too_and_a_refused_request_costs_nothing(clock: Clock, table: MemoryTable) -> None:
    limited = RateLimits(100, 100, Rates(table), clock)
    await limited.admit("a", 320)
    with pytest.raises(ApiError, match="for tokens: 100 a minute"):
        await limited.admit("a", 200)
    assert (await limited.admit("a", 80))["x-ratelimit-remaining-requests"] == "98"


async def test_a_request_larger_than_the_bucket_passes_when_it_is_full(clock: Clock, table: MemoryTable) -> None:
    limited = RateLimits(0, 100, Rates(table), clock)
    assert (await limited.admit("a", 10_000))["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(ApiError):
        await limited.admit("a", 4)
    clock.now += 60
    assert (await limited.admit("a", 4))["x-ratelimit-remaining-tokens"] == "99"


# --- several processes ------------------------------------------------------------------------------------------------------------


async def test_processes_share_one_limit(clock: Clock, table: MemoryTable) -> None:
    processes = [RateLimits(10, 0, Rates(table), clock) for _ in range(4)]
    assert sum([await admitted(one, 1) for _ in range(5) for one in processes]) == 10
    clock.now += 6
    assert sum([await admitted(one, 1) for one in processes]) == 1


async def test_processes_that_ask_at_once_never_exceed_the_limit(clock: Clock, table: MemoryTable) -> None:
    """A minute of bursts: what a bucket held and what it gained is the most that may pass, and nearly all of it does."""
    processes = [RateLimits(600, 0, Rates(table), clock) for _ in range(5)]
    passed = 0
    for _ in range(600):
        passed += sum(await asyncio.gather(*(admitted(one, 4) for one in processes)))
        clock.now += 0.1
    assert 0.9 * 1_200 < passed <= 1_200


async def test_where_a_key_asks_often_the_table_is_asked_seldom(clock: Clock, table: MemoryTable) -> None:
    limited = RateLimits(6_000, 0, Rates(table), clock)
    assert await admitted(limited, 1_000) == 1_000
    assert table.writes < 20


async def test_a_refusal_writes_nothing(clock: Clock, table: MemoryTable) -> None:
    limited = RateLimits(1, 0, Rates(table), clock)
    await limited.admit("a", 0)
    writes = table.writes
    assert await admitted(limited, 10) == 0
    assert table.writes == writes


async def test_what_a_process_took_and_did_not_use_is_not_used_later(clock: Clock, table: MemoryTable) -> None:
    limited = RateLimits(600, 0, Rates(table), clock)
    await admitted(limited, 8)  # It has taken 1, 2, 4 and 8 along.
    clock.now += 120
    assert await admitted(limited, 700) == 600


async def test_a_clock_that_is_behind_is_no_way_to_ask_more(clock: Clock, table: MemoryTable) -> None:
    behind = Clock()
    behind.now -= 30
    await admitted(RateLimits(4, 0, Rates(table), clock), 4)
    assert await admitted(RateLimits(4, 0, Rates(table), behind), 4) == 0
