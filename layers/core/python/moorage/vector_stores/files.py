"""The files of vector stores: added, settled, removed, listed. Every change of a file's status is one transaction with the counts of
its store and its batch, and with the note (``TODO#``) that the index is not yet as the record says.

Whoever adds or removes a file does not touch the index if an execution may be at work on it: the note stays until the index agrees
(``indexing.py``).
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import (
    ConditionFailed,
    too_many_vector_store_files,
    vector_batch_not_found,
    vector_store_busy,
    vector_store_file_not_found,
    vector_store_full,
    vector_store_not_found,
)
from moorage.files.store import Clock, StoredFile
from moorage.ids import new_id
from moorage.store import keys
from moorage.store.listing import Page, gone_record, place_among, records_of, unknown_after, walk
from moorage.store.stored_bytes import StoredBytes
from moorage.store.table import Record, Table, Write
from moorage.vector_stores.records import (
    AUTO,
    BATCH,
    FILE,
    Attributes,
    Chunking,
    ErrorCode,
    FileBatch,
    StoreFile,
    VectorStoreRecord,
    batch_record,
    file_attributes,
)
from moorage.vector_stores.shapes import FileStatus
from moorage.wire.queries import PageQuery

_ACTIVE: Final = {"phase": "active"}


@dataclass(frozen=True, slots=True)
class NewFile:
    file: StoredFile
    attributes: Attributes
    chunking: Chunking = AUTO
    draws_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexNote:
    """A note that a store's index is not yet as its records say."""

    file_id: str
    token: str


class StoreFiles:
    def __init__(self, table: Table, stored: StoredBytes, *, clock: Clock) -> None:
        self._table = table
        self._stored = stored
        self._clock = clock

    # --- Adding ------------------------------------------------------------------------------------------------------------------

    async def add(self, store: VectorStoreRecord, wanted: Sequence[NewFile]) -> list[StoreFile]:
        """Put files into a store; one that it has already is read anew, with its present attributes."""
        return await self._add(store, wanted, None)

    async def add_batch(self, store: VectorStoreRecord, wanted: Sequence[NewFile]) -> FileBatch:
        ids = tuple(sorted({each.file.id for each in wanted}))
        batch = FileBatch(store.tenant_id, store.id, new_id("vsfb"), int(self._clock()), ids)
        await self._table.put(batch_record(batch))
        await self._add(store, wanted, batch)
        return await self.batch(store, batch.id)

    async def _add(self, store: VectorStoreRecord, wanted: Sequence[NewFile], batch: FileBatch | None) -> list[StoreFile]:
        if store.usage_bytes >= limits.VECTOR_STORE_BYTES_MAX:
            raise vector_store_full(limits.VECTOR_STORE_BYTES_MAX)
        await self._stored.room(store.tenant_id)
        once = list({each.file.id: each for each in wanted}.values())
        before = {file.id for file in await self.named(store, [each.file.id for each in once])}
        if store.total + len(once) - len(before) > limits.VECTOR_STORE_FILES_MAX:
            raise too_many_vector_store_files(limits.VECTOR_STORE_FILES_MAX)
        now = int(self._clock())
        added = [
            StoreFile(
                tenant_id=store.tenant_id,
                store_id=store.id,
                id=each.file.id,
                filename=each.file.filename,
                bytes=each.file.bytes,
                created_at=now,
                token=secrets.token_hex(8),
                attributes=each.attributes,
                chunking=each.chunking,
                batch_id=None if batch is None else batch.id,
                draws_on=each.draws_on,
            )
            for each in once
        ]
        for start in range(0, len(added), limits.VECTOR_FILES_TOGETHER):
            await self._add_together(store, added[start : start + limits.VECTOR_FILES_TOGETHER])
        return added

    async def _add_together(self, store: VectorStoreRecord, added: Sequence[StoreFile]) -> None:
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            before = {file.id: file for file in await self.named(store, [file.id for file in added])}
            counts = _Counts(store, self._stored)
            puts: list[Record] = []
            changes: list[Write] = []
            for file in added:
                old = before.get(file.id)
                attributes = file_attributes(file)
                if old is None:
                    puts.append({"PK": file.pk, "SK": file.sk, **attributes})
                else:
                    counts.drop(old)
                    changes.append(Write(file.pk, file.sk, set=attributes, condition={"token": old.token, "status": old.status}))
                counts.enter(file)
                changes.append(Write(file.pk, keys.todo(file.id), set={"token": file.token}, condition={}))
                changes.append(Write(*_held(file), set={"store_id": file.store_id}, condition={}))
            room = {"total": limits.VECTOR_STORE_FILES_MAX - len(puts) + 1}
            if not await self._table.write_together(puts, [*changes, *counts.changes(below=room)]):
                return
            await self._check_room(store, len(puts))
        raise vector_store_busy(store.id)

    async def _check_room(self, store: VectorStoreRecord, files: int) -> None:
        record = await self._table.get(store.pk, keys.META)
        if record is None or record["phase"] != "active":
            raise vector_store_not_found(store.id)
        if record["total"] + files > limits.VECTOR_STORE_FILES_MAX:
            raise too_many_vector_store_files(limits.VECTOR_STORE_FILES_MAX)

    # --- Reading -----------------------------------------------------------------------------------------------------------------

    async def get(self, store: VectorStoreRecord, file_id: str) -> StoreFile:
        file = await self.find(store, file_id)
        if file is None:
            raise vector_store_file_not_found(file_id, store.id)
        return file

    async def find(self, store: VectorStoreRecord, file_id: str) -> StoreFile | None:
        record = await self._table.get(store.pk, keys.container_file(file_id))
        return None if record is None else FILE.unpack(record)

    async def named(self, store: VectorStoreRecord, file_ids: Iterable[str]) -> list[StoreFile]:
        """Those of these files that the store has."""
        wanted = [(store.pk, keys.container_file(file_id)) for file_id in file_ids]
        return [FILE.unpack(record) for record in await self._table.get_many(wanted, consistent=True)]

    async def page(self, store: VectorStoreRecord, page: PageQuery, *, status: FileStatus | None = None) -> Page[StoreFile]:
        async def place_of(file_id: str, param: str) -> str:
            candidates = [(store.pk, keys.container_file(file_id)), (store.pk, keys.gone(file_id))]
            return await place_among(self._table, candidates, file_id, param)

        async def kept(entries: Sequence[Record]) -> list[StoreFile]:
            files = map(FILE.unpack, await records_of(self._table, entries))
            return [file for file in files if status in (None, file.status)]

        listed = keys.listing(store.tenant_id, keys.vector_store_files(store.id))
        return await walk(self._table, listed, page, place_of=place_of, kept=kept)

    async def batch(self, store: VectorStoreRecord, batch_id: str) -> FileBatch:
        record = await self._table.get(store.pk, keys.vector_batch(batch_id))
        if record is None:
            raise vector_batch_not_found(batch_id, store.id)
        return BATCH.unpack(record)

    async def batch_page(
        self, store: VectorStoreRecord, batch: FileBatch, page: PageQuery, *, status: FileStatus | None = None
    ) -> Page[StoreFile]:
        """By their ids, since all were added at once."""
        ids = sorted(batch.file_ids, reverse=page.order == "desc")
        for name, mark in (("after", page.after), ("before", page.before)):
            if mark is not None and mark not in ids:
                raise unknown_after(mark, name)
        if (backward := page.backward) is not None:
            return (await self.batch_page(store, batch, backward, status=status)).turned()
        begin = 0 if page.after is None else ids.index(page.after) + 1
        ids = ids[begin : None if page.before is None else ids.index(page.before)]
        kept: list[StoreFile] = []
        step = page.limit + 1
        for start in range(0, len(ids), step):
            found = {file.id: file for file in await self.named(store, ids[start : start + step]) if file.batch_id == batch.id}
            kept += [found[file_id] for file_id in ids if file_id in found and status in (None, found[file_id].status)]
            if len(kept) > page.limit:
                break
        return Page.of(kept, page.limit)

    async def todos(self, store: VectorStoreRecord) -> list[IndexNote]:
        records = await self._table.query(store.pk, prefix=keys.todo.prefix)
        return [IndexNote(keys.todo.read(record["SK"]), record["token"]) for record in records]

    async def holders(self, tenant_id: str, file_id: str) -> list[str]:
        """Ids of the stores that hold a file."""
        records = await self._table.query(keys.file(tenant_id, file_id), prefix=keys.held.prefix)
        return [keys.held.read(record["SK"]) for record in records]

    # --- Settling ----------------------------------------------------------------------------------------------------------------

    async def settle(
        self,
        store: VectorStoreRecord,
        file: StoreFile,
        status: FileStatus,
        *,
        usage_bytes: int = 0,
        error: tuple[ErrorCode, str] | None = None,
    ) -> bool:
        """End the work on a file whose index agrees with it now; False if it is not the work of this addition any more."""
        code, message = error or (None, "")
        ended = {"status": status, "usage_bytes": usage_bytes, "error_code": code, "error_message": message}
        counts = _Counts(store, self._stored)
        counts.leave(file)
        counts.enter(replace(file, status=status, usage_bytes=usage_bytes))
        return not await self._table.write_together(
            (),
            [
                Write(file.pk, file.sk, set=ended, condition={"token": file.token, "status": "in_progress"}),
                Write(file.pk, keys.todo(file.id), set={}, condition={"token": file.token}, is_end=True),
                *counts.changes(),
            ],
        )

    async def note(self, file: StoreFile, **changed: object) -> StoreFile | None:
        """Write the progress of a file in work; None if it is another's work by now."""
        try:
            record = await self._table.update(
                file.pk, file.sk, set=changed, condition={"token": file.token, "status": "in_progress", "attempts": file.attempts}
            )
        except ConditionFailed:
            return None
        return FILE.unpack(record)

    async def forget(self, store: VectorStoreRecord, todo: IndexNote) -> None:
        """Take away a note: the index agrees. One that was renewed meanwhile stays."""
        try:
            await self._table.delete(store.pk, keys.todo(todo.file_id), condition={"token": todo.token})
        except ConditionFailed:
            return

    async def set_attributes(self, store: VectorStoreRecord, file: StoreFile, attributes: Attributes) -> StoreFile:
        try:
            record = await self._table.update(file.pk, file.sk, set={"attributes": dict(attributes)}, condition={"token": file.token})
        except ConditionFailed as error:
            if error.item is None:
                raise vector_store_file_not_found(file.id, store.id) from error
            raise vector_store_busy(store.id) from error
        return FILE.unpack(record)

    async def cancel(self, store: VectorStoreRecord, batch: FileBatch) -> FileBatch:
        """Files of the batch that have not been settled are cancelled; an execution clears away its parts of them."""
        await self._table.update(batch.pk, batch.sk, set={"is_cancelled": True})
        for start in range(0, len(batch.file_ids), limits.VECTOR_FILES_TOGETHER):
            await self._cancel_together(store, batch, batch.file_ids[start : start + limits.VECTOR_FILES_TOGETHER])
        return await self.batch(store, batch.id)

    async def _cancel_together(self, store: VectorStoreRecord, batch: FileBatch, file_ids: Sequence[str]) -> None:
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            files = await self.named(store, file_ids)
            doomed = [file for file in files if file.batch_id == batch.id and file.status == "in_progress"]
            if not doomed:
                return
            counts = _Counts(store, self._stored)
            changes = []
            for file in doomed:
                cancelled = replace(file, status="cancelled")
                counts.leave(file)
                counts.enter(cancelled)
                mine = {"token": file.token, "status": "in_progress"}
                changes.append(Write(file.pk, file.sk, set={"status": "cancelled"}, condition=mine))
            if not await self._table.write_together((), [*changes, *counts.changes()]):
                return
        raise vector_store_busy(store.id)

    # --- Removing ----------------------------------------------------------------------------------------------------------------

    async def remove(self, store: VectorStoreRecord, file: StoreFile, *, is_noted: bool = False) -> bool:
        """Take a file out of a store; False if it has changed meanwhile. Whoever works on it finds the note that it left, and clears
        away; ``is_noted`` leaves one also of a file that was settled."""
        counts = _Counts(store, self._stored)
        counts.drop(file)
        gone = gone_record(file.pk, keys.gone(file.id), file.created_at, file.id, self._clock())
        marks = {name: value for name, value in gone.items() if name not in ("PK", "SK")}
        note = [Write(file.pk, keys.todo(file.id), set={"token": file.token}, condition={})] if is_noted else []
        return not await self._table.write_together(
            (),
            [
                Write(file.pk, file.sk, set={}, condition={"token": file.token, "status": file.status}, is_end=True),
                Write(file.pk, keys.gone(file.id), set=marks, condition={}),
                Write(*_held(file), set={}, condition={}, is_end=True),
                *note,
                *counts.changes(),
            ],
        )


class _Counts:
    """A transaction's change of the counts of a store, and of the batches that its files came with."""

    def __init__(self, store: VectorStoreRecord, stored: StoredBytes) -> None:
        self._store = store
        self._stored = stored
        self._of_store: Counter[str] = Counter(total=0)
        self._of_batches: dict[str, Counter[str]] = {}

    def enter(self, file: StoreFile) -> None:
        self._count(file, 1)

    def leave(self, file: StoreFile) -> None:
        self._count(file, -1)

    def drop(self, file: StoreFile) -> None:
        """It leaves the store; a finished addition of its batch stays finished, and an open one was cancelled."""
        self._of_store.update(_with_total(file, -1))
        if file.batch_id is not None and file.status == "in_progress":
            self._of_batches.setdefault(file.batch_id, Counter()).update({"in_progress": -1, "cancelled": 1})

    def _count(self, file: StoreFile, number: int) -> None:
        self._of_store.update(_with_total(file, number))
        if file.batch_id is not None:
            self._of_batches.setdefault(file.batch_id, Counter()).update({file.status: number, "total": number})

    def changes(self, *, below: Mapping[str, int] | None = None) -> list[Write]:
        """The store's is always one of them: only an active store's files change. The tenant's count changes with it."""
        made = [Write(self._store.pk, keys.META, set={}, condition=_ACTIVE, add=dict(self._of_store), below=below or {})]
        for batch_id, counts in self._of_batches.items():
            changed = {name: number for name, number in counts.items() if number}
            if changed:
                made.append(Write(self._store.pk, keys.vector_batch(batch_id), set={}, condition={"id": batch_id}, add=changed))
        return [*made, *self._stored.changes(self._store.holder, self._of_store["usage_bytes"])]


def _with_total(file: StoreFile, number: int) -> dict[str, int]:
    return {file.status: number, "total": number, "usage_bytes": number * file.usage_bytes}


def _held(file: StoreFile) -> tuple[str, str]:
    return keys.file(file.tenant_id, file.id), keys.held(file.store_id)
