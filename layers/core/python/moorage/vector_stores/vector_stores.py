"""Vector stores as the API drives them: what a request does to records, index and execution together.

A removal takes a file out of the index first, so that nothing finds it any more, and out of the records afterwards: one that breaks off
is repeated. If the file was still being read, the execution that reads it finds its note, and clears away what it has written since.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from moorage import limits
from moorage.containers.containers import Containers
from moorage.errors import passing_over_what_is_gone, vector_store_busy
from moorage.files.store import Clock, FileStore
from moorage.knowledge.index import Hit, SearchOptions
from moorage.knowledge.knowledge import Knowledge
from moorage.store.blobs import BlobNotFound, Blobs
from moorage.store.executions import Executions
from moorage.store.table import Table
from moorage.vector_stores.files import NewFile, StoreFiles
from moorage.vector_stores.indexing import Indexing
from moorage.vector_stores.jobs import Jobs
from moorage.vector_stores.reading import Reading
from moorage.vector_stores.records import AUTO, Attributes, Chunking, FileBatch, StoreFile, VectorStoreRecord
from moorage.vector_stores.stores import VectorStoreRecords
from moorage.vector_stores.sweep import VectorStoreSweep


class VectorStores:
    def __init__(
        self,
        table: Table,
        blobs: Blobs,
        files: FileStore,
        containers: Containers,
        executions: Executions,
        knowledge: Knowledge,
        *,
        clock: Clock,
    ) -> None:
        self._files = files
        self._knowledge = knowledge
        self.stores = VectorStoreRecords(table, knowledge, clock=clock)
        self.files = StoreFiles(table, files.stored, clock=clock)
        self.jobs = Jobs(table, executions, clock=clock)
        self.indexing = Indexing(self.stores, self.files, self.jobs, Reading(files, blobs, containers), knowledge)
        self.sweep = VectorStoreSweep(table, blobs, knowledge, files.stored, containers, clock=clock)

    # --- Stores --------------------------------------------------------------------------------------------------------------------

    async def create(
        self,
        tenant_id: str,
        *,
        name: str,
        description: str | None,
        metadata: Mapping[str, str],
        days: int | None,
        file_ids: Sequence[str],
        chunking: Chunking,
        draws_on: tuple[str, ...] = (),
    ) -> VectorStoreRecord:
        wanted = [
            await self.new_file(tenant_id, file_id, chunking=chunking, draws_on=draws_on, param=f"file_ids[{at}]")
            for at, file_id in enumerate(file_ids)
        ]
        store = await self.stores.create(tenant_id, name=name, description=description, metadata=metadata, days=days)
        if not wanted:
            return store
        await self.add(store, wanted)
        return await self.stores.get(tenant_id, store.id)

    async def delete(self, store: VectorStoreRecord) -> None:
        """A 404 at once; an erasure that breaks off is finished by the sweep."""
        await self.stores.end(store)
        await asyncio.shield(self.sweep.erase(store, with_record=True))

    async def search(
        self, tenant_id: str, store_ids: Sequence[str], queries: Sequence[str], options: SearchOptions, *, draws_on: tuple[str, ...]
    ) -> list[Hit]:
        """``draws_on`` are the budgets that pay for the embedding of the queries."""
        refs = await self.stores.resolve(tenant_id, store_ids)
        return await (await self._knowledge.opened_index()).search([replace(ref, draws_on=draws_on) for ref in refs], queries, options)

    # --- Files ---------------------------------------------------------------------------------------------------------------------

    async def new_file(
        self,
        tenant_id: str,
        file_id: str,
        *,
        attributes: Attributes | None = None,
        chunking: Chunking = AUTO,
        draws_on: tuple[str, ...] = (),
        param: str,
    ) -> NewFile:
        """A file of the Files API, to be added; 404 for one that there is not."""
        return NewFile(await self._files.get(tenant_id, file_id, param=param), attributes or {}, chunking, draws_on)

    async def add(self, store: VectorStoreRecord, wanted: Sequence[NewFile]) -> list[StoreFile]:
        added: list[StoreFile] = []

        async def add() -> None:
            added.extend(await self.files.add(store, wanted))

        await self.jobs.work(store, add)
        await self.stores.touch(store)
        return added

    async def add_batch(self, store: VectorStoreRecord, wanted: Sequence[NewFile]) -> FileBatch:
        added: list[FileBatch] = []

        async def add() -> None:
            added.append(await self.files.add_batch(store, wanted))

        await self.jobs.work(store, add)
        await self.stores.touch(store)
        return added[0]

    async def set_attributes(self, store: VectorStoreRecord, file_id: str, attributes: Attributes) -> StoreFile:
        """The record first: the file's reader looks at it again when it is in the index."""
        changed = await self.files.set_attributes(store, await self.files.get(store, file_id), attributes)
        if await (await self._knowledge.opened_index()).set_attributes(store.ref, file_id, attributes):
            await self.jobs.work(store, _nothing)
        return changed

    async def remove(self, store: VectorStoreRecord, file_id: str) -> None:
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            file = await self.files.get(store, file_id)
            has_copies = await (await self._knowledge.opened_index()).delete_file(store.ref, file_id)
            await self.indexing.reading.drop(store, file_id)
            if await self._take_out(store, file, has_copies=has_copies):
                return
        raise vector_store_busy(store.id)

    async def _take_out(self, store: VectorStoreRecord, file: StoreFile, *, has_copies: bool) -> bool:
        """An execution clears away the copies that the index has left of it, by a note that goes when it has."""
        if not has_copies:
            return await self.files.remove(store, file)
        removed: list[bool] = []

        async def remove() -> None:
            removed.append(await self.files.remove(store, file, is_noted=True))

        await self.jobs.work(store, remove)
        return removed[0]

    async def forget_file(self, tenant_id: str, file_id: str) -> None:
        """Take a file that is about to be deleted out of every store."""
        for store_id in await self.files.holders(tenant_id, file_id):
            with passing_over_what_is_gone():  # the store has gone or expired, or does not hold it any more
                await self.remove(await self.stores.active(tenant_id, store_id), file_id)

    async def content(self, store: VectorStoreRecord, file_id: str) -> list[str]:
        """The text that was read of a file; nothing of one that was not, or not yet."""
        file = await self.files.get(store, file_id)
        if file.status != "completed":
            return []
        try:
            return [await self.indexing.reading.text(file)]
        except BlobNotFound:
            return []


async def _nothing() -> None:
    """There is no file to read: the execution tidies the index at its end."""
