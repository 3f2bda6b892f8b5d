"""Vector stores: their bodies, and their routes as the OpenAPI document tells of them."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from moorage import errors, limits
from moorage.wire.attribute_filters import Filter
from moorage.wire.create import Metadata
from moorage.wire.refusals import problem, wrong_type, wrong_value
from moorage.wire.route import JSON, PAGE, STRING, Route, deleted, list_of, nullable, record, ref
from moorage.wire.schema import JsonSchema
from moorage.wire.validation import Body, Id, Length, OneOf, Only

FILE_STATUSES: Final = ("in_progress", "completed", "failed", "cancelled")

_Name = Annotated[str, Field(max_length=limits.VECTOR_STORE_NAME_CHARS_MAX)]
_Description = Annotated[str, Field(max_length=limits.VECTOR_STORE_DESCRIPTION_CHARS_MAX)]


def _attributes(value: Any) -> dict[str, str | float | bool] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise wrong_type("an object", value)
    if len(value) > limits.ATTRIBUTES_MAX:
        raise problem(lambda param: errors.too_many_properties(param, len(value), limits.ATTRIBUTES_MAX))
    for key, inner in value.items():
        if not 1 <= len(key) <= limits.ATTRIBUTE_KEY_CHARS_MAX:
            raise wrong_value(f"the names of attributes have 1 to {limits.ATTRIBUTE_KEY_CHARS_MAX} characters.")
        if not isinstance(inner, str | bool | int | float):
            raise wrong_type("a string, a number or a boolean", inner, key)
        if isinstance(inner, str) and len(inner) > limits.ATTRIBUTE_TEXT_CHARS_MAX:
            raise wrong_value(f"it has at most {limits.ATTRIBUTE_TEXT_CHARS_MAX} characters.", key)
        if not isinstance(inner, str) and abs(inner) > limits.ATTRIBUTE_NUMBER_MAX:
            raise wrong_value("it is too large a number.", key)
    return value


_SCALAR: Final[JsonSchema] = {
    "anyOf": [{"type": "string", "maxLength": limits.ATTRIBUTE_TEXT_CHARS_MAX}, {"type": "number"}, {"type": "boolean"}]
}
_ATTRIBUTES: Final[JsonSchema] = {
    "type": "object",
    "maxProperties": limits.ATTRIBUTES_MAX,
    "propertyNames": {"minLength": 1, "maxLength": limits.ATTRIBUTE_KEY_CHARS_MAX},
    "additionalProperties": _SCALAR,
}
Attributes = Annotated[
    dict[str, str | float | bool] | None, PlainValidator(_attributes), WithJsonSchema({"anyOf": [_ATTRIBUTES, {"type": "null"}]})
]


class Sizes(Body):
    max_chunk_size_tokens: Annotated[int, Field(ge=limits.CHUNK_TOKENS_MIN, le=limits.CHUNK_TOKENS_MAX)]
    chunk_overlap_tokens: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _half(self) -> Self:
        if 2 * self.chunk_overlap_tokens > self.max_chunk_size_tokens:
            raise wrong_value("it must not exceed half of 'max_chunk_size_tokens'.", "chunk_overlap_tokens")
        return self


class AutoChunking(Body):
    type: Literal["auto"]


class StaticChunking(Body):
    type: Literal["static"]
    static: Sizes


ChunkingStrategy = Annotated[AutoChunking | StaticChunking | None, OneOf({"auto": AutoChunking, "static": StaticChunking})]
"""Null is left out before it comes here."""


class RestTime(Body):
    anchor: Literal["last_active_at"]
    days: Annotated[int, Field(ge=1, le=limits.VECTOR_STORE_DAYS_MAX)]


class CreateVectorStore(Body):
    """``POST /v1/vector_stores``."""

    name: _Name = ""
    description: _Description | None = None
    file_ids: Annotated[list[Id], Length(limits.VECTOR_STORE_FILE_IDS_MAX)] = Field(default_factory=list)
    chunking_strategy: ChunkingStrategy = None
    expires_after: RestTime | None = None
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _files(self) -> Self:
        if self.chunking_strategy is not None and not self.file_ids:
            raise wrong_value("it says how 'file_ids' are cut, and there are none.", "chunking_strategy")
        return self


class UpdateVectorStore(Body):
    """``POST /v1/vector_stores/{vector_store_id}``; what is left out stays as it is, and null takes it away."""

    name: _Name | None = None
    expires_after: RestTime | None = None
    metadata: Metadata | None = None

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, value: Any) -> Any:
        return value


class AddVectorStoreFile(Body):
    """``POST /v1/vector_stores/{vector_store_id}/files``, and each of a batch's ``files``."""

    file_id: Id
    attributes: Attributes = None
    chunking_strategy: ChunkingStrategy = None


class UpdateVectorStoreFile(Body):
    """``POST /v1/vector_stores/{vector_store_id}/files/{file_id}``; null takes all attributes away."""

    attributes: Attributes


class CreateFileBatch(Body):
    """``POST /v1/vector_stores/{vector_store_id}/file_batches``: files that are treated alike, or each by what is said of it."""

    file_ids: Annotated[list[Id], Length(limits.VECTOR_BATCH_FILES_MAX, minimum=1)] | None = None
    files: Annotated[list[AddVectorStoreFile], Length(limits.VECTOR_BATCH_FILES_MAX, minimum=1)] | None = None
    attributes: Attributes = None
    chunking_strategy: ChunkingStrategy = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.file_ids is None and self.files is None:
            raise problem(errors.missing_parameter, "file_ids")
        if self.file_ids is not None and self.files is not None:
            raise wrong_value("give 'file_ids' or 'files', not both.", "files")
        for name in ("attributes", "chunking_strategy"):
            if self.files is not None and getattr(self, name) is not None:
                raise wrong_value("it is said of each of 'files' by itself, or of all 'file_ids'.", name)
        return self

    @property
    def each(self) -> list[AddVectorStoreFile]:
        if self.files is not None:
            return self.files
        return [
            AddVectorStoreFile.model_construct(file_id=file_id, attributes=self.attributes, chunking_strategy=self.chunking_strategy)
            for file_id in self.file_ids or ()
        ]


class StoreRankingOptions(Body):
    ranker: Literal["none", "auto", "default-2024-11-15"] = "auto"
    score_threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0


_Query = Annotated[str, Field(min_length=1, max_length=limits.SEARCH_QUERY_CHARS_MAX)]


def _queries(value: Any) -> list[str]:
    """One, or several, whose results are one list."""
    queries = value if isinstance(value, list) else [value]
    if not 1 <= len(queries) <= limits.SEARCH_QUERIES_MAX:
        raise wrong_value(f"give 1 to {limits.SEARCH_QUERIES_MAX} queries.")
    for number, query in enumerate(queries):
        at = (number,) if isinstance(value, list) else ()
        if not isinstance(query, str):
            raise wrong_type("a string" if at else "a string or an array of strings", query, *at)
        if not 1 <= len(query) <= limits.SEARCH_QUERY_CHARS_MAX:
            raise wrong_value(f"a query has 1 to {limits.SEARCH_QUERY_CHARS_MAX} characters.", *at)
    return queries


_QUERY: Final[JsonSchema] = {"type": "string", "minLength": 1, "maxLength": limits.SEARCH_QUERY_CHARS_MAX}
Queries = Annotated[
    list[str],
    PlainValidator(_queries),
    WithJsonSchema({"anyOf": [_QUERY, {"type": "array", "items": _QUERY, "minItems": 1, "maxItems": limits.SEARCH_QUERIES_MAX}]}),
]


class SearchVectorStore(Body):
    """``POST /v1/vector_stores/{vector_store_id}/search``."""

    query: Queries
    filters: Annotated[Any, Filter()] = None
    max_num_results: Annotated[int, Field(ge=1, le=limits.SEARCH_RESULTS_MAX)] = limits.STORE_SEARCH_RESULTS_DEFAULT
    ranking_options: StoreRankingOptions = Field(default_factory=StoreRankingOptions)
    rewrite_query: Annotated[bool, Only(False, "queries are searched for as they are. Write several into 'query' instead.")] = False


# --- Answers -----------------------------------------------------------------------------------------------------------------------

_TIME: Final[JsonSchema] = {"type": "integer", "description": "Unix seconds"}
_COUNT: Final[JsonSchema] = {"type": "integer", "minimum": 0}
_COUNTS: Final = record(**dict.fromkeys((*FILE_STATUSES, "total"), _COUNT))
_RESTS: Final = record(anchor={"const": "last_active_at"}, days=_COUNT)
_STATUS: Final[JsonSchema] = {"type": "string", "enum": list(FILE_STATUSES)}
_CODES: Final[JsonSchema] = {"type": "string", "enum": ["server_error", "unsupported_file", "invalid_file"]}
_CHUNKING: Final = record(type={"const": "static"}, static=record(max_chunk_size_tokens=_COUNT, chunk_overlap_tokens=_COUNT))
_CONTENT: Final = record(type={"const": "text"}, text=STRING)
_RANK: Final = record(place={"type": "integer", "minimum": 1}, score={"type": "number"})

VECTOR_STORE_ANSWERS: Final[dict[str, JsonSchema]] = {
    "VectorStore": record(
        id=STRING,
        object={"const": "vector_store"},
        created_at=_TIME,
        name=STRING,
        description=nullable(STRING),
        usage_bytes=_COUNT,
        status={"type": "string", "enum": ["expired", "in_progress", "completed"]},
        file_counts=_COUNTS,
        expires_after=nullable(_RESTS),
        expires_at=nullable(_TIME),
        last_active_at=_TIME,
        metadata={"type": "object", "additionalProperties": STRING},
    ),
    "VectorStoreFile": record(
        id=STRING,
        object={"const": "vector_store.file"},
        created_at=_TIME,
        vector_store_id=STRING,
        filename=STRING,
        status=_STATUS,
        last_error=nullable(record(code=_CODES, message=STRING)),
        usage_bytes=_COUNT,
        attributes=_ATTRIBUTES,
        chunking_strategy=_CHUNKING,
    ),
    "VectorStoreFileBatch": record(
        id=STRING,
        object={"const": "vector_store.files_batch"},
        created_at=_TIME,
        vector_store_id=STRING,
        status=_STATUS,
        file_counts=_COUNTS,
    ),
    "VectorStoreFileContent": record(
        object={"const": "vector_store.file_content.page"},
        data={"type": "array", "items": _CONTENT},
        has_more={"type": "boolean"},
        next_page=nullable(STRING),
    ),
    "VectorStoreSearchResults": record(
        object={"const": "vector_store.search_results.page"},
        search_query={"type": "array", "items": STRING},
        data={
            "type": "array",
            "items": record(
                file_id=STRING,
                filename=STRING,
                score={"type": "number", "minimum": 0, "maximum": 1},
                attributes=_ATTRIBUTES,
                content={"type": "array", "items": _CONTENT},
                ranks=record(embedding=nullable(_RANK), text=nullable(_RANK)),
            ),
        },
        has_more={"type": "boolean"},
        next_page=nullable(STRING),
    ),
}

_STORE: Final = "/v1/vector_stores/{vector_store_id}"
_FILES: Final = f"{_STORE}/files"
_FILE: Final = f"{_FILES}/{{file_id}}"
_BATCHES: Final = f"{_STORE}/file_batches"
_BATCH: Final = f"{_BATCHES}/{{batch_id}}"
_PAGE: Final = (*PAGE, ("before", STRING))
_FILTER: Final = (*_PAGE, ("filter", _STATUS))

VECTOR_STORE_ROUTES: Final[tuple[Route, ...]] = (
    Route("get", "/v1/vector_stores", "listVectorStores", "Vector stores", {JSON: list_of("VectorStore")}, query=_PAGE),
    Route(
        "post",
        "/v1/vector_stores",
        "createVectorStore",
        "Make a vector store",
        {JSON: ref("VectorStore")},
        {JSON: ref("CreateVectorStore")},
        also=(404,),
    ),
    Route("get", _STORE, "retrieveVectorStore", "A vector store", {JSON: ref("VectorStore")}),
    Route("post", _STORE, "updateVectorStore", "Change a vector store", {JSON: ref("VectorStore")}, {JSON: ref("UpdateVectorStore")}),
    Route("delete", _STORE, "deleteVectorStore", "Delete a vector store", {JSON: deleted("vector_store.deleted")}),
    Route(
        "post",
        f"{_STORE}/search",
        "searchVectorStore",
        "Search a vector store",
        {JSON: ref("VectorStoreSearchResults")},
        {JSON: ref("SearchVectorStore")},
    ),
    Route("get", _FILES, "listVectorStoreFiles", "Its files", {JSON: list_of("VectorStoreFile")}, query=_FILTER),
    Route("post", _FILES, "createVectorStoreFile", "Add a file", {JSON: ref("VectorStoreFile")}, {JSON: ref("AddVectorStoreFile")}),
    Route("get", _FILE, "retrieveVectorStoreFile", "One of its files", {JSON: ref("VectorStoreFile")}),
    Route(
        "post",
        _FILE,
        "updateVectorStoreFile",
        "Replace a file's attributes",
        {JSON: ref("VectorStoreFile")},
        {JSON: ref("UpdateVectorStoreFile")},
    ),
    Route("delete", _FILE, "deleteVectorStoreFile", "Take a file out", {JSON: deleted("vector_store.file.deleted")}, also=(409,)),
    Route("get", f"{_FILE}/content", "retrieveVectorStoreFileContent", "A file's text", {JSON: ref("VectorStoreFileContent")}),
    Route(
        "post",
        _BATCHES,
        "createVectorStoreFileBatch",
        "Add several files",
        {JSON: ref("VectorStoreFileBatch")},
        {JSON: ref("CreateFileBatch")},
    ),
    Route("get", _BATCH, "retrieveVectorStoreFileBatch", "Files that were added together", {JSON: ref("VectorStoreFileBatch")}),
    Route("post", f"{_BATCH}/cancel", "cancelVectorStoreFileBatch", "Read no further files of it", {JSON: ref("VectorStoreFileBatch")}),
    Route(
        "get",
        f"{_BATCH}/files",
        "listFilesInVectorStoreBatch",
        "The files of a batch",
        {JSON: list_of("VectorStoreFile")},
        query=_FILTER,
    ),
)
