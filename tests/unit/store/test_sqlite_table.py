"""A read of one machine's table takes the same work, however much is stored. Work on much of it lets others in."""

import asyncio
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


MANY = 3_000
ORDERS: dict[str, Read] = {
    "ascending": lambda table: table.query("p"),
    "descending": lambda table: table.query("p", descending=True),
    "up to a limit": lambda table: table.query("p", limit=MANY - 7),
    "by names": lambda table: table.get_many(("p", f"{n:04}") for n in range(MANY)),
}


async def during(work: Awaitable[Any]) -> tuple[Any, int]:
    """The result of some work, and how often others had their turn."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


@pytest.mark.parametrize("order", ORDERS)
async def test_a_read_of_a_large_partition_lets_others_in(table: SqliteTable, order: str) -> None:
    body = bytes(8_000)
    await table.write_many({"PK": "p", "SK": f"{n:04}", "body": body} for n in range(MANY))
    found, turns = await during(ORDERS[order](table))
    names = [f"{n:04}" for n in range(MANY)]
    wanted = {"descending": names[::-1], "up to a limit": names[: MANY - 7]}.get(order, names)
    assert ([record["SK"] for record in found], {record["body"] for record in found}) == (wanted, {body})
    assert turns > 3  # At the first turn, the read begins; at the last, it is over.


PARTS: dict[str, Callable[[int], Read]] = {
    "behind a key": lambda count: lambda table: table.query("p", after="n", limit=count),
    "by their beginning": lambda count: lambda table: table.query("p", prefix="n", limit=count),
    "behind a key, by their beginning": lambda count: lambda table: table.query("p", prefix="n", after="n0", limit=count),
    "the last of them": lambda count: lambda table: table.query("p", prefix="n", up_to="o", descending=True, limit=count),
    "of the index": lambda count: lambda table: table.query("i", prefix="n", limit=count, index=INDEX),
    "of the index, the last": lambda count: lambda table: table.query("i", up_to="o", descending=True, limit=count, index=INDEX),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_the_later_pages_of_a_read_take_no_more_steps_than_the_first(table: SqliteTable, part: Callable[[int], Read]) -> None:
    """Each goes on where the one before has ended, and does not look for that place from the beginning."""
    many = 10_000
    await table.write_many({"PK": "p", "SK": f"n{n:05}", "GSI1PK": "i", "GSI1SK": f"n{n:05}"} for n in range(many))
    some, all_ = await steps_of(table, part(many // 10)), await steps_of(table, part(many))
    assert all_ < 18 * some  # A step for a key of the index is dearer behind a place. A walk from the beginning takes 34 times as many.


async def test_a_page_is_of_one_moment(table: SqliteTable) -> None:
    await table.write_many({"PK": "p", "SK": f"{n:04}", "body": bytes(4_000)} for n in range(150))
    found, turns = await during(table.query("p"))
    assert (len(found), turns) == (150, 1)


async def test_a_read_of_a_large_part_of_the_index_lets_others_in(table: SqliteTable) -> None:
    """Several records have one sort key there."""
    many = 60_000
    await table.write_many({"PK": f"p{n}", "SK": "s", "GSI1PK": "i", "GSI1SK": str(n % 7)} for n in range(many))
    found, turns = await during(table.query("i", index=INDEX))
    assert [(entry["GSI1SK"], entry["PK"]) for entry in found] == sorted((str(n % 7), f"p{n}") for n in range(many))
    assert turns > 3


async def test_a_small_write_does_not_wait_for_the_end_of_many(table: SqliteTable) -> None:
    ended: list[str] = []

    async def write(name: str, count: int) -> None:
        await table.write_many({"PK": name, "SK": f"{n:04}"} for n in range(count))
        ended.append(name)

    await asyncio.gather(write("many", MANY), write("one", 1))
    await table.write_many(deletes=[("many", f"{n:04}") for n in range(MANY)])
    assert (ended, await table.query("many"), len(await table.query("one"))) == (["one", "many"], [], 1)


async def test_a_reader_of_many_pages_lets_others_in_after_each(table: SqliteTable) -> None:
    await grow(table, 0, 1_000)

    async def read() -> int:
        return sum([len(await table.query("i", index=INDEX, limit=500)) for _ in range(10)])

    found, turns = await during(read())
    assert found == 5_000
    assert turns >= 10
