"""The items of a conversation, as they arrive in ``input``.

Canonical form: every item has a ``type`` and an ``id``, a message's content is a list of parts, ``detail`` of an image is set,
fields that are null are left out. Ids made by clients are kept as they are.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Required, TypeVar

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType, TypedDict

from moorage import errors, ids, limits
from moorage.wire.parts import (
    AnsweredContent,
    ImageDetail,
    ImageUrl,
    PromptCacheBreakpoint,
    SaidContent,
    ToolOutput,
    check_one_source,
    input_text,
)
from moorage.wire.refusals import LABEL, problem
from moorage.wire.tools import PROGRAMMATIC_REASON, ClientExecution, ContainerReference, ItemTool, LocalEnvironment
from moorage.wire.types import Item
from moorage.wire.validation import (
    Array,
    CallId,
    Dropped,
    Either,
    Fields,
    Free,
    Id,
    Length,
    Name,
    OneOf,
    RefusedVariant,
    Text,
    wire,
    wire_with,
)

_Class = TypeVar("_Class", bound=type)

_NOT_HOSTED: Final = "This deployment does not have the tool that made this item: leave the item out."

REFUSED_ITEMS: Final[dict[str, tuple[str, str]]] = {
    "configuration_update": (
        "unsupported_parameter",
        "Configuration updates are not available in this version: send 'reasoning' and 'text' with every request.",
    ),
    "program": ("unsupported_parameter", PROGRAMMATIC_REASON),
    "program_output": ("unsupported_parameter", PROGRAMMATIC_REASON),
    "file_search_call": ("unsupported_value", _NOT_HOSTED),
    "web_search_call": ("unsupported_value", _NOT_HOSTED),
    "image_generation_call": ("unsupported_value", _NOT_HOSTED),
    "mcp_list_tools": ("unsupported_value", _NOT_HOSTED),
    "mcp_call": ("unsupported_value", _NOT_HOSTED),
    "mcp_approval_request": ("unsupported_value", _NOT_HOSTED),
    "mcp_approval_response": ("unsupported_value", _NOT_HOSTED),
}
"""Item types that are refused by name: error code and sentence."""

ID_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "code_interpreter_call": "ci",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "computer_call": "cu",
    "computer_call_output": "cuo",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "additional_tools": "at",
    "compaction": "cmp",
    "compaction_trigger": "cmpt",
}


def an_item(kind: str, complete: Callable[[Fields], Fields] | None = None) -> Callable[[_Class], _Class]:
    """A type of the wire that is an item: it gets an id if it has none."""
    prefix = ID_PREFIXES[kind]

    def finish(value: Fields) -> Fields:
        if complete is not None:
            value = complete(value)
        if "id" not in value:
            value["id"] = ids.new_id(prefix)
        return value

    return wire_with(finish)


Status = Literal["in_progress", "completed", "incomplete"]


class _Common(TypedDict, total=False):
    """Fields that any item may have. The last one is Codex CLI's; it and the one before have no effect here."""

    id: Id
    created_by: Annotated[Text, Dropped]
    internal_chat_message_metadata_passthrough: Annotated[Free, Dropped]


@wire
class DirectCaller(TypedDict):
    type: Literal["direct"]


Caller = Annotated[DirectCaller, OneOf({"direct": DirectCaller, "program": RefusedVariant(PROGRAMMATIC_REASON)})]


class _Call(_Common, total=False):
    status: Status
    caller: Caller


# --- Messages and reasoning -------------------------------------------------------------------------------------------


class _Message(_Common, total=False):
    type: Literal["message"]
    role: Required[Literal["user", "assistant", "system", "developer"]]
    status: Status
    phase: Literal["commentary", "final_answer"]


def _typed_message(message: Fields) -> Fields:
    """Easy messages have no ``type``."""
    return message if "type" in message else {"type": "message", **message}


@an_item("message", _typed_message)
class Message(_Message, total=False):
    content: Required[SaidContent]


@an_item("message", _typed_message)
class AssistantMessage(_Message, total=False):
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


@an_item("reasoning")
class Reasoning(_Common, total=False):
    type: Required[Literal["reasoning"]]
    summary: Required[Array[Annotated[SummaryText, OneOf({"summary_text": SummaryText})]]]
    status: Status
    content: Array[Annotated[ReasoningText, OneOf({"reasoning_text": ReasoningText})]]
    encrypted_content: _Encrypted


@an_item("compaction")
class Compaction(_Common, total=False):
    type: Required[Literal["compaction"]]
    encrypted_content: Required[_Encrypted]


@an_item("compaction_trigger")
class CompactionTrigger(_Common, total=False):
    type: Required[Literal["compaction_trigger"]]


def _typed_reference(reference: Fields) -> Fields:
    """An object with an ``id`` alone is a reference."""
    reference.setdefault("type", "item_reference")
    return reference


@wire_with(_typed_reference)
class ItemReference(TypedDict, total=False):
    id: Required[Id]
    type: Literal["item_reference"]


# --- Functions and custom tools ---------------------------------------------------------------------------------------

_MaybeAsync = TypedDict("_MaybeAsync", {"async": bool}, total=False)


@an_item("function_call")
class FunctionCall(_Call, _MaybeAsync, total=False):
    """``parsed_arguments`` is what the SDKs' parse helpers leave in an item that is sent back."""

    type: Required[Literal["function_call"]]
    call_id: Required[CallId]
    name: Required[Name]
    arguments: Required[Text]
    namespace: Name
    parsed_arguments: Annotated[Free, Dropped]


@an_item("function_call_output")
class FunctionCallOutput(_Call, total=False):
    type: Required[Literal["function_call_output"]]
    call_id: Required[CallId]
    output: Required[ToolOutput]
    name: Name
    namespace: Name


@an_item("custom_tool_call")
class CustomToolCall(_Call, _MaybeAsync, total=False):
    type: Required[Literal["custom_tool_call"]]
    call_id: Required[CallId]
    name: Required[Name]
    input: Required[Text]
    namespace: Name


@an_item("custom_tool_call_output")
class CustomToolCallOutput(_Call, total=False):
    type: Required[Literal["custom_tool_call_output"]]
    call_id: Required[CallId]
    output: Required[ToolOutput]
    name: Name


# --- The shell --------------------------------------------------------------------------------------------------------

_Milliseconds = Annotated[int, Field(ge=0)]
_OutputChars = Annotated[int, Field(ge=0)]


@wire
class ShellAction(TypedDict, total=False):
    commands: Required[Annotated[list[Text], Length(limits.COMMANDS_PER_CALL_MAX)]]
    timeout_ms: _Milliseconds
    max_output_length: _OutputChars


@an_item("shell_call")
class ShellCall(_Call, total=False):
    type: Required[Literal["shell_call"]]
    call_id: Required[CallId]
    action: Required[ShellAction]
    environment: Annotated[
        LocalEnvironment | ContainerReference, OneOf({"local": LocalEnvironment, "container_reference": ContainerReference})
    ]


@wire
class Exit(TypedDict):
    type: Literal["exit"]
    exit_code: int


@wire
class Timeout(TypedDict):
    type: Literal["timeout"]


@wire
class CommandOutput(TypedDict, total=False):
    stdout: Required[Text]
    stderr: Required[Text]
    outcome: Required[Annotated[Exit | Timeout, OneOf({"exit": Exit, "timeout": Timeout})]]
    created_by: Annotated[Text, Dropped]


@an_item("shell_call_output")
class ShellCallOutput(_Call, total=False):
    type: Required[Literal["shell_call_output"]]
    call_id: Required[CallId]
    output: Required[Annotated[list[CommandOutput], Length(limits.COMMANDS_PER_CALL_MAX)]]
    max_output_length: _OutputChars


# --- The code interpreter ---------------------------------------------------------------------------------------------


@wire
class Logs(TypedDict):
    type: Literal["logs"]
    logs: Text


@wire
class Figure(TypedDict):
    type: Literal["image"]
    url: Annotated[str, Field(max_length=limits.IMAGE_URL_CHARS_MAX)]


@an_item("code_interpreter_call")
class CodeInterpreterCall(_Common, total=False):
    type: Required[Literal["code_interpreter_call"]]
    container_id: Required[Id]
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"]
    code: Text
    outputs: Array[Annotated[Logs | Figure, OneOf({"logs": Logs, "image": Figure})]]


# --- The local shell --------------------------------------------------------------------------------------------------


@wire
class LocalShellAction(TypedDict, total=False):
    type: Required[Literal["exec"]]
    command: Required[Array[Text]]
    env: Required[Free]
    timeout_ms: _Milliseconds
    user: Text
    working_directory: Text


@an_item("local_shell_call")
class LocalShellCall(_Common, total=False):
    type: Required[Literal["local_shell_call"]]
    call_id: Required[CallId]
    action: Required[LocalShellAction]
    status: Status


def _named_after_its_call(output: Fields) -> Fields:
    """The item's ``id`` *is* the call's id in the API's schema; clients that send a ``call_id`` as well mean that one."""
    if "call_id" not in output and "id" not in output:
        raise problem(errors.missing_parameter, "id")
    output.setdefault("call_id", output.get("id"))
    return output


@an_item("local_shell_call_output", _named_after_its_call)
class LocalShellCallOutput(_Common, total=False):
    type: Required[Literal["local_shell_call_output"]]
    output: Required[Text]
    call_id: Id
    status: Status


# --- Patches ----------------------------------------------------------------------------------------------------------

_Path = Annotated[str, Field(min_length=1, max_length=4_096)]


@wire
class CreateFile(TypedDict):
    type: Literal["create_file"]
    path: _Path
    diff: Text


@wire
class UpdateFile(TypedDict):
    type: Literal["update_file"]
    path: _Path
    diff: Text


@wire
class DeleteFile(TypedDict):
    type: Literal["delete_file"]
    path: _Path


_OPERATIONS: Final = OneOf({"create_file": CreateFile, "update_file": UpdateFile, "delete_file": DeleteFile})


@an_item("apply_patch_call")
class ApplyPatchCall(_Call, total=False):
    type: Required[Literal["apply_patch_call"]]
    call_id: Required[CallId]
    operation: Required[Annotated[CreateFile | UpdateFile | DeleteFile, _OPERATIONS]]


@an_item("apply_patch_call_output")
class ApplyPatchCallOutput(_Common, total=False):
    type: Required[Literal["apply_patch_call_output"]]
    call_id: Required[CallId]
    status: Required[Literal["completed", "failed"]]
    caller: Caller
    output: Text


# --- The computer -----------------------------------------------------------------------------------------------------

_Keys = Array[Text]


class _Point(TypedDict):
    x: int
    y: int


@wire
class Point(_Point):
    pass


@wire
class Click(_Point, total=False):
    type: Required[Literal["click"]]
    button: Required[Literal["left", "right", "wheel", "back", "forward"]]
    keys: _Keys


@wire
class DoubleClick(_Point, total=False):
    type: Required[Literal["double_click"]]
    keys: _Keys


@wire
class Drag(TypedDict, total=False):
    type: Required[Literal["drag"]]
    path: Required[Array[Point]]
    keys: _Keys


@wire
class KeyPress(TypedDict):
    type: Literal["keypress"]
    keys: _Keys


@wire
class Move(_Point, total=False):
    type: Required[Literal["move"]]
    keys: _Keys


@wire
class Screenshot(TypedDict):
    type: Literal["screenshot"]


@wire
class Scroll(_Point, total=False):
    type: Required[Literal["scroll"]]
    scroll_x: Required[int]
    scroll_y: Required[int]
    keys: _Keys


@wire
class Type(TypedDict):
    type: Literal["type"]
    text: Text


@wire
class Wait(TypedDict):
    type: Literal["wait"]


ComputerAction = Annotated[
    Any,
    OneOf(
        {
            "click": Click,
            "double_click": DoubleClick,
            "drag": Drag,
            "keypress": KeyPress,
            "move": Move,
            "screenshot": Screenshot,
            "scroll": Scroll,
            "type": Type,
            "wait": Wait,
        }
    ),
]


@wire
class SafetyCheck(TypedDict, total=False):
    id: Required[Text]
    code: Text
    message: Text


@an_item("computer_call")
class ComputerCall(_Common, total=False):
    type: Required[Literal["computer_call"]]
    call_id: Required[CallId]
    status: Status
    action: ComputerAction
    actions: Array[ComputerAction]
    pending_safety_checks: Array[SafetyCheck]


def _complete_screen(screen: Fields) -> Fields:
    check_one_source(screen, "image_url", "file_id")
    return screen


@wire_with(_complete_screen)
class ComputerScreenshot(TypedDict, total=False):
    type: Required[Literal["computer_screenshot"]]
    image_url: ImageUrl
    file_id: Id
    detail: ImageDetail
    prompt_cache_breakpoint: PromptCacheBreakpoint


@an_item("computer_call_output")
class ComputerCallOutput(_Common, total=False):
    type: Required[Literal["computer_call_output"]]
    call_id: Required[CallId]
    output: Required[ComputerScreenshot]
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    acknowledged_safety_checks: Array[SafetyCheck]


# --- Tools that are found on the way ----------------------------------------------------------------------------------

_Tools = Annotated[list[ItemTool], Length(limits.TOOLS_MAX)]


@an_item("tool_search_call")
class ToolSearchCall(_Common, total=False):
    type: Required[Literal["tool_search_call"]]
    call_id: Required[CallId]
    arguments: Required[Free]
    status: Status
    execution: ClientExecution


@an_item("tool_search_output")
class ToolSearchOutput(_Common, total=False):
    type: Required[Literal["tool_search_output"]]
    call_id: Required[CallId]
    tools: Required[_Tools]
    status: Status
    execution: ClientExecution


@an_item("additional_tools")
class AdditionalTools(_Common, total=False):
    type: Required[Literal["additional_tools"]]
    role: Required[Literal["developer"]]
    tools: Required[_Tools]


# --- All of them ------------------------------------------------------------------------------------------------------

SHAPES: Final[dict[str, Any]] = {
    "message": Message,
    "function_call": FunctionCall,
    "function_call_output": FunctionCallOutput,
    "custom_tool_call": CustomToolCall,
    "custom_tool_call_output": CustomToolCallOutput,
    "reasoning": Reasoning,
    "compaction": Compaction,
    "compaction_trigger": CompactionTrigger,
    "shell_call": ShellCall,
    "shell_call_output": ShellCallOutput,
    "code_interpreter_call": CodeInterpreterCall,
    "local_shell_call": LocalShellCall,
    "local_shell_call_output": LocalShellCallOutput,
    "apply_patch_call": ApplyPatchCall,
    "apply_patch_call_output": ApplyPatchCallOutput,
    "computer_call": ComputerCall,
    "computer_call_output": ComputerCallOutput,
    "tool_search_call": ToolSearchCall,
    "tool_search_output": ToolSearchOutput,
    "additional_tools": AdditionalTools,
    "item_reference": ItemReference,
    **{name: RefusedVariant(reason, code=code) for name, (code, reason) in REFUSED_ITEMS.items()},
}

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
        return _EASY_REFERENCE if "id" in value and value.keys() <= {"id", "type"} else None
    if kind is None or kind == "message":
        return _ANSWER if value.get("role") == "assistant" else _EASY_MESSAGE if kind is None else "message"
    return kind if type(kind) is str else None


_ITEMS: Final = OneOf(
    SHAPES | {_EASY_MESSAGE: Message, _ANSWER: AssistantMessage, _EASY_REFERENCE: ItemReference}, tag_of=_tag
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
