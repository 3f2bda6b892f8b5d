"""The table and the bucket in memory, for tests of what is written in which order.

``MemoryTable`` keeps records as DynamoDB would: conditions are checked against what stands there, queries are in key order. A test
can step in front of every write (``before_write``) to let another writer go first, or lose its answer (``lose_answers``).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from operator import itemgetter
from types import NoneType
from typing import Any, Final, TypeVar, cast

from moorage.errors import ConditionFailed
from moorage.store.blobs import Blob, BlobNotFound, Blobs
from moorage.store.table import Change, Record, Table, decode, encode

Key = tuple[str, str]
T = TypeVar("T")


class MemoryTable(Table):
    def __init__(self) -> None:
        super().__init__(cast("Any", None), "memory", cast("Any", None))
        self.records: dict[Key, Record] = {}
        self.before_write: Callable[[Record], Awaitable[None]] | None = None
        """Called before each put and each update takes effect, with the record or its changes; a test writes something else first
        there."""
        self.lose_answers = 0
        """So many puts take effect and are then sent again by the SDK, which never saw the answer."""
        self.writes = 0
        self.reads = 0
        """Requests, not units."""

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        if self.before_write is not None:
            await self.before_write(record)
        self.writes += 1
        key = (record["PK"], record["SK"])
        if if_absent and key in self.records:
            raise ConditionFailed(copied(self.records[key]))
        self.records[key] = as_stored(record)
        if self.lose_answers and if_absent:
            self.lose_answers -= 1
            raise ConditionFailed(copied(self.records[key]))

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        self.reads += 1
        return copied(self.records.get((pk, sk)))

    async def get_many(self, keys: Iterable[Key], *, consistent: bool = False) -> list[Record]:
        wanted = list(dict.fromkeys(keys))
        self.reads += bool(wanted)
        return [copied(self.records[key]) for key in wanted if key in self.records]

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
        if self.before_write is not None:
            await self.before_write({"PK": pk, "SK": sk, **(set or {})})
        self.writes += 1
        record = self.records.get((pk, sk))
        if (must_exist and record is None) or not _is_as_wanted(record or {}, condition, absent, below):
            raise ConditionFailed(copied(record))
        changed = dict(record or {"PK": pk, "SK": sk})
        if set:
            changed |= as_stored(dict(set))
        if set_once:
            changed = as_stored(dict(set_once)) | changed
        for name, number in (add or {}).items():
            changed[name] = changed.get(name, 0) + number
        for name in remove:
            changed.pop(name, None)
        self.records[pk, sk] = changed
        return copied(changed)

    async def delete(self, pk: str, sk: str, *, condition: Mapping[str, Any] | None = None) -> Record | None:
        self.writes += 1
        record = self.records.get((pk, sk))
        if condition and any((record or {}).get(name) != value for name, value in condition.items()):
            raise ConditionFailed(copied(record))
        return self.records.pop((pk, sk), None)

    async def write_together(
        self, puts: Iterable[Record], changes: Iterable[Change], deletes: Iterable[Key] = ()
    ) -> tuple[int, ...]:
        """All or nothing, at one moment: a process dies before it or after it."""
        records, changes, deletes = list(puts), list(changes), list(deletes)
        if self.before_write is not None:
            await self.before_write((records or [{"PK": change.pk, "SK": change.sk, **change.set} for change in changes])[0])
        self.writes += 1
        stands = [(record["PK"], record["SK"]) not in self.records for record in records]
        stands += [_fits(self.records.get((change.pk, change.sk)), change) for change in changes]
        stands += [key in self.records for key in deletes]
        if not all(stands):
            return tuple(index for index, holds in enumerate(stands) if not holds)
        for record in records:
            self.records[record["PK"], record["SK"]] = as_stored(record)
        for change in changes:
            if change.is_end:
                self.records.pop((change.pk, change.sk), None)
                continue
            record = self.records.get((change.pk, change.sk), {"PK": change.pk, "SK": change.sk}) | as_stored(dict(change.set))
            record |= {name: record.get(name, 0) + number for name, number in change.add.items()}
            self.records[change.pk, change.sk] = {k: v for k, v in record.items() if k not in change.remove}
        for key in deletes:
            del self.records[key]
        return ()

    async def query(
        self,
        pk: str,
        *,
        prefix: str | None = None,
        after: str | None = None,
        up_to: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        consistent: bool = True,
        index: str | None = None,
    ) -> list[Record]:
        self.reads += 1
        pk_name, sk_name = ("PK", "SK") if index is None else (f"{index}PK", f"{index}SK")
        found = [
            record
            for record in self.records.values()
            if record.get(pk_name) == pk
            and (prefix is None or record[sk_name].startswith(prefix))
            and (after is None or record[sk_name] > after)
            and (up_to is None or record[sk_name] <= up_to)
        ]
        found.sort(key=itemgetter(sk_name), reverse=descending)
        return [copied(record) for record in found[:limit]]

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[Key] = ()) -> None:
        for record in puts:
            await self.put(record)
        for key in deletes:
            self.records.pop(key, None)


class MemoryBlobs(Blobs):
    def __init__(self) -> None:
        super().__init__(cast("Any", None), "memory", cast("Any", None))
        self.objects: dict[str, bytes] = {}

    async def put_bytes(self, key: str, data: bytes) -> Blob:
        self.objects[key] = data
        return Blob(key, len(data), "")

    async def get_bytes(self, key: str) -> bytes:
        if key not in self.objects:
            raise BlobNotFound(key)
        return self.objects[key]

    async def get_stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        yield (await self.get_bytes(key))[start : None if end is None else end + 1]

    async def list_prefix(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        for key in sorted(key for key in self.objects if key.startswith(prefix)):
            yield key, 0.0

    async def list_sizes(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        for key in sorted(key for key in self.objects if key.startswith(prefix)):
            yield key, len(self.objects[key])

    async def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    async def delete_prefix(self, prefix: str) -> int:
        doomed = [key for key in self.objects if key.startswith(prefix)]
        for key in doomed:
            del self.objects[key]
        return len(doomed)


def _is_as_wanted(
    record: Record, condition: Mapping[str, Any] | None, absent: Iterable[str], below: Mapping[str, int] | None
) -> bool:
    if condition and any(record.get(name) != value for name, value in condition.items()):
        return False
    if absent and any(name in record for name in absent):
        return False
    return not below or all(record.get(name, value) < value for name, value in below.items())


def _fits(there: Record | None, change: Change) -> bool:
    if there is None:
        return not change.condition and not change.below
    below = all(there.get(name, value) < value for name, value in change.below.items())
    return below and all(there.get(name) == value for name, value in change.condition.items())


_ALIKE: Final = frozenset((str, int, bool, bytes, NoneType, float))
"""What comes back from the table as it went there, and cannot be changed."""

_NESTS: Final = frozenset((dict, list))


def copied(value: T) -> T:
    """A record, or None, that nobody else has."""
    return cast("T", _copied(value))


def _copied(value: Any) -> Any:
    if type(value) is dict:
        made = value.copy()
        for name, each in value.items():
            if type(each) in _NESTS:
                made[name] = _copied(each)
        return made
    return [_copied(each) for each in value] if type(value) is list else value


def as_stored(value: Any) -> Any:
    """What comes back: as through DynamoDB's types, so that nothing passes here that would not pass there. What is not as plain as
    nearly everything goes through them."""
    if type(value) is dict:
        return {name: each if type(each) in _ALIKE else as_stored(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return [as_stored(each) for each in value]
    return value if type(value) in _ALIKE else decode(encode({"it": value}))["it"]
