"""The event log: two writers, peers, predecessors and lost answers, on a table in memory."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from moorage import limits
from moorage.errors import ConditionFailed, Superseded
from moorage.store import keys
from moorage.store.event_log import (
    STEP_OF_THE_END,
    EventBatch,
    EventLog,
    LogWriter,
    LogWriterId,
    OutputPlaces,
    PendingEvent,
    WriterConflict,
    meet,
    taken_over,
)
from moorage.store.table import Record, Write
from moorage.wire.types import Event

from tests.unit.store.memory import MemoryBlobs, MemoryTable


@dataclass
class Bench:
    table: MemoryTable = field(default_factory=MemoryTable)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)

    def __post_init__(self) -> None:
        self.log = EventLog(self.table, self.blobs, "t", "resp_1", expires_at=2_000, now_ms=lambda: 1_000)

    async def numbers(self) -> list[int]:
        return [event["sequence_number"] for event in await self.log.read_all()]

    async def said(self) -> list[str]:
        return [event["delta"] for event in await self.log.read_all()]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def event(text: str = "x", type_: str = "response.output_text.delta") -> Event:
    return {"type": type_, "delta": text}


def numbered(first: int, *texts: str, type_: str = "response.output_text.delta") -> tuple[Event, ...]:
    return tuple(event(text, type_) | {"sequence_number": first + i} for i, text in enumerate(texts))


def batch(writer: LogWriterId, *, is_final: bool = False) -> EventBatch:
    return EventBatch(0, numbered(0, "x", type_="response.completed" if is_final else "response.output_text.delta"), writer)


@pytest.mark.parametrize(
    ("situation", "mine", "other", "expected"),
    [
        ("I see my own put, whose answer was lost", LogWriterId(2, 1), batch(LogWriterId(2, 1)), WriterConflict.MYSELF),
        ("a later step has begun", LogWriterId(2, 1), batch(LogWriterId(3, 1)), WriterConflict.SUPERSEDED),
        ("a later step has begun, however often I was tried", LogWriterId(2, 9), batch(LogWriterId(3, 1)), WriterConflict.SUPERSEDED),
        ("a higher attempt of my step runs", LogWriterId(2, 1), batch(LogWriterId(2, 2)), WriterConflict.SUPERSEDED),
        ("a dead attempt of my step wrote late", LogWriterId(2, 2), batch(LogWriterId(2, 1)), WriterConflict.PREDECESSOR),
        ("another call of my step writes", LogWriterId(2, 1, "a"), batch(LogWriterId(2, 5, "b")), WriterConflict.PEER),
        ("a higher attempt of my call runs", LogWriterId(2, 1, "a"), batch(LogWriterId(2, 2, "a")), WriterConflict.SUPERSEDED),
        ("a dead attempt of my call wrote late", LogWriterId(2, 2, "a"), batch(LogWriterId(2, 1, "a")), WriterConflict.PREDECESSOR),
        ("the model step before my call wrote late", LogWriterId(2, 1, "a"), batch(LogWriterId(2, 1)), WriterConflict.PEER),
        ("an earlier step wrote late", LogWriterId(2, 1), batch(LogWriterId(1, 4, "a")), WriterConflict.PEER),
        ("the response was ended from outside", LogWriterId(2, 1), batch(LogWriterId(STEP_OF_THE_END, 1)), WriterConflict.SUPERSEDED),
        ("an earlier step wrote the end", LogWriterId(2, 1), batch(LogWriterId(1, 1), is_final=True), WriterConflict.SUPERSEDED),
        ("a dead attempt of mine wrote the end", LogWriterId(2, 2), batch(LogWriterId(2, 1), is_final=True), WriterConflict.SUPERSEDED),
        (
            "my own end was applied although its answer was lost",
            LogWriterId(2, 1),
            batch(LogWriterId(2, 1), is_final=True),
            WriterConflict.MYSELF,
        ),
    ],
)
def test_a_writer_knows_what_to_do_about_another(
    situation: str, mine: LogWriterId, other: EventBatch, expected: WriterConflict
) -> None:
    assert meet(mine, other) == expected, situation


def test_a_writer_goes_on_behind_the_log_unless_it_is_superseded() -> None:
    me = LogWriterId(2, 2)
    earlier = [EventBatch(0, numbered(0, "a"), LogWriterId(1, 1)), EventBatch(1, numbered(1, "b", "c"), LogWriterId(2, 1))]
    assert (taken_over(me, []), taken_over(me, earlier)) == (0, 3)
    for later in (LogWriterId(2, 3), LogWriterId(3, 1)):
        with pytest.raises(Superseded):
            taken_over(me, [*earlier, EventBatch(3, numbered(3, "d"), later), EventBatch(4, numbered(4, "e"), LogWriterId(2, 1))])
    with pytest.raises(Superseded):
        taken_over(me, [*earlier, batch(LogWriterId(2, 1), is_final=True)])


async def test_a_batch_comes_back_as_it_was_written(bench: Bench) -> None:
    written = EventBatch(0, numbered(0, "a", "ü"), LogWriterId(3, 2, "call_1"), {"0": 7})
    await bench.log.append(written)
    assert await bench.log.read_from(0) == [EventBatch(0, written.events, written.writer, {"0": 7}, at_ms=1_000)]


async def test_a_slot_takes_one_batch(bench: Bench) -> None:
    await bench.log.append(EventBatch(0, numbered(0, "a", "b", "c"), LogWriterId(0, 1)))
    with pytest.raises(ConditionFailed):
        await bench.log.append(EventBatch(0, numbered(0, "other"), LogWriterId(0, 2)))
    assert await bench.said() == ["a", "b", "c"]


async def test_a_large_batch_lies_in_the_bucket_and_reads_like_any_other(bench: Bench) -> None:
    noise = random.Random(7).randbytes(limits.ITEM_INLINE_BYTES_MAX).hex()
    await bench.log.append(EventBatch(0, numbered(0, noise), LogWriterId(0, 1)))
    (record,) = bench.table.records.values()
    assert ("body" in record, record["blob"] in bench.blobs.objects) == (False, True)
    assert await bench.said() == [noise]


@pytest.mark.parametrize("after", range(-1, 8))
async def test_reading_after_a_number_begins_with_the_batch_that_holds_the_next(bench: Bench, after: int) -> None:
    for first, texts in ((0, "abc"), (3, "d"), (4, "efgh")):
        await bench.log.append(EventBatch(first, numbered(first, *texts), LogWriterId(0, 1)))
    got = [e["delta"] for b in await bench.log.read_after(after) for e in b.events if e["sequence_number"] > after]
    assert "".join(got) == "abcdefgh"[after + 1 :]


async def test_reading_an_empty_log_finds_nothing(bench: Bench) -> None:
    assert (await bench.log.read_after(-1), await bench.log.read_all()) == ([], [])


# --- one writer -----------------------------------------------------------------------------------------------------------------


async def test_a_writer_numbers_its_events_and_remembers_its_offsets(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(1, 1, "a"), 0)
    writer.add(event("one"), offset=(0, 4))
    writer.add(event("two"))
    await writer.flush()
    writer.add(event("three"), offset=(1, 2))
    await writer.flush()
    assert [(b.first, [e["delta"] for e in b.events], b.offsets) for b in await bench.log.read_from(0)] == [
        (0, ["one", "two"], {"0": 4}),
        (2, ["three"], {"0": 4, "1": 2}),
    ]


async def test_a_flush_of_nothing_writes_nothing(bench: Bench) -> None:
    await LogWriter(bench.log, LogWriterId(0, 1), 0).flush()
    assert bench.table.writes == 0


async def test_a_flush_is_due_when_enough_has_come(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)
    writer.add(event("x" * 100))
    few = writer.is_due
    writer.add(event("x" * limits.BATCH_EVENTS_BYTES_MAX))
    assert (few, writer.is_due) == (False, True)


async def test_command_output_counts_towards_a_flush_that_is_due(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(0, 1, "a"), 0)
    writer.add({"type": "response.shell_call_output_content.delta", "delta": {"stdout": "x" * limits.BATCH_EVENTS_BYTES_MAX}})
    assert writer.is_due


async def test_a_put_that_was_applied_although_its_answer_was_lost_counts_once(bench: Bench) -> None:
    bench.table.lose_answers = 1
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)
    writer.add(event("a"))
    writer.add(event("b"))
    await writer.flush()
    writer.add(event("c"))
    await writer.flush()
    assert (await bench.said(), await bench.numbers()) == (["a", "b", "c"], [0, 1, 2])


async def test_a_peer_that_wrote_behind_a_lost_answer_is_skipped_too(bench: Bench) -> None:
    mine = LogWriter(bench.log, LogWriterId(0, 1, "a"), 0)
    peer = LogWriter(bench.log, LogWriterId(0, 1, "b"), 0)
    bench.table.lose_answers = 1
    put = MemoryTable.put

    async def peer_follows(record: Record) -> None:
        """The SDK's second try comes after the peer's batch."""

    mine.add(event("mine"))
    bench.table.before_write = peer_follows
    with pytest.raises(ConditionFailed):
        await put(bench.table, await bench.log.record(EventBatch(0, numbered(0, "mine"), mine.writer)), if_absent=True)
    peer.next_number = 1
    peer.add(event("peer"))
    await peer.flush()
    await mine.flush()
    mine.add(event("more"))
    await mine.flush()
    assert (await bench.said(), await bench.numbers()) == (["mine", "peer", "more"], [0, 1, 2])


# --- two writers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mine", "theirs"), [(1, 5), (5, 1), (3, 3)])
async def test_batches_of_different_length_never_overlap(bench: Bench, mine: int, theirs: int) -> None:
    a, b = (LogWriter(bench.log, LogWriterId(0, 1, name), 0) for name in "ab")
    for writer, name, count in ((a, "a", mine), (b, "b", theirs)):
        for i in range(count):
            writer.add(event(f"{name}{i}"))
    await asyncio.gather(a.flush(), b.flush())
    said = await bench.said()
    assert await bench.numbers() == list(range(mine + theirs))
    assert [text for text in said if text[0] == "a"] == [f"a{i}" for i in range(mine)]
    assert [text for text in said if text[0] == "b"] == [f"b{i}" for i in range(theirs)]


@pytest.mark.parametrize("seed", range(20))
async def test_peers_interleave_without_gap_or_loss_whatever_the_order(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)

    async def pause(record: Record) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    bench.table.before_write = pause
    writers = {name: LogWriter(bench.log, LogWriterId(4, 1, name), 0) for name in "abc"}
    sent: dict[str, list[str]] = {name: [] for name in writers}

    async def run(name: str) -> None:
        for i in range(12):
            for _ in range(chance.randrange(1, 4)):
                sent[name].append(f"{name}{i}")
                writers[name].add(event(f"{name}{i}"))
            await writers[name].flush()

    await asyncio.gather(*map(run, writers))
    said = await bench.said()
    assert await bench.numbers() == list(range(len(said)))
    assert {name: [text for text in said if text[0] == name] for name in writers} == sent


# --- the end of a step ------------------------------------------------------------------------------------------------------------


def ended(following: int, _places: OutputPlaces | None) -> Write:
    return Write("p", "step", set={"following": following}, absent=("ended",))


async def step_record(bench: Bench) -> Record | None:
    return await bench.table.get("p", "step")


async def test_the_record_of_a_step_follows_its_last_events(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)
    writer.add(event("a"))
    writer.add(event("b"))
    assert await writer.conclude(ended)
    assert (await bench.said(), await step_record(bench)) == (["a", "b"], {"PK": "p", "SK": "step", "following": 2})


async def test_a_step_without_events_left_has_its_record_alone(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)
    writer.add(event("a"))
    await writer.flush()
    assert await writer.conclude(ended)
    assert (await bench.said(), await step_record(bench)) == (["a"], {"PK": "p", "SK": "step", "following": 1})


async def test_the_record_of_a_step_knows_of_a_peer_that_was_faster(bench: Bench) -> None:
    mine, peer = (LogWriter(bench.log, LogWriterId(0, 1, name), 0) for name in "ab")
    peer.add(event("peer"))
    await peer.flush()
    mine.add(event("mine"))
    assert await mine.conclude(ended)
    assert (await bench.said(), await step_record(bench)) == (["peer", "mine"], {"PK": "p", "SK": "step", "following": 2})


async def test_the_record_of_a_step_follows_a_put_whose_answer_was_lost(bench: Bench) -> None:
    bench.table.lose_answers = 1
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)
    writer.add(event("a"))
    assert await writer.conclude(ended)
    assert (await bench.said(), await step_record(bench)) == (["a"], {"PK": "p", "SK": "step", "following": 1})


async def test_a_step_that_is_superseded_has_no_record(bench: Bench) -> None:
    old, new = LogWriter(bench.log, LogWriterId(2, 1), 0), LogWriter(bench.log, LogWriterId(2, 2), 0)
    new.add(event("new"))
    await new.flush()
    old.add(event("old"))
    with pytest.raises(Superseded):
        await old.conclude(ended)
    assert (await bench.said(), await step_record(bench)) == (["new"], None)


@pytest.mark.parametrize("texts", [(), ("late",)])
async def test_a_record_that_another_run_has_ended_stays(bench: Bench, texts: tuple[str, ...]) -> None:
    there = {"PK": "p", "SK": "step", "ended": True}
    await bench.table.put(there)
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)
    for text in texts:
        writer.add(event(text))
    assert not await writer.conclude(ended)
    assert (await bench.said(), await step_record(bench)) == ([*texts], there)


async def test_a_superseded_writer_stops_and_writes_nothing_more(bench: Bench) -> None:
    old, new = LogWriter(bench.log, LogWriterId(2, 1), 0), LogWriter(bench.log, LogWriterId(2, 2), 0)
    new.add(event("new"))
    await new.flush()
    old.add(event("old"))
    with pytest.raises(Superseded):
        await old.flush()
    assert await bench.said() == ["new"]


async def test_a_writer_stops_at_the_end_of_the_response_even_behind_a_peer(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(2, 1, "a"), 0)
    await bench.log.append(EventBatch(0, numbered(0, "peer"), LogWriterId(2, 1, "b")))
    await bench.log.append(EventBatch(1, numbered(1, "end", type_="response.incomplete"), LogWriterId(STEP_OF_THE_END, 1)))
    writer.add(event("late"))
    with pytest.raises(Superseded):
        await writer.flush()
    assert await bench.said() == ["peer", "end"]


async def test_a_late_predecessor_is_folded_in_and_stops_at_its_next_put(bench: Bench) -> None:
    met: list[EventBatch] = []

    def fold_in(late: EventBatch, pending: list[PendingEvent]) -> list[PendingEvent]:
        met.append(late)
        return [each for each in pending if all(n > late.offsets.get(i, -1) for i, n in each.offset.items())]

    old = LogWriter(bench.log, LogWriterId(2, 1, "a"), 0)
    new = LogWriter(bench.log, LogWriterId(2, 2, "a"), 0, on_predecessor=fold_in)
    old.add(event("line 0"), offset=(0, 0))
    await old.flush()
    new.next_number = 1
    old.add(event("line 1"), offset=(0, 1))  # Written late: the new attempt has looked already.
    await old.flush()
    new.add(event("line 1"), offset=(0, 1))
    new.add(event("line 2"), offset=(0, 2))
    await new.flush()
    old.add(event("line 2"), offset=(0, 2))
    with pytest.raises(Superseded):
        await old.flush()
    assert await bench.said() == ["line 0", "line 1", "line 2"]
    assert [late.writer for late in met] == [LogWriterId(2, 1, "a")]


async def test_a_late_predecessor_may_have_written_items_that_the_next_run_does_not_know(bench: Bench) -> None:
    met: list[Event] = []

    def fold_in(late: EventBatch, pending: list[PendingEvent]) -> list[PendingEvent]:
        met.extend(late.events)
        return []

    old = LogWriter(bench.log, LogWriterId(2, 1), 0, places=OutputPlaces("/root", 7))
    new = LogWriter(bench.log, LogWriterId(2, 2), 0, on_predecessor=fold_in, places=OutputPlaces("/root", 7, {0: 3}))
    old.add({"type": "response.output_item.added", "output_index": 1, "item": {}})
    await old.flush()
    new.add(event("late") | {"output_index": 0})
    await new.flush()
    agent = {"agent": {"agent_name": "/root"}}
    assert met == [{"type": "response.output_item.added", "item": agent, **agent, "sequence_number": 0}]
    assert (new.next_number, new.places) == (1, OutputPlaces("/root", 8, {0: 3}))


async def test_a_predecessor_without_an_answer_to_it_is_stepped_over(bench: Bench) -> None:
    await bench.log.append(EventBatch(0, numbered(0, "old"), LogWriterId(2, 1)))
    new = LogWriter(bench.log, LogWriterId(2, 2), 0)
    new.add(event("new"))
    await new.flush()
    assert await bench.said() == ["old", "new"]


async def test_when_the_predecessor_had_written_everything_nothing_is_left_to_write(bench: Bench) -> None:
    await bench.log.append(EventBatch(0, numbered(0, "line"), LogWriterId(2, 1, "a"), {"0": 5}))
    new = LogWriter(bench.log, LogWriterId(2, 2, "a"), 0, on_predecessor=lambda late, pending: [])
    new.add(event("line"), offset=(0, 5))
    await new.flush()
    assert (await bench.said(), new.next_number) == (["line"], 1)


async def test_two_attempts_that_race_leave_one_winner(bench: Bench) -> None:
    for seed in range(30):
        race = Bench()
        chance = random.Random(seed)
        pauses = iter([chance.randrange(3) for _ in range(200)])

        async def pause(record: Record, pauses: Any = pauses) -> None:
            for _ in range(next(pauses)):
                await asyncio.sleep(0)

        race.table.before_write = pause
        stopped: list[int] = []

        async def run(attempt: int, race: Bench = race, stopped: list[int] = stopped) -> None:
            writer = LogWriter(race.log, LogWriterId(1, attempt), 0)
            try:
                for i in range(5):
                    writer.add(event(f"{attempt}.{i}"))
                    await writer.flush()
            except Superseded:
                stopped.append(attempt)

        await asyncio.gather(run(1), run(2))
        said = await race.said()
        assert await race.numbers() == list(range(len(said)))
        assert [text for text in said if text.startswith("2.")] == [f"2.{i}" for i in range(5)]
        assert 2 not in stopped


# --- readers --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(-1, 6))
async def test_a_tail_gives_every_event_once_from_any_number(bench: Bench, after: int) -> None:
    for first, texts in ((0, "ab"), (2, "cd"), (4, "ef")):
        await bench.log.append(EventBatch(first, numbered(first, *texts), LogWriterId(0, 1)))
    await bench.log.append(EventBatch(6, numbered(6, "end", type_="response.completed"), LogWriterId(0, 1)))
    got = [e["delta"] async for events in bench.log.tail(after) for e in events or []]
    assert got == [*"abcdef", "end"][after + 1 :]


async def test_a_tail_says_when_nothing_has_come_and_ends_when_its_client_is_gone(bench: Bench) -> None:
    polls = iter([True, True, False])
    got = [events async for events in bench.log.tail(-1, is_alive=lambda: next(polls))]
    assert got == [None, None]


async def test_a_tail_follows_a_log_that_grows(bench: Bench) -> None:
    writer = LogWriter(bench.log, LogWriterId(0, 1), 0)

    async def write() -> None:
        for text in "abc":
            writer.add(event(text))
            await writer.flush()
            await asyncio.sleep(0)
        writer.add(event("end", "response.completed"))
        await writer.flush()

    writing = asyncio.create_task(write())
    got = [e["delta"] async for events in bench.log.tail(-1) for e in events or []]
    await writing
    assert got == ["a", "b", "c", "end"]


async def test_a_gap_in_a_log_is_never_passed_on(bench: Bench) -> None:
    await bench.log.append(EventBatch(0, numbered(0, "a"), LogWriterId(0, 1)))
    await bench.log.append(EventBatch(2, numbered(2, "c"), LogWriterId(0, 1)))
    with pytest.raises(AssertionError, match="gap in the log"):
        async for _ in bench.log.tail(-1):
            pass


def test_the_log_of_a_response_lies_in_its_partition() -> None:
    assert keys.event(7) == "EV#000000000007"
