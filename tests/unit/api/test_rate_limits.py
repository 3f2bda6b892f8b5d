"""Requests and tokens a minute, for each key."""

import pytest
from moorage.api.rate_limits import RateLimits
from moorage.errors import ApiError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_without_limits_nothing_is_counted_or_said(clock: Clock) -> None:
    unlimited = RateLimits(0, 0, clock)
    assert [unlimited.admit("a", 10**9) for _ in range(1000)] == [{}] * 1000


def test_the_headers_tell_what_is_left(clock: Clock) -> None:
    assert RateLimits(60, 1000, clock).admit("a", 400) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1.0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "6.0s",
    }


def test_a_key_that_asks_too_often_waits_and_others_do_not(clock: Clock) -> None:
    limited = RateLimits(2, 0, clock)
    limited.admit("a", 0)
    limited.admit("a", 0)
    with pytest.raises(ApiError) as refusal:
        limited.admit("a", 0)
    assert (refusal.value.status, refusal.value.code, refusal.value.type) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert refusal.value.message == "Rate limit reached for requests: 2 a minute. Try again in 30.0s."
    assert refusal.value.headers == {
        "retry-after": "30",
        "retry-after-ms": "30000",
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "60.0s",
    }
    limited.admit("b", 0)
    clock.now += 30
    limited.admit("a", 0)


def test_tokens_are_limited_too_and_a_refused_request_costs_nothing(clock: Clock) -> None:
    limited = RateLimits(100, 100, clock)
    limited.admit("a", 320)
    with pytest.raises(ApiError, match="for tokens: 100 a minute"):
        limited.admit("a", 200)
    assert limited.admit("a", 80)["x-ratelimit-remaining-requests"] == "98"


def test_a_request_larger_than_the_bucket_passes_when_it_is_full(clock: Clock) -> None:
    limited = RateLimits(0, 100, clock)
    assert limited.admit("a", 10_000)["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(ApiError):
        limited.admit("a", 4)
    clock.now += 60
    assert limited.admit("a", 4)["x-ratelimit-remaining-tokens"] == "99"
