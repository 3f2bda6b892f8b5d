"""Anthropic's toolset for computers, ``computer_toolset_20260801``: each action is a tool of its own, and a turn has several.

A turn's actions become one ``computer_call``, in their order: its batch is done once. Going back, each action of a call is a
``tool_use`` again. The picture is the result of the last one. Inputs of the tools: anthropic 2.14.0, ``types/beta/beta_computer_*``.

What has no counterpart among OpenAI's nine actions is switched off (:data:`_OFF`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Final

import orjson

from moorage.dataclass import dataclass
from moorage.model import base
from moorage.model.base import Delta
from moorage.model.http import Decoder
from moorage.wire.types import Item, Tool

HOSTED_COMPUTER: Final = "computer.hosted"
"""Among the native tools of an upstream: it takes a computer that runs here by its own toolset."""
FAMILY: Final = "computer"
_CALL: Final = "computer_call"
_OFF: Final = ("cursor_position", "hold_key", "left_mouse_down", "left_mouse_up", "zoom")
TOOLSET: Final[Tool] = {"type": "computer_toolset_20260801", "configs": {name: {"enabled": False} for name in _OFF}}

_PIXELS_A_CLICK: Final = 100
"""Of the wheel."""
_WAIT_SECONDS: Final = 2
_WAITS_MAX: Final = 5
_REPEATS_MAX: Final = 25
_CLICKS: Final = {"left_click": "left", "right_click": "right", "middle_click": "wheel"}
_BUTTONS: Final = {button: name for name, button in _CLICKS.items()}
_HISTORY: Final = {"back": "alt+Left", "forward": "alt+Right"}
"""Buttons of a mouse that the toolset lacks, as the keys that do the same."""
_WHEEL: Final = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}

Action = dict[str, Any]
Place = tuple[int, int]


# --- to the upstream ------------------------------------------------------------------------------------------------------------


def expanded(items: Iterable[Item]) -> tuple[Item, ...]:
    """The items with each call of a computer as the functions of its actions, and its output as theirs. ``toolset`` marks them."""
    found: list[Item] = []
    counts: dict[str, int] = {}
    for item in items:
        match item.get("type"):
            case "computer_call":
                actions = actions_of(item)
                counts[item["call_id"]] = len(actions)
                found += [_use_item(item["call_id"], number, action) for number, action in enumerate(actions)]
            case "computer_call_output":
                found += _results(item, counts.get(item["call_id"], 0))
            case _:
                found.append(item)
    return tuple(found)


def is_used(items: Iterable[Item]) -> bool:
    """Whether expanded items have calls of the toolset."""
    return any(item.get("toolset") == FAMILY for item in items)


def _use_item(call_id: str, number: int, action: Action) -> Item:
    name, given = _use(action)
    arguments = orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode()
    return {"type": "function_call", "call_id": f"{call_id}_{number}", "name": name, "arguments": arguments, "toolset": FAMILY}


def _results(output: Item, count: int) -> list[Item]:
    """The picture is the result of the last action."""
    picture = {"type": "input_image", "image_url": output["output"].get("image_url")}
    return [
        {
            "type": "function_call_output",
            "call_id": f"{output['call_id']}_{number}",
            "output": [picture] if number == count - 1 else "Done.",
        }
        for number in range(count)
    ]


def actions_of(call: Item) -> list[Action]:
    return call.get("actions") or ([call["action"]] if call.get("action") else [])


def _use(action: Action) -> tuple[str, dict[str, Any]]:
    held = {"text": "+".join(action["keys"]).lower()} if action.get("keys") else {}
    at = {"coordinate": [action["x"], action["y"]]} if "x" in action else {}
    match action.get("type"):
        case "click" if action.get("button") in _HISTORY:
            return "key", {"text": _HISTORY[action["button"]]}
        case "click":
            return _BUTTONS.get(action.get("button", "left"), "left_click"), at | held
        case "double_click":
            return "double_click", at | held
        case "move":
            return "mouse_move", at
        case "drag":
            first, last = action["path"][0], action["path"][-1]
            return "left_click_drag", {"start_coordinate": [first["x"], first["y"]], "coordinate": [last["x"], last["y"]]}
        case "keypress":
            return "key", held
        case "type":
            return "type", {"text": action["text"]}
        case "scroll":
            return "scroll", at | _turned(action)
        case "wait":
            return "wait", {"duration": _WAIT_SECONDS}
    return "screenshot", {}


def _turned(action: Action) -> dict[str, Any]:
    across, down = action.get("scroll_x", 0), action.get("scroll_y", 0)
    far = across if abs(across) > abs(down) else down
    direction = ("right" if across > 0 else "left") if far is across and across else "down" if down >= 0 else "up"
    return {"scroll_direction": direction, "scroll_amount": max(1, round(abs(far) / _PIXELS_A_CLICK))}


# --- from the upstream ----------------------------------------------------------------------------------------------------------


def pointer_of(items: Iterable[Item]) -> Place:
    """Where the mouse was left: a click may say no place."""
    place = (0, 0)
    for item in items:
        if item.get("type") == _CALL:
            place = _left_at(actions_of(item), place)
    return place


def _left_at(actions: Sequence[Action], place: Place) -> Place:
    for action in actions:
        point = action["path"][-1] if action.get("path") else action
        if isinstance(point.get("x"), int) and isinstance(point.get("y"), int):
            place = (point["x"], point["y"])
    return place


def actions_for(name: str, given: dict[str, Any], pointer: Place) -> list[Action]:
    """What one tool's call asks for. One that nobody knows stays as it is: the browser refuses it in words."""
    x, y = _place(given.get("coordinate")) or pointer
    point: Action = {"x": x, "y": y}
    keys = _keys(given.get("text"))
    held = {"keys": keys} if keys else {}
    match name:
        case "left_click" | "right_click" | "middle_click":
            return [{"type": "click", "button": _CLICKS[name], **point, **held}]
        case "double_click":
            return [{"type": "double_click", **point, **held}]
        case "triple_click":
            return [{"type": "double_click", **point, **held}, {"type": "click", "button": "left", **point, **held}]
        case "mouse_move":
            return [{"type": "move", **point}]
        case "left_click_drag":
            start = _place(given.get("start_coordinate")) or pointer
            return [{"type": "drag", "path": [{"x": start[0], "y": start[1]}, point], **held}]
        case "key" if keys:
            return [{"type": "keypress", "keys": keys}] * min(_REPEATS_MAX, max(1, _whole(given.get("repeat"), 1)))
        case "type":
            return [{"type": "type", "text": str(given.get("text", ""))}]
        case "scroll":
            across, down = _WHEEL.get(str(given.get("scroll_direction")), (0, 1))
            far = _PIXELS_A_CLICK * _whole(given.get("scroll_amount"), 3)
            return [{"type": "scroll", **point, "scroll_x": across * far, "scroll_y": down * far, **held}]
        case "wait":
            waits = -(-_whole(given.get("duration"), _WAIT_SECONDS) // _WAIT_SECONDS)
            return [{"type": "wait"}] * min(_WAITS_MAX, max(1, waits))
        case "screenshot":
            return [{"type": "screenshot"}]
    return [{"type": name}]


def _place(value: Any) -> Place | None:
    is_place = isinstance(value, list) and len(value) == 2 and all(isinstance(part, int | float) for part in value)
    return (round(value[0]), round(value[1])) if is_place else None


def _keys(text: Any) -> list[str]:
    """``ctrl+s``, and ``+`` itself."""
    if not isinstance(text, str) or not text:
        return []
    return [text] if len(text) == 1 else [key.upper() if len(key) > 1 else key for key in text.split("+") if key]


def _whole(value: Any, default: int) -> int:
    return round(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10_000 else default


@dataclass(slots=True)
class ToolsetDecoder:
    """Makes one call of the toolset's calls that follow one another."""

    inner: Decoder
    pointer: Place
    _call_id: str | None = None
    _name: str | None = None
    """Of the tool whose call is open."""
    _arguments: list[str] = field(default_factory=list)
    _actions: list[Action] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.inner.is_finished

    def feed(self, piece: bytes) -> list[Delta]:
        return self._joined(self.inner.feed(piece))

    def end(self) -> list[Delta]:
        return self._joined(self.inner.end())

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        return self._joined(self.inner.whole(body))

    def _joined(self, deltas: list[Delta]) -> list[Delta]:
        return [joined for delta in deltas for joined in self._next(delta)]

    def _next(self, delta: Delta) -> list[Delta]:
        match delta:
            case base.CallStarted(name, call_id, _, namespace) if namespace == FAMILY:
                self._name, self._arguments = name, []
                self._call_id = self._call_id or call_id
                return []
            case base.CallDelta(text) if self._name is not None:
                self._arguments.append(text)
                return []
            case base.ItemDone(_, is_cut) if self._name is not None:
                if not is_cut:
                    self._take(self._name)
                self._name = None
                return []
            case base.UsageReported() | base.StreamStarted():
                return [delta]
            case base.StreamFinished() if delta.is_cut:
                self._actions, self._call_id = [], None  # Half of a turn's actions is no call.
        return [*self._call(), delta]

    def _take(self, name: str) -> None:
        try:
            given = orjson.loads("".join(self._arguments) or "{}")
        except orjson.JSONDecodeError:
            given = {}
        found = actions_for(name, given if isinstance(given, dict) else {}, self.pointer)
        self.pointer = _left_at(found, self.pointer)
        self._actions += found

    def _call(self) -> list[Delta]:
        actions, self._actions = self._actions, []
        call_id, self._call_id = self._call_id, None
        if not actions:
            return []
        item = {"type": _CALL, "call_id": call_id, "status": "completed", "actions": actions, "pending_safety_checks": []}
        return [base.ItemRelayed(item)]
