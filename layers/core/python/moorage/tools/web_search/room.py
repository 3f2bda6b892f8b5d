"""Web search, by the engine that the operator has named, and pages by our own fetching; both outside of the sandboxes' network.

    {"type": "web_search_call", "id", "status", "action", "results", "error"}

``action`` is a ``search`` (with ``sources``), an ``open_page`` or a ``find_in_page``. It only reads, so that it is done anew if a
process died. Every model gets it as a function, also one whose upstream has a web search of its own: what may be reached, and by whom
it is paid for, is said here.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from moorage import errors, limits
from moorage.egress.fetch import FetchError
from moorage.model.remote_servers import RemoteServers
from moorage.model.search_engine import SearchEngine
from moorage.tools import service_tool
from moorage.tools.calls import CallEnd, CallEvent, CallFinished, CallOpening, ItemPosition, Piece
from moorage.tools.capabilities import CitesSources, HidesField, HoldsSecrets, ReportsUsage
from moorage.tools.function_items import without
from moorage.tools.room import CallLimits
from moorage.tools.run import Run
from moorage.tools.service_tool import ServiceTool, failed
from moorage.tools.source_marks import SourceMark
from moorage.tools.web_search import citing, engines, pages, shapes, words
from moorage.tools.web_search.results import SearchFailed, SearchResult, is_address
from moorage.tools.web_search.text import ReadablePage
from moorage.wire.tools import WEB_SEARCH_REASON
from moorage.wire.types import Item, Tool

_CALL: Final = "web_search_call"
_RESULTS: Final = "web_search_call.results"
_SOURCES: Final = "web_search_call.action.sources"

_ENGINE: Final = "engine"
"""Where the handle of the engine stands in a tool."""

_UNTOLD: Final[Mapping[str, Any]] = MappingProxyType({"type": "search", "query": "", "queries": []})
"""Of a search that an upstream made, and did not tell: clients want an action."""

_SIZES: Final = MappingProxyType({"low": (5, 8_000), "medium": (10, 24_000), "high": (20, 60_000)})
"""What a model gets, by ``search_context_size``: results of a search, and characters of a page: 2,000, 6,000 and 15,000 tokens."""

WORDS: Final = MappingProxyType(service_tool.WORDS | {CallEnd.TIME_OVER: "The web gave no answer in time."})


class _Failed(Exception):
    """A call that has no result; the message is for the model and the client."""


class WebSearch(ServiceTool, HoldsSecrets, HidesField, CitesSources, ReportsUsage):
    types = shapes.TYPES
    call_type = _CALL
    id_prefixes = shapes.PREFIXES
    tool_shapes = shapes.TOOLS
    item_tool_shapes = shapes.TOOLS
    """Codex CLI brings it along in items too; ``wire/requests.py`` says what becomes of it."""
    item_shapes = MappingProxyType({_CALL: shapes.WebSearchCall})
    listing_defaults = MappingProxyType({_CALL: {"status": "completed"}})
    events = shapes.EVENTS
    function_name = "web_search"
    call_limits = CallLimits(seconds=limits.WEB_CALL_SECONDS_MAX, bytes=limits.WEB_CALL_BYTES_MAX)
    end_messages = WORDS
    one_tool_only = "There is more than one web search in 'tools': send one of its types."
    hidden_field = "results"

    # --- a request ---

    def extract_secrets(self, tool: Tool, handle: str, configured: RemoteServers) -> tuple[Tool, Mapping[str, str]]:
        if configured.search is None:
            raise errors.bad_request(WEB_SEARCH_REASON, param="tools", code="unsupported_value")
        return tool | {_ENGINE: handle}, {handle: configured.search.to_secret()}

    # --- what models read ---

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return words.offered(name, tool)

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        action = words.action_of(value)
        return None if action is None else {"type": _CALL, "action": action}

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        return words.arguments_of(call["action"])

    def result_for_model(self, item: Item) -> Any:
        return words.read(item)

    def citations(self, text: str, marks: Sequence[SourceMark], items: Sequence[Item]) -> list[dict[str, Any]]:
        return citing.citations(text, items)

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        if not place.is_hosted:  # An upstream searches by itself: it has searched.
            item = {"status": "completed", "action": dict(_UNTOLD), **call, "id": place.item_id}
            return CallOpening(item, (), item)
        # No event of a search says what is looked for: whoever takes over reads it here, or nowhere.
        added = {"id": place.item_id, "type": _CALL, "status": "in_progress", "action": call["action"], **self.allowance(call)}
        return CallOpening(added, (place.event("web_search_call.in_progress"),), dict(added), is_whole=False)

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        known = run.known
        if (known.so_far or {}).get("status") != "searching":
            yield CallEvent(known.event("web_search_call.searching"))
        hosts: dict[str, None] = {}
        try:
            item = await _done(run, hosts)
        except _Failed as failure:
            yield failed(known, str(failure), **_asked(hosts))
            return
        yield CallFinished(item | _asked(hosts), (known.event("web_search_call.completed"),))

    # --- who looks at it ---

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        filters = {} if tool["type"] in shapes.PREVIEWS else {"filters": None}
        return {**filters, "search_context_size": "medium", "user_location": None, **without(tool, _ENGINE)}

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        shown = item if _RESULTS in include else without(item, "results")
        is_shown = _SOURCES in include or "sources" not in item.get("action", ())
        return shown if is_shown else shown | {"action": without(item["action"], "sources")}

    def usage(self, items: Sequence[Item]) -> Mapping[str, Any]:
        """Of searches alone: a page that is opened asks no engine. An engine that gave no answer is not counted."""
        searches = [item for item in items if item["type"] == _CALL and (item.get("action") or {}).get("type") == "search"]
        return {"web_search": {"num_requests": sum(item.get("status") == "completed" for item in searches)}}

    def title(self, item: Item) -> str | None:
        action = words.arguments_of(item["action"])
        return " ".join(("web search:", *action.values()))


def _asked(hosts: Iterable[str]) -> dict[str, Any]:
    """The servers of pages that a call has asked."""
    listed = list(hosts)
    return {"hosts": listed} if listed else {}


# --- one action ---------------------------------------------------------------------------------------------------------------


async def _done(run: Run, hosts: dict[str, None]) -> Item:
    """The whole item; the servers of pages that were asked are put into ``hosts``. Raises :class:`_Failed`."""
    action = run.known.item["action"]
    tool = next(iter(run.tools), None)
    secret = None if tool is None else run.outside.secret(tool.get(_ENGINE, ""))
    if tool is None or secret is None:
        raise _Failed("There is no web search any more.")
    match action["type"]:
        case "search":
            results = [found.to_json() for found in await _searched(run, tool, SearchEngine.from_secret(secret), action["query"])]
            action = action | {"sources": [{"type": "url", "url": result["url"]} for result in results]}
        case "open_page":
            page = await _opened(run, tool, action["url"], hosts)
            results = [_result(action["url"], page, _cut(page.text, _size(tool)[1]))] if page.text else []
        case _:
            page = await _opened(run, tool, action["url"], hosts)
            results = [_result(action["url"], page, place) for place in pages.places(page, action["pattern"])]
    return run.known.item | {"status": "completed", "action": action, "results": results}


async def _searched(run: Run, tool: Tool, engine: SearchEngine, query: str) -> list[SearchResult]:
    run.counts["web_searches"] = 1
    results, chars_max = _size(tool)
    country = (tool.get("user_location") or {}).get("country")
    wanted = engines.SearchOrder(query, results, words.domains_of(tool), country, words.blocked_of(tool))
    try:
        found = await engines.search(run.outside.fetcher, engine, wanted)
    except SearchFailed as failure:
        raise _Failed(str(failure)) from failure
    return [replace(each, text=_cut(each.text, chars_max // results)) for each in found]


async def _opened(run: Run, tool: Tool, url: str, hosts: dict[str, None]) -> ReadablePage:
    run.counts["web_pages"] = 1
    fetcher = replace(run.outside.fetcher, heard=lambda host: hosts.setdefault(host))
    kept = pages.ReadPages(run.outside.contents, run.known.response_id, run.now)
    if not is_address(url):
        raise _Failed("This is no address of a page: it begins with https:// or http://.")
    try:
        return await pages.open_page(fetcher, kept, url, words.domains_of(tool), words.blocked_of(tool))
    except FetchError as error:
        raise _Failed(f"The page cannot be read: {error}.") from error


def _size(tool: Tool) -> tuple[int, int]:
    return _SIZES[tool.get("search_context_size", "medium")]


def _cut(text: str, chars_max: int) -> str:
    left_out = len(text) - chars_max
    return text if left_out <= 0 else f"{text[:chars_max]} [{left_out} characters more]"


def _result(url: str, page: ReadablePage, text: str) -> dict[str, Any]:
    return {"url": url, "title": page.title[: limits.WEB_TITLE_CHARS_MAX] or url, "text": text}
