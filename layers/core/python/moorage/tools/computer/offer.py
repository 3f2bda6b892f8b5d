"""What a model that does not know a hosted computer is told about it."""

from typing import Any, Final

from moorage.tools.computer.actions import View, ViewMode
from moorage.tools.function_items import function
from moorage.wire.types import Tool

_KINDS: Final = ("click", "double_click", "drag", "keypress", "move", "navigate", "screenshot", "scroll", "type", "wait")

_TEXT: Final = """\
Use a web browser that shows one page at a time. Actions run in their order, and the first that fails ends the call.
- {answer}
- {pointing}
- navigate opens a url. keypress takes keys such as ["CTRL", "A"]; type writes text where the focus is; wait waits two seconds.
- If a page asks for a file after a click, type the path of one below /mnt/data, and keypress ENTER. ESC gives none.
- scroll_y is in pixels, and positive numbers scroll down. keys of a click are held meanwhile.
- Servers of this container are reached at http://localhost:PORT. Other hosts only if the user has allowed them.
- Make one call at a time, with all actions that need no look in between. Begin with navigate or screenshot."""

_ANSWER: Final = {
    True: "The answer is a picture of {width} by {height} pixels after the last action, and what the page says of itself.",
    False: "The answer is what the page says of itself after the last action, without a picture.",
}

_POINTING: Final = {
    ViewMode.PIXELS: "x and y are pixels of the picture, from its top left corner.",
    ViewMode.GRID: "x and y go from 0 to 1000, over the width and the height of the picture, from its top left corner.",
    ViewMode.REFS: "The answer lists elements with numbers: give a number as ref. x and y are pixels of the picture, for what has no "
    "number. Numbers are new in each answer.",
    ViewMode.TEXT: "The answer lists elements with numbers: give a number as ref. Numbers are new in each answer.",
}


def hosted(name: str, view: View) -> Tool:
    answer = _ANSWER[view.mode is not ViewMode.TEXT].format(width=view.width, height=view.height)
    text = _TEXT.format(answer=answer, pointing=_POINTING[view.mode])
    return function(name, text, {"actions": {"type": "array", "items": _action(view), "minItems": 1}}, ["actions"])


def _action(view: View) -> dict[str, Any]:
    whole = {"type": "integer"}
    point: dict[str, Any] = {} if view.mode is ViewMode.TEXT else {"x": whole, "y": whole}
    drag = {"path": {"type": "array", "items": {"type": "object", "properties": {"x": whole, "y": whole}, "required": ["x", "y"]}}}
    return {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": [kind for kind in _KINDS if point or kind != "drag"]},
            **({"ref": whole} if view.mode.has_elements else {}),
            **point,
            "button": {"type": "string", "enum": ["left", "right", "wheel"]},
            "keys": {"type": "array", "items": {"type": "string"}},
            **(drag if point else {}),
            "scroll_x": whole,
            "scroll_y": whole,
            "text": {"type": "string"},
            "url": {"type": "string"},
        },
        "required": ["type"],
    }


def of_client(name: str, tool: Tool) -> Tool:
    kinds = ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"]
    action = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": kinds},
            "x": {"type": "integer"},
            "y": {"type": "integer"},
            "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]},
            "keys": {"type": "array", "items": {"type": "string"}},
            "path": {
                "type": "array",
                "items": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
            },
            "scroll_x": {"type": "integer"},
            "scroll_y": {"type": "integer"},
            "text": {"type": "string"},
        },
        "required": ["type"],
    }
    text = "Act on the user's computer screen; the answer is a screenshot. Begin with a screenshot action."
    if tool["type"] == "computer_use_preview":
        text += f" It shows {tool['environment']}, {tool['display_width']} by {tool['display_height']} pixels."
    return function(name, text, {"actions": {"type": "array", "items": action, "minItems": 1}}, ["actions"])
