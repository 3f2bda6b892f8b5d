"""A read of one machine's table takes the same work, however much is stored."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage.store.schema import INDEX
from moorage.store.sqlite_table import SqliteTable, table_in

Read = Callable[[SqliteTable], Awaitable[Any]]
READS: dict[str, Read] = {
    "one": lambda table: table.get("p", "7"),
    "several": lambda table: table.get_many([("p", "7"), ("p", "9"), ("p", "none")]),
    "a range": lambda table: table.query("p", prefix="7", limit=3),
    "the last": lambda table: table.query("p", prefix="", descending=True, limit=1),
    "of the index": lambda table: table.query("i", after="7", limit=3, index=INDEX),
}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[SqliteTable]:
    table = table_in(tmp_path)
    yield table
    table.journal.close()


async def steps_of(table: SqliteTable, read: Read) -> int:
    """How many steps SQLite takes for a read."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    await read(table)  # What is there has been counted by SQLite then.
    table.journal.reader.set_progress_handler(count, 1)
    await read(table)
    table.journal.reader.set_progress_handler(None, 1)
    return steps


async def grow(table: SqliteTable, first: int, last: int) -> None:
    await table.write_many({"PK": "p", "SK": str(n), "GSI1PK": "i", "GSI1SK": str(n)} for n in range(first, last))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_read_takes_no_more_steps_where_more_is_stored(table: SqliteTable, read: Read) -> None:
    await grow(table, 0, 100)
    few = await steps_of(table, read)
    await grow(table, 100, 5_000)
    assert await steps_of(table, read) <= few + 20
