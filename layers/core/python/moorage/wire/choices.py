"""``tool_choice``: a word, a tool, or some of the tools."""

from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from typing_extensions import TypeAliasType, TypedDict

from moorage import errors, limits
from moorage.wire import tool_shapes
from moorage.wire.deferred import OWN_SEARCH
from moorage.wire.types import Item, Tool
from moorage.wire.validation import Either, Length, Name, OneOf, Text, wire


@wire
class ChosenByName(TypedDict):
    type: Literal["function", "custom"]
    name: Name


@wire
class ChosenNamespace(TypedDict):
    type: Literal["namespace"]
    name: Name


@wire
class ChosenByType(TypedDict):
    """A tool without a name."""

    type: Text


@wire
class AllowedTools(TypedDict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[Annotated[Any, OneOf(ChainMap({"namespace": ChosenNamespace}, tool_shapes.CHOICES))]],
        Length(limits.TOOLS_MAX, minimum=1),
    ]


ToolChoice = TypeAliasType(
    "ToolChoice",
    Annotated[
        Any,
        Either(
            "an object",
            string=Literal["none", "auto", "required"],
            object=Annotated[Any, OneOf(ChainMap({"allowed_tools": AllowedTools}, tool_shapes.CHOICES))],
        ),
    ],
)


Caller = Literal["direct", "programmatic"]
"""The model itself, or a program of its own."""


def may_call(tool: Tool, caller: Caller) -> bool:
    """Whether a tool, or one in a namespace, is for this caller (``allowed_callers``)."""
    if tool["type"] == "namespace":
        return any(may_call(member, caller) for member in tool["tools"])
    return caller in tool.get("allowed_callers", ("direct",))


def check_choice(chosen: str | dict[str, Any], tools: Sequence[Tool], items: Sequence[Item]) -> None:
    """A chosen tool must be among ``tools`` or be offered by ``items``, which include the chain's: if there is one, only who has
    loaded it can ask. Raises :class:`~moorage.errors.ApiError`."""
    if chosen in ("auto", "none"):
        return
    joined = (item for item in items if item["type"] in ("additional_tools", "tool_search_output"))
    offered = [*tools, *(tool for item in joined for tool in item.get("tools") or ())]
    if isinstance(chosen, str):
        if not offered:
            raise errors.invalid_value("tool_choice", f"'{chosen}' needs at least one tool in 'tools'.")
        return
    if not any(item.get("name") == OWN_SEARCH for item in items):
        _check_found(chosen, offered)
    wanted = enumerate(chosen["tools"]) if chosen["type"] == "allowed_tools" else [(None, chosen)]
    there = set(_choosable(offered))
    for index, tool in wanted:
        # What a server offers is known when it has been asked; that it is there must be known now.
        key = "server_label" if "server_label" in tool else "name"
        if (_COMPUTERS.get(tool["type"], tool["type"]), key, tool.get(key)) not in there:
            name = tool.get("name", tool["type"])
            param = "tool_choice" if index is None else f"tool_choice.tools[{index}]"
            raise errors.invalid_value(param, f"tool '{name}' is not among 'tools'.")


def _check_found(chosen: dict[str, Any], offered: Sequence[Tool]) -> None:
    """A server whose tools are kept back cannot be called before a search has brought it."""
    there = [tool for tool in offered if "server_label" in chosen and tool.get("server_label") == chosen["server_label"]]
    if there and all(tool.get("defer_loading") for tool in there):
        label = chosen["server_label"]
        raise errors.invalid_value("tool_choice", f"the tools of the server '{label}' are deferred: no search has found them yet.")


def _choosable(tools: Sequence[Tool]) -> Iterator[tuple[str | None, str, str | None]]:
    """Each way in which ``{"type", "name"?}`` can choose one of ``tools``, namespaces included: type, key, and the key's value."""
    for tool in tools:
        kind = _COMPUTERS.get(tool["type"], tool["type"])
        for key in ("name", "server_label"):
            yield kind, key, tool.get(key)
            yield kind, key, None
        if tool["type"] == "namespace":
            yield from _choosable(tool["tools"])


_COMPUTERS: Final = {"computer_use": "computer", "computer_use_preview": "computer"}
"""Three names for one tool in ``tool_choice``."""
