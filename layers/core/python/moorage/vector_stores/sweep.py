"""The ends of vector stores: those that rest too long expire, and what is deleted or has expired is erased, vectors and texts first, so
that an erasure that breaks off is found and repeated by the store's own record (``keys.PURGE``)."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from moorage import limits
from moorage.containers.containers import Containers
from moorage.errors import ConditionFailed
from moorage.files.store import Clock
from moorage.knowledge.knowledge import Knowledge
from moorage.parallel import side_by_side
from moorage.store import keys, object_keys, schema
from moorage.store.blobs import Blobs
from moorage.store.stored_bytes import StoredBytes
from moorage.store.table import Record, Table
from moorage.vector_stores.jobs import JOB
from moorage.vector_stores.records import STORE, VectorStoreRecord
from moorage.vector_stores.shapes import FILE_STATUSES
from moorage.vector_stores.stores import due_record

_NOTHING: Final = dict.fromkeys((*FILE_STATUSES, "total", "usage_bytes"), 0)
_STAYING: Final = (keys.META, keys.PURGE, keys.GONE)


class VectorStoreSweep:
    def __init__(
        self, table: Table, blobs: Blobs, knowledge: Knowledge, stored: StoredBytes, containers: Containers, *, clock: Clock
    ) -> None:
        self._table = table
        self._stored = stored
        self._containers = containers
        self._blobs = blobs
        self._knowledge = knowledge
        self._clock = clock

    async def purge_due(self, now: float) -> int:
        """Settle every store that is due; answers how many ended. Harmless to run twice, or twice at once."""
        listed = keys.due_list(keys.VECTOR_STORES)
        entries = await self._table.query(listed, up_to=keys.due(int(now), "~"), index=schema.INDEX)
        records = {record["PK"]: record for record in await self._table.get_many((entry["PK"], keys.META) for entry in entries)}
        lost = [(entry["PK"], entry["SK"]) for entry in entries if entry["PK"] not in records]
        await self._table.write_many(deletes=lost)
        return sum(await side_by_side(self._settle, map(STORE.unpack, records.values()), at_once=limits.SWEEP_AT_ONCE))

    async def _settle(self, store: VectorStoreRecord) -> bool:
        if store.phase == "active" and not store.is_expired(self._clock()):
            # It was used since, or may stay for ever by now.
            if store.expires_at is None:
                await self._table.delete(store.pk, keys.PURGE)
            else:
                await self._table.write_many(puts=[due_record(store, store.expires_at)])
            return False
        if store.phase == "active":
            try:
                rested = {"last_active_at": store.last_active_at, "phase": "active"}
                await self._table.update(store.pk, keys.META, set={"phase": "expired"}, condition=rested)
            except ConditionFailed:
                return False  # used in this moment
        await self.erase(store, with_record=store.phase == "deleted")
        return True

    async def erase(self, store: VectorStoreRecord, *, with_record: bool) -> None:
        """All that a store holds. One that an execution is at work on is erased again when that is over for certain: what it was about
        to write may come after this."""
        await (await self._knowledge.opened_index()).delete(store.ref)
        await self._blobs.delete_prefix(object_keys.vector_objects(store.tenant_id, store.id))
        await self._stored.forget(store.holder)
        rows = await self._table.query(store.pk)
        jobs = [JOB.unpack(row) for row in rows if row["SK"] == keys.INDEXING_JOB]
        for job in jobs:
            if job.container_id is not None:
                await self._containers.release(store.tenant_id, job.container_id)
        doomed = [(row["PK"], row["SK"]) for row in rows if row["SK"] not in _STAYING]
        await self._table.write_many(deletes=[*doomed, *_held(store, rows)])
        if jobs:
            later = int(self._clock()) + limits.INDEXING_LAST_SECONDS
            await self._table.write_many(puts=[due_record(store, later)])
        elif with_record:
            await self._table.write_many(deletes=[(store.pk, keys.META), (store.pk, keys.PURGE)])
        else:
            await self._table.delete(store.pk, keys.PURGE)
        if not with_record:
            with suppress(ConditionFailed):  # deleted meanwhile
                await self._table.update(store.pk, keys.META, set=_NOTHING, condition={"phase": "expired"})


def _held(store: VectorStoreRecord, rows: Iterable[Record]) -> list[tuple[str, str]]:
    """The notes with the files that this store holds them."""
    ids = [keys.container_file.read(row["SK"]) for row in rows if row["SK"].startswith(keys.container_file.prefix)]
    return [(keys.file(store.tenant_id, file_id), keys.held(store.id)) for file_id in ids]
