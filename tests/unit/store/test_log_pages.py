"""The log's times, and its pages: in both directions, by type, over batches of any length."""

from dataclasses import dataclass, field

import pytest
from moorage import limits
from moorage.store import keys
from moorage.store.event_log import EventBatch, EventLog, LogWriter, LogWriterId, TimestampedEvent
from moorage.wire.types import Event

from tests.unit.store.memory import MemoryBlobs, MemoryTable

ALL: frozenset[str] = frozenset()


@dataclass
class Bench:
    table: MemoryTable = field(default_factory=MemoryTable)
    now: int = 1_000

    def __post_init__(self) -> None:
        self.log = EventLog(self.table, MemoryBlobs(), "t", "resp_1", expires_at=2_000, now_ms=lambda: self.now)

    async def fill(self, *lengths: int) -> None:
        """Batches of these lengths; every third event is of another type."""
        first = 0
        for length in lengths:
            events = tuple(_event(first + i) for i in range(length))
            await self.log.append(EventBatch(first, events, LogWriterId(0, 1)))
            first += length

    async def walk(self, *, limit: int, descending: bool, types: frozenset[str] = ALL) -> list[list[int]]:
        """The numbers of all pages."""
        pages, after = [], None
        while True:
            told, after = await self.log.page(after=after, limit=limit, descending=descending, types=types)
            pages.append([each.event["sequence_number"] for each in told])
            if after is None:
                return pages


def _event(number: int) -> Event:
    return {"type": "rare" if number % 3 == 0 else "delta", "sequence_number": number}


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_events_keep_the_time_at_which_they_were_said_and_not_that_of_their_batch(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)
    for now in (1_000, 1_250, 1_200, 90_000):
        bench.now = now
        writer.add({"type": "delta"})
    bench.now = 95_000
    await writer.flush()
    (batch,) = await bench.log.read_from(0)
    assert (batch.at_ms, batch.times) == (95_000, (1_000, 1_250, 1_200, 90_000))
    told, _ = await bench.log.page(after=1, limit=9, descending=False, types=ALL)
    assert told == [
        TimestampedEvent({"type": "delta", "sequence_number": 2}, 1_200),
        TimestampedEvent({"type": "delta", "sequence_number": 3}, 90_000),
    ]


async def test_a_batch_of_an_older_version_gives_its_events_its_own_time(bench: Bench) -> None:
    await bench.fill(2)
    assert "times" not in bench.table.records[keys.response("t", "resp_1"), keys.event(0)]
    told, _ = await bench.log.page(after=None, limit=9, descending=True, types=ALL)
    assert [each.at_ms for each in told] == [1_000, 1_000]


@pytest.mark.parametrize("lengths", [(9,), (1,) * 9, (2, 5, 1, 1), (8, 1)])
@pytest.mark.parametrize("limit", [1, 2, 3, 9, 20])
async def test_pages_hold_every_event_once_in_either_direction(bench: Bench, lengths: tuple[int, ...], limit: int) -> None:
    await bench.fill(*lengths)
    forwards = await bench.walk(limit=limit, descending=False)
    backwards = await bench.walk(limit=limit, descending=True)
    assert [number for page in forwards for number in page] == list(range(9))
    assert [number for page in backwards for number in page] == list(reversed(range(9)))
    assert {len(page) for page in forwards[:-1]} | {len(page) for page in backwards[:-1]} <= {limit}


async def test_a_filter_finds_its_types_on_all_pages(bench: Bench) -> None:
    await bench.fill(4, 1, 5, 10)
    for descending in (False, True):
        pages = await bench.walk(limit=2, descending=descending, types=frozenset({"rare"}))
        assert sorted(number for page in pages for number in page) == [0, 3, 6, 9, 12, 15, 18]


async def test_a_page_looks_at_a_bounded_part_of_the_log_and_says_where_to_go_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENTS_READ_BATCHES", 4)
    monkeypatch.setattr(limits, "EVENTS_PAGE_BATCHES_MAX", 8)
    await bench.fill(*(1,) * 30)
    told, going_on = await bench.log.page(after=None, limit=5, descending=False, types=frozenset({"nothing"}))
    assert (told, going_on) == ([], 7)
    pages = await bench.walk(limit=5, descending=False, types=frozenset({"rare"}))
    assert [number for page in pages for number in page] == list(range(0, 30, 3))


async def test_the_log_of_nothing_has_one_empty_page(bench: Bench) -> None:
    assert (await bench.walk(limit=5, descending=False), await bench.walk(limit=5, descending=True)) == ([[]], [[]])
