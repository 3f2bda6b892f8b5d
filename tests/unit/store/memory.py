"""The table and the bucket in memory, for tests of what is written in which order.

``MemoryTable`` keeps records as DynamoDB would: conditions are checked against what stands there, queries are in key order. A test
can step in front of every write (``before_write``) to let another writer go first, or lose its answer (``lose_answers``).
"""

import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any, Final, TypeVar, cast

from moorage.errors import ConditionFailed
from moorage.limits import BLOB_PART_BYTES
from moorage.store.blobs import Blob, BlobNotFound, Blobs, check_size
from moorage.store.dynamodb import decode, encode
from moorage.store.table import Record, Table, Write, check_keys, check_together

Key = tuple[str, str]
T = TypeVar("T")


class MemoryTable(Table):
    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.before_write: Callable[[Record], Awaitable[None]] | None = None
        """Called before each put and each update takes effect, with the record or its changes; a test writes something else first
        there."""
        self.lose_answers = 0
        """So many puts take effect and are then sent again by the SDK, which never saw the answer."""
        self.writes = 0
        self.reads = 0
        """Requests, not units."""
        self.longest_answer = 0
        """Records of one query, at most."""

    async def write(self, write: Write) -> Record | None:
        if self.before_write is not None and not write.is_end:
            await self.before_write(write.record or {"PK": write.pk, "SK": write.sk, **write.set})
        self.writes += 1
        key = (write.pk, write.sk)
        there = self.records.get(key)
        if not write.holds(there):
            raise ConditionFailed(copied(there))
        if write.is_end:
            return self.records.pop(key, None)
        self.records[key] = _stored(write, there)
        if write.record is None:
            return copied(self.records[key])
        if self.lose_answers and write.is_there is False:
            self.lose_answers -= 1
            raise ConditionFailed(copied(self.records[key]))
        return None

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        self.reads += 1
        return copied(self.records.get((pk, sk)))

    async def get_many(self, keys: Iterable[Key], *, consistent: bool = False, without: Collection[str] = ()) -> list[Record]:
        wanted = list(dict.fromkeys(keys))
        self.reads += bool(wanted)
        found = [self.records[key] for key in wanted if key in self.records]
        return [_less(record, without) for record in found]

    async def write_all(self, writes: Sequence[Write]) -> tuple[int, ...]:
        """All or nothing, at one moment: a process dies before it or after it."""
        check_together(writes)
        if self.before_write is not None:
            first = writes[0]
            await self.before_write(first.record or {"PK": first.pk, "SK": first.sk, **first.set})
        self.writes += 1
        stands = [write.holds(self.records.get((write.pk, write.sk))) for write in writes]
        if not all(stands):
            return tuple(index for index, holds in enumerate(stands) if not holds)
        for write in writes:
            if write.is_end:
                self.records.pop((write.pk, write.sk), None)
            else:
                self.records[write.pk, write.sk] = _stored(write, self.records.get((write.pk, write.sk)))
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
        without: Collection[str] = (),
    ) -> list[Record]:
        self.reads += 1
        pk_name, sk_name = ("PK", "SK") if index is None else (f"{index}PK", f"{index}SK")
        if index is None:
            own = [record for (of, _), record in self.records.items() if of == pk]
        else:
            own = [record for record in self.records.values() if record.get(pk_name) == pk and sk_name in record]
        found = [
            record
            for record in own
            if (prefix is None or (record[sk_name].startswith(prefix) if up_to is None else record[sk_name] >= prefix))
            and (after is None or record[sk_name] > after)
            and (up_to is None or record[sk_name] <= up_to)
        ]
        found.sort(key=itemgetter(sk_name, "PK", "SK"), reverse=descending)
        self.longest_answer = max(self.longest_answer, len(found[:limit]))
        if index is None:
            return [_less(record, without) for record in found[:limit]]
        return [{name: record[name] for name in ("PK", "SK", pk_name, sk_name)} for record in found[:limit]]

    async def write_many(self, puts: Iterable[Record] = (), deletes: Iterable[Key] = ()) -> None:
        for record in puts:
            await self.put(record)
        for key in deletes:
            self.records.pop(key, None)


def _less(record: Record, without: Collection[str]) -> Record:
    return copied({name: value for name, value in record.items() if name not in without})


def _stored(write: Write, there: Record | None) -> Record:
    check_keys(write.pk, write.sk)
    return cast("Record", as_stored(write.applied(there)))


class MemoryBlobs(Blobs):
    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.objects: dict[str, bytes] = {}
        self._clock = clock
        self._written: dict[str, float] = {}

    async def put_bytes(self, key: str, data: bytes) -> Blob:
        self.objects[key], self._written[key] = data, self._clock()
        return Blob(key, len(data), hashlib.sha256(data).hexdigest())

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, bytes_max: int) -> Blob:
        data = b"".join([chunk async for chunk in chunks])
        check_size(len(data), bytes_max)
        return await self.put_bytes(key, data)

    async def put_addressed(self, prefix: str, chunks: AsyncIterator[bytes], *, known: Mapping[str, str], bytes_max: int) -> Blob:
        data = b"".join([chunk async for chunk in chunks])
        check_size(len(data), bytes_max)
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 in known:
            return Blob(known[sha256], len(data), sha256)
        is_large = len(data) > BLOB_PART_BYTES
        return await self.put_bytes(f"{prefix}large-{secrets.token_hex(16)}" if is_large else prefix + sha256, data)

    async def copy(self, source: str, target: str) -> None:
        await self.put_bytes(target, await self.get_bytes(source))

    def presign_get(self, key: str, *, seconds: int, disposition: str, content_type: str) -> str:
        raise NotImplementedError("memory has no address")

    def signed_get_url(self, key: str, *, seconds: int) -> str:
        raise NotImplementedError("memory has no address")

    def signed_put_url(self, key: str, *, size: int, sha256: str, seconds: int) -> str:
        """For a client that takes the key out of it, and what it is signed for."""
        return f"http://127.0.0.1/{key}?{size}&{sha256}"

    async def get_bytes(self, key: str) -> bytes:
        if key not in self.objects:
            raise BlobNotFound(key)
        return self.objects[key]

    async def get_stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        yield (await self.get_bytes(key))[start : None if end is None else end + 1]

    async def list_prefix(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        for key in sorted(key for key in self.objects if key.startswith(prefix)):
            yield key, self._written.get(key, 0.0)

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


_ALIKE: Final = frozenset((str, int, bool, bytes, NoneType))
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


class MemoryAudit:
    """An audit trail: what ``Audit`` writes to."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def write(self, line: bytes) -> None:
        self.written.append(json.loads(line))
