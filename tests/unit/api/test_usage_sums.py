"""Sums of usage that are kept: what they spare, and that they say the same as the list."""

import zlib
from typing import Any

import pytest
from moorage import limits
from moorage.store import keys
from moorage.store.event_log import EventBatch, LogWriterId
from moorage.store.usage_sums import DAY_SECONDS, HOUR_SECONDS, Sums, TimeSpan, hours_of

from tests.unit.api.served import Served
from tests.unit.api.test_account import CODE, SHELL, usage
from tests.unit.api.test_response_list import USAGE, ended
from tests.unit.loop.lab import Lab


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USAGE_KEPT_ROWS_MIN", 2)


def at_the_start_of_a_day(lab: Lab) -> Lab:
    lab.now += DAY_SECONDS - lab.now % DAY_SECONDS
    return lab


async def all_ways(served: Served) -> list[Any]:
    return [await usage(served, group_by=name) for name in ("day", "model", "key", "tool")]


def kept(served: Served) -> list[tuple[int, int]]:
    """Seconds and start of what has sums."""
    records = served.lab.table.records.values()
    found = [record["SK"].split("#") for record in records if record["PK"] == keys.usage("t") and "sums" in record]
    return sorted((int(seconds), int(start)) for seconds, start in found)


async def settle(served: Served) -> None:
    """Ask twice, as long apart as it takes until sums are kept."""
    for _ in range(3):
        await usage(served)
        served.lab.now += limits.USAGE_SETTLED_SECONDS


async def test_hours_become_days_and_all_sums_stay_the_same() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin = int(served.lab.now)
    for model in ("a", "b", "b"):
        await ended(served.lab, output=[SHELL, CODE], model=model)
    served.lab.now = begin + HOUR_SECONDS + 10
    for status in ("completed", "failed"):
        await ended(served.lab, status=status)
    served.lab.now = begin + 2 * HOUR_SECONDS + limits.USAGE_OPEN_SECONDS
    live = await all_ways(served)
    assert kept(served) == []
    await settle(served)
    assert kept(served) == [(HOUR_SECONDS, begin), (HOUR_SECONDS, begin + HOUR_SECONDS)]
    assert await all_ways(served) == live
    served.lab.now = begin + DAY_SECONDS + limits.USAGE_OPEN_SECONDS
    await settle(served)
    assert (DAY_SECONDS, begin) in kept(served)
    assert await all_ways(served) == live


async def test_a_day_that_is_kept_is_not_read_again() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin = int(served.lab.now)
    for _ in range(5):
        await ended(served.lab)
    served.lab.now = begin + DAY_SECONDS + limits.USAGE_OPEN_SECONDS
    await settle(served)
    day = {"from": begin, "to": begin + DAY_SECONDS - 1}
    before = await usage(served, **day)
    served.lab.table.records = {place: record for place, record in served.lab.table.records.items() if place[0] == keys.usage("t")}
    assert await usage(served, **day) == before


async def test_a_deletion_is_counted_in_what_was_kept() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin = int(served.lab.now)
    gone = await ended(served.lab)
    await ended(served.lab)
    served.lab.now = begin + DAY_SECONDS + limits.USAGE_OPEN_SECONDS
    await settle(served)
    assert kept(served) == [(DAY_SECONDS, begin)]
    await served.lab.responses.delete("t", gone.response_id)
    assert kept(served) == []
    assert (await usage(served))[0]["by_status"] == {"completed": 1, "deleted": 1}
    await settle(served)
    assert kept(served) == [(DAY_SECONDS, begin)]
    assert (await usage(served))[0]["by_status"] == {"completed": 1, "deleted": 1}


async def test_sums_that_were_read_before_a_deletion_are_not_kept_after_it() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin = int(served.lab.now)
    gone = await ended(served.lab)
    await ended(served.lab)
    served.lab.now = begin + DAY_SECONDS + limits.USAGE_OPEN_SECONDS
    await usage(served)
    served.lab.now += limits.USAGE_SETTLED_SECONDS
    table, struck = served.lab.table, list[str]()

    async def delete_first(changes: Any) -> None:
        if "sums" in changes and not struck:
            struck.append("it was about to be kept")
            await served.lab.responses.delete("t", gone.response_id)

    table.before_write = delete_first
    await usage(served)
    assert struck
    assert kept(served) == []
    assert (await usage(served))[0]["by_status"] == {"completed": 1, "deleted": 1}


@pytest.mark.parametrize("is_carried", [True, False], ids=["carried by the loop", "in the foreground"])
async def test_a_day_in_which_something_still_runs_is_not_kept_until_that_has_ended(is_carried: bool) -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin, responses = int(served.lab.now), served.lab.responses
    for _ in range(3):
        await ended(served.lab)
    running = served.lab.stored(created_at=begin + 60, is_background=False, is_looping=False)
    await responses.create(running)
    await (responses.hand_over(running) if is_carried else responses.heartbeat(running))
    served.lab.now = begin + 5 * DAY_SECONDS
    await settle(served)
    assert (DAY_SECONDS, begin) not in kept(served)
    response = {"id": running.response_id, "status": "completed", "model": "m", "output": [], "usage": USAGE}
    final = {"type": "response.completed", "response": response, "sequence_number": 0}
    await responses.log_of(running).append(EventBatch(0, (final,), LogWriterId(0, 1)))
    if is_carried:
        await responses.settle(await responses.load("t", running.response_id))
    await settle(served)
    assert (DAY_SECONDS, begin) in kept(served)
    assert (await usage(served))[0]["responses"] == 4


async def test_few_responses_cost_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USAGE_KEPT_ROWS_MIN", 100)
    served = Served.of(at_the_start_of_a_day(Lab()))
    await ended(served.lab)
    served.lab.now += DAY_SECONDS
    await settle(served)
    assert [place for place in served.lab.table.records if place[0] == keys.usage("t")] == []


async def test_what_another_version_has_packed_is_added_up_anew() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin = int(served.lab.now)
    for _ in range(2):
        await ended(served.lab)
    served.lab.now = begin + DAY_SECONDS + limits.USAGE_OPEN_SECONDS
    await settle(served)
    before = await usage(served)
    place = (keys.usage("t"), keys.usage_span(begin, DAY_SECONDS))
    served.lab.table.records[place]["sums"] = zlib.compress(b"[3]")
    assert await usage(served) == before


def test_sums_are_unpacked_as_they_were_packed() -> None:
    assert Sums.unpack(Sums().pack()) == Sums()
    assert hours_of(TimeSpan(DAY_SECONDS, DAY_SECONDS))[-1] == TimeSpan(2 * DAY_SECONDS - HOUR_SECONDS, HOUR_SECONDS)
