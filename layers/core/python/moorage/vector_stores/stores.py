"""The records of vector stores themselves: made, found, changed, used, listed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from moorage import limits
from moorage.errors import ConditionFailed, too_many_vector_stores, vector_store_expired, vector_store_not_found
from moorage.files.store import Clock
from moorage.ids import new_listed_id
from moorage.knowledge.index import IndexRef
from moorage.knowledge.knowledge import Knowledge
from moorage.store import keys, schema
from moorage.store.listing import Page, gone_record, read_page
from moorage.store.table import Record, Table
from moorage.vector_stores.records import STORE, VectorStoreRecord, store_record
from moorage.wire.queries import PageQuery

UNCHANGED: Final[Any] = object()
"""Of a field that a change does not name: null is a value."""


class VectorStoreRecords:
    def __init__(self, table: Table, knowledge: Knowledge, *, clock: Clock) -> None:
        self._table = table
        self._knowledge = knowledge
        self._clock = clock

    async def create(
        self, tenant_id: str, *, name: str, description: str | None, metadata: Mapping[str, str], days: int | None
    ) -> VectorStoreRecord:
        listed = keys.listing(tenant_id, keys.VECTOR_STORES)
        if len(await self._table.query(listed, limit=limits.VECTOR_STORES_MAX, index=schema.INDEX)) >= limits.VECTOR_STORES_MAX:
            raise too_many_vector_stores(limits.VECTOR_STORES_MAX)
        exactly, embedder = self._clock(), self._knowledge.embeddings.default
        now = int(exactly)
        store = VectorStoreRecord(
            tenant_id=tenant_id,
            id=new_listed_id("vs", exactly),
            name=name,
            created_at=now,
            last_active_at=now,
            model=embedder.name,
            dimension=embedder.dimension,
            description=description,
            metadata=metadata,
            days=days,
        )
        await self._table.write_many(puts=[store_record(store), *_due_records(store)])
        return store

    async def get(self, tenant_id: str, store_id: str, *, param: str | None = None) -> VectorStoreRecord:
        """Unknown, foreign and deleted ones are all 404; an expired one is there, and empty."""
        record = await self._table.get(keys.vector_store(tenant_id, store_id), keys.META)
        if record is None or record["phase"] == "deleted":
            raise vector_store_not_found(store_id, param=param)
        return STORE.unpack(record)

    async def active(self, tenant_id: str, store_id: str, *, param: str | None = None) -> VectorStoreRecord:
        """The same to work with it: an expired one is refused."""
        store = await self.get(tenant_id, store_id, param=param)
        if store.is_expired(self._clock()):
            raise vector_store_expired(store_id, param=param)
        return store

    async def page(self, tenant_id: str, page: PageQuery) -> Page[VectorStoreRecord]:
        found = await read_page(
            self._table,
            tenant_id,
            keys.VECTOR_STORES,
            page,
            pk_of=keys.vector_store,
            keep=lambda record: record["phase"] != "deleted",
        )
        return found.read(STORE.unpack)

    async def change(
        self,
        tenant_id: str,
        store_id: str,
        *,
        name: Any = UNCHANGED,
        metadata: Any = UNCHANGED,
        days: Any = UNCHANGED,
    ) -> VectorStoreRecord:
        """Changing a store is using it."""
        store = await self.active(tenant_id, store_id)
        wanted = {"name": name, "metadata": metadata, "days": days}
        changed = {key: value for key, value in wanted.items() if value is not UNCHANGED}
        now = int(self._clock())
        planned = replace(store, **changed, last_active_at=now)
        await self._table.write_many(puts=_due_records(planned))
        return await self._write(store, set={**changed, "last_active_at": now})

    async def touch(self, store: VectorStoreRecord) -> VectorStoreRecord:
        """Note that it is used."""
        now = int(self._clock())
        if now - store.last_active_at < limits.VECTOR_STORE_TOUCH_SECONDS:
            return store
        return await self._write(store, set={"last_active_at": now})

    async def resolve(self, tenant_id: str, store_ids: Sequence[str], *, param: str | None = None) -> list[IndexRef]:
        """What a search in these stores asks the index for; the stores are used by it. Raises 404 for one that there is not, and 400
        for one that has expired. ``param`` is where a request has the ids."""
        places = {store_id: f"{param}[{at}]" if param else None for at, store_id in reversed([*enumerate(store_ids)])}
        stores = [await self.active(tenant_id, store_id, param=places[store_id]) for store_id in dict.fromkeys(store_ids)]
        return [(await self.touch(store)).ref for store in stores]

    async def end(self, store: VectorStoreRecord) -> None:
        """It is a 404 from here on, and due to be erased."""
        gone = gone_record(store.pk, keys.GONE, store.created_at, store.id, self._clock())
        await self._table.write_many(puts=[due_record(store, int(self._clock())), gone])
        await self._write(store, set={"phase": "deleted"}, remove=("GSI1PK", "GSI1SK"))

    async def _write(self, store: VectorStoreRecord, *, set: Mapping[str, Any], remove: Sequence[str] = ()) -> VectorStoreRecord:
        try:
            record = await self._table.update(store.pk, keys.META, set=set, remove=remove, condition={"phase": store.phase})
        except ConditionFailed as error:
            if error.item is not None and error.item["phase"] == "expired":
                raise vector_store_expired(store.id) from error
            raise vector_store_not_found(store.id) from error
        return STORE.unpack(record)


def due_record(store: VectorStoreRecord, at: int) -> Record:
    """The sweep's key of a store that ends at a time."""
    listed = {"GSI1PK": keys.due_list(keys.VECTOR_STORES), "GSI1SK": keys.due(at, store.id)}
    return {"PK": store.pk, "SK": keys.PURGE, **listed}


def _due_records(store: VectorStoreRecord) -> list[Record]:
    return [] if store.expires_at is None else [due_record(store, store.expires_at)]
