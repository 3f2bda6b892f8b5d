"""What a request costs the index when others have N responses in flight, counted in entries: one response alone shows nothing of it.

DynamoDB gives each partition of an index 3,000 read units and 1,000 write units a second
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from moorage.loop.create import prepare, start_background
from moorage.loop.recover import recover
from moorage.store.schema import INDEX, INDEX_PARTITION_KEY
from moorage.store.table import Record
from moorage.wire.requests import parse_create

from tests.unit.loop.lab import TENANT, Lab, say, shell
from tests.unit.store.memory import Key, MemoryTable

OTHERS = (0, 8, 64)


@dataclass
class Load:
    entries_read: int = 0
    entries_written: int = 0
    partitions: set[str] = field(default_factory=set)


class IndexedTable(MemoryTable):
    """It counts what DynamoDB reads of the index, and what it writes into it."""

    def __init__(self) -> None:
        super().__init__()
        self.load = Load()

    def begin(self) -> Load:
        self.load = Load()
        return self.load

    def _note(self, before: str | None, after: str | None) -> None:
        """An entry is written, moved (deleted and written) or deleted."""
        if before != after:
            self.load.entries_written += (before is not None) + (after is not None)
            self.load.partitions |= {each for each in (before, after) if each is not None}

    def _entry(self, key: Key) -> str | None:
        found = self.records.get(key, {}).get(INDEX_PARTITION_KEY)
        return None if found is None else str(found)

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        key = (record["PK"], record["SK"])
        before = self._entry(key)
        await super().put(record, if_absent=if_absent)
        self._note(before, self._entry(key))

    async def update(self, pk: str, sk: str, **change: Any) -> Any:
        before = self._entry((pk, sk))
        done = await super().update(pk, sk, **change)
        self._note(before, self._entry((pk, sk)))
        return done

    async def query(self, pk: str, *, index: str | None = None, **how: Any) -> list[Record]:
        found = await super().query(pk, index=index, **how)
        if index == INDEX:
            self.load.entries_read += len(found)
            self.load.partitions.add(pk)
        return found


async def lab_beside(others: int) -> tuple[Lab, IndexedTable]:
    """A lab in whose table other tenants have so many responses in flight, one each."""
    table = IndexedTable()
    lab = Lab(*[turn for _ in range(8) for turn in (shell("ls"), say("done"))], table=table)
    for number in range(others):
        mine = lab.stored(is_background=True, is_looping=True)
        await lab.responses.create(replace(mine, tenant_id=f"other-{number}", response_id=f"resp_other{number}"))
    return lab, table


async def create(lab: Lab) -> None:
    request = parse_create({"model": "m", "input": "go", "background": True})
    await start_background(lab.runtime.stores, await prepare(lab.runtime, TENANT, request))


async def listing(lab: Lab) -> None:
    await lab.runtime.stores.response_list.running(TENANT)


async def whole_response(lab: Lab) -> None:
    await lab.run(await lab.background("list the files"))


async def load_of(work: Callable[[Lab], Awaitable[None]], others: int) -> Load:
    lab, table = await lab_beside(others)
    load = table.begin()
    await work(lab)
    return load


@pytest.mark.parametrize("work", [create, listing, whole_response])
async def test_a_request_reads_no_more_of_the_index_when_others_have_more_in_flight(work: Callable[[Lab], Awaitable[None]]) -> None:
    read = {others: (await load_of(work, others)).entries_read for others in OTHERS}
    assert read == dict.fromkeys(OTHERS, read[0])


@pytest.mark.parametrize("work", [create, listing, whole_response])
async def test_a_request_writes_no_more_into_the_index_when_others_have_more_in_flight(work: Callable[[Lab], Awaitable[None]]) -> None:
    written = {others: (await load_of(work, others)).entries_written for others in OTHERS}
    assert written == dict.fromkeys(OTHERS, written[0])


async def test_a_response_is_written_into_the_index_when_it_starts_ends_and_is_listed() -> None:
    """The write units of docs/scale.md: one entry for a response in flight, which is moved when it has ended."""
    assert (await load_of(create, 8)).entries_written == 1
    assert (await load_of(whole_response, 8)).entries_written <= 4


async def test_the_reaper_reads_each_response_in_flight_once() -> None:
    async def recovered(lab: Lab) -> None:
        await recover(lab.runtime)

    read = {others: (await load_of(recovered, others)).entries_read for others in OTHERS}
    assert read == {others: others for others in OTHERS}


def test_a_count_of_the_index_sees_what_is_moved() -> None:
    table = IndexedTable()
    moves: Mapping[tuple[str | None, str | None], int] = {(None, "a"): 1, ("a", "b"): 2, ("b", "b"): 0, ("b", None): 1}
    assert [_written(table, *move) for move in moves] == list(moves.values())


def _written(table: IndexedTable, before: str | None, after: str | None) -> int:
    load = table.begin()
    table._note(before, after)
    return load.entries_written
