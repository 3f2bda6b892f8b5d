"""Tools that are not offered before a search has found them: they say ``defer_loading``."""

from collections.abc import Iterable, Sequence
from typing import Final

from moorage.wire.environments import WORKSPACE
from moorage.wire.refusals import wrong_value
from moorage.wire.types import Tool

SEARCH: Final = "tool_search"
OWN_SEARCH: Final = "search_tool_bm25"
"""The workspace's, under the name that coding models know."""

_UNFOUND: Final = (
    f"nothing looks for its tools: add {{'type': '{SEARCH}'}}, or the server '{WORKSPACE}' with its '{OWN_SEARCH}', to 'tools'."
)


def has_deferred(tool: Tool) -> bool:
    """Whether a tool of a request, or a member of it, is kept back."""
    return bool(tool.get("defer_loading")) or any(member.get("defer_loading") for member in tool.get("tools", ()))


def searches_deferred(tools: Sequence[Tool]) -> bool:
    """Whether the workspace's search is what looks for them: if the request has no other."""
    is_wanted = any(map(has_deferred, tools)) and not any(tool["type"] == SEARCH for tool in tools)
    return is_wanted and any(map(_has_own_search, tools))


def _has_own_search(tool: Tool) -> bool:
    if tool.get("server_url") != WORKSPACE:
        return False
    allowed = tool.get("allowed_tools", {})
    if isinstance(allowed, list):
        return OWN_SEARCH in allowed
    return OWN_SEARCH in allowed.get("tool_names", (OWN_SEARCH,)) and allowed.get("read_only") is not False


def check_deferred(tools: Iterable[Tool]) -> None:
    """A server whose tools nobody could ever find is a mistake."""
    there = list(tools)
    has_search = any(tool["type"] == SEARCH for tool in there) or searches_deferred(there)
    for index, tool in enumerate(there):
        if tool.get("defer_loading") and "server_label" in tool and not has_search:
            raise wrong_value(_UNFOUND, index, "defer_loading")
