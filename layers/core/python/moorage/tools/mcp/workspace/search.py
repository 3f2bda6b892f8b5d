"""``search_tool_bm25``: looks for tools that were not offered, by the name, the arguments and the result that coding models know."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from moorage import limits
from moorage.tools.calls import ToolKey
from moorage.tools.function_items import compact_json
from moorage.tools.mcp import deferring
from moorage.tools.mcp.workspace.arguments import schema
from moorage.tools.mcp.workspace.results import WorkspaceResult, failed
from moorage.tools.room import InputWriter
from moorage.tools.run import Run
from moorage.tools.tool_search import ranking
from moorage.wire.deferred import OWN_SEARCH
from moorage.wire.types import Item

_LIMIT_DEFAULT: Final = 8

DESCRIPTION: Final = """\
Search for further tools by BM25 over their names, descriptions and arguments. Those that are found can be called from then on; what \
was found before stays."""
SCHEMA: Final = schema(
    {
        "query": {"type": "string", "description": "What the tools should do, in a few words."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": limits.TOOLS_FOUND_MAX,
            "description": f"Tools to return at most; {_LIMIT_DEFAULT} if left out.",
        },
    },
    "query",
)


async def search(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    """Running twice is harmless: it only reads."""
    query = given["query"].strip()
    if not query:
        return failed("query must not be empty")
    there = [*ranking.deferred(run.offered), *await deferring.deferred(run.offered, run.earlier())]
    found = [_entry(each, score) for each, score in await ranking.ranked(query, there, given.get("limit", _LIMIT_DEFAULT))]
    run.counts["found"] = len(found)
    selected = {_identity(entry): entry for entry in [*await _selected(run), *found]}
    named = [{key: entry.get(key) for key in ("name", "server", "namespace")} for entry in selected.values()]
    told = {"query": query, "total_tools": len(there), "active_selected_tools": named, "tools": found}
    return WorkspaceResult(orjson.dumps(told).decode())


def _entry(each: ranking.DeferredTool, score: float) -> dict[str, Any]:
    is_servers = each.group is not None and "server_label" in each.group
    belongs_to = None if each.about is None else each.about["name"]
    return {
        "name": each.tool["name"],
        "server": belongs_to if is_servers else None,
        "namespace": None if is_servers else belongs_to,
        "description": each.tool.get("description"),
        "input_keys": ranking.argument_names(each.tool),
        "score": round(score, 4),
    }


def _identity(entry: dict[str, Any]) -> tuple[Any, ...]:
    return entry.get("server"), entry.get("namespace"), entry["name"]


async def _selected(run: Run) -> list[dict[str, Any]]:
    """The results of earlier searches, the first one's first."""
    label = run.known.item["server_label"]
    searches = [item async for item in run.earlier() if is_search(item) and item["server_label"] == label]
    return [entry for item in reversed(searches) for entry in _entries(item, "tools")]


def is_search(item: Item) -> bool:
    return item["type"] == "mcp_call" and bool(item["name"] == OWN_SEARCH)


def found(item: Item) -> Iterator[ToolKey]:
    """The tools that a search's call names."""
    for entry in _entries(item, "tools"):
        yield from _keys(entry)


def shown(item: Item, reader: InputWriter) -> str | None:
    """The result with the names that the tools bear for the model; None if it has none."""
    value = _value(item)
    if value is None:
        return None
    active = [_name(entry, reader) for entry in _entries(item, "active_selected_tools")]
    tools = [entry | {"name": _name(entry, reader)} for entry in _entries(item, "tools")]
    return compact_json(value | {"active_selected_tools": active, "tools": tools})


def _name(entry: dict[str, Any], reader: InputWriter) -> str:
    type_, namespace, name = next(_keys(entry))
    return reader.name(type_, name, namespace)


def _keys(entry: dict[str, Any]) -> Iterator[ToolKey]:
    """One of a server; or of the client's, whose kind is not said."""
    if entry.get("server") is not None:
        yield "mcp", entry["server"], entry["name"]
        return
    for type_ in ("function", "custom"):
        yield type_, entry.get("namespace"), entry["name"]


def _entries(item: Item, field: str) -> list[dict[str, Any]]:
    """A client may send back any output."""
    entries = (_value(item) or {}).get(field)
    return [entry for entry in entries if _is_entry(entry)] if isinstance(entries, list) else []


def _is_entry(entry: Any) -> bool:
    """Names alone are looked at."""
    return isinstance(entry, dict) and all(
        isinstance(entry.get(key), str) or (key != "name" and entry.get(key) is None) for key in ("name", "server", "namespace")
    )


def _value(item: Item) -> dict[str, Any] | None:
    try:
        value = orjson.loads(item.get("output") or "null")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
