"""Vector stores: their bodies and answers."""

from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from typing_extensions import TypedDict

from moorage import errors, limits
from moorage.dataclass import dataclass
from moorage.wire.answers import Count, Seconds
from moorage.wire.attribute_filters import Filter
from moorage.wire.create import Metadata
from moorage.wire.queries import PageQuery
from moorage.wire.query_strings import CURSOR, choice
from moorage.wire.refusals import problem, wrong_type, wrong_value
from moorage.wire.schema import JsonSchema
from moorage.wire.validation import Body, Id, Length, OneOf, Only

FileStatus = Literal["in_progress", "completed", "failed", "cancelled"]
FILE_STATUSES: Final[tuple[FileStatus, ...]] = get_args(FileStatus)

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

_Attributes = Annotated[dict[str, Any], WithJsonSchema(_ATTRIBUTES)]


class FileCounts(TypedDict):
    in_progress: Count
    completed: Count
    cancelled: Count
    failed: Count
    total: Count


class RestTimeOfStore(TypedDict):
    anchor: Literal["last_active_at"]
    days: Count


class VectorStore(TypedDict):
    id: str
    object: Literal["vector_store"]
    created_at: Seconds
    name: str
    description: str | None
    usage_bytes: Count
    status: Literal["expired", "in_progress", "completed"]
    file_counts: FileCounts
    expires_after: RestTimeOfStore | None
    expires_at: Seconds | None
    last_active_at: Seconds
    metadata: dict[str, str]


class FileProblem(TypedDict):
    code: Literal["server_error", "unsupported_file", "invalid_file"]
    message: str


class ChunkSizes(TypedDict):
    max_chunk_size_tokens: Count
    chunk_overlap_tokens: Count


class ChunkingShown(TypedDict):
    type: Literal["static"]
    static: ChunkSizes


class VectorStoreFile(TypedDict):
    id: str
    object: Literal["vector_store.file"]
    created_at: Seconds
    vector_store_id: str
    filename: str
    status: FileStatus
    last_error: FileProblem | None
    usage_bytes: Count
    attributes: _Attributes
    chunking_strategy: ChunkingShown


class VectorStoreFileBatch(TypedDict):
    id: str
    object: Literal["vector_store.files_batch"]
    created_at: Seconds
    vector_store_id: str
    status: FileStatus
    file_counts: FileCounts


class TextOfFile(TypedDict):
    type: Literal["text"]
    text: str


class VectorStoreFileContent(TypedDict):
    object: Literal["vector_store.file_content.page"]
    data: list[TextOfFile]
    has_more: bool
    next_page: str | None


class PlaceInRanking(TypedDict):
    place: Annotated[int, Field(ge=1)]
    score: float


class RanksOfResult(TypedDict):
    embedding: PlaceInRanking | None
    text: PlaceInRanking | None


class VectorStoreSearchResult(TypedDict):
    file_id: str
    filename: str
    score: Annotated[float, Field(ge=0, le=1)]
    attributes: _Attributes
    content: list[TextOfFile]
    ranks: RanksOfResult


class VectorStoreSearchResults(TypedDict):
    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[VectorStoreSearchResult]
    has_more: bool
    next_page: str | None


@dataclass(frozen=True, slots=True)
class VectorStoresPage(PageQuery):
    before: Annotated[str | None, CURSOR] = None


@dataclass(frozen=True, slots=True)
class VectorStoreFilesPage(VectorStoresPage):
    filter: Annotated[FileStatus | None, choice(*FILE_STATUSES)] = None
