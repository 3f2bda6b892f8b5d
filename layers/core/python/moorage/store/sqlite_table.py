"""The table on one machine: a row of the journal for each record."""

import asyncio
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from moorage.errors import ConditionFailed
from moorage.parallel import Breath
from moorage.store.journal import Journal
from moorage.store.record_text import dump_record, load_record
from moorage.store.schema import INDEX, INDEX_PARTITION_KEY, INDEX_SORT_KEY, PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE
from moorage.store.table import RECORD_BYTES_MAX, Record, RecordTooLarge, Table, Write, bytes_of, check_keys, check_together

_FIND: Final = "SELECT item FROM records WHERE pk = ? AND sk = ?"
_ADD: Final = "INSERT INTO records (pk, sk, index_pk, index_sk, ttl, item) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (pk, sk) DO "
_ADD_NEW: Final = _ADD + "NOTHING"
PUT: Final = _ADD + "UPDATE SET index_pk = excluded.index_pk, index_sk = excluded.index_sk, ttl = excluded.ttl, item = excluded.item"
_DELETE: Final = "DELETE FROM records WHERE pk = ? AND sk = ?"
_OF_INDEX: Final = (PARTITION_KEY, SORT_KEY, INDEX_PARTITION_KEY, INDEX_SORT_KEY)
_KEYS_AT_ONCE: Final = 400
_FEW_ROWS: Final = 200
_PAGE_BYTES: Final = 1024 * 1024
_PAGE_ROWS: Final = 2_000
"""Of a page, read in some 10 ms."""
_WRITTEN_AT_ONCE: Final = 500
"""Of many unconditional writes, so that those of others have their turn."""
_SURELY_SMALL_BYTES: Final = RECORD_BYTES_MAX // 2
"""A text of this length is of no record that is too large: in it each value takes at least half of what DynamoDB counts."""

_Row = tuple[str, str, str | None, str | None, float | None, bytes]


class SqliteTable(Table):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        return _find(self.journal.reader, pk, sk)

    async def get_many(
        self, keys: Iterable[tuple[str, str]], *, consistent: bool = False, without: Collection[str] = ()
    ) -> list[Record]:
        wanted = list(dict.fromkeys(keys))
        found, breath = list[Record](), Breath()
        for start in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[start : start + _KEYS_AT_ONCE]
            values = ", ".join(["(?, ?)"] * len(some))
            # A CROSS JOIN keeps its order: each key is looked up. ``(pk, sk) IN (VALUES ...)`` would read the whole table.
            sql = f"SELECT item FROM (VALUES {values}) CROSS JOIN records ON pk = column1 AND sk = column2"  # noqa: S608 (question marks)
            for (item,) in self.journal.reader.execute(sql, [part for key in some for part in key]).fetchall():
                found.append(load_record(item, without))
                await breath.taken()
        return found

    async def query(
        self,
        pk: str,
        *,
        prefix: str | None = None,
        after: str | None = None,
        up_to: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        index: str | None = None,
        without: Collection[str] = (),
    ) -> list[Record]:
        """A page of about 1 MiB is of one moment, as on DynamoDB. Each is a statement of its own; others have their turn in between."""
        assert index in (None, INDEX)
        partition, sort_key = ("pk", "sk") if index is None else ("index_pk", "index_sk")
        # One bound on each side: SQLite begins at one of several, and walks from there.
        least = ("> ?", after) if after is not None and after >= (prefix or "") else (">= ?", prefix)
        most = ("< ?", _after_all_with(prefix)) if up_to is None else ("<= ?", up_to)
        sides: list[list[tuple[str, tuple[str, ...]]]] = [
            [(f"{sort_key} {test}", (bound,))] if bound is not None else [] for test, bound in (least, most)
        ]
        near, far = sides[::-1] if descending else sides
        order, onward = ("DESC", "<") if descending else ("ASC", ">")
        shown, sort = ("item, sk", ("sk",)) if index is None else ("pk, sk, index_pk, index_sk", ("index_sk", "pk", "sk"))
        ordered = f"ORDER BY {', '.join(f'{column} {order}' for column in sort)} LIMIT ?"
        beyond = f"({', '.join(sort)}) {onward} ({', '.join('?' * len(sort))})"
        found = list[Record]()
        while True:
            tests, values = zip((f"{partition} = ?", (pk,)), *near, *far, strict=True)
            sql = f"SELECT {shown} FROM records WHERE {' AND '.join(tests)} {ordered}"  # noqa: S608 (names of columns, and question marks)
            left = -1 if limit is None else limit - len(found)
            rows = self.journal.reader.execute(sql, (*chain(*values), left))
            size, known = 0, len(found)
            for row in rows:
                found.append(load_record(row[0], without) if index is None else dict(zip(_OF_INDEX, row, strict=True)))
                size += len(row[0])
                if size >= _PAGE_BYTES or len(found) - known >= _PAGE_ROWS:
                    break
            else:
                if len(found) > _FEW_ROWS:  # Its reader has work with it, and may ask for as many more.
                    await asyncio.sleep(0)
                return found
            rows.close()
            near = [(beyond, (row[1],) if index is None else (row[3], row[0], row[1]))]
            await asyncio.sleep(0)

    async def write(self, write: Write) -> Record | None:
        if write.record is not None and not (write.condition or write.absent or write.below) and write.is_there is not True:
            row = row_of(write.record)
            if write.is_there is None:
                await self.journal.write(lambda connection: connection.execute(PUT, row))
            else:
                await self.journal.write(lambda connection: _add_new(connection, row))
            return None
        return await self.journal.write(lambda connection: _write(connection, write))

    async def write_all(self, writes: Sequence[Write]) -> tuple[int, ...]:
        check_together(writes)
        rows = {index: row_of(write.record) for index, write in enumerate(writes) if write.record is not None}
        return await self.journal.write(lambda connection: _write_all(connection, writes, rows))

    async def write_in_turn(self, writes: Sequence[Write]) -> int:
        return await self.journal.write(lambda connection: _write_in_turn(connection, writes))

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[tuple[str, str]] = ()) -> None:
        """Up to ``_WRITTEN_AT_ONCE`` of them are made together, or not at all."""
        writes, breath = list[tuple[str, tuple[Any, ...]]](), Breath()
        for record in puts:
            writes.append((PUT, row_of(record)))
            await breath.taken()
        writes += [(_DELETE, key) for key in deletes]
        for start in range(0, len(writes), _WRITTEN_AT_ONCE):
            await self.journal.write(partial(_make, writes[start : start + _WRITTEN_AT_ONCE]))


def table_in(folder: Path) -> SqliteTable:
    return SqliteTable(Journal(folder))


def _find(connection: sqlite3.Connection, pk: str, sk: str) -> Record | None:
    found = connection.execute(_FIND, (pk, sk)).fetchone()
    return None if found is None else load_record(found[0])


def _make(writes: Sequence[tuple[str, tuple[Any, ...]]], connection: sqlite3.Connection) -> None:
    for statement, values in writes:
        connection.execute(statement, values)


def _add_new(connection: sqlite3.Connection, row: _Row) -> None:
    if connection.execute(_ADD_NEW, row).rowcount == 0:
        raise ConditionFailed(_find(connection, row[0], row[1]))


def _write(connection: sqlite3.Connection, write: Write) -> Record | None:
    there = _find(connection, write.pk, write.sk)
    if not write.holds(there):
        raise ConditionFailed(there)
    if write.is_end:
        connection.execute(_DELETE, (write.pk, write.sk))
        return there
    row = row_of(write.applied(there))
    connection.execute(PUT, row)
    return load_record(row[-1]) if write.record is None else None


def _write_in_turn(connection: sqlite3.Connection, writes: Sequence[Write]) -> int:
    for made, write in enumerate(writes):
        try:
            _write(connection, write)
        except ConditionFailed:
            return made
    return len(writes)


def _write_all(connection: sqlite3.Connection, writes: Sequence[Write], rows: dict[int, _Row]) -> tuple[int, ...]:
    there = [_find(connection, write.pk, write.sk) for write in writes]
    failed = tuple(index for index, write in enumerate(writes) if not write.holds(there[index]))
    if failed:
        return failed
    for index, write in enumerate(writes):
        if write.is_end:
            connection.execute(_DELETE, (write.pk, write.sk))
        else:
            connection.execute(PUT, rows.get(index) or row_of(write.applied(there[index])))
    return ()


def row_of(record: Record) -> _Row:
    """Raises the errors of :meth:`Table.write` for a record that cannot be kept."""
    pk, sk = record[PARTITION_KEY], record[SORT_KEY]
    check_keys(pk, sk)
    text = dump_record(record)
    if len(text) > _SURELY_SMALL_BYTES and bytes_of(record) > RECORD_BYTES_MAX:
        raise RecordTooLarge
    return pk, sk, *indexed(record), expires(record), text


def indexed(record: Record) -> tuple[str | None, str | None]:
    """The place of a record in the index. It is only there with both attributes."""
    index_pk, index_sk = record.get(INDEX_PARTITION_KEY), record.get(INDEX_SORT_KEY)
    if index_pk == "" or index_sk == "":
        raise ValueError("the keys of an index are strings that are not empty")
    return (None, None) if index_pk is None or index_sk is None else (index_pk, index_sk)


def expires(record: Record) -> float | None:
    value: Any = record.get(TTL_ATTRIBUTE)
    return value if isinstance(value, (int, float)) else None


def _after_all_with(prefix: str | None) -> str | None:
    """The least string after all that begin with it; None if there is none, or no prefix."""
    bare = (prefix or "").rstrip("\U0010ffff")
    if not bare:
        return None
    following = ord(bare[-1]) + 1
    # Surrogates are no characters.
    return bare[:-1] + ("\ue000" if following == 0xD800 else chr(following))
