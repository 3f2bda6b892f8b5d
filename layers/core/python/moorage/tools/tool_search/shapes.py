"""tool_search on the wire: its definition and its items."""

from types import MappingProxyType
from typing import Final, Literal, Required

from typing_extensions import TypedDict

from moorage import errors
from moorage.wire.item import Common, Status, an_item
from moorage.wire.refusals import problem, wrong_value
from moorage.wire.tools import BroughtTools
from moorage.wire.validation import CallId, Fields, Free, Text, wire_with

PREFIXES: Final = MappingProxyType({"tool_search_call": "tsc", "tool_search_output": "tso"})

_OF_CLIENTS: Final = "the search that runs here has its own; it is for 'execution': 'client'."


def _says_where_it_runs(tool: Fields) -> Fields:
    """The API's default is ``server``."""
    tool.setdefault("execution", "server")
    for name in ("description", "parameters"):
        if tool["execution"] == "server" and name in tool:
            raise wrong_value(_OF_CLIENTS, name)
    return tool


Execution = Literal["server", "client"]


@wire_with(_says_where_it_runs)
class ToolSearchTool(TypedDict, total=False):
    type: Required[Literal["tool_search"]]
    execution: Execution
    description: Text
    parameters: Free


def _is_known(item: Fields) -> Fields:
    """A call that a client answers is known by its id; those of an upstream that searched by itself have none."""
    if "call_id" not in item and item.get("execution") != "server":
        raise problem(errors.missing_parameter, "call_id")
    return item


@an_item(PREFIXES["tool_search_call"], _is_known)
class ToolSearchCall(Common, total=False):
    type: Required[Literal["tool_search_call"]]
    call_id: CallId
    arguments: Required[Free]
    status: Status
    execution: Execution


@an_item(PREFIXES["tool_search_output"], _is_known)
class ToolSearchOutput(Common, total=False):
    type: Required[Literal["tool_search_output"]]
    call_id: CallId
    tools: Required[BroughtTools]
    status: Status
    execution: Execution
