"""File search on the wire: its definition, its item, and its events in their order."""

from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.attribute_filters import Filter
from moorage.wire.item import Common, an_item
from moorage.wire.refusals import wrong_value
from moorage.wire.tools import RequireApproval
from moorage.wire.validation import Array, Fields, FreeObject, Id, Length, Number, Text, wire, wire_with

PREFIXES: Final = MappingProxyType({"file_search_call": "fs"})

TYPES: Final = ("file_search",)

_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _one_counts(weights: Fields) -> Fields:
    if not weights["embedding_weight"] and not weights["text_weight"]:
        raise wrong_value("one of the two weights must be more than 0.")
    return weights


# --- the tool -----------------------------------------------------------------------------------------------------------------


@wire_with(_one_counts)
class HybridSearch(TypedDict):
    embedding_weight: _Weight
    text_weight: _Weight


@wire
class RankingOptions(TypedDict, total=False):
    ranker: Literal["auto", "default-2024-11-15"]
    score_threshold: Annotated[float, Field(ge=0, le=1)]
    hybrid_search: HybridSearch


@wire
class FileSearchTool(TypedDict, total=False):
    type: Required[Literal["file_search"]]
    vector_store_ids: Required[Annotated[list[Id], Length(limits.SEARCH_STORES_MAX, minimum=1)]]
    max_num_results: Annotated[int, Field(ge=1, le=limits.SEARCH_RESULTS_MAX)]
    filters: Annotated[Any, Filter()]
    ranking_options: RankingOptions
    require_approval: RequireApproval


TOOLS: Final[MappingProxyType[str, Any]] = MappingProxyType({"file_search": FileSearchTool})


# --- the item -----------------------------------------------------------------------------------------------------------------


@wire
class FileResult(TypedDict, total=False):
    file_id: Text
    filename: Text
    score: Number
    text: Text
    attributes: FreeObject


@an_item(PREFIXES["file_search_call"])
class FileSearchCall(Common, total=False):
    """``results`` are the model's results; ``error`` gives the reason if there are none, and is an addition to the API."""

    type: Required[Literal["file_search_call"]]
    queries: Required[Array[Text]]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    results: Array[FileResult]
    approval_request_id: Id
    error: Text


# --- events -------------------------------------------------------------------------------------------------------------------

_ITEM: Final = ("item_id", "output_index")

EVENTS: Final = MappingProxyType(
    {"file_search_call.in_progress": _ITEM, "file_search_call.searching": _ITEM, "file_search_call.completed": _ITEM}
)
"""In the order in which they come."""
