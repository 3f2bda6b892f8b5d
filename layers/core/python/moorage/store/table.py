"""The table as a port: whole records in and out, and writes with conditions.

``store/dynamodb.py`` keeps it on AWS, ``store/sqlite_table.py`` on one machine. Keys are strings and are
ordered by their bytes in UTF-8.
"""

import asyncio
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from moorage.errors import ConditionFailed, MoorageError
from moorage.store.writes import Record, Write

__all__ = [
    "KEY_BYTES_MAX",
    "RECORD_BYTES_MAX",
    "SORT_KEY_BYTES_MAX",
    "TABLE_ERRORS",
    "TRANSACTION_MAX",
    "Record",
    "RecordTooLarge",
    "Table",
    "Write",
    "bytes_of",
    "can_stand",
    "check_keys",
    "check_together",
]

TABLE_ERRORS: Final = (BotoCoreError, ClientError, sqlite3.Error)
"""What a request raises that got no answer, or the answer that it cannot be served now; the SDK has tried again by then."""

RECORD_BYTES_MAX: Final = 400 * 1024
TRANSACTION_MAX: Final = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""

WRITES_AT_ONCE: Final = 100
"""Of many with conditions; on one machine these reach the disk together."""

KEY_BYTES_MAX: Final = 2048
SORT_KEY_BYTES_MAX: Final = 1024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


class RecordTooLarge(MoorageError):
    """A record of more than ``RECORD_BYTES_MAX``; nothing of the write was kept."""

    def __init__(self) -> None:
        super().__init__(f"A record holds at most {RECORD_BYTES_MAX} bytes.")


class Table(Protocol):
    """An implementation has the first six; the others say the same in the words of their callers."""

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None: ...

    async def get_many(
        self, keys: Iterable[tuple[str, str]], *, consistent: bool = False, without: Collection[str] = ()
    ) -> list[Record]:
        """The records that exist, in no particular order, ``without`` these attributes: to decode them takes time."""
        ...

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
        """Records of one partition in key order: all, those whose sort key has a ``prefix``, is greater than ``after``, or is
        at most ``up_to``; ``after`` with one of the others means both. With ``up_to`` a ``prefix`` is where the range begins. A range
        that ends before it begins is empty. Many of them are not of one moment.

        An ``index`` gives keys alone, and may be late. ``without`` as for :meth:`get_many`.
        """
        ...

    async def write(self, write: Write) -> Record | None:
        """Make one write. The answer is the record after a change, the one that was there before an end, and None for a whole record.

        Raises :class:`ConditionFailed` with the record that stands there, :class:`RecordTooLarge`, :class:`StorageFull`, and
        ``TypeError`` or ``ValueError`` for what no table holds.
        """
        ...

    async def write_all(self, writes: Sequence[Write]) -> tuple[int, ...]:
        """Make up to 100 writes of different records, all or none. The answer is empty if it was done, else the positions of the
        conditions that failed. Two calls that meet are tried again."""
        ...

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[tuple[str, str]] = ()) -> None:
        """Unconditional puts and deletes of any number; a failure may leave some of them done."""
        ...

    async def query_beyond(self, pk: str, place: str | None, *, prefix: str, descending: bool, limit: int) -> list[Record]:
        """Up to ``limit`` records of one partition whose sort keys have a ``prefix``, beyond the sort key ``place``."""
        if not descending:
            return await self.query(pk, prefix=prefix, after=place, limit=limit)
        records = await self.query(pk, prefix=prefix, up_to=place, descending=True, limit=limit + 1)
        return [record for record in records if record["SK"] != place][:limit]

    async def write_each(self, writes: Sequence[Write]) -> dict[int, Record | None]:
        """Make any number of writes of different records, each by itself. The answer has the positions of those whose conditions
        failed, with the record that stands there (None: there is none). Another error is raised once all of its neighbours are done."""
        failed: dict[int, Record | None] = {}
        for start in range(0, len(writes), WRITES_AT_ONCE):
            some = writes[start : start + WRITES_AT_ONCE]
            for index, answer in enumerate(await asyncio.gather(*map(self.write, some), return_exceptions=True), start):
                if isinstance(answer, ConditionFailed):
                    failed[index] = answer.item
                elif isinstance(answer, BaseException):
                    raise answer
        return failed

    async def write_in_turn(self, writes: Sequence[Write]) -> int:
        """Make writes of different records one after the other, up to the first one whose condition fails. Answers how many were made.

        A process that dies leaves the first ones of them done. On one machine they reach the disk together.
        """
        for made, write in enumerate(writes):
            try:
                await self.write(write)
            except ConditionFailed:
                return made
        return len(writes)

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        """Write a whole record. ``if_absent`` makes it conditional; raises :class:`ConditionFailed` with the present record."""
        await self.write(Write.put(record, if_absent=if_absent))

    async def update(
        self,
        pk: str,
        sk: str,
        *,
        set: Mapping[str, Any] | None = None,
        set_once: Mapping[str, Any] | None = None,
        add: Mapping[str, int] | None = None,
        remove: Iterable[str] = (),
        condition: Mapping[str, Any] | None = None,
        must_exist: bool = True,
        absent: Iterable[str] = (),
        below: Mapping[str, int] | None = None,
    ) -> Record:
        """Write attributes and return the whole record as it is afterwards. Raises :class:`ConditionFailed` with the record that
        stands there."""
        changed = await self.write(
            Write(
                pk,
                sk,
                set=set or {},
                set_once=set_once or {},
                add=add or {},
                remove=tuple(remove),
                condition=condition or {},
                absent=tuple(absent),
                below=below or {},
                is_there=True if must_exist else None,
            )
        )
        assert changed is not None
        return changed

    async def delete(self, pk: str, sk: str, *, condition: Mapping[str, Any] | None = None) -> Record | None:
        """Delete a record; the answer is the deleted record, None if there was none."""
        return await self.write(Write(pk, sk, condition=condition or {}, is_end=True))

    async def transact(
        self, puts: Iterable[Record], *, pk: str, sk: str, set: Mapping[str, Any], condition: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """Put records that must not be there yet and change one that is as ``condition`` says, all or nothing; answers as
        :meth:`write_all` (the changed record's position comes last)."""
        return await self.write_together(puts, [Write(pk, sk, set=set, condition=condition)])

    async def write_together(
        self, puts: Iterable[Record], changes: Iterable[Write], deletes: Iterable[tuple[str, str]] = ()
    ) -> tuple[int, ...]:
        """Put records that must not be there yet, make changes, and delete records that must be there, all or nothing.

        Answers as :meth:`write_all`, with positions in this order.
        """
        ends = [Write(pk, sk, is_there=True, is_end=True) for pk, sk in deletes]
        return await self.write_all([*(Write.put(record, if_absent=True) for record in puts), *changes, *ends])

    async def replace(self, puts: Iterable[Record], *, pk: str, sk: str, condition: Mapping[str, Any]) -> tuple[int, ...]:
        """Put records that must not be there yet and delete one that is as ``condition`` says, all or nothing; answers as
        :meth:`transact`."""
        return await self.write_together(puts, [Write(pk, sk, condition=condition, is_end=True)])


def can_stand(pk: str, sk: str) -> bool:
    """Whether a record can have these keys: ids come from clients, and DynamoDB refuses a request for one that cannot be."""
    return len(pk.encode()) <= KEY_BYTES_MAX and len(sk.encode()) <= SORT_KEY_BYTES_MAX


def check_keys(pk: str, sk: str) -> None:
    """Raises ``ValueError`` for keys that no record can have."""
    if not pk or not sk or not can_stand(pk, sk):
        raise ValueError("the keys of a record are strings that are neither empty nor too long")


def check_together(writes: Sequence[Write]) -> None:
    """Raises ``ValueError`` for writes that cannot be made together."""
    if not 0 < len(writes) <= TRANSACTION_MAX or len({(write.pk, write.sk) for write in writes}) != len(writes):
        raise ValueError(f"1 to {TRANSACTION_MAX} writes of different records can be made together")


def bytes_of(record: Record) -> int:
    """How DynamoDB counts ("Item sizes and formats" of the developer guide)."""
    return sum(len(name.encode()) + _bytes_of_value(value) for name, value in record.items())


def _bytes_of_value(value: Any) -> int:
    match value:
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case None | bool():
            return 1
        case list() | tuple():
            return 3 + sum(1 + _bytes_of_value(each) for each in value)
        case dict():
            return 3 + sum(1 + len(name.encode()) + _bytes_of_value(each) for name, each in value.items())
        case _:
            return (len(str(value)) + 1) // 2 + 1
