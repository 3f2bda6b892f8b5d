"""The server that is built in (``server_url: "moorage://workspace"``): its tools, and its place among the tools of a request.

Nothing is asked over a network: its tools run in the response's container, and the list of them is known.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import orjson

from moorage.dataclass import dataclass
from moorage.errors import SandboxError
from moorage.sandbox.exec_client import ExecClient
from moorage.tools.calls import CallEnd, KnownCall
from moorage.tools.execs import WORDS, SandboxLost, exec_id
from moorage.tools.mcp import listing
from moorage.tools.mcp.workspace import files, javascript, plan, questions, search, terminals
from moorage.tools.mcp.workspace.arguments import InvalidArguments, checked
from moorage.tools.mcp.workspace.results import WorkspaceResult, failed
from moorage.tools.run import Run
from moorage.wire.deferred import OWN_SEARCH
from moorage.wire.environments import WORKSPACE
from moorage.wire.types import Item, Tool


@dataclass(frozen=True, slots=True)
class WorkspaceTool:
    description: str
    schema: Mapping[str, Any]
    run: Callable[[Run, dict[str, Any]], Awaitable[WorkspaceResult]]
    is_read_only: bool = False
    runs_in_container: bool = True
    tells_container: bool = False


TOOLS: Final[Mapping[str, WorkspaceTool]] = MappingProxyType(
    {
        "exec_command": WorkspaceTool(terminals.EXEC_DESCRIPTION, terminals.EXEC_SCHEMA, terminals.exec_command, tells_container=True),
        "write_stdin": WorkspaceTool(terminals.WRITE_DESCRIPTION, terminals.WRITE_SCHEMA, terminals.write_stdin),
        "read_file": WorkspaceTool(files.READ_DESCRIPTION, files.READ_SCHEMA, files.read_file, is_read_only=True),
        "list_dir": WorkspaceTool(files.LIST_DESCRIPTION, files.LIST_SCHEMA, files.list_dir, is_read_only=True),
        "grep_files": WorkspaceTool(files.GREP_DESCRIPTION, files.GREP_SCHEMA, files.grep_files, is_read_only=True),
        "apply_patch": WorkspaceTool(files.PATCH_DESCRIPTION, files.PATCH_SCHEMA, files.apply_patch),
        "view_image": WorkspaceTool(files.VIEW_DESCRIPTION, files.VIEW_SCHEMA, files.view_image, is_read_only=True),
        javascript.NAME: WorkspaceTool(javascript.DESCRIPTION, javascript.SCHEMA, javascript.js_repl),
        "js_repl_reset": WorkspaceTool(javascript.RESET_DESCRIPTION, javascript.RESET_SCHEMA, javascript.js_repl_reset),
        "update_plan": WorkspaceTool(plan.DESCRIPTION, plan.SCHEMA, plan.update_plan, is_read_only=True, runs_in_container=False),
        OWN_SEARCH: WorkspaceTool(search.DESCRIPTION, search.SCHEMA, search.search, is_read_only=True, runs_in_container=False),
    }
)


def is_in_container(name: str) -> bool:
    return name in TOOLS and TOOLS[name].runs_in_container


def listed(named: Collection[str] = ()) -> list[dict[str, Any]]:
    """All of them, as a server lists its tools. The one that the client answers is there if it is named: not every client can."""
    entries = [
        listing.entry(name, tool.description, tool.schema, {"read_only_hint": tool.is_read_only}) for name, tool in TOOLS.items()
    ]
    if questions.NAME in named:
        entries.append(listing.entry(questions.NAME, questions.DESCRIPTION, questions.SCHEMA, {"read_only_hint": True}))
    return listing.ordered(entries)


async def called(run: Run) -> WorkspaceResult:
    """The output of a call; the model is told any fault of it."""
    item = run.known.item
    tool = TOOLS.get(item["name"])
    if tool is None:
        return failed(f"The workspace has no tool '{item['name']}'; it has {', '.join(sorted(TOOLS))}.")
    try:
        given = checked(tool.schema, orjson.loads(item["arguments"] or "{}"))
    except (InvalidArguments, orjson.JSONDecodeError) as error:
        return failed(f"{item['name']} was not run. {error}")
    try:
        return await tool.run(run, given)
    except SandboxLost:
        return failed(WORDS[CallEnd.LOST])
    except SandboxError as error:
        return failed(error.message)


async def stop(client: ExecClient, known: KnownCall) -> None:
    """Kill the processes of a call: its response is being cancelled. A terminal that it has typed into lives on."""
    with suppress(SandboxError):
        if known.item["name"] == "exec_command":
            await client.kill_session(terminals.look_id(known))
        else:
            await client.kill(exec_id(known.response_id, known.call_id, 0))


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
