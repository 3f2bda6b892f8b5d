"""The keys of vector stores, beside those of everything else (``keys.py``). All of a store lies in its partition, so that one query
finds what a deletion has to erase."""

from typing import Final

from moorage.store import keys

VECTOR_STORES: Final = "vector_stores"
INDEXING: Final = "INDEXING"
"""``GSI1PK`` of the vector stores that have files to read."""
INDEXING_JOB: Final = "JOB"
"""Sort key of what is known of the execution that reads a store's files."""
TODO_PREFIX: Final = "TODO#"
HELD_PREFIX: Final = "HELD#"


def vector_store(tenant_id: str, store_id: str) -> str:
    return f"T#{tenant_id}#X#{store_id}"


def vector_store_files(store_id: str) -> str:
    """The kind of a store's files, in the listings of its tenant."""
    return f"X#{store_id}"


def vector_batch(batch_id: str) -> str:
    """Sort key of a batch of files that were added to a store together."""
    return f"{keys.BATCH_PREFIX}{batch_id}"


def todo(file_id: str) -> str:
    """Sort key of the note that a store's index is not yet as the record of the file says, or as there being none says."""
    return f"{TODO_PREFIX}{file_id}"


def held(store_id: str) -> str:
    """Sort key, in a file's partition, of the note that a vector store holds it."""
    return f"{HELD_PREFIX}{store_id}"


def vector_objects(tenant_id: str, store_id: str) -> str:
    """Prefix of the texts of a store's files."""
    return f"T/{tenant_id}/X/{store_id}/"


def vector_text(tenant_id: str, store_id: str, file_id: str, token: str) -> str:
    """The text of a file as it was added; ``token`` tells additions of one file from each other."""
    return f"{vector_objects(tenant_id, store_id)}{file_id}/{token}"


# --- The index that lies in the bucket --------------------------------------------------------------------------------------------


def index_objects(tenant_id: str, store_id: str) -> str:
    """Prefix of all that a vector store has in the bucket."""
    return f"T/{tenant_id}/K/{store_id}/"


def index_stamp(tenant_id: str, store_id: str) -> str:
    """Another one after each change of what a store has in the bucket."""
    return f"{index_objects(tenant_id, store_id)}stamp"


def index_segments(tenant_id: str, store_id: str, file_id: str | None = None) -> str:
    """Prefix of what is compared of a store's chunks, or of one file's."""
    return f"{index_objects(tenant_id, store_id)}I/" + ("" if file_id is None else f"{file_id}/")


def index_texts(tenant_id: str, store_id: str, file_id: str) -> str:
    """Prefix of a file's text."""
    return f"{index_objects(tenant_id, store_id)}X/{file_id}/"


def index_bundles(tenant_id: str, store_id: str, kind: str) -> str:
    """Prefix of the objects that each hold copies of many of one kind."""
    return f"{index_objects(tenant_id, store_id)}M/{kind}/"


def index_segment(tenant_id: str, store_id: str, file_id: str, version: str) -> str:
    return f"{index_segments(tenant_id, store_id, file_id)}{version}"


def index_text(tenant_id: str, store_id: str, file_id: str, version: str) -> str:
    return f"{index_texts(tenant_id, store_id, file_id)}{version}"


def index_text_of(segment: str) -> str:
    """The text that belongs to a segment."""
    store, _, rest = segment.rpartition("/I/")
    return f"{store}/X/{rest}"


def index_neighbours(tenant_id: str, store_id: str, bucket: str, file_id: str | None = None) -> str:
    """Prefix of what is told of the vectors that a vector bucket has of a store, or of one of its files."""
    return f"{index_objects(tenant_id, store_id)}V/{bucket}/" + ("" if file_id is None else f"{file_id}/")
