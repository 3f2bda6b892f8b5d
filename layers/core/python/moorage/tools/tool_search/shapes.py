"""What is said about tool_search on the wire: its definition and its items. It runs in the client only."""

from types import MappingProxyType
from typing import Annotated, Final, Literal, Required

from typing_extensions import TypedDict

from moorage import errors
from moorage.wire.item import Common, Status, an_item
from moorage.wire.refusals import problem
from moorage.wire.tools import BroughtTools
from moorage.wire.validation import CallId, Fields, Free, Only, Text, wire_with

PREFIXES: Final = MappingProxyType({"tool_search_call": "tsc", "tool_search_output": "tso"})

_SERVER_SEARCH_REASON: Final = "Tool search runs in the client only: send 'execution': 'client'."
ClientExecution = Annotated[Literal["server", "client"], Only("client", _SERVER_SEARCH_REASON)]


def _says_where_it_runs(tool: Fields) -> Fields:
    """The API's default is ``server``."""
    if "execution" not in tool:
        raise problem(lambda param: errors.unsupported_value(param, "server", _SERVER_SEARCH_REASON), "execution")
    return tool


@wire_with(_says_where_it_runs)
class ToolSearchTool(TypedDict, total=False):
    type: Required[Literal["tool_search"]]
    execution: ClientExecution
    description: Text
    parameters: Free


@an_item(PREFIXES["tool_search_call"])
class ToolSearchCall(Common, total=False):
    type: Required[Literal["tool_search_call"]]
    call_id: Required[CallId]
    arguments: Required[Free]
    status: Status
    execution: ClientExecution


@an_item(PREFIXES["tool_search_output"])
class ToolSearchOutput(Common, total=False):
    type: Required[Literal["tool_search_output"]]
    call_id: Required[CallId]
    tools: Required[BroughtTools]
    status: Status
    execution: ClientExecution
