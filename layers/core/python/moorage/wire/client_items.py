"""The calls that only the client runs, and their outputs: local shell, patches, computer, search for tools."""

from typing import Annotated, Any, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import errors, limits
from moorage.wire.item import Call, Caller, Common, Status, an_item
from moorage.wire.parts import ImageDetail, ImageUrl, PromptCacheBreakpoint, check_one_source
from moorage.wire.refusals import problem
from moorage.wire.tools import ClientExecution, ItemTool
from moorage.wire.validation import Array, CallId, Fields, Free, Id, Length, OneOf, Text, wire, wire_with

_Milliseconds = Annotated[int, Field(ge=0)]

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
class LocalShellCall(Common, total=False):
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
class LocalShellCallOutput(Common, total=False):
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
class ApplyPatchCall(Call, total=False):
    type: Required[Literal["apply_patch_call"]]
    call_id: Required[CallId]
    operation: Required[Annotated[CreateFile | UpdateFile | DeleteFile, _OPERATIONS]]


@an_item("apply_patch_call_output")
class ApplyPatchCallOutput(Common, total=False):
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
class ComputerCall(Common, total=False):
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
class ComputerCallOutput(Common, total=False):
    type: Required[Literal["computer_call_output"]]
    call_id: Required[CallId]
    output: Required[ComputerScreenshot]
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    acknowledged_safety_checks: Array[SafetyCheck]


# --- Tools that are found on the way ----------------------------------------------------------------------------------

_Tools = Annotated[list[ItemTool], Length(limits.TOOLS_MAX)]


@an_item("tool_search_call")
class ToolSearchCall(Common, total=False):
    type: Required[Literal["tool_search_call"]]
    call_id: Required[CallId]
    arguments: Required[Free]
    status: Status
    execution: ClientExecution


@an_item("tool_search_output")
class ToolSearchOutput(Common, total=False):
    type: Required[Literal["tool_search_output"]]
    call_id: Required[CallId]
    tools: Required[_Tools]
    status: Status
    execution: ClientExecution


@an_item("additional_tools")
class AdditionalTools(Common, total=False):
    type: Required[Literal["additional_tools"]]
    role: Required[Literal["developer"]]
    tools: Required[_Tools]
