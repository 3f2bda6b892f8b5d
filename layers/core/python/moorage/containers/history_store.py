"""How a container's files were, and whom their stored content serves beside it.

A file row is replaced in its place; what stood there goes into one record of the change, ``PAST#<time>``. So the files of a time are
the rows that were written by then, those of later changes among them. A change that only adds files writes nothing for it.

A container that begins with another one's files names the same objects. It is noted there (``LENT#``), and an object stays as long
as a row of either names it.
"""

import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence

import orjson

from moorage import limits
from moorage.containers.store import CONTAINER_FILE, ContainerFileRecord, ContainerRecord, ContainerStore
from moorage.dataclass import dataclass
from moorage.store import keys
from moorage.store.table import Record, Table


@dataclass(frozen=True, slots=True)
class FileChange:
    """Rows that were replaced or removed together."""

    sk: str
    rows: tuple[ContainerFileRecord, ...]

    @property
    def at_ms(self) -> int:
        return keys.past_time(self.sk)


def time_after(rows: Iterable[ContainerFileRecord], now_ms: int) -> int:
    """The time of a change that finds these rows: now, but later than all of them, even if another process's clock is ahead."""
    return max([now_ms, *(row.written_at_ms + 1 for row in rows)])


class ContainerPast:
    def __init__(self, table: Table, store: ContainerStore) -> None:
        self._table = table
        self._store = store

    async def note(self, container: ContainerRecord, rows: Sequence[ContainerFileRecord], at_ms: int) -> None:
        """Keep rows that are about to be replaced or removed. To be written before they are: a change that breaks off in between has
        kept what is still there, which changes nothing."""
        name = secrets.token_hex(4)
        chunks = [rows[start : start + limits.CONTAINER_PAST_ROWS_MAX] for start in range(0, len(rows), limits.CONTAINER_PAST_ROWS_MAX)]
        pk = keys.container(container.tenant_id, container.id)
        for number, chunk in enumerate(chunks):
            await self._table.put({"PK": pk, "SK": keys.past(at_ms, f"{name}{number:04d}"), "rows": _packed(chunk)})

    async def files_at(self, container: ContainerRecord, at_ms: int) -> list[ContainerFileRecord]:
        """The file rows as they were at a time, by path. Rows that are there now are read first: one that is replaced meanwhile is then
        found among the changes."""
        now = await self._store.files(container)
        earlier = [row for change in await self.since(container, at_ms) for row in change.rows]
        found: dict[str, ContainerFileRecord] = {}
        for row in sorted((*earlier, *now), key=lambda row: row.written_at_ms):
            if row.written_at_ms <= at_ms:
                found[row.path] = row
        return [found[path] for path in sorted(found)]

    async def since(self, container: ContainerRecord, at_ms: int) -> list[FileChange]:
        """The changes after a time, oldest first."""
        pk = keys.container(container.tenant_id, container.id)
        records = await self._table.query(pk, prefix=keys.PAST_PREFIX, after=keys.past_until(at_ms))
        return [FileChange(record["SK"], _unpacked(record)) for record in records]

    async def forget(self, file: ContainerFileRecord) -> None:
        """Its user has deleted a file: how it was is forgotten too."""
        pk = keys.container(file.tenant_id, file.container_id)
        for record in await self._table.query(pk, prefix=keys.PAST_PREFIX):
            rows = _unpacked(record)
            kept = [row for row in rows if row.path != file.path]
            if not kept:
                await self._table.delete(pk, record["SK"])
            elif len(kept) < len(rows):
                await self._table.put(record | {"rows": _packed(kept)})

    async def prune(self, container: ContainerRecord) -> None:
        """Let go of the oldest changes if there are too many, or if they hold too many bytes. From when on the rest is whole is
        noted before anything goes: whoever has read the changes looks at that afterwards."""
        there = {row.key for row in await self._store.files(container)}
        changes = await self.since(container, 0)
        doomed = changes[: len(changes) - _kept(changes[::-1], there)]
        if not doomed:
            return
        if doomed[-1].at_ms > container.past_from_ms:
            await self._store.change(container, set={"past_from_ms": doomed[-1].at_ms})
        pk = keys.container(container.tenant_id, container.id)
        await self._table.write_many(deletes=[(pk, change.sk) for change in doomed])

    async def named(self, container: ContainerRecord) -> set[str]:
        """Keys of all objects that the container's rows name: of files, of files of the past, and of skills."""
        rows = await self._store.files(container)
        past = [row for change in await self.since(container, 0) for row in change.rows]
        skills = await self._table.query(keys.container(container.tenant_id, container.id), prefix=keys.container_skill.prefix)
        return {row.key for row in [*rows, *past]} | {record["key"] for record in skills}

    # --- lending ---

    async def lend(self, tenant_id: str, lender_id: str, borrower_id: str) -> None:
        """From now on the objects that the borrower names stay, even if the lender goes."""
        await self._table.put({"PK": keys.container(tenant_id, lender_id), "SK": keys.lent(borrower_id)})

    async def give_back(self, tenant_id: str, lender_id: str, borrower_id: str) -> None:
        await self._table.delete(keys.container(tenant_id, lender_id), keys.lent(borrower_id))

    async def borrowers(self, tenant_id: str, lender_id: str) -> list[str]:
        """Ids of the containers with rows that may name the lender's objects."""
        records = await self._table.query(keys.container(tenant_id, lender_id), prefix=keys.lent.prefix)
        return [keys.lent.read(record["SK"]) for record in records]

    async def named_by_borrowers(self, tenant_id: str, lender_id: str) -> set[str]:
        named: set[str] = set()
        for borrower_id in await self.borrowers(tenant_id, lender_id):
            borrower = await self._store.peek(tenant_id, borrower_id)
            if borrower is not None and not borrower.is_deleted:
                named |= await self.named(borrower)
        return named


def _kept(newest_first: Sequence[FileChange], there: set[str]) -> int:
    """How many of the changes stay."""
    objects: dict[str, int] = {}
    for count, change in enumerate(newest_first):
        objects |= {row.key: row.bytes for row in change.rows if row.key not in there}
        if count >= limits.CONTAINER_CHANGES_MAX or sum(objects.values()) > limits.CONTAINER_PAST_BYTES_MAX:
            return count
    return len(newest_first)


def _packed(rows: Sequence[ContainerFileRecord]) -> bytes:
    return zlib.compress(orjson.dumps([CONTAINER_FILE.pack(row) for row in rows]), 1)


def _unpacked(record: Mapping[str, object]) -> tuple[ContainerFileRecord, ...]:
    packed = record["rows"]
    assert isinstance(packed, bytes)
    rows: list[Record] = orjson.loads(zlib.decompress(packed))
    return tuple(map(CONTAINER_FILE.unpack, rows))
