"""What an agent is set to: as it answers it, and as ``/v1/responses`` is asked for it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from moorage import limits
from moorage.agents.shapes import SubagentsAnswer
from moorage.errors import ApiError, bad_request
from moorage.wire.requests import CreateRequest, WebSearchMode, parse_create
from moorage.wire.types import Tool
from moorage.wire.validation import Fields

_FORMAT_NAME: Final = "answer"
"""An agent's format has none, and a model is told one."""

_PLACE: Final = re.compile(r"tools\[(\d+)\]")

SCREENSHOTS: Final = "computer_call_output.output.image_url"

_MOVED: Final = {
    ".server_url": ".transport.server_url",
    ".headers": ".transport.headers",
    ".filters.": ".",
    ".user_location": ".location",
}
"""Where a field of a tool of ``/v1/responses`` stands in an agent."""


def checked(settings: Mapping[str, Any], *, web_search: WebSearchMode) -> CreateRequest:
    """A request with these settings and no input of its own. Raises :class:`ApiError` for what ``/v1/responses`` would refuse, with the
    agent's names."""
    _check_size(settings.get("tools", ()))
    try:
        return parse_create({**as_request(settings), "input": ""}, web_search=web_search)
    except ApiError as error:
        raise _in_its_words(error, settings.get("tools", ())) from error


def _check_size(tools: Any) -> None:
    size = len(orjson.dumps(tools))
    if size > limits.AGENT_TOOLS_BYTES_MAX:
        raise bad_request(f"The tools of an agent have at most {limits.AGENT_TOOLS_BYTES_MAX} bytes; these have {size}.", param="tools")


def _in_its_words(error: ApiError, tools: Sequence[Tool]) -> ApiError:
    param = error.param
    if param is None:
        return error
    if (place := _PLACE.match(param)) is not None:  # A search that is switched off is none of the request's tools.
        asked = [index for index, tool in enumerate(tools) for _ in _as_tools(tool)]
        param = f"tools[{asked[int(place[1])]}]{param[place.end() :]}"
    for theirs, ours in _MOVED.items() if param.startswith("tools[") else ():
        param = param.replace(theirs, ours)
    return ApiError(error.status, error.message.replace(error.param or "", param), param=param, code=error.code)


def as_request(settings: Mapping[str, Any]) -> Fields:
    """The fields of ``POST /v1/responses`` that say the same. An agent's context is always compacted."""
    asked: Fields = {name: settings[name] for name in ("model", "instructions", "reasoning", "service_tier") if name in settings}
    asked["tools"] = [tool for each in settings.get("tools", ()) for tool in _as_tools(each)]
    if "text" in settings:
        asked["text"] = _as_text(settings["text"])
    if any(tool.get("include_screenshots") for tool in settings.get("tools", ())):
        asked["include"] = [SCREENSHOTS]
    if (team := team_of(settings))["enabled"]:
        asked["multi_agent"] = team
    return asked | {"context_management": [{"type": "compaction"}]}


def team_of(settings: Mapping[str, Any]) -> SubagentsAnswer:
    """Whether an agent may start others, and how many of them are active at once."""
    asked = settings.get("multi_agent") or {}
    if not asked.get("enabled"):
        return {"enabled": False, "max_concurrent_subagents": None}
    return {"enabled": True, "max_concurrent_subagents": asked.get("max_concurrent_subagents", limits.AGENT_SUBAGENTS)}


def _as_text(text: Mapping[str, Any]) -> Fields:
    format_ = text.get("format")
    if format_ is None or format_["type"] != "json_schema":
        return dict(text)
    return {**text, "format": {"type": "json_schema", "name": _FORMAT_NAME, "schema": format_["schema"], "strict": False}}


def _as_tools(tool: Tool) -> list[Tool]:
    """One tool of ``/v1/responses``; none for a search that is switched off."""
    match tool["type"]:
        case "function":
            return [{**{name: value for name, value in tool.items() if name != "async"}, "strict": False}]
        case "mcp":
            transport = tool["transport"]
            moved = {name: transport[name] for name in ("server_url", "headers") if name in transport}
            kept: Tool = {name: tool[name] for name in ("type", "server_label", "allowed_tools") if name in tool}
            return [{**kept, **moved, "require_approval": tool.get("require_approval", "never")}]
        case "computer_use":
            return [{"type": "computer", "container": {"type": "container_auto"}}]
        case "web_search":
            return [] if tool.get("mode") == "disabled" else [_as_search(tool)]
        case _:
            return [tool]


def _as_search(tool: Tool) -> Tool:
    search: Tool = {"type": "web_search", "search_context_size": tool.get("context_size", "medium")}
    if tool.get("mode") == "cached":
        search["external_web_access"] = False
    if "allowed_domains" in tool:
        search["filters"] = {"allowed_domains": tool["allowed_domains"]}
    if "location" in tool:
        search["user_location"] = {"type": "approximate", **tool["location"]}
    return search


def as_answer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with what was left open, as a saved agent shows them."""
    text, reasoning = settings.get("text", {}), settings.get("reasoning", {})
    return {
        "name": settings.get("name"),
        "model": settings["model"],
        "instructions": settings.get("instructions"),
        "tools": [_shown(tool) for tool in settings.get("tools", ())],
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "text": {"format": text.get("format", {"type": "text"}), "verbosity": text.get("verbosity", "medium")},
        "service_tier": settings.get("service_tier", "auto"),
        "multi_agent": team_of(settings),
        "compaction": {"async": False},
        "experimental": {"time_awareness": False},
    }


def as_session_answer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same of an agent that is not saved by itself. OpenAI's types of its tools have no search, and readers fail over one."""
    shown = as_answer(settings)
    return shown | {"tools": [tool for tool in shown["tools"] if tool["type"] != "tool_search"]}


def _shown(tool: Tool) -> Tool:
    match tool["type"]:
        case "function":
            return {"defer_loading": False, "async": False} | tool
        case "mcp":
            defaults: Tool = {"allowed_tools": None, "connection_origin": "service", "credential_id": None, "request_metadata": {}}
            transport = {"headers": {}} | tool["transport"]
            return {**defaults, "required": False, "require_approval": "never", **tool, "transport": transport}
        case "computer_use":
            return {"include_screenshots": False} | tool
        case "automations":
            return {"require_approval": "never"} | tool
        case "web_search":
            location = {name: tool.get("location", {}).get(name) for name in ("city", "country", "region", "timezone")}
            left_open: Tool = {"allowed_domains": None, "context_size": "medium", "mode": "live"}
            return left_open | tool | {"location": location if "location" in tool else None}
        case _:
            return tool
