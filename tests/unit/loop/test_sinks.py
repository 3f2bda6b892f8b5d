import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from moorage import limits
from moorage.errors import Superseded
from moorage.loop.sinks import InlineSink, LogSink
from moorage.store.event_log import EventBatch, EventLog, LogWriter, LogWriterId
from moorage.store.responses import Responses, StoredResponse
from moorage.wire.parameters import Parameters
from moorage.wire.types import Event

from tests.unit.store.memory import MemoryBlobs, MemoryTable


def text(words: str) -> Event:
    return {"type": "response.output_text.delta", "delta": words}


def new_log() -> tuple[MemoryTable, EventLog]:
    table = MemoryTable()
    return table, EventLog(table, MemoryBlobs(), "t", "resp_1", expires_at=1, now_ms=lambda: 0)


def new_sink(log: EventLog, table: MemoryTable, heard: Callable[[Event], None]) -> InlineSink:
    """Its record is a stand-in; beside it the first batch is written as ``Responses.create`` does."""

    async def create(first: EventBatch | None) -> None:
        await table.write_many([{"PK": "x", "SK": "META"}, *([await log.record(first)] if first is not None else [])])

    sink = InlineSink(heard, lambda: 7)
    sink.keep(log, create)
    return sink


async def until_written(table: MemoryTable) -> None:
    while not table.writes:
        await asyncio.sleep(0.001)


async def test_a_step_of_the_loop_writes_at_the_end_of_an_item_without_being_asked() -> None:
    table, log = new_log()
    async with LogSink(LogWriter(log, LogWriterId(0, 1), 0)) as sink:
        sink.emit({"type": "response.output_item.done", "output_index": 0, "item": {}})
        await asyncio.wait_for(until_written(table), 60)
    assert len(await log.read_all()) == 1


async def test_a_step_that_says_little_makes_no_task_of_its_own() -> None:
    table, log = new_log()
    before = asyncio.all_tasks()
    async with LogSink(LogWriter(log, LogWriterId(0, 1), 0)) as sink:
        sink.emit(text("a"))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        await sink.flush()
    assert (await log.read_all(), table.writes) == ([text("a") | {"sequence_number": 0}], 1)


async def test_what_a_step_has_said_is_written_while_it_goes_on() -> None:
    table, log = new_log()
    async with LogSink(LogWriter(log, LogWriterId(0, 1), 0)) as sink:
        for number, words in enumerate("ab", 1):
            sink.emit(text(words))
            while table.writes < number:
                await asyncio.sleep(0.001)
    assert await log.read_all() == [text("a") | {"sequence_number": 0}, text("b") | {"sequence_number": 1}]


async def test_a_step_whose_successor_has_taken_over_is_stopped_while_it_waits() -> None:
    _, log = new_log()
    await log.append(EventBatch(0, (text("new") | {"sequence_number": 0},), LogWriterId(0, 2)))

    async def work_on() -> None:
        async with LogSink(LogWriter(log, LogWriterId(0, 1), 0)) as sink:
            sink.emit(text("old"))
            await asyncio.sleep(60)

    with pytest.raises(Superseded):
        await work_on()


async def test_leaving_a_sink_that_has_just_been_woken_does_not_hang() -> None:
    """Python before 3.12 loses a cancellation in wait_for when its event is set at the same moment."""
    _, log = new_log()

    async def leave() -> None:
        async with LogSink(LogWriter(log, LogWriterId(0, 1), 0)) as sink:
            await asyncio.sleep(0)
            sink.emit(text("x" * limits.BATCH_EVENTS_BYTES_MAX))

    await asyncio.wait_for(leave(), 60)


async def test_an_inline_step_tells_its_client_at_once_and_writes_when_asked() -> None:
    table, log = new_log()
    heard: list[Event] = []
    sink = new_sink(log, table, heard.append)
    for words in "ab":
        sink.emit(text(words))
    assert (heard, table.writes) == ([text("a") | {"sequence_number": 0}, text("b") | {"sequence_number": 1}], 0)
    await sink.flush()
    assert (await log.read_all(), table.writes) == (heard, 2)


async def test_the_client_hears_of_the_end_only_when_it_is_in_the_log() -> None:
    table, log = new_log()
    written_when_heard: list[int] = []
    sink = new_sink(log, table, lambda event: written_when_heard.append(table.writes))
    sink.emit(text("a"))
    await sink.end({"type": "response.completed", "response": {}})
    assert written_when_heard == [0, 2]


async def test_the_client_hears_of_the_end_only_when_the_record_is_written_too() -> None:
    table, log = new_log()
    gate = asyncio.Event()
    heard: list[Event] = []

    async def create(first: EventBatch | None) -> None:
        assert first is None
        await gate.wait()
        await table.put({"PK": "x", "SK": "META"})

    sink = InlineSink(heard.append, lambda: 7)
    sink.keep(log, create)
    recording = asyncio.create_task(sink.record())
    await asyncio.sleep(0)
    assert sink.has_record
    ending = asyncio.create_task(sink.end({"type": "response.completed", "response": {}}))
    await asyncio.sleep(0)
    assert (heard, table.records) == ([], {})
    gate.set()
    await asyncio.gather(recording, ending)
    assert (len(heard), [key[1] for key in table.records]) == (1, ["META", "EV#000000000000"])


ENDED = {"id": "resp_1", "status": "completed", "output": []}
STORED = StoredResponse("resp_1", "t", 0, Parameters("demo"), {"model": "demo"}, [{"type": "message"}], expires_at=10)


@pytest.mark.parametrize("is_recorded_first", [False, True], ids=["at once", "after a while"])
async def test_a_response_that_has_ended_is_found_whole(is_recorded_first: bool) -> None:
    table = MemoryTable()
    responses = Responses(table, MemoryBlobs(), now_ms=lambda: 0, retention_seconds=10)
    sink = InlineSink(lambda event: None, lambda: 7)
    sink.keep(responses.log_of(STORED), partial(responses.create, STORED))
    sink.emit(text("a"))
    if is_recorded_first:
        await sink.record()
        assert (await responses.snapshot("t", "resp_1")).last is None
    await sink.end({"type": "response.completed", "response": ENDED})
    snapshot = await responses.snapshot("t", "resp_1")
    assert (snapshot.stored.input_items, snapshot.final_object, table.writes) == ([{"type": "message"}], ENDED, 2)


async def test_a_record_is_written_though_whoever_asked_for_it_is_cancelled() -> None:
    table, log = new_log()
    sink = new_sink(log, table, lambda event: None)
    recording = asyncio.create_task(sink.record())
    await asyncio.sleep(0)
    recording.cancel()
    await sink.record()
    assert [key[1] for key in table.records] == ["META"]


async def test_a_response_that_is_not_stored_leaves_nothing() -> None:
    heard: list[Event] = []
    sink = InlineSink(heard.append, lambda: 7)
    sink.emit(text("a"))
    await sink.end({"type": "response.completed", "response": {}})
    assert [event["sequence_number"] for event in heard] == [0, 1]


async def test_an_inline_step_that_was_declared_dead_stops() -> None:
    table, log = new_log()
    sink = new_sink(log, table, lambda event: None)
    await sink.record()
    await log.append(EventBatch(0, (text("verdict") | {"sequence_number": 0},), LogWriterId(1_000_000_000, 1)))
    sink.emit(text("late"))
    with pytest.raises(Superseded):
        await sink.flush()
