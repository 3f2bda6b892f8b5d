"""The bell of the logs: who has appended wakes who follows, and nothing depends on it."""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from moorage.store.bell import Bell
from moorage.store.event_log import EventBatch, EventLog, LogWriterId

from tests.unit.store.memory import MemoryBlobs, MemoryTable


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Bell]:
    bell = Bell(tmp_path / "bell.sock")
    bell.listen()
    yield bell
    bell.close()


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Bell]:
    """Of another process, which does not listen."""
    bell = Bell(tmp_path / "bell.sock")
    yield bell
    bell.close()


async def test_a_ring_of_another_process_wakes_those_who_follow_that_response(heard: Bell, other: Bell) -> None:
    with heard.awaited("resp_1") as first, heard.awaited("resp_1") as second, heard.awaited("resp_2") as third:
        other.ring("resp_1")
        await asyncio.gather(first.wait(), second.wait())
        assert not third.is_set()
        heard.ring("resp_2")
        assert third.is_set()


async def test_a_ring_that_nobody_hears_is_nothing(other: Bell, tmp_path: Path) -> None:
    other.ring("resp_1")
    (tmp_path / "bell.sock").touch()
    other.ring("resp_1")
    assert not other.is_heard


async def test_the_next_listener_takes_the_place_of_one_that_was_killed(other: Bell, tmp_path: Path) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            bell = Bell(tmp_path / "bell.sock")
            bell.listen()
            stack.callback(bell.close)
        with bell.awaited("resp_1") as woken:
            other.ring("resp_1")
            await woken.wait()
    assert stat.S_IMODE((tmp_path / "bell.sock").stat().st_mode) == 0o600


async def test_when_more_rings_than_the_socket_holds_all_are_woken(heard: Bell, other: Bell) -> None:
    with heard.awaited("resp_last") as woken:
        for number in range(5_000):
            other.ring(f"resp_{number}")
        other.ring("resp_last")  # There is no room for it.
        await woken.wait()


async def test_what_is_no_id_of_a_response_is_passed_over(heard: Bell, other: Bell) -> None:
    with heard.awaited("resp_1") as woken:
        for said in ("", "é" * 1_000, "resp_0"):
            other.ring(said)
        other.ring("resp_1")
        await woken.wait()


async def test_a_reader_is_woken_by_each_append_and_remembers_one_that_came_while_it_read(heard: Bell, other: Bell) -> None:
    table, blobs = MemoryTable(), MemoryBlobs()
    reads, writes = (EventLog(table, blobs, "t", "resp_1", expires_at=2_000, now_ms=lambda: 0, bell=bell) for bell in (heard, other))
    followed = reads.tail(-1)
    assert await anext(followed) is None
    for number in range(3):
        type_ = "response.completed" if number == 2 else "response.output_text.delta"
        event = {"type": type_, "sequence_number": number}
        await writes.append(EventBatch(number, (event,), LogWriterId(0, 1)))
        assert await anext(followed) == [event]
    assert [events async for events in followed] == []


async def test_a_process_that_hears_nothing_looks_by_itself(other: Bell) -> None:
    log = EventLog(MemoryTable(), MemoryBlobs(), "t", "resp_1", expires_at=2_000, now_ms=lambda: 0, bell=other)
    followed = log.tail(-1)
    assert await anext(followed) is None
    event = {"type": "response.completed", "sequence_number": 0}
    await log.append(EventBatch(0, (event,), LogWriterId(0, 1)))
    assert [events async for events in followed] == [[event]]
