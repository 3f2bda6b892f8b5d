"""What is counted of a tenant's stored bytes: entries and their sum."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.store import keys
from moorage.store.stored_bytes import Holder, StorageStatus, StoredBytes
from moorage.store.table import Record

from tests.unit.store.memory import MemoryTable

A = Holder("ten", "file", "file-a")
B = Holder.container("ten", "cntr_b")


class World:
    def __init__(self, most: int = 100) -> None:
        self.now = 1_800_000_000.0
        self.table = MemoryTable()
        self.stored = StoredBytes(self.table, clock=lambda: self.now, most=most)

    async def used(self) -> tuple[int, dict[str, int]]:
        """The sum, and the entries, which are it."""
        records = await self.table.query(keys.stored("ten"), after=keys.TOTAL)
        entries = {record["SK"]: record["bytes"] for record in records}
        used = (await self.stored.standing("ten")).used
        assert used == sum(entries.values())
        return used, entries


def told(size: int) -> Callable[[], Awaitable[int]]:
    async def count() -> int:
        return size

    return count


async def test_what_is_added_is_counted_by_its_kind() -> None:
    world = World()
    await world.stored.add(A, 30)
    await world.stored.add(B, 20)
    await world.stored.add(B, 5)
    expected = StorageStatus(55, 100, {"file": 30, "container": 25, "vector_store": 0})
    assert await world.stored.standing("ten") == expected
    assert (expected.room, await world.used()) == (45, (55, {"file#file-a": 30, "container#cntr_b": 25}))
    assert expected.to_json() == {
        "used_bytes": 55,
        "limit_bytes": 100,
        "file_bytes": 30,
        "container_bytes": 25,
        "vector_store_bytes": 0,
    }


async def test_what_does_not_fit_is_refused_and_not_counted() -> None:
    world = World()
    await world.stored.add(A, 100)
    with pytest.raises(ApiError) as refused:
        await world.stored.add(B, 1)
    assert (refused.value.status, refused.value.type, refused.value.code) == (429, "insufficient_quota", "storage_limit_reached")
    assert refused.value.headers == {"x-should-retry": "false"}
    assert "100 of 100 bytes" in refused.value.message
    assert "MOORAGE_STORED_BYTES_MAX" in refused.value.message
    assert await world.used() == (100, {"file#file-a": 100})
    with pytest.raises(ApiError):
        await world.stored.room("ten")
    await world.stored.add(B, 0)
    await world.stored.check("ten", 0)


async def test_of_many_sizes_those_that_fit_are_taken_in_their_order() -> None:
    world = World()
    await world.stored.add(A, 40)
    assert await world.stored.add_some(B, [30, 40, 20, 11, 10]) == [0, 2, 4]
    assert await world.used() == (100, {"file#file-a": 40, "container#cntr_b": 60})
    assert await world.stored.add_some(B, [1, 2]) == []
    assert await world.stored.add_some(B, []) == []


async def test_a_tenants_room_is_its_own() -> None:
    world = World()
    await world.stored.add(A, 100)
    await world.stored.add(Holder("other", "file", "file-a"), 100)
    assert await world.used() == (100, {"file#file-a": 100})


async def test_whoever_adds_at_the_same_time_does_not_pass_the_limit() -> None:
    world = World()

    async def give_way(_record: Record) -> None:
        await asyncio.sleep(0)

    world.table.before_write = give_way

    async def add(number: int) -> bool:
        try:
            await world.stored.add(Holder("ten", "file", f"file-{number}"), 30)
        except ApiError:
            return False
        return True

    assert sum(await asyncio.gather(*map(add, range(10)))) == 3
    assert (await world.used())[0] == 90


async def test_an_entry_is_settled_by_what_is_there() -> None:
    world = World()
    await world.stored.add(A, 30)
    assert await world.stored.settle(A, told(50)) is True
    assert await world.stored.settle(A, told(50)) is False
    assert await world.stored.settle(B, told(500)) is True  # what is there is counted, whatever the limit
    assert await world.used() == (550, {"file#file-a": 50, "container#cntr_b": 500})
    await world.stored.forget(B)
    await world.stored.forget(B)
    assert await world.used() == (50, {"file#file-a": 50})


async def test_what_is_added_while_an_entry_is_counted_is_not_lost() -> None:
    world = World()
    await world.stored.add(B, 10)
    there = 10

    async def count() -> int:
        nonlocal there
        seen = there
        if there == 10:
            there += 7
            await world.stored.add(B, 7)
        return seen + (1 if seen == 10 else 0)

    await world.stored.settle(B, count)
    assert await world.used() == (17, {"container#cntr_b": 17})


async def test_what_was_counted_too_high_is_corrected() -> None:
    world = World()
    await world.stored.add(B, 60)
    await world.stored.correct(B, -50)
    await world.stored.correct(B, 0)
    assert await world.used() == (10, {"container#cntr_b": 10})


async def test_a_tenant_is_looked_through_when_it_is_first_seen_and_a_day_after_each_look() -> None:
    world = World()
    assert await world.stored.due(world.now) == []
    await world.stored.add(A, 1)
    (due,) = await world.stored.due(world.now)
    await world.stored.looked(due, "files|x")
    (due,) = await world.stored.due(world.now)
    assert (due.tenant_id, due.place) == ("ten", "files|x")
    await world.stored.looked(due, "")
    assert await world.stored.due(world.now + limits.RECOUNT_SECONDS - 1) == []
    assert [due.place for due in await world.stored.due(world.now + limits.RECOUNT_SECONDS)] == [""]


async def test_entries_are_found_in_parts() -> None:
    world = World()
    for holder in (A, B, Holder("ten", "vector_store", "vs_1")):
        await world.stored.add(holder, 1)
    first = await world.stored.holders("ten", "", 2)
    assert first == [B, A]
    assert await world.stored.holders("ten", first[-1].key[1], 2) == [Holder("ten", "vector_store", "vs_1")]
