"""Remote MCP servers on the wire: the tool, its items, and its events in their order."""

import re
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Required
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.environments import WORKSPACE
from moorage.wire.item import Caller, Common, an_item
from moorage.wire.refusals import wrong_value
from moorage.wire.resources import Folder, NewContainer
from moorage.wire.tools import Callers
from moorage.wire.validation import (
    Array,
    CallId,
    Either,
    Fields,
    Free,
    FreeObject,
    Id,
    Length,
    Name,
    OneOf,
    RefusedField,
    Text,
    wire,
    wire_with,
)

PREFIXES: Final = MappingProxyType(
    {"mcp_call": "mcp", "mcp_list_tools": "mcpl", "mcp_approval_request": "mcpr", "mcp_approval_response": "mcpa"}
)

Label = Annotated[str, Field(min_length=1, max_length=limits.NAMESPACE_NAME_CHARS_MAX, pattern="^[a-zA-Z][a-zA-Z0-9_-]*$")]

_OURS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"),
        *("keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
    }
)
"""Headers that belong to the connection; those of the protocol itself begin with ``mcp-``."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def _address(url: str) -> str:
    if url == WORKSPACE:
        return url
    if url.startswith("moorage:"):
        raise wrong_value(f"the one server that is built in is '{WORKSPACE}'.")
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not url.isprintable() or " " in url:
        raise wrong_value("it must be an http or https address of a server.")
    if parts.username is not None or parts.password is not None:
        raise wrong_value("it must not hold a user name or password: send 'authorization' or 'headers'.")
    if parts.fragment:
        raise wrong_value("it must not hold a fragment.")
    return url


def _headers(headers: dict[str, str]) -> dict[str, str]:
    if len(headers) > limits.MCP_HEADERS_MAX:
        raise wrong_value(f"it has more than {limits.MCP_HEADERS_MAX} headers.")
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or len(value) > limits.MCP_HEADER_CHARS_MAX or not _VALUE.fullmatch(value):
            raise wrong_value("this is no header that can be sent.", name[: limits.NAME_CHARS_MAX])
        if name.lower() in _OURS or name.lower().startswith("mcp-"):
            raise wrong_value("this header belongs to the connection.", name)
    return headers


def _bearer(token: str) -> str:
    if not _VALUE.fullmatch(token):
        raise wrong_value("it must be a token that a header can hold.")
    return token


@wire
class McpFilter(TypedDict, total=False):
    """Tools by name, by their annotations, or by both."""

    tool_names: Array[Name]
    read_only: bool


@wire
class McpApprovals(TypedDict, total=False):
    always: McpFilter
    never: McpFilter


_CONNECTORS: Final = "Connectors are run by OpenAI: name the server that holds the data by 'server_url'."
_TUNNELS: Final = "Tunnels are run by OpenAI: name a server that can be reached by 'server_url', or have the operator configure it."


@wire
class WorkspaceAuto(NewContainer, total=False):
    type: Required[Literal["container_auto"]]
    file_map: bool
    agents_md: Folder


@wire
class WorkspaceReference(TypedDict, total=False):
    type: Required[Literal["container_reference"]]
    container_id: Required[Id]
    file_map: bool
    agents_md: Folder


_ELSEWHERE: Final = f"only the tools of '{WORKSPACE}' run in a container."
_NO_KEY: Final = f"'{WORKSPACE}' is built in and takes no key."


def _belongs(tool: Fields) -> Fields:
    """Fields that the workspace does not use, and its own."""
    if tool.get("server_url") != WORKSPACE:
        if "environment" in tool:
            raise wrong_value(_ELSEWHERE, "environment")
        return tool
    for name in ("authorization", "headers"):
        if name in tool:
            raise wrong_value(_NO_KEY, name)
    return tool


@wire_with(_belongs)
class McpTool(TypedDict, total=False):
    """``server_url`` may be left out if the operator has configured a server of this label. ``environment`` is an addition to the
    API, for the server that is built in."""

    type: Required[Literal["mcp"]]
    server_label: Required[Label]
    server_url: Annotated[str, Field(min_length=1, max_length=limits.MCP_URL_CHARS_MAX), AfterValidator(_address)]
    server_description: Text
    authorization: Annotated[str, Field(min_length=1, max_length=limits.MCP_HEADER_CHARS_MAX), AfterValidator(_bearer)]
    headers: Annotated[dict[str, str], AfterValidator(_headers)]
    allowed_tools: Annotated[list[str] | McpFilter, Either("an array or an object", array=Array[Name], object=McpFilter)]
    require_approval: Annotated[
        str | McpApprovals, Either("a string or an object", string=Literal["always", "never"], object=McpApprovals)
    ]
    defer_loading: bool
    allowed_callers: Callers
    environment: Annotated[
        WorkspaceAuto | WorkspaceReference, OneOf({"container_auto": WorkspaceAuto, "container_reference": WorkspaceReference})
    ]
    connector_id: Annotated[Any, RefusedField(_CONNECTORS)]
    tunnel_id: Annotated[Any, RefusedField(_TUNNELS)]


_DECLARED: Final = "A server is declared in 'tools' of the request; an item brings its tools by 'server_label' and 'allowed_tools'."


@wire
class BroughtServer(TypedDict, total=False):
    """In the output of a search: deferred tools of a server; all of them if ``allowed_tools`` is left out."""

    type: Required[Literal["mcp"]]
    server_label: Required[Label]
    allowed_tools: Array[Name]
    server_url: Annotated[Any, RefusedField(_DECLARED)]


@wire
class ChosenServer(TypedDict, total=False):
    type: Required[Literal["mcp"]]
    server_label: Required[Label]
    name: Name


# --- items --------------------------------------------------------------------------------------------------------------------


@wire
class ListedTool(TypedDict, total=False):
    name: Required[Name]
    input_schema: Required[Free]
    description: Text
    annotations: FreeObject


def _empty_list(item: Fields) -> Fields:
    """LangChain leaves a list out that is empty."""
    item.setdefault("tools", [])
    return item


@an_item(PREFIXES["mcp_list_tools"], _empty_list)
class McpListTools(Common, total=False):
    type: Required[Literal["mcp_list_tools"]]
    server_label: Required[Label]
    tools: Annotated[list[ListedTool], Length(limits.MCP_TOOLS_MAX)]
    error: Text


@wire
class McpProtocolError(TypedDict):
    type: Literal["mcp_protocol_error"]
    code: int
    message: Text


@wire
class McpToolExecutionError(TypedDict):
    type: Literal["mcp_tool_execution_error"]
    content: Free


@wire
class HttpError(TypedDict):
    type: Literal["http_error"]
    code: int
    message: Text


_Error = Annotated[
    McpProtocolError | McpToolExecutionError | HttpError,
    OneOf({"mcp_protocol_error": McpProtocolError, "mcp_tool_execution_error": McpToolExecutionError, "http_error": HttpError}),
]


_AnyLabel = Annotated[
    str, Field(min_length=1, max_length=limits.NAMESPACE_NAME_CHARS_MAX, pattern="^(moorage://)?[a-zA-Z][a-zA-Z0-9_-]*$")
]
"""Of a server, or of what asks in this form without being one."""


class _McpRequest(Common, total=False):
    server_label: Required[_AnyLabel]
    name: Required[Name]
    arguments: Required[Text]


@an_item(PREFIXES["mcp_call"])
class McpCall(_McpRequest, total=False):
    """``error`` was a text in earlier versions of the API, and clients send it so. Additions to it are ``container_id``, where a call
    of the workspace ran, and ``call_id`` and ``caller`` of a program's call."""

    type: Required[Literal["mcp_call"]]
    status: Literal["in_progress", "calling", "completed", "incomplete", "failed"]
    approval_request_id: Id
    error: Annotated[str | dict[str, Any], Either("a string or an object", string=Text, object=_Error)]
    output: Text
    container_id: Id
    call_id: CallId
    caller: Caller


@an_item(PREFIXES["mcp_approval_request"])
class McpApprovalRequest(Common, total=False):
    """Of a server, or of a tool of this deployment's own under a label that no server can have."""

    type: Required[Literal["mcp_approval_request"]]
    server_label: Required[_AnyLabel]
    name: Required[Name]
    arguments: Required[Text]


@an_item(PREFIXES["mcp_approval_response"])
class McpApprovalResponse(Common, total=False):
    type: Required[Literal["mcp_approval_response"]]
    approval_request_id: Required[Id]
    approve: Required[bool]
    reason: Text


# --- events -------------------------------------------------------------------------------------------------------------------

_ITEM: Final = ("item_id", "output_index")

EVENTS: Final = MappingProxyType(
    {
        "mcp_list_tools.in_progress": _ITEM,
        "mcp_list_tools.completed": _ITEM,
        "mcp_list_tools.failed": _ITEM,
        "mcp_call.in_progress": _ITEM,
        "mcp_call_arguments.delta": (*_ITEM, "delta"),
        "mcp_call_arguments.done": (*_ITEM, "arguments"),
        "mcp_call.completed": _ITEM,
        "mcp_call.failed": _ITEM,
    }
)
"""In the order in which they come."""
