"""File search: a model looks for what is in the vector stores that its request names.

    {"type": "file_search_call", "id", "status", "queries", "results", "error"}

It only reads, so that it is done anew if a process died. Every model gets it as a function, also one whose upstream has a file
search of its own: that one knows nothing of the stores here.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final

from moorage import errors, limits
from moorage.errors import ApiError, UpstreamError
from moorage.knowledge.index import EQUAL, Hit, SearchOptions, Weights
from moorage.tools import service_tool
from moorage.tools.calls import CallEnd, CallEvent, CallFinished, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import CitesSources, HidesField, SearchesVectorStores
from moorage.tools.file_search import shapes, words
from moorage.tools.file_search.words import MARK
from moorage.tools.function_items import without
from moorage.tools.room import CallLimits
from moorage.tools.run import Run
from moorage.tools.service_tool import ServiceTool, failed
from moorage.tools.source_marks import SourceMark
from moorage.wire.types import Item, Tool

_CALL: Final = "file_search_call"
_RESULTS: Final = "file_search_call.results"

WORDS: Final = MappingProxyType(
    service_tool.WORDS
    | {
        CallEnd.TIME_OVER: "The files could not be searched in time.",
        CallEnd.TOO_LARGE: "The result is too large: ask for fewer results.",
    }
)


class FileSearch(ServiceTool, SearchesVectorStores, HidesField, CitesSources):
    types = shapes.TYPES
    call_type = _CALL
    id_prefixes = shapes.PREFIXES
    tool_shapes = shapes.TOOLS
    item_shapes = MappingProxyType({_CALL: shapes.FileSearchCall})
    listing_defaults = MappingProxyType({_CALL: {"status": "completed"}})
    events = shapes.EVENTS
    function_name = "file_search"
    citation_marks = (words.MARK,)
    call_limits = CallLimits(seconds=limits.FILE_SEARCH_SECONDS_MAX, bytes=limits.FILE_SEARCH_BYTES_MAX)
    end_messages = WORDS
    one_tool_only = "There is more than one file search in 'tools': name all stores in one."
    hidden_field = "results"

    # --- a request ---

    def vector_store_ids(self, tool: Tool) -> Sequence[str]:
        return tuple(tool["vector_store_ids"])

    # --- what models read ---

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return words.offered(name, tool)

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        queries = words.queries_of(value)
        return None if queries is None else {"type": _CALL, "queries": queries}

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        return {"queries": call["queries"]}

    def result_for_model(self, item: Item) -> Any:
        return words.read(item)

    def citations(self, text: str, marks: Sequence[SourceMark], items: Sequence[Item]) -> list[dict[str, Any]]:
        return citations(marks, items)

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        if not place.is_hosted:  # An upstream searches by itself: it has searched.
            item = {"status": "completed", "queries": [], "results": None, **call, "id": place.item_id}
            return CallOpening(item, (), item)
        # No event of a search says what is looked for: a takeover reads it here. Clients see it later (``visible_item``).
        said = {"queries": call["queries"], "results": None, **self.allowance(call)}
        added = {"id": place.item_id, "type": _CALL, "status": "in_progress", **said}
        return CallOpening(added, (place.event("file_search_call.in_progress"),), dict(added), is_whole=False)

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        known = run.known
        if (known.so_far or {}).get("status") != "searching":
            yield CallEvent(known.event("file_search_call.searching"))
        try:
            hits = await _found(run)
        except (ApiError, UpstreamError) as error:
            yield failed(known, error.message, results=None)
            return
        run.counts["file_searches"] = 1
        item = known.item | {"status": "completed", "results": [_result(hit) for hit in hits]}
        yield CallFinished(item, (known.event("file_search_call.completed"),))

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        yield failed(known, f"{WORDS[end]} {detail}".strip(), results=None)

    # --- who looks at it ---

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        ranking = {"ranker": "auto", "score_threshold": 0, **tool.get("ranking_options", {})}
        return {"filters": None, "max_num_results": limits.SEARCH_RESULTS_DEFAULT, **tool, "ranking_options": ranking}

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        """The queries are shown when the search begins: OpenAI's item has none when it is added."""
        shown = item if _RESULTS in include else without(item, "results") | {"results": None}
        return shown | {"queries": []} if item.get("status") == "in_progress" else shown

    def title(self, item: Item) -> str | None:
        return " | ".join(("file search:", *item["queries"]))


async def _found(run: Run) -> list[Hit]:
    tool = next(iter(run.tools), None)
    if tool is None:
        raise errors.bad_request("There is no file search any more.")
    return await run.outside.search_files(tool["vector_store_ids"], run.known.item["queries"], options_of(tool))


def options_of(tool: Tool) -> SearchOptions:
    ranking = tool.get("ranking_options", {})
    hybrid = ranking.get("hybrid_search")
    return SearchOptions(
        filters=tool.get("filters"),
        max_num_results=tool.get("max_num_results", limits.SEARCH_RESULTS_DEFAULT),
        ranker=ranking.get("ranker", "auto"),
        score_threshold=ranking.get("score_threshold", 0.0),
        weights=EQUAL if hybrid is None else Weights(hybrid["embedding_weight"], hybrid["text_weight"]),
    )


def _result(hit: Hit) -> dict[str, Any]:
    fields = asdict(hit)
    return {name: fields[name] for name in ("file_id", "filename", "score", "text", "attributes")}


def citations(marks: Iterable[SourceMark], items: Sequence[Item]) -> list[dict[str, Any]]:
    """By place. Only files that calls of this conversation have brought are cited; a file is cited once at a place."""
    names = _names(items)
    found = dict.fromkeys((mark.index, mark.content) for mark in marks if mark.kind == MARK and mark.content in names)
    return [
        {"type": "file_citation", "index": index, "file_id": file_id, "filename": names[file_id]}
        for index, file_id in list(found)[: limits.CITATIONS_MAX]
    ]


def _names(items: Iterable[Item]) -> dict[str, str]:
    """Of the files that calls have brought, by their ids."""
    return {
        result["file_id"]: result.get("filename") or result["file_id"]
        for item in items
        if item["type"] == "file_search_call"
        for result in item.get("results") or ()
        if result.get("file_id")
    }
