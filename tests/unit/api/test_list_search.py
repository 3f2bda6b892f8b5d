"""Filters of a long list: with what is kept of where what stands they find the same as without, by few requests."""

from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.loop.usage_ledger import keep_due
from moorage.store import keys
from moorage.store.usage_sums import DAY_SECONDS, HOUR_SECONDS

from tests.unit.api.served import Served
from tests.unit.api.test_account import usage
from tests.unit.api.test_response_list import FILTERS, ended, walk
from tests.unit.api.test_usage_sums import at_the_start_of_a_day
from tests.unit.loop.lab import Lab

HAYSTACK = 150


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USAGE_KEPT_ROWS_MIN", 10)
    monkeypatch.setattr(limits, "LIST_FIRST_ENTRIES", 5)
    monkeypatch.setattr(limits, "LIST_STRETCH_GAP_ROWS", 2)


async def reap(served: Served, times: int = 4) -> None:
    """The reaper comes by, as often as it takes."""
    for _ in range(times):
        await keep_due(served.lab.runtime)
        served.lab.now += limits.USAGE_SETTLED_SECONDS


def digests(served: Served) -> list[tuple[int, int]]:
    """Seconds and start of what it is kept of where what stands."""
    found = [sk.split("#") for pk, sk in served.lab.table.records if pk == keys.usage("t") and sk.startswith("LIST#")]
    return sorted((int(seconds), int(start)) for _, seconds, start in found)


async def spread(served: Served, rare: dict[str, Any], *, over: int, step: int = 25) -> list[str]:
    """Many responses over some time, of which some are as nobody else is."""
    begin, wanted = int(served.lab.now), list[str]()
    for number in range(HAYSTACK):
        served.lab.now = begin + number * over // HAYSTACK
        stored = await ended(served.lab, **(rare if number % step == 0 else {}))
        wanted += [stored.response_id] if number % step == 0 else []
    served.lab.now = begin + over
    return wanted


RARE = {**FILTERS, "key": ({"key_id": "key_rare"}, {"key": "key_rare"})}


@pytest.mark.parametrize("name", RARE)
@pytest.mark.parametrize("over", [3 * DAY_SECONDS, 5 * HOUR_SECONDS], ids=["days", "hours of a day"])
async def test_a_filter_finds_the_same_by_what_is_kept(name: str, over: int) -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    rare, query = RARE[name]
    wanted = await spread(served, rare, over=over)
    await usage(served)
    served.lab.now += limits.USAGE_OPEN_SECONDS
    await reap(served)
    assert {seconds for seconds, _ in digests(served)} == ({DAY_SECONDS} if over > DAY_SECONDS else {HOUR_SECONDS})
    for limit in (1, 3, 100):
        assert await walk(served, limit=limit, order="asc", **query) == wanted
        assert await walk(served, limit=limit, **query) == wanted[::-1]
    between = {"created_after": served.lab.now - over * 2 // 3, "created_before": served.lab.now - over // 3}
    in_part = await walk(served, limit=2, **query, **between)
    assert in_part
    assert [each for each in wanted[::-1] if each in in_part] == in_part
    assert await walk(served, **query, model="none") == []


@pytest.mark.parametrize("query", [{"status": "failed"}, {"model": "none"}, {"metadata[team]": "y"}], ids=("status", "model", "tag"))
async def test_a_rare_thing_costs_a_few_requests_however_long_the_list_is(query: dict[str, str]) -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin = int(served.lab.now)
    for day in range(4):
        served.lab.now = begin + day * DAY_SECONDS
        await ended(served.lab, status="failed", metadata={"team": "y"})
        for _ in range(100):
            await ended(served.lab)
    served.lab.now = begin + 4 * DAY_SECONDS + limits.USAGE_OPEN_SECONDS
    await usage(served)
    await reap(served)
    served.lab.table.reads = 0
    page = (await served.get("/responses", **query)).json()
    assert (len(page["data"]), page["has_more"]) == (0 if "model" in query else 4, False)
    assert served.lab.table.reads <= 12, "what runs, the beginning, days, hours of today, one look for each that is found"


async def test_what_runs_and_what_ended_just_now_stands_among_what_is_kept() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    wanted = await spread(served, {"container_id": "cntr_rare"}, over=5 * HOUR_SECONDS)
    served.lab.now += limits.USAGE_OPEN_SECONDS
    running = await served.lab.background(container_id="cntr_rare")
    last = await ended(served.lab, container_id="cntr_rare")
    await usage(served)
    await reap(served)
    wanted += [running.response_id, last.response_id]
    for limit in (2, 100):
        assert await walk(served, limit=limit, order="asc", container="cntr_rare") == wanted
        assert await walk(served, limit=limit, container="cntr_rare") == wanted[::-1]


async def test_what_was_deleted_since_is_not_found() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    wanted = await spread(served, {"status": "failed"}, over=3 * DAY_SECONDS)
    await usage(served)
    served.lab.now += limits.USAGE_OPEN_SECONDS
    await reap(served)
    await served.lab.responses.delete("t", wanted.pop(2))
    assert digests(served)
    assert await walk(served, limit=2, status="failed", order="asc") == wanted


async def test_metadata_of_rows_that_an_older_version_wrote_is_read_from_the_responses() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    wanted = await spread(served, {"metadata": {"team": "y"}}, over=HOUR_SECONDS)
    for record in served.lab.table.records.values():
        if record.get("GSI1PK") == keys.listing("t", "responses"):
            place, response_id, row = record["GSI1SK"].split("#", 2)
            record["GSI1SK"] = f"{place}#{response_id}#{orjson.dumps(orjson.loads(row)[:11]).decode()}"
    assert await walk(served, **{"metadata[team]": "y", "order": "asc"}) == wanted


async def test_once_somebody_has_asked_the_reaper_keeps_what_is_over() -> None:
    served = Served.of(at_the_start_of_a_day(Lab()))
    begin = int(served.lab.now)
    await spread(served, {}, over=HOUR_SECONDS)
    served.lab.now += limits.USAGE_OPEN_SECONDS
    assert await keep_due(served.lab.runtime) == 0, "nobody has asked"
    await usage(served)
    await reap(served)
    assert digests(served) == [(HOUR_SECONDS, begin)]
    assert await keep_due(served.lab.runtime) == 0, "nothing is due before the hour is over"
    await spread(served, {}, over=HOUR_SECONDS)
    served.lab.now += HOUR_SECONDS + limits.USAGE_OPEN_SECONDS
    await reap(served)
    assert len(digests(served)) > 1
    served.lab.table.records = {place: record for place, record in served.lab.table.records.items() if place[0] == keys.usage("t")}
    served.lab.now += HOUR_SECONDS + 100 * DAY_SECONDS
    await reap(served)
    assert [sk for pk, sk in served.lab.table.records if sk == keys.USAGE_FOLLOWED] == [], "of whom nothing is left nobody looks"
