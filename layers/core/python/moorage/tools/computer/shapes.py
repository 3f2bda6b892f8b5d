"""What is said about the computer on the wire: its two definitions and its items.

``container``, ``require_approval`` and what the items tell of a hosted computer are additions to the API.
"""

from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.item import Common, Status, an_item
from moorage.wire.parts import ImageDetail, ImageUrl, PromptCacheBreakpoint
from moorage.wire.refusals import wrong_value
from moorage.wire.resources import NewContainer
from moorage.wire.tools import RequireApproval
from moorage.wire.validation import Array, CallId, Fields, Id, Length, OneOf, Text, wire, wire_with

PREFIXES: Final = MappingProxyType({"computer_call": "cu", "computer_call_output": "cuo"})

# --- The definition: in a container, or at the client's ---------------------------------------------------------------


@wire
class ComputerContainerAuto(NewContainer, total=False):
    type: Required[Literal["container_auto"]]


@wire
class ComputerContainerReference(TypedDict):
    type: Literal["container_reference"]
    container_id: Id


ComputerContainer = Annotated[
    ComputerContainerAuto | ComputerContainerReference,
    OneOf({"container_auto": ComputerContainerAuto, "container_reference": ComputerContainerReference}),
]

_SIDE: Final = f"the screen of a hosted computer is {limits.COMPUTER_SIDE_MIN} to {limits.COMPUTER_SIDE_MAX} pixels wide and high."


def _asks_where_it_runs(tool: Fields) -> Fields:
    if "require_approval" in tool and "container" not in tool:
        raise wrong_value("the client runs these calls, and may ask whom it likes.", "require_approval")
    return tool


def _can_be_shown(tool: Fields) -> Fields:
    if "container" not in tool:
        return _asks_where_it_runs(tool)
    for side in ("display_width", "display_height"):
        if not limits.COMPUTER_SIDE_MIN <= tool[side] <= limits.COMPUTER_SIDE_MAX:
            raise wrong_value(_SIDE, side)
    if tool["environment"] != "browser":
        raise wrong_value("a hosted computer is a browser: send 'browser'.", "environment")
    return tool


@wire_with(_asks_where_it_runs)
class ComputerTool(TypedDict, total=False):
    type: Required[Literal["computer"]]
    container: ComputerContainer
    require_approval: RequireApproval


@wire_with(_can_be_shown)
class ComputerUsePreviewTool(TypedDict, total=False):
    type: Required[Literal["computer_use_preview"]]
    display_height: Required[Annotated[int, Field(ge=1)]]
    display_width: Required[Annotated[int, Field(ge=1)]]
    environment: Required[Literal["windows", "mac", "linux", "ubuntu", "browser"]]
    container: ComputerContainer
    require_approval: RequireApproval


# --- The items --------------------------------------------------------------------------------------------------------


_Keys = Array[Text]


class _Coordinates(TypedDict):
    x: int
    y: int


class _PointOrElement(_Coordinates, total=False):
    """``ref`` is the number of an element of a hosted page, whose place ``x`` and ``y`` were."""

    ref: int


@wire
class Point(_Coordinates):
    pass


@wire
class Click(_PointOrElement, total=False):
    type: Required[Literal["click"]]
    button: Required[Literal["left", "right", "wheel", "back", "forward"]]
    keys: _Keys


@wire
class DoubleClick(_PointOrElement, total=False):
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
class Move(_PointOrElement, total=False):
    type: Required[Literal["move"]]
    keys: _Keys


@wire
class Screenshot(TypedDict):
    type: Literal["screenshot"]


@wire
class Scroll(_PointOrElement, total=False):
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
    container: ComputerContainerReference
    """Where a hosted call runs."""
    with_elements: bool
    """Of a hosted call whose model reads pages by their elements."""


@wire
class ComputerScreenshot(TypedDict, total=False):
    type: Required[Literal["computer_screenshot"]]
    image_url: ImageUrl
    file_id: Id
    detail: ImageDetail
    prompt_cache_breakpoint: PromptCacheBreakpoint


SOURCES: Final = ("image_url", "file_id")
ONE_SOURCE: Final = "give exactly one of 'image_url', 'file_id'."
"""Of a picture."""

_Short = Annotated[str, Field(max_length=limits.COMPUTER_NAME_CHARS_MAX)]
_Words = Annotated[str, Field(max_length=limits.COMPUTER_WORDS_CHARS_MAX)]
_Some = Length(limits.COMPUTER_PLACES_MAX)


@wire
class BrowserTab(TypedDict):
    number: int
    url: _Words
    title: _Short
    is_shown: bool


@wire
class BrowserDialog(TypedDict):
    kind: Literal["confirm", "prompt", "file", "files"]
    message: _Words
    default: _Words


@wire
class BrowserDownload(TypedDict, total=False):
    url: Required[_Words]
    path: _Words
    size: Annotated[int, Field(ge=0)]
    error: _Words


@wire
class BrowserRefusal(TypedDict):
    host: _Short
    reason: _Words


@wire
class BrowserElement(TypedDict):
    ref: int
    role: _Short
    name: _Short
    value: _Short
    states: Annotated[list[_Short], _Some]
    x: int
    y: int


@wire
class BrowserPage(TypedDict, total=False):
    """What there is beside the picture. ``elements`` and ``text`` are there where the model reads pages so."""

    url: Required[_Words]
    title: Required[_Short]
    width: Required[int]
    height: Required[int]
    tabs: Required[Annotated[list[BrowserTab], _Some]]
    dialog: BrowserDialog
    downloads: Required[Annotated[list[BrowserDownload], _Some]]
    refused: Required[Annotated[list[BrowserRefusal], _Some]]
    notes: Required[Annotated[list[_Words], _Some]]
    elements: Annotated[list[BrowserElement], Length(limits.COMPUTER_ELEMENTS_MAX)]
    text: Annotated[str, Field(max_length=limits.COMPUTER_TEXT_CHARS_MAX)]


@wire
class ActionResult(TypedDict, total=False):
    ok: Required[bool]
    error: _Words


def _has_a_picture(item: Fields) -> Fields:
    """A hosted call's output has none where none could be made, and where its client had not asked for it: its id tells it."""
    given = sum(name in item["output"] for name in SOURCES)
    if given != 1 and (given or not item.keys() & {"actions", "id"}):
        raise wrong_value(ONE_SOURCE, "output")
    return item


@an_item(PREFIXES["computer_call_output"], _has_a_picture)
class ComputerCallOutput(Common, total=False):
    """``actions`` and ``page`` are of hosted calls: how each action went, and the page after the last one."""

    type: Required[Literal["computer_call_output"]]
    call_id: Required[CallId]
    output: Required[ComputerScreenshot]
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    acknowledged_safety_checks: Array[SafetyCheck]
    actions: Annotated[list[ActionResult], Length(limits.COMPUTER_ACTIONS_MAX)]
    page: BrowserPage
