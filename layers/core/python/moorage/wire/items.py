"""The items of a conversation, as they arrive in ``input``.

Canonical form: every item has a ``type`` and an ``id``, a message's content is a list of parts, ``detail`` of an image is set,
fields that are null are left out. Ids made by clients are kept as they are.
"""

from collections import ChainMap
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType, TypedDict

from moorage import errors, ids, limits
from moorage.wire import tool_shapes
from moorage.wire.item import ID_PREFIXES, Agent, Call, Common, Status, an_item
from moorage.wire.parts import AnsweredContent, SaidContent, ToolOutput, input_text
from moorage.wire.refusals import LABEL, problem
from moorage.wire.tools import BroughtTools
from moorage.wire.types import Item
from moorage.wire.validation import (
    Array,
    CallId,
    Dropped,
    Either,
    Fields,
    Free,
    Id,
    Name,
    OneOf,
    RefusedVariant,
    Text,
    wire,
    wire_with,
)

REFUSED_ITEMS: Final[dict[str, tuple[str, str]]] = {
    "configuration_update": (
        "unsupported_parameter",
        "Configuration updates are not available in this version: send 'reasoning' and 'text' with every request.",
    ),
}
"""Item types that are refused by name: error code and sentence."""


# --- Messages and reasoning -------------------------------------------------------------------------------------------


class _MessageFields(Common, total=False):
    type: Literal["message"]
    role: Required[Literal["user", "assistant", "system", "developer"]]
    status: Status
    phase: Literal["commentary", "final_answer"]


def _typed_message(message: Fields) -> Fields:
    """Easy messages have no ``type``."""
    return message if "type" in message else {"type": "message", **message}


@an_item(ID_PREFIXES["message"], _typed_message)
class Message(_MessageFields, total=False):
    content: Required[SaidContent]


@an_item(ID_PREFIXES["message"], _typed_message)
class AssistantMessage(_MessageFields, total=False):
    content: Required[AnsweredContent]


@wire
class SummaryText(TypedDict):
    type: Literal["summary_text"]
    text: Text


@wire
class ReasoningText(TypedDict):
    type: Literal["reasoning_text"]
    text: Text


_Encrypted = Annotated[str, Field(max_length=limits.ENCRYPTED_CONTENT_CHARS_MAX)]


@an_item(ID_PREFIXES["reasoning"])
class Reasoning(Common, total=False):
    type: Required[Literal["reasoning"]]
    summary: Required[Array[Annotated[SummaryText, OneOf({"summary_text": SummaryText})]]]
    status: Status
    content: Array[Annotated[ReasoningText, OneOf({"reasoning_text": ReasoningText})]]
    encrypted_content: _Encrypted


@an_item(ID_PREFIXES["compaction"])
class Compaction(Common, total=False):
    type: Required[Literal["compaction"]]
    encrypted_content: Required[_Encrypted]


@an_item(ID_PREFIXES["compaction_trigger"])
class CompactionTrigger(Common, total=False):
    type: Required[Literal["compaction_trigger"]]


def _typed_reference(reference: Fields) -> Fields:
    """An object with an ``id`` alone is a reference."""
    reference.setdefault("type", "item_reference")
    return reference


@wire_with(_typed_reference)
class ItemReference(TypedDict, total=False):
    id: Required[Id]
    type: Literal["item_reference"]
    agent: Annotated[Agent, Dropped]


# --- Functions and custom tools ---------------------------------------------------------------------------------------

_MaybeAsync = TypedDict("_MaybeAsync", {"async": bool}, total=False)


@an_item(ID_PREFIXES["function_call"])
class FunctionCall(Call, _MaybeAsync, total=False):
    """``parsed_arguments`` is what the SDKs' parse helpers leave in an item that is sent back."""

    type: Required[Literal["function_call"]]
    call_id: Required[CallId]
    name: Required[Name]
    arguments: Required[Text]
    namespace: Name
    parsed_arguments: Annotated[Free, Dropped]


@an_item(ID_PREFIXES["function_call_output"])
class FunctionCallOutput(Call, total=False):
    type: Required[Literal["function_call_output"]]
    call_id: Required[CallId]
    output: Required[ToolOutput]
    name: Name
    namespace: Name


@an_item(ID_PREFIXES["custom_tool_call"])
class CustomToolCall(Call, _MaybeAsync, total=False):
    type: Required[Literal["custom_tool_call"]]
    call_id: Required[CallId]
    name: Required[Name]
    input: Required[Text]
    namespace: Name


@an_item(ID_PREFIXES["custom_tool_call_output"])
class CustomToolCallOutput(Call, total=False):
    type: Required[Literal["custom_tool_call_output"]]
    call_id: Required[CallId]
    output: Required[ToolOutput]
    name: Name


# --- Tools that come on the way ---------------------------------------------------------------------------------------


@an_item(ID_PREFIXES["additional_tools"])
class AdditionalTools(Common, total=False):
    type: Required[Literal["additional_tools"]]
    role: Required[Literal["developer"]]
    tools: Required[BroughtTools]


# --- All of them ------------------------------------------------------------------------------------------------------

_OF_NO_TOOL: Final[dict[str, Any]] = {
    "message": Message,
    "function_call": FunctionCall,
    "function_call_output": FunctionCallOutput,
    "custom_tool_call": CustomToolCall,
    "custom_tool_call_output": CustomToolCallOutput,
    "reasoning": Reasoning,
    "compaction": Compaction,
    "compaction_trigger": CompactionTrigger,
}
"""Of none that has a room of its own on the wire: those of function calling are every tool's."""

_OTHERS: Final[dict[str, Any]] = {
    "additional_tools": AdditionalTools,
    "item_reference": ItemReference,
    **{name: RefusedVariant(reason, code=code) for name, (code, reason) in REFUSED_ITEMS.items()},
}
SHAPES: Final[Mapping[str, Any]] = ChainMap(_OTHERS, tool_shapes.ITEMS, _OF_NO_TOOL)

_ANSWER: Final = LABEL + "assistant"
_EASY_MESSAGE: Final = LABEL + "message"
_EASY_REFERENCE: Final = LABEL + "reference"


def _tag(value: Any) -> str | None:
    """Which of the shapes an item has. Easy messages have no ``type``, and an object with an ``id`` alone is a reference; a message's
    content is its role's."""
    if type(value) is not dict:
        return None
    kind = value.get("type")
    if kind is None and "role" not in value:
        return _EASY_REFERENCE if "id" in value and value.keys() <= {"id", "type", "agent"} else None
    if kind is None or kind == "message":
        return _ANSWER if value.get("role") == "assistant" else _EASY_MESSAGE if kind is None else "message"
    return kind if type(kind) is str else None


_ITEMS: Final = OneOf(
    ChainMap(
        {_EASY_MESSAGE: Message, _ANSWER: AssistantMessage, _EASY_REFERENCE: ItemReference}, _OTHERS, tool_shapes.ITEMS, _OF_NO_TOOL
    ),
    tag_of=_tag,
)
InputItem = TypeAliasType("InputItem", Annotated[Any, _ITEMS])


def distinct(items: list[Item]) -> list[Item]:
    seen: set[str] = set()
    for entry in items:
        item_id = entry["id"]
        if item_id in seen and entry["type"] != "local_shell_call_output":
            raise problem(lambda param, item_id=item_id: errors.duplicate_item(param, item_id))  # type: ignore[misc]
        seen.add(item_id)
    return items


def _said_by_user(text: str) -> list[Item]:
    return [{"type": "message", "role": "user", "content": input_text(text), "id": ids.new_id("msg")}]


Input = Annotated[
    list[Item],
    Either(
        "a string or an array",
        string=Annotated[Text, AfterValidator(_said_by_user)],
        array=Annotated[Array[InputItem], AfterValidator(distinct)],
    ),
]
"""``input`` of a request: text is one message of the user."""
