"""Actions as models say them, as items hold them, and as the desk does them.

Items hold OpenAI's nine actions in pixels, whatever the model was told, so that another model can go on from there. A model may be told
another way (:class:`View`): coordinates from 0 to 1000, or numbers of elements. To open an address is no action of OpenAI's: it stands
in items as what a person types, CTRL+L, the address and ENTER, and models that know no better type just that.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass

Action = dict[str, Any]


class ViewMode(StrEnum):
    """What a model is told of a screen, and how it points at things; ``models.toml`` says it as ``computer``."""

    PIXELS = "pixels"
    GRID = "grid1000"
    REFS = "refs"
    TEXT = "text"

    @property
    def has_elements(self) -> bool:
        return self in (ViewMode.REFS, ViewMode.TEXT)


@dataclass(frozen=True, slots=True)
class View:
    """The screen before a model when it says its actions."""

    mode: ViewMode
    width: int
    height: int
    elements: Mapping[int, tuple[int, int]]
    """Where the numbered ones are."""


_BUTTONS: Final = ("left", "right", "wheel", "back", "forward")
_OTHER_BUTTONS: Final = {"middle": "wheel"}
_GRID: Final = 1000
NAVIGATE: Final = "navigate"
_ADDRESS_BAR: Final = (["CTRL", "L"], ["META", "L"], ["CMD", "L"], ["ALT", "D"])
_ENTER: Final = (["ENTER"], ["RETURN"])


# --- a model's words into an item's ---


def stored(said: Iterable[Any], view: View) -> list[Action] | None:
    """A model's actions in the form of items; None if one of them is none."""
    actions: list[Action] = []
    for each in said:
        found = _stored(each, view) if isinstance(each, dict) else None
        if found is None:
            return None
        actions += found
    return actions if len(actions) > 0 else None


def _stored(said: Action, view: View) -> list[Action] | None:
    kind = said.get("type")
    held = _keys(said.get("keys")) if kind != "keypress" else []
    keys = {"keys": held} if held else {}
    match kind:
        case "screenshot" | "wait":
            return [{"type": kind}]
        case "type" if isinstance(said.get("text"), str):
            return [{"type": "type", "text": said["text"]}]
        case "keypress":
            pressed = _keys(said.get("keys", said.get("key")))
            return [{"type": "keypress", "keys": pressed}] if pressed else None
        case "navigate" if isinstance(said.get("url"), str):
            return [
                {"type": "keypress", "keys": ["CTRL", "L"]},
                {"type": "type", "text": said["url"]},
                {"type": "keypress", "keys": ["ENTER"]},
            ]
        case "drag" if isinstance(said.get("path"), list):
            path = [_point(each, view) for each in said["path"] if isinstance(each, dict)]
            whole = [point for point in path if point is not None]
            return [{"type": "drag", "path": whole, **keys}] if len(whole) == len(said["path"]) >= 2 else None
        case "click" | "double_click" | "move" | "scroll":
            return _pointing(said, str(kind), keys, view)
    return None


def _pointing(said: Action, kind: str, keys: Action, view: View) -> list[Action] | None:
    middle = {"x": view.width // 2, "y": view.height // 2} if kind == "scroll" else None
    point = _point(said, view) or middle
    if point is None:
        return None
    if "ref" in said and isinstance(said["ref"], int):
        point = {**point, "ref": said["ref"]}
    match kind:
        case "click":
            button = said.get("button") or "left"
            button = _OTHER_BUTTONS.get(button, button)
            return [{"type": kind, "button": button, **point, **keys}] if button in _BUTTONS else None
        case "scroll":
            by = {axis: _whole(said.get(axis, 0)) for axis in ("scroll_x", "scroll_y")}
            return None if None in by.values() else [{"type": kind, **point, **by, **keys}]
    return [{"type": kind, **point, **keys}]


def _point(said: Action, view: View) -> Action | None:
    ref = said.get("ref")
    if isinstance(ref, str) and ref.isdecimal():
        ref = said["ref"] = int(ref)
    if isinstance(ref, int) and not isinstance(ref, bool) and view.mode.has_elements:
        x, y = view.elements.get(ref, (0, 0))
        return {"x": x, "y": y}
    at = _whole(said.get("x")), _whole(said.get("y"))
    if at[0] is None or at[1] is None:
        return None
    if view.mode is ViewMode.GRID:
        return {"x": _from_grid(at[0], view.width), "y": _from_grid(at[1], view.height)}
    return {"x": at[0], "y": at[1]}


def _from_grid(value: int, side: int) -> int:
    return min(side - 1, max(0, round(value * side / _GRID)))


def _whole(value: Any) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**31
    return round(value) if is_number else None


def _keys(said: Any) -> list[str]:
    """Small models write ``"ctrl+s"``."""
    if isinstance(said, str):
        said = said.split("+") if len(said) > 1 else [said]
    if not isinstance(said, list) or not all(isinstance(key, str) for key in said):
        return []
    return [key.upper() if len(key) > 1 else key for key in said if key][: limits.COMPUTER_PLACES_MAX]


# --- an item's words back into a model's ---


def said(actions: Sequence[Action], view: View) -> list[Action]:
    """The actions of an item as the model of this view would have said them."""
    return [_said(action, view) for action in _with_addresses(actions)]


def _said(action: Action, view: View) -> Action:
    if "ref" in action:
        if view.mode.has_elements:
            return {name: value for name, value in action.items() if name not in ("x", "y")}
        action = without_ref(action)
    if view.mode is not ViewMode.GRID:
        return action
    if "path" in action:
        return action | {"path": [_to_grid(point, view) for point in action["path"]]}
    return _to_grid(action, view) if "x" in action else action


def _to_grid(point: Action, view: View) -> Action:
    return point | {"x": round(point["x"] * _GRID / view.width), "y": round(point["y"] * _GRID / view.height)}


def without_ref(action: Action) -> Action:
    return {name: value for name, value in action.items() if name != "ref"}


# --- an item's words into the desk's ---


@dataclass(frozen=True, slots=True)
class DeskBatch:
    """What the desk is to do, and how many actions of the item each of them is."""

    actions: tuple[Action, ...]
    spans: tuple[int, ...]

    @classmethod
    def of(cls, actions: Sequence[Action]) -> "DeskBatch":
        done = _with_addresses(actions)
        spans = tuple(3 if action.get("type") == NAVIGATE else 1 for action in done)
        pointed = (_pointed(action) for action in done)
        return cls(tuple(pointed), spans)

    def results(self, outcomes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """For each action of the item, as far as they went. To open an address failed where it was entered."""
        return [
            outcome if is_last else {"ok": True}
            for outcome, span in zip(map(dict, outcomes), self.spans, strict=False)
            for is_last in [False] * (span - 1) + [True]
        ]


def _pointed(action: Action) -> Action:
    """The desk takes a number in place of coordinates."""
    return {name: value for name, value in action.items() if name not in ("x", "y")} if "ref" in action else action


def _with_addresses(actions: Sequence[Action]) -> list[Action]:
    """The actions with what opens an address as one."""
    found: list[Action] = []
    at = 0
    while at < len(actions):
        address = _address(actions[at : at + 3])
        found.append(actions[at] if address is None else {"type": NAVIGATE, "url": address})
        at += 1 if address is None else 3
    return found


def _address(three: Sequence[Action]) -> str | None:
    if [action.get("type") for action in three] != ["keypress", "type", "keypress"]:
        return None
    first, text, last = three
    is_whole = _upper(first) in _ADDRESS_BAR and _upper(last) in _ENTER
    return str(text.get("text", "")).strip() if is_whole else None


def _upper(action: Action) -> list[str]:
    """An upstream's own calls need not have what their kind promises."""
    return [str(key).upper() for key in action.get("keys") or ()]
