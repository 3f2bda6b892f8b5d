"""The tool definitions of a request.

Three kinds of tools exist for us. *Client* tools (function, custom, namespace, local shell, apply_patch, computer, tool_search with
``execution: client``) are offered to the model, and the client runs the calls. The *hosted* tools (shell in a container, code
interpreter) are run by the loop, all in the response's one container. All others are refused by name; ``docs/parameters.md`` has the
row and the reason of each.

The values of domain secrets live in :class:`~moorage.wire.network_policy.DomainSecret` alone: a tool that is stored, echoed or
logged has been through :func:`~moorage.wire.environments.redacted`, and keeps what the policy shows.
"""

from collections import ChainMap
from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType, TypedDict

from moorage import limits
from moorage.errors import invalid_function_parameters, unsupported_value
from moorage.wire import tool_shapes
from moorage.wire.deferred import check_deferred
from moorage.wire.environments import check_containers
from moorage.wire.json_schemas import fault_of
from moorage.wire.refusals import problem, wrong_value
from moorage.wire.types import Tool as AnyTool
from moorage.wire.validation import (
    Fields,
    FreeObject,
    Length,
    Name,
    OneOf,
    Only,
    RefusedField,
    RefusedVariant,
    Text,
    wire,
    wire_with,
)

PROGRAMMATIC_REASON: Final = (
    "In this version programs call functions, custom tools, the shell and remote servers: others have 'direct' callers only."
)
ASYNC_REASON: Final = "It is for calls of the model, and a program waits for its results. Add 'direct' to the callers, or leave it out."
WEB_SEARCH_REASON: Final = (
    "This deployment does not search the web: its operator has named no search engine. Leave the tool out, send 'external_web_access': "
    "false, or give the model a shell with a network policy."
)

WEB_SEARCH_CACHED: Final = "this deployment searches the live web, and no cache of it"
WEB_SEARCH_TEXT: Final = "this deployment finds texts in the web, and no images"

WEB_SEARCH_TOOLS: Final = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")

RequireApproval = Literal["always", "never"]
"""Of hosted tools that ask for each call or for none: an addition to the API, as remote servers have it."""

Callers = Annotated[list[Literal["direct", "programmatic"]], Length(2, minimum=1)]
DirectCallers = Annotated[list[Annotated[Literal["direct", "programmatic"], Only("direct", PROGRAMMATIC_REASON)]], Length(2, minimum=1)]
"""Of tools that no program may call yet."""
_Identifier = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS_MAX, pattern="^[a-zA-Z0-9_-]+$")]

# --- Tools that the client runs ---------------------------------------------------------------------------------------

_Named = TypedDict(
    "_Named",
    {
        "description": Text,
        "defer_loading": bool,
        "allowed_callers": Callers,
        "async": bool,
    },
    total=False,
)
"""What a function and a custom tool have in common."""


def _is_called_directly(tool: Fields) -> Fields:
    if tool.get("async") and "direct" not in tool.get("allowed_callers", ("direct",)):
        raise problem(lambda param: unsupported_value(param, "true", ASYNC_REASON), "async")
    return tool


def _has_schema(tool: Fields) -> Fields:
    _is_called_directly(tool)
    why = fault_of(tool["parameters"], strict=tool.get("strict", False)) if "parameters" in tool else None
    if why is not None:
        raise problem(lambda param: invalid_function_parameters(param, tool["name"], why), "parameters")
    return tool


@wire_with(_has_schema)
class FunctionTool(_Named, total=False):
    type: Required[Literal["function"]]
    name: Required[_Identifier]
    parameters: FreeObject
    strict: bool
    output_schema: FreeObject
    function: Annotated[
        Any, RefusedField("This is the form of chat completions: put 'name', 'description' and 'parameters' beside 'type'.")
    ]


@wire
class TextFormat(TypedDict):
    type: Literal["text"]


@wire
class Grammar(TypedDict):
    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Field(min_length=1, max_length=limits.GRAMMAR_CHARS_MAX)]


@wire_with(_is_called_directly)
class CustomTool(_Named, total=False):
    type: Required[Literal["custom"]]
    name: Required[Name]
    format: Annotated[TextFormat | Grammar, OneOf({"text": TextFormat, "grammar": Grammar})]


def refuse_duplicates(names: list[str], *at: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise wrong_value(f"there is already a tool called '{name}'.", *at, index, "name")
        seen.add(name)


def _names_are_unique(namespace: Fields) -> Fields:
    refuse_duplicates([tool["name"] for tool in namespace["tools"]], "tools")
    return namespace


@wire_with(_names_are_unique)
class NamespaceTool(TypedDict):
    type: Literal["namespace"]
    name: Annotated[str, Field(min_length=1, max_length=limits.NAMESPACE_NAME_CHARS_MAX, pattern="^[a-zA-Z0-9_-]+$")]
    description: Text
    tools: Annotated[
        list[Annotated[FunctionTool | CustomTool, OneOf({"function": FunctionTool, "custom": CustomTool})]],
        Length(limits.TOOLS_MAX, minimum=1),
    ]


# --- All of them ------------------------------------------------------------------------------------------------------

HOSTED_IN_ITEM: Final = RefusedVariant("A hosted tool stands in 'tools' of the request, because its container belongs to the response.")
"""Instead of a hosted tool that an item brings along."""

_OF_CLIENTS: Final[dict[str, Any]] = {"function": FunctionTool, "custom": CustomTool, "namespace": NamespaceTool}

TOOL: Final = OneOf(ChainMap(tool_shapes.TOOLS, _OF_CLIENTS))
Tool = TypeAliasType("Tool", Annotated[Any, TOOL])
"""A tool in ``tools`` of a request."""

ITEM_TOOL: Final = OneOf(ChainMap(tool_shapes.BROUGHT, _OF_CLIENTS))
ItemTool = TypeAliasType("ItemTool", Annotated[Any, ITEM_TOOL])
BroughtTools = Annotated[list[ItemTool], Length(limits.TOOLS_MAX)]
"""``tools`` of an ``additional_tools`` or ``tool_search_output`` item."""


def _belong_together(tools: list[AnyTool]) -> list[AnyTool]:
    refuse_duplicates([tool.get("name", f"\0{index}") for index, tool in enumerate(tools)])
    labels = [tool.get("server_label") for tool in tools]
    for index, label in enumerate(labels):
        if label is not None and label in labels[:index]:
            raise wrong_value(f"there is already a server called '{label}'.", index, "server_label")
    check_deferred(tools)
    check_containers(tools)
    return tools


ToolList = Annotated[list[Tool], Length(limits.TOOLS_MAX), AfterValidator(_belong_together)]
"""``tools`` in canonical form, values of secrets still inside."""
