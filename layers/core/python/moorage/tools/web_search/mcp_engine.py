"""An operator's MCP server as the search engine: one call of the tool that he has named, and results out of whatever it answers.

No two servers answer alike. Understood are JSON with a list of results, wherever it stands in it, a line of JSON for each result, and
blocks of lines such as ``Title: ...``, ``URL: ...``; fields are known by the names that the common ones give them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from moorage import limits
from moorage.egress.fetch import Fetcher
from moorage.model.search_engine import SearchEngine
from moorage.parallel import imported
from moorage.tools.mcp.servers import McpServer
from moorage.tools.web_search.results import SearchFailed, SearchResult, is_address
from moorage.tools.web_search.text import plain

_URL: Final = ("url", "link", "href")
_TITLE: Final = ("title", "name")
_TEXT: Final = ("content", "text", "snippet", "description", "summary", "highlights")
_WHEN: Final = ("published_date", "publishedDate", "published", "date", "page_age", "age")
_LINE: Final = re.compile(r"\s*(?:[-*#>]\s*)?\**([A-Za-z][A-Za-z _]{1,20})\**:\**\s+(.*)")
_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("url", "link", "href"), "url"),
    **dict.fromkeys(("title", "name"), "title"),
    **dict.fromkeys(("content", "text", "snippet", "description", "summary", "highlights"), "content"),
    **dict.fromkeys(("date", "published", "published date"), "date"),
}
_LEVELS_MAX: Final = 4
_BLOCK_CHARS_MAX: Final = 8 * limits.WEB_EXCERPT_CHARS_MAX
"""Of a result's text before its excerpt is cut out: a page of many short lines would be copied once for each of them."""


async def search(fetcher: Fetcher, engine: SearchEngine, query: str) -> list[SearchResult]:
    """Each address once. Raises :class:`SearchFailed`."""
    await imported("moorage.tools.mcp.session")  # The SDK takes most of a second, and few processes call servers.
    from moorage.tools.mcp import session

    headers = {"Authorization": f"Bearer {engine.key}"} if engine.key else {}
    server = McpServer(engine.url, headers, is_operators=True)
    arguments = {**engine.arguments, engine.argument: query}
    try:
        called = await session.call_tool(server, fetcher, engine.tool, arguments, seconds=limits.WEB_SEARCH_SECONDS_MAX)
    except session.ServerFailure as failure:
        kind = failure.error["type"].removeprefix("mcp_").replace("_", " ")
        raise SearchFailed(f"The search server gave no answer: {kind}, code {failure.error['code']}.") from failure
    if called.error is not None:
        raise SearchFailed("The search server's tool failed.")
    return results(called.output or "")


def results(output: str) -> list[SearchResult]:
    """Raises :class:`SearchFailed` for an answer without an understood result, unless it is empty."""
    found = (_found(entry) for entry in _entries(output[: limits.WEB_SEARCH_BYTES_MAX]))
    by_url = {each.url: each for each in found if each is not None}
    if not by_url and output.strip() and _json(output) not in ([], {"results": []}):
        raise SearchFailed("The search server's answer has no results that are understood here.")
    return list(by_url.values())


def _entries(output: str) -> Iterable[Mapping[str, Any]]:
    value = _json(output)
    if value is not None:
        return _listed(value, _LEVELS_MAX)
    lines = [parsed for line in output.splitlines() if line.lstrip().startswith(("{", "[")) and (parsed := _json(line)) is not None]
    return _listed(lines, _LEVELS_MAX) if lines else _blocks(output)


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _listed(value: Any, levels: int) -> list[Mapping[str, Any]]:
    """The entries with an address that stand nearest to the top; MCP's own parts hold their text as JSON once more."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str) and value.get("type") == "text":
            return list(_entries(value["text"])) if levels else []
        value = [value] if _first(value, _URL) else list(value.values())
    if not isinstance(value, list):
        return []
    entries: list[Mapping[str, Any]] = [entry for entry in value if isinstance(entry, dict) and _first(entry, _URL)]
    if entries or not levels:
        return entries
    return next((below for each in value if (below := _listed(each, levels - 1))), [])


def _blocks(output: str) -> Iterator[Mapping[str, Any]]:
    """``Title: ...``, ``URL: ...``, ``Content: ...``: a name that comes again begins the next result."""
    block: dict[str, str] = {}
    last = ""
    for line in output.splitlines():
        match = _LINE.fullmatch(line)
        name = _NAMES.get(match[1].strip().lower()) if match is not None else None
        if match is not None and name is not None:
            if name in block:
                yield block
                block = {}
            block[name] = match[2]
            last = name
        elif last == "content" and line.strip() and len(block["content"]) < _BLOCK_CHARS_MAX:
            block["content"] += f"\n{line}"
    yield block


def _found(entry: Mapping[str, Any]) -> SearchResult | None:
    url = _first(entry, _URL)
    if not is_address(url):
        return None
    title = plain(_first(entry, _TITLE))[: limits.WEB_TITLE_CHARS_MAX] or url
    return SearchResult(url, title, plain(_first(entry, _TEXT))[: limits.WEB_EXCERPT_CHARS_MAX], _first(entry, _WHEN)[:40] or None)


def _first(entry: Mapping[str, Any], names: Iterable[str]) -> str:
    for name in names:
        value = entry.get(name)
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            value = "\n".join(value)
        if isinstance(value, str) and value:
            return value
    return ""
