"""The screen of a container: its bodies and answers. All of it is an extension of ours."""

from typing import Annotated, Any, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.dataclass import dataclass
from moorage.wire.answers import Count
from moorage.wire.query_strings import whole_number
from moorage.wire.validation import Body, Length, OneOf, wire

_Holder = Annotated[str, Field(min_length=1, max_length=limits.SCREEN_HOLDER_CHARS_MAX)]
_Pixel = Annotated[int, Field(ge=0, le=limits.SCREEN_PIXELS_MAX)]
_Way = Annotated[int, Field(ge=-limits.SCREEN_SCROLL_MAX, le=limits.SCREEN_SCROLL_MAX)]
_Keys = Annotated[list[Annotated[str, Field(min_length=1, max_length=limits.SCREEN_KEY_CHARS_MAX)]], Length(limits.SCREEN_KEYS_MAX)]


class _ScreenPlace(TypedDict):
    x: _Pixel
    y: _Pixel


@wire
class ScreenPoint(_ScreenPlace):
    pass


@wire
class ScreenClick(_ScreenPlace, total=False):
    type: Required[Literal["click"]]
    button: Literal["left", "right", "wheel", "back", "forward"]
    keys: _Keys


@wire
class ScreenDoubleClick(_ScreenPlace, total=False):
    type: Required[Literal["double_click"]]
    keys: _Keys


@wire
class ScreenDrag(TypedDict, total=False):
    type: Required[Literal["drag"]]
    path: Required[Annotated[list[ScreenPoint], Length(limits.SCREEN_DRAG_POINTS_MAX, minimum=2)]]
    keys: _Keys


@wire
class ScreenKeyPress(TypedDict):
    type: Literal["keypress"]
    keys: _Keys


@wire
class ScreenMove(_ScreenPlace):
    type: Literal["move"]


@wire
class ScreenNavigate(TypedDict):
    type: Literal["navigate"]
    url: Annotated[str, Field(min_length=1, max_length=limits.SCREEN_URL_CHARS_MAX)]


@wire
class ScreenScroll(_ScreenPlace, total=False):
    type: Required[Literal["scroll"]]
    scroll_x: Required[_Way]
    scroll_y: Required[_Way]
    keys: _Keys


@wire
class ScreenType(TypedDict):
    type: Literal["type"]
    text: Annotated[str, Field(min_length=1, max_length=limits.SCREEN_INPUT_CHARS_MAX)]


ScreenAction = Annotated[
    Any,
    OneOf(
        {
            "click": ScreenClick,
            "double_click": ScreenDoubleClick,
            "drag": ScreenDrag,
            "keypress": ScreenKeyPress,
            "move": ScreenMove,
            "navigate": ScreenNavigate,
            "scroll": ScreenScroll,
            "type": ScreenType,
        }
    ),
]


class ControlScreen(Body):
    """``POST /v1/containers/{container_id}/screen/control``."""

    action: Literal["take", "give"]
    holder: _Holder


class ScreenInput(Body):
    """``POST /v1/containers/{container_id}/screen/input``."""

    holder: _Holder
    number: Annotated[int, Field(ge=1, le=limits.SCREEN_INPUT_NUMBER_MAX)]
    actions: Annotated[list[ScreenAction], Length(limits.SCREEN_INPUT_ACTIONS_MAX, minimum=1)]


class ScreenPointer(TypedDict):
    x: Count
    y: Count


class ContainerScreen(TypedDict):
    object: Literal["container.screen"]
    container_id: str
    status: Literal["open", "closed"]
    number: Count
    picture: str | None
    url: str | None
    title: str | None
    holder: str | None
    pointer: ScreenPointer | None


class ContainerScreenControl(TypedDict):
    object: Literal["container.screen.control"]
    container_id: str
    holder: str | None
    expires_in_ms: Count


class ScreenActionResult(TypedDict):
    ok: bool
    error: str | None


class ContainerScreenInput(TypedDict):
    object: Literal["container.screen.input"]
    container_id: str
    actions: list[ScreenActionResult]


@dataclass(frozen=True, slots=True)
class ScreenQuery:
    starting_after: Annotated[int, whole_number()] = 0
    """The number of the picture that the client has."""
    wait_ms: Annotated[int, whole_number(0, limits.SCREEN_READ_MS_MAX)] = 0
