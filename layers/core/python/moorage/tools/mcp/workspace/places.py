"""The server that is built in, among the tools of a request: ``server_url: "moorage://workspace"``. Nothing is asked over a network:
its tools run in the response's container, and the list of them is known."""

from collections.abc import Iterable
from typing import Any, Final

from moorage.tools.mcp.workspace.toolset import is_in_container
from moorage.wire.environments import WORKSPACE
from moorage.wire.types import Item, Tool

HERE: Final = "in_container"
"""Of a call that has no place yet: it will run in the container."""


def is_workspace(tool: Tool | None) -> bool:
    return tool is not None and tool.get("server_url") == WORKSPACE


def of_label(tools: Iterable[Tool], label: str) -> Tool | None:
    """The workspace, if it is declared under this label."""
    return next((tool for tool in tools if is_workspace(tool) and tool["server_label"] == label), None)


def runs_in_container(call: Item) -> bool:
    return "container_id" in call


def mark(tools: Iterable[Tool], label: str, name: str) -> dict[str, Any]:
    """The fields of this server's calls beside name and arguments."""
    return {HERE: True} if of_label(tools, label) is not None and is_in_container(name) else {}


def echoed(tool: Tool, container_id: str | None) -> Tool:
    """With its container, in place of the request's field: that may name files and policies."""
    if not is_workspace(tool) or container_id is None:
        return {key: value for key, value in tool.items() if key != "environment"}
    return {**tool, "environment": {"type": "container_reference", "container_id": container_id}}
