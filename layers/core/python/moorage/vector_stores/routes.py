"""``/v1/vector_stores``, their files, and files that were added together."""

from typing import Annotated, Any, Final, Literal

from moorage import limits
from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.knowledge.index import Hit, Rank, SearchOptions
from moorage.parallel import side_by_side
from moorage.vector_stores.files import NewFile
from moorage.vector_stores.records import AUTO, Chunking, VectorStoreRecord, batch_object, file_object, store_object
from moorage.vector_stores.shapes import (
    AddVectorStoreFile,
    AutoChunking,
    CreateFileBatch,
    CreateVectorStore,
    PlaceInRanking,
    SearchVectorStore,
    StaticChunking,
    TextOfFile,
    UpdateVectorStore,
    UpdateVectorStoreFile,
    VectorStore,
    VectorStoreFile,
    VectorStoreFileBatch,
    VectorStoreFileContent,
    VectorStoreFilesPage,
    VectorStoreSearchResult,
    VectorStoreSearchResults,
    VectorStoresPage,
)
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.responses import deleted

router = Router(prefix="/vector_stores")

_FilesPage = Annotated[VectorStoreFilesPage, query_of(VectorStoreFilesPage)]
_SCORE_PLACES: Final = 4


@router.post("", "createVectorStore", "Make a vector store", statuses=(404,))
async def create(caller: Caller, wanted: Annotated[CreateVectorStore, body_of(CreateVectorStore)]) -> VectorStore:
    store = await caller.runtime.vector_stores.create(
        caller.tenant_id,
        name=wanted.name,
        description=wanted.description,
        metadata=wanted.metadata,
        days=None if wanted.expires_after is None else wanted.expires_after.days,
        file_ids=wanted.file_ids,
        chunking=_chunking(wanted.chunking_strategy),
        draws_on=caller.draws_on,
    )
    return _shown(caller, store)


@router.get("", "listVectorStores", "Vector stores")
async def list_stores(caller: Caller, page: Annotated[VectorStoresPage, query_of(VectorStoresPage)]) -> ListOf[VectorStore]:
    found = await caller.runtime.vector_stores.stores.page(caller.tenant_id, page)
    return found.shown(lambda store: _shown(caller, store))


@router.get("/{vector_store_id}", "retrieveVectorStore", "A vector store")
async def retrieve(caller: Caller, vector_store_id: str) -> VectorStore:
    return _shown(caller, await _any(caller, vector_store_id))


@router.post("/{vector_store_id}", "updateVectorStore", "Change a vector store")
async def update(caller: Caller, vector_store_id: str, wanted: Annotated[UpdateVectorStore, body_of(UpdateVectorStore)]) -> VectorStore:
    changed: dict[str, Any] = {}
    if "name" in wanted.model_fields_set:
        changed["name"] = wanted.name or ""
    if "metadata" in wanted.model_fields_set:
        changed["metadata"] = wanted.metadata or {}
    if "expires_after" in wanted.model_fields_set:
        changed["days"] = None if wanted.expires_after is None else wanted.expires_after.days
    return _shown(caller, await caller.runtime.vector_stores.stores.change(caller.tenant_id, vector_store_id, **changed))


@router.delete("/{vector_store_id}", "deleteVectorStore", "Delete a vector store")
async def delete(caller: Caller, vector_store_id: str) -> Deleted[Literal["vector_store.deleted"]]:
    await caller.runtime.vector_stores.delete(await _any(caller, vector_store_id))
    return deleted(vector_store_id, "vector_store.deleted")


@router.post("/{vector_store_id}/search", "searchVectorStore", "Search a vector store")
async def search(
    caller: Caller, vector_store_id: str, wanted: Annotated[SearchVectorStore, body_of(SearchVectorStore)]
) -> VectorStoreSearchResults:
    options = SearchOptions(
        filters=wanted.filters,
        max_num_results=wanted.max_num_results,
        ranker=wanted.ranking_options.ranker,
        score_threshold=wanted.ranking_options.score_threshold,
    )
    stores = caller.runtime.vector_stores
    hits = await stores.search(caller.tenant_id, [vector_store_id], wanted.query, options, draws_on=caller.draws_on)
    return {
        "object": "vector_store.search_results.page",
        "search_query": wanted.query,
        "data": [_hit(hit) for hit in hits],
        "has_more": False,
        "next_page": None,
    }


# --- Files -------------------------------------------------------------------------------------------------------------------------


@router.post("/{vector_store_id}/files", "createVectorStoreFile", "Add a file")
async def add_file(
    caller: Caller, vector_store_id: str, wanted: Annotated[AddVectorStoreFile, body_of(AddVectorStoreFile)]
) -> VectorStoreFile:
    store = await _store(caller, vector_store_id)
    (file,) = await caller.runtime.vector_stores.add(store, [await _new(caller, wanted, "file_id")])
    return file_object(file)


@router.get("/{vector_store_id}/files", "listVectorStoreFiles", "Its files")
async def list_files(caller: Caller, vector_store_id: str, page: _FilesPage) -> ListOf[VectorStoreFile]:
    store = await _any(caller, vector_store_id)
    found = await caller.runtime.vector_stores.files.page(store, page, status=page.filter)
    return found.shown(file_object)


@router.get("/{vector_store_id}/files/{file_id}", "retrieveVectorStoreFile", "One of its files")
async def retrieve_file(caller: Caller, vector_store_id: str, file_id: str) -> VectorStoreFile:
    return file_object(await caller.runtime.vector_stores.files.get(await _any(caller, vector_store_id), file_id))


@router.post("/{vector_store_id}/files/{file_id}", "updateVectorStoreFile", "Replace a file's attributes")
async def update_file(
    caller: Caller, vector_store_id: str, file_id: str, wanted: Annotated[UpdateVectorStoreFile, body_of(UpdateVectorStoreFile)]
) -> VectorStoreFile:
    store = await _store(caller, vector_store_id)
    return file_object(await caller.runtime.vector_stores.set_attributes(store, file_id, wanted.attributes or {}))


@router.delete("/{vector_store_id}/files/{file_id}", "deleteVectorStoreFile", "Take a file out", statuses=(409,))
async def delete_file(caller: Caller, vector_store_id: str, file_id: str) -> Deleted[Literal["vector_store.file.deleted"]]:
    await caller.runtime.vector_stores.remove(await _store(caller, vector_store_id), file_id)
    return deleted(file_id, "vector_store.file.deleted")


@router.get("/{vector_store_id}/files/{file_id}/content", "retrieveVectorStoreFileContent", "A file's text")
async def content(caller: Caller, vector_store_id: str, file_id: str) -> VectorStoreFileContent:
    texts = await caller.runtime.vector_stores.content(await _any(caller, vector_store_id), file_id)
    data: list[TextOfFile] = [{"type": "text", "text": text} for text in texts]
    return {"object": "vector_store.file_content.page", "data": data, "has_more": False, "next_page": None}


# --- Batches -----------------------------------------------------------------------------------------------------------------------


@router.post("/{vector_store_id}/file_batches", "createVectorStoreFileBatch", "Add several files")
async def create_batch(
    caller: Caller, vector_store_id: str, wanted: Annotated[CreateFileBatch, body_of(CreateFileBatch)]
) -> VectorStoreFileBatch:
    store = await _store(caller, vector_store_id)
    place = "file_ids[{}]" if wanted.files is None else "files[{}].file_id"
    files = await side_by_side(
        lambda each: _new(caller, each[1], place.format(each[0])),
        enumerate(wanted.each),
        at_once=limits.VECTOR_FILES_LOOKED_UP_AT_ONCE,
    )
    return batch_object(await caller.runtime.vector_stores.add_batch(store, files))


@router.get("/{vector_store_id}/file_batches/{batch_id}", "retrieveVectorStoreFileBatch", "Files that were added together")
async def retrieve_batch(caller: Caller, vector_store_id: str, batch_id: str) -> VectorStoreFileBatch:
    return batch_object(await caller.runtime.vector_stores.files.batch(await _any(caller, vector_store_id), batch_id))


@router.post("/{vector_store_id}/file_batches/{batch_id}/cancel", "cancelVectorStoreFileBatch", "Read no further files of it")
async def cancel_batch(caller: Caller, vector_store_id: str, batch_id: str) -> VectorStoreFileBatch:
    files, store = caller.runtime.vector_stores.files, await _store(caller, vector_store_id)
    return batch_object(await files.cancel(store, await files.batch(store, batch_id)))


@router.get(
    "/{vector_store_id}/file_batches/{batch_id}/files",
    "listFilesInVectorStoreBatch",
    "The files of a batch",
)
async def list_batch_files(caller: Caller, vector_store_id: str, batch_id: str, page: _FilesPage) -> ListOf[VectorStoreFile]:
    files, store = caller.runtime.vector_stores.files, await _any(caller, vector_store_id)
    found = await files.batch_page(store, await files.batch(store, batch_id), page, status=page.filter)
    return found.shown(file_object)


# --- What they share ---------------------------------------------------------------------------------------------------------------


async def _any(caller: Caller, store_id: str) -> VectorStoreRecord:
    """Also one that has expired: it can be looked at, and deleted."""
    return await caller.runtime.vector_stores.stores.get(caller.tenant_id, store_id)


async def _store(caller: Caller, store_id: str) -> VectorStoreRecord:
    return await caller.runtime.vector_stores.stores.active(caller.tenant_id, store_id)


async def _new(caller: Caller, wanted: AddVectorStoreFile, param: str) -> NewFile:
    return await caller.runtime.vector_stores.new_file(
        caller.tenant_id,
        wanted.file_id,
        attributes=wanted.attributes,
        chunking=_chunking(wanted.chunking_strategy),
        draws_on=caller.draws_on,
        param=param,
    )


def _chunking(asked: AutoChunking | StaticChunking | None) -> Chunking:
    if not isinstance(asked, StaticChunking):
        return AUTO
    return Chunking(asked.static.max_chunk_size_tokens, asked.static.chunk_overlap_tokens)


def _shown(caller: Caller, store: VectorStoreRecord) -> VectorStore:
    return store_object(store, caller.runtime.clock())


def _hit(hit: Hit) -> VectorStoreSearchResult:
    return {
        "file_id": hit.file_id,
        "filename": hit.filename,
        "score": round(hit.score, _SCORE_PLACES),
        "attributes": dict(hit.attributes),
        "content": [{"type": "text", "text": hit.text}],
        "ranks": {"embedding": _rank(hit.ranks.embedding), "text": _rank(hit.ranks.text)},
    }


def _rank(rank: Rank | None) -> PlaceInRanking | None:
    return None if rank is None else {"place": rank.place, "score": round(rank.score, _SCORE_PLACES)}
