"""The steps of an execution that reads a store's files: until no note (``TODO#``) says that the index is not as the records say.

    index: reads texts, cuts them, puts them into the index, clears away what was removed, and tidies the index at last  ──► done
      │  ▲                                                                        ▲
      ▼  │ (documents)                                                            │ (something cannot be had now)
    parse: has documents read in a sandbox                                       rest

On AWS ``parse`` runs inside the sandboxes' network and ``index`` outside, where embedding models and the place of sandboxes are.

Any step may die at any moment, and may run twice, or twice at once: a file's chunks are replaced whole, and its status changes once, by
the transaction that also takes its note away. A file that brings its steps down fails after ``INDEXING_ATTEMPTS_MAX`` of them, and the
others go on.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Final

from botocore.exceptions import ClientError

from moorage import limits
from moorage.containers.lifecycle import LiveContainer
from moorage.dataclass import dataclass
from moorage.errors import ApiError, SandboxElsewhere, SandboxError, StorageFull, UpstreamError, VectorBucketError
from moorage.knowledge.index import IndexedFile
from moorage.knowledge.knowledge import Knowledge
from moorage.parallel import worked
from moorage.store.blobs import BlobNotFound
from moorage.store.table import TABLE_ERRORS
from moorage.store.throttling import is_throttle
from moorage.telemetry import tell, tell_error
from moorage.vector_stores.chunking import chunks_of
from moorage.vector_stores.documents import UnreadableDocument
from moorage.vector_stores.files import IndexNote, StoreFiles
from moorage.vector_stores.jobs import IndexState, Job, Jobs
from moorage.vector_stores.reading import Reading
from moorage.vector_stores.records import ErrorCode, StoreFile, VectorStoreRecord
from moorage.vector_stores.stores import VectorStoreRecords

_CRASHED: Final = "The file could not be indexed: reading it was begun several times and never ended."
_NOTHING_RUNS: Final = "The file could not be indexed: the work on it broke off too often."
_NOTHING_TO_HAVE: Final = "The file could not be indexed: no container, or no embedding model, could be had for it."
_NOT_EMBEDDED: Final = "The file could not be indexed: the embedding model refused its text."
_UNPAID: Final = ("budget_reached", "model_not_budgetable")


class IndexStepResult(StrEnum):
    """The result of a look at one note."""

    SETTLED = "settled"
    LEFT = "left"
    """Somebody else's by now."""
    DOCUMENT = "document"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Indexing:
    stores: VectorStoreRecords
    files: StoreFiles
    jobs: Jobs
    reading: Reading
    knowledge: Knowledge

    # --- index -------------------------------------------------------------------------------------------------------------------

    async def index_step(self, state: IndexState) -> IndexState:
        """The task ``IndexStep``."""
        state = replace(state, rounds=state.rounds + 1)
        job, store = await self._begin(state)
        if job is None or store is None or state.rounds > limits.INDEXING_ROUNDS_MAX:
            return replace(state, next="done")  # one that has more to do is taken up by the reaper
        todos = await self.files.todos(store)
        if not todos:
            return await self._end(state, job, store)
        if state.rests > limits.INDEXING_RESTS_MAX or job.runs > limits.INDEXING_RUNS_MAX:
            await self._give_up(store, todos, _NOTHING_TO_HAVE if state.rests else _NOTHING_RUNS)
            await self.jobs.change(job, runs=0)
            return replace(state, next="index", rests=0)
        came = await self._look_at(store, todos)
        if IndexStepResult.SETTLED in came:
            job = await self.jobs.change(job, runs=0) or job
            state = replace(state, rests=0)
        return await self._after(state, job, store, came)

    async def _begin(self, state: IndexState) -> tuple[Job | None, VectorStoreRecord | None]:
        job = await self.jobs.of(state)
        try:
            return job, await self.stores.active(state.tenant_id, state.store_id)
        except ApiError:
            return job, None  # erased, or about to be

    async def _look_at(self, store: VectorStoreRecord, todos: list[IndexNote]) -> set[IndexStepResult]:
        deadline = asyncio.get_running_loop().time() + limits.INDEXING_SLICE_SECONDS
        came: set[IndexStepResult] = set()
        for todo in todos:
            came.add(await self._one(store, todo))
            if asyncio.get_running_loop().time() > deadline:
                came.add(IndexStepResult.LEFT)
                break
        return came

    async def _after(self, state: IndexState, job: Job, store: VectorStoreRecord, came: set[IndexStepResult]) -> IndexState:
        if IndexStepResult.DOCUMENT in came:
            return await self._to_sandbox(state, job, store)
        if IndexStepResult.WAIT in came and IndexStepResult.SETTLED not in came:
            return replace(state, next="rest", rests=state.rests + 1)
        return replace(state, next="index")

    async def _to_sandbox(self, state: IndexState, job: Job, store: VectorStoreRecord) -> IndexState:
        container_id = job.container_id
        if container_id is None:
            container_id = await self.reading.reserve(store)
            if await self.jobs.change(job, container_id=container_id) is None:
                await self.reading.release(store.tenant_id, container_id)
                return replace(state, next="done")
        try:
            await self.reading.place(store.tenant_id, container_id)
        except StorageFull:
            raise
        except ApiError:  # it has expired
            await self.jobs.change(job, container_id=None)
            return replace(state, next="rest", rests=state.rests + 1)
        return replace(state, next="parse")

    async def _end(self, state: IndexState, job: Job, store: VectorStoreRecord) -> IndexState:
        if job.container_id is not None:
            await self.reading.release(store.tenant_id, job.container_id)
            job = await self.jobs.change(job, container_id=None) or job
        if job.runs <= limits.INDEXING_RUNS_MAX and await self._tidied_for_a_slice(store):
            return replace(state, next="index")  # files that have come meanwhile go first
        await self.jobs.end(job)
        # Whoever noted something before the end saw a record, and relies on this look.
        if not await self.files.todos(store) or await self.jobs.resume(job) is None:
            await self.jobs.start_next(job.tenant_id)
            return replace(state, next="done")
        return replace(state, next="index")

    async def _tidied_for_a_slice(self, store: VectorStoreRecord) -> bool:
        """Whether there is more to tidy."""
        deadline = asyncio.get_running_loop().time() + limits.INDEXING_SLICE_SECONDS
        while await (await self.knowledge.opened_index()).tidy(store.ref):
            if asyncio.get_running_loop().time() > deadline:
                return True
        return False

    async def _give_up(self, store: VectorStoreRecord, todos: list[IndexNote], why: str) -> None:
        for todo in todos:
            file = await self.files.find(store, todo.file_id)
            if file is not None and file.status == "in_progress":
                await self._fail(store, file, "server_error", why)

    async def _one(self, store: VectorStoreRecord, todo: IndexNote) -> IndexStepResult:
        file = await self.files.find(store, todo.file_id)
        if file is None or file.status == "cancelled":
            return await self._clear_away(store, todo)
        if file.status != "in_progress":
            return IndexStepResult.LEFT  # settled by another run
        if file.token != todo.token:
            return IndexStepResult.LEFT
        if file.error_code is not None:  # said by a step that does not reach the index
            return await self._fail(store, file, file.error_code, file.error_message)
        if file.is_document and not file.is_parsed:
            return IndexStepResult.DOCUMENT
        if file.attempts >= limits.INDEXING_ATTEMPTS_MAX:
            return await self._fail(store, file, "server_error", _CRASHED)
        begun = await self.files.note(file, attempts=file.attempts + 1)
        if begun is None:
            return IndexStepResult.LEFT
        try:
            return await self._index(store, begun)
        except UnreadableDocument as error:
            return await self._fail(store, begun, error.code, error.message)
        except ApiError as error:
            if error.code not in _UNPAID:
                raise
            return await self._fail(store, begun, "server_error", error.message)
        except UpstreamError as error:
            tell_error(error, "a file could not be embedded", vector_store_id=store.id, file_id=file.id)
            if not error.is_retryable:
                why = error.message if isinstance(error, VectorBucketError) else _NOT_EMBEDDED
                return await self._fail(store, begun, "server_error", why)
            await self.files.note(begun, attempts=begun.attempts - 1)
            return IndexStepResult.WAIT
        except ClientError as error:
            await self._forgive(begun, error)
            raise

    async def _forgive(self, begun: StoreFile, error: ClientError) -> None:
        """AWS is asked too much, and no file is to blame: it may be begun again as often as that lasts."""
        if is_throttle(error):
            with suppress(*TABLE_ERRORS):
                await self.files.note(begun, attempts=begun.attempts - 1)

    async def _index(self, store: VectorStoreRecord, file: StoreFile) -> IndexStepResult:
        if not file.is_parsed:
            await self.reading.drop(store, file.id)
            if await self.reading.read_here(file) is not None:
                await self.files.note(file, is_document=True, attempts=0)
                return IndexStepResult.DOCUMENT
        try:
            text = await self.reading.text(file)
        except BlobNotFound:  # cleared away with an earlier addition
            await self.files.note(file, is_parsed=False)
            return IndexStepResult.LEFT
        chunks = await worked(lambda: chunks_of(text, file.chunking))
        ref = replace(store.ref, draws_on=file.draws_on)
        used = await (await self.knowledge.opened_index()).put_file(ref, IndexedFile(file.id, file.filename, file.attributes), chunks)
        if not await self.files.settle(store, file, "completed", usage_bytes=used):
            return await self._left(store)
        settled = await self.files.find(store, file.id)
        if settled is not None and dict(settled.attributes) != dict(file.attributes):
            await (await self.knowledge.opened_index()).set_attributes(store.ref, file.id, settled.attributes)
        tell("file_indexed", {"tenant_id": store.tenant_id, "vector_store_id": store.id, "file_id": file.id, "chunks": len(chunks)})
        return IndexStepResult.SETTLED

    async def _left(self, store: VectorStoreRecord) -> IndexStepResult:
        """The index entry is not wanted any more. The file's note stands, unless all of the store is gone."""
        try:
            await self.stores.active(store.tenant_id, store.id)
        except ApiError:
            await (await self.knowledge.opened_index()).delete(store.ref)
        return IndexStepResult.LEFT

    async def _clear_away(self, store: VectorStoreRecord, todo: IndexNote) -> IndexStepResult:
        await (await self.knowledge.opened_index()).delete_file(store.ref, todo.file_id)
        await self.reading.drop(store, todo.file_id)
        await self.files.forget(store, todo)
        return IndexStepResult.SETTLED

    async def _fail(self, store: VectorStoreRecord, file: StoreFile, code: ErrorCode, message: str) -> IndexStepResult:
        """The index entry of an earlier addition goes first: a failed file is not found."""
        await (await self.knowledge.opened_index()).delete_file(store.ref, file.id)
        await self.reading.drop(store, file.id)
        is_settled = await self.files.settle(store, file, "failed", error=(code, message))
        return IndexStepResult.SETTLED if is_settled else IndexStepResult.LEFT

    # --- parse -------------------------------------------------------------------------------------------------------------------

    async def parse_step(self, state: IndexState) -> IndexState:
        """The task ``ParseStep``."""
        state = replace(state, rounds=state.rounds + 1)
        job, store = await self._begin(state)
        if job is None or store is None:
            return replace(state, next="done")
        if job.container_id is None:
            return replace(state, next="index")
        try:
            has_read = await self._parse(store, job.container_id)
        except SandboxElsewhere:
            return replace(state, next="index", rests=state.rests + 1)
        except SandboxError as error:
            tell_error(error, "documents could not be read in a container", vector_store_id=store.id)
            return replace(state, next="rest", rests=state.rests + 1)
        except StorageFull:
            raise
        except ApiError:  # the container has expired
            await self.jobs.change(job, container_id=None)
            return replace(state, next="index", rests=state.rests + 1)
        return replace(state, next="index", rests=0 if has_read else state.rests + 1)

    async def _parse(self, store: VectorStoreRecord, container_id: str) -> bool:
        """Whether one of them was read, or found to be unreadable."""
        deadline = asyncio.get_running_loop().time() + limits.INDEXING_SLICE_SECONDS
        has_read = False
        async with await self.reading.sandbox(store.tenant_id, container_id) as live:
            for todo in await self.files.todos(store):
                file = await self.files.find(store, todo.file_id)
                if file is None or not _is_unread(file):
                    continue
                await self._read(live, file)
                has_read = True
                if asyncio.get_running_loop().time() > deadline:
                    break
        return has_read

    async def _read(self, live: LiveContainer, file: StoreFile) -> None:
        """The fault of a document is noted: the index, with an earlier addition of it, may be out of reach."""
        if file.attempts >= limits.INDEXING_ATTEMPTS_MAX:
            await self.files.note(file, error_code="server_error", error_message=_CRASHED)
            return
        begun = await self.files.note(file, attempts=file.attempts + 1)
        if begun is None:
            return
        try:
            await self.reading.read_there(live, begun)
        except UnreadableDocument as error:
            await self.files.note(begun, error_code=error.code, error_message=error.message)
        except ClientError as error:
            await self._forgive(begun, error)
            raise
        else:
            await self.files.note(begun, is_parsed=True, attempts=0)


def _is_unread(file: StoreFile) -> bool:
    return file.status == "in_progress" and file.is_document and not file.is_parsed and file.error_code is None
