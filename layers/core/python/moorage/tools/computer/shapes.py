"""What is said about the computer on the wire: its two definitions and its items."""

from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage.wire.item import Common, Status, an_item
from moorage.wire.parts import ImageDetail, ImageUrl, PromptCacheBreakpoint, check_one_source
from moorage.wire.validation import Array, CallId, Fields, Id, OneOf, Text, wire, wire_with

PREFIXES: Final = MappingProxyType({"computer_call": "cu", "computer_call_output": "cuo"})


@wire
class ComputerTool(TypedDict):
    type: Literal["computer"]


@wire
class ComputerUsePreviewTool(TypedDict):
    type: Literal["computer_use_preview"]
    display_height: Annotated[int, Field(ge=1)]
    display_width: Annotated[int, Field(ge=1)]
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]


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


@an_item(PREFIXES["computer_call"])
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


@an_item(PREFIXES["computer_call_output"])
class ComputerCallOutput(Common, total=False):
    type: Required[Literal["computer_call_output"]]
    call_id: Required[CallId]
    output: Required[ComputerScreenshot]
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    acknowledged_safety_checks: Array[SafetyCheck]
