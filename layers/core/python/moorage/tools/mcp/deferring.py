"""Tools of a server that are offered only when a search has found them.

{"type": "mcp", "server_label": "depot", "defer_loading": true}            in ``tools`` of a request: its list offers none
{"type": "mcp", "server_label": "depot", "allowed_tools": ["find_part"]}   in what was found: offered from there on
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from moorage import errors
from moorage.tools.calls import ToolKey
from moorage.tools.mcp import listing
from moorage.tools.mcp.workspace import questions
from moorage.tools.tool_search.ranking import DeferredTool
from moorage.wire.deferred import OWN_SEARCH
from moorage.wire.environments import WORKSPACE
from moorage.wire.types import Item, Tool


def is_offered(tool: Tool, listed: Mapping[str, Any]) -> bool:
    """A question that its client answers must be named by this request: the chain's list may be of another client."""
    is_question = tool.get("server_url") == WORKSPACE and listed["name"] == questions.NAME
    return listing.is_allowed(tool, listed) and (not is_question or questions.NAME in listing.names_wanted(tool))


def is_search(tool: Tool, listed: Mapping[str, Any]) -> bool:
    return tool.get("server_url") == WORKSPACE and bool(listed["name"] == OWN_SEARCH)


def is_deferred(tool: Tool, listed: Mapping[str, Any]) -> bool:
    return bool(tool.get("defer_loading")) and not is_search(tool, listed)


async def deferred(tools: Sequence[Tool], earlier: AsyncIterator[Item]) -> list[DeferredTool]:
    """The tools to find, by the latest list of each server, in the order of the request and of the lists."""
    hidden = {tool["server_label"]: tool for tool in tools if tool.get("defer_loading") and "server_label" in tool}
    lists: dict[str, Item] = {}
    if hidden:
        async for item in earlier:
            if item["type"] == "mcp_list_tools" and item["server_label"] in hidden and not item.get("error"):
                lists.setdefault(item["server_label"], item)
                if len(lists) == len(hidden):
                    break
    return [
        _deferred(tool, about, listed)
        for label, tool in hidden.items()
        for about in [{"name": label, "description": tool.get("server_description")}]
        for listed in (lists[label]["tools"] if label in lists else ())
        if is_offered(tool, listed) and is_deferred(tool, listed)
    ]


def _deferred(tool: Tool, about: Tool, listed: Mapping[str, Any]) -> DeferredTool:
    schema = listing.parameters_of(listed.get("input_schema"))
    named = {"name": listed["name"], "description": listed.get("description"), "parameters": schema}
    return DeferredTool(named, about, {"type": tool["type"], "server_label": about["name"]}, "allowed_tools", listed["name"])


def brought(tool: Tool, kept_back: Iterable[ToolKey]) -> list[ToolKey]:
    """The tools of a server in a search's output: the named ones, in its order, or all."""
    type_, label = tool["type"], tool["server_label"]
    names = tool.get("allowed_tools")
    return [key for key in kept_back if key[:2] == (type_, label)] if names is None else [(type_, label, name) for name in names]


def admit(items: Sequence[Item], tools: Sequence[Tool]) -> None:
    """A server that a client's search brings must be one that is kept back, or it would bring nothing. What was found here may come
    back with its history, whatever the request's tools are now. Raises :class:`~moorage.errors.ApiError`."""
    hidden = {tool["server_label"] for tool in tools if tool.get("defer_loading")}
    for index, item in enumerate(items):
        for at, tool in enumerate(item.get("tools") or ()):
            if tool.get("type") != "mcp" or item.get("execution") == "server" or tool["server_label"] in hidden:
                continue
            label, param = tool["server_label"], f"input[{index}].tools[{at}].server_label"
            raise errors.invalid_value(param, f"'tools' has no server '{label}' with 'defer_loading': true.")
