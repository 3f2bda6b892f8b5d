"""computer: the client acts on its screen. The preview's tool is another one to the wire, and the same to a model."""

from types import MappingProxyType
from typing import Any

from moorage.tools.computer import shapes
from moorage.tools.function_items import function, function_call, function_output, with_visible_parts, without_url
from moorage.tools.room import InputWriter, Room
from moorage.wire.types import Item, Tool


class Computer(Room):
    types = ("computer", "computer_use_preview", "computer_use")
    call_type = "computer_call"
    output_type = "computer_call_output"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"computer": shapes.ComputerTool, "computer_use_preview": shapes.ComputerUsePreviewTool})
    item_shapes = MappingProxyType({"computer_call": shapes.ComputerCall, "computer_call_output": shapes.ComputerCallOutput})
    listing_defaults = MappingProxyType(
        {
            "computer_call": {"status": "completed", "pending_safety_checks": []},
            "computer_call_output": {"status": "completed"},
        }
    )
    function_name = "computer"

    def function_tool(self, name: str, tool: Tool) -> Tool:
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

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        if not isinstance(value, dict):
            return None
        actions = value.get("actions", [value.get("action", value)])
        if not isinstance(actions, list) or not all(isinstance(a, dict) and "type" in a for a in actions) or not actions:
            return None
        shape: Item = {"actions": actions} if type_ == "computer" else {"action": actions[0]}
        return {"type": self.call_type, "status": "completed", "pending_safety_checks": []} | shape

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        if reader.native & set(self.types):
            return [item]
        if item["type"] == self.output_type:
            return [with_visible_parts(function_output(item, [_screenshot(item["output"])]), "output")]
        actions = item.get("actions") or ([item["action"]] if item.get("action") else [])
        name = reader.name(reader.offered(self.types) or "computer", self.function_name)
        return [function_call(item, name, {"actions": actions})]

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        if item["type"] != self.output_type or "computer_call_output.output.image_url" in include:
            return item
        return item | {"output": without_url(item["output"])}


def _screenshot(output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_image", "detail": "auto"} | {k: output[k] for k in ("image_url", "file_id") if output.get(k)}
