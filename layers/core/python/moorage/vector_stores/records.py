"""Vector stores, their files and their batches as records, and as the wire shows them.

A store counts its files by their status, and so does a batch; each change of a file's status changes both in the same transaction, so
that a look at a store costs one request, however many files it has. A file's ``token`` is new with each addition: whoever works on an
earlier one meets another token, and leaves the file alone.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, cast

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.knowledge.index import IndexRef
from moorage.store import keys, object_keys
from moorage.store.listing import listing_attributes
from moorage.store.stored_bytes import Holder
from moorage.store.table import Record
from moorage.vector_stores.shapes import ChunkSizes, FileCounts, FileStatus, VectorStore, VectorStoreFile, VectorStoreFileBatch

Attributes = Mapping[str, str | float | bool]
ErrorCode = Literal["server_error", "unsupported_file", "invalid_file"]
Phase = Literal["active", "expired", "deleted"]
DAY_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Chunking:
    max_chunk_size_tokens: int = limits.CHUNK_TOKENS_DEFAULT
    chunk_overlap_tokens: int = limits.CHUNK_OVERLAP_DEFAULT


AUTO: Final = Chunking()


@dataclass(frozen=True, slots=True)
class VectorStoreRecord:
    tenant_id: str
    id: str
    name: str
    created_at: int
    last_active_at: int
    model: str
    """Of its embeddings ..."""
    dimension: int
    """... and how many numbers each has: both stay as they are, because vectors of different models cannot be compared."""
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    days: int | None = None
    """Of rest, after which it expires."""
    phase: Phase = "active"
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int = 0
    usage_bytes: int = 0

    @property
    def expires_at(self) -> int | None:
        return None if self.days is None else self.last_active_at + self.days * DAY_SECONDS

    def is_expired(self, now: float) -> bool:
        return self.phase == "expired" or (self.expires_at is not None and self.expires_at <= now)

    @property
    def holder(self) -> Holder:
        return Holder(self.tenant_id, "vector_store", self.id)

    @property
    def ref(self) -> IndexRef:
        return IndexRef(self.tenant_id, self.id, self.model, self.dimension)

    @property
    def pk(self) -> str:
        return keys.vector_store(self.tenant_id, self.id)


@dataclass(frozen=True, slots=True)
class StoreFile:
    tenant_id: str
    store_id: str
    id: str
    filename: str
    bytes: int
    """Of the file itself."""
    created_at: int
    token: str
    attributes: Attributes = field(default_factory=dict)
    chunking: Chunking = AUTO
    batch_id: str | None = None
    status: FileStatus = "in_progress"
    usage_bytes: int = 0
    error_code: ErrorCode | None = None
    error_message: str = ""
    attempts: int = 0
    """Runs that have begun with it."""
    is_document: bool = False
    """It is to be read in a sandbox."""
    is_parsed: bool = False
    """Its text lies in the bucket."""
    draws_on: tuple[str, ...] = ()
    """The budgets of the key that has added it, and of its tenant."""

    @property
    def pk(self) -> str:
        return keys.vector_store(self.tenant_id, self.store_id)

    @property
    def sk(self) -> str:
        return keys.container_file(self.id)

    @property
    def text_key(self) -> str:
        return object_keys.vector_text(self.tenant_id, self.store_id, self.id, self.token)


@dataclass(frozen=True, slots=True)
class FileBatch:
    tenant_id: str
    store_id: str
    id: str
    created_at: int
    file_ids: tuple[str, ...]
    is_cancelled: bool = False
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int = 0

    @property
    def pk(self) -> str:
        return keys.vector_store(self.tenant_id, self.store_id)

    @property
    def sk(self) -> str:
        return keys.vector_batch(self.id)

    @property
    def status(self) -> FileStatus:
        if self.is_cancelled:
            return "cancelled"
        if self.in_progress:
            return "in_progress"
        return "failed" if self.failed and self.failed == self.total else "completed"


STORE: Final = Codec(VectorStoreRecord)
CHUNKING: Final = Codec(Chunking)
FILE: Final = Codec(StoreFile, nested={"chunking": CHUNKING})
BATCH: Final = Codec(FileBatch)


def store_record(store: VectorStoreRecord) -> Record:
    listed = listing_attributes(store.tenant_id, keys.VECTOR_STORES, store.created_at, store.id)
    return {"PK": store.pk, "SK": keys.META, **listed, **STORE.pack(store)}


def file_attributes(file: StoreFile) -> Record:
    """All of a file's record but its key: it replaces the whole of an earlier addition."""
    listed = listing_attributes(file.tenant_id, keys.vector_store_files(file.store_id), file.created_at, file.id)
    return {**listed, **FILE.pack(file)}


def batch_record(batch: FileBatch) -> Record:
    return {"PK": batch.pk, "SK": batch.sk, **BATCH.pack(batch)}


# --- The wire ----------------------------------------------------------------------------------------------------------------------


def _counts(counted: VectorStoreRecord | FileBatch) -> FileCounts:
    return {
        "in_progress": counted.in_progress,
        "completed": counted.completed,
        "failed": counted.failed,
        "cancelled": counted.cancelled,
        "total": counted.total,
    }


def store_object(store: VectorStoreRecord, now: float) -> VectorStore:
    status: Literal["expired", "in_progress", "completed"]
    status = "expired" if store.is_expired(now) else "in_progress" if store.in_progress else "completed"
    return {
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created_at,
        "name": store.name,
        "description": store.description,
        "usage_bytes": store.usage_bytes,
        "status": status,
        "file_counts": _counts(store),
        "expires_after": None if store.days is None else {"anchor": "last_active_at", "days": store.days},
        "expires_at": store.expires_at,
        "last_active_at": store.last_active_at,
        "metadata": dict(store.metadata),
    }


def file_object(file: StoreFile) -> VectorStoreFile:
    return {
        "id": file.id,
        "object": "vector_store.file",
        "created_at": file.created_at,
        "vector_store_id": file.store_id,
        "filename": file.filename,
        "status": file.status,
        "last_error": None
        if file.error_code is None or file.status != "failed"
        else {"code": file.error_code, "message": file.error_message},
        "usage_bytes": file.usage_bytes,
        "attributes": dict(file.attributes),
        "chunking_strategy": {"type": "static", "static": cast("ChunkSizes", CHUNKING.pack(file.chunking))},
    }


def batch_object(batch: FileBatch) -> VectorStoreFileBatch:
    return {
        "id": batch.id,
        "object": "vector_store.files_batch",
        "created_at": batch.created_at,
        "vector_store_id": batch.store_id,
        "status": batch.status,
        "file_counts": _counts(batch),
    }
