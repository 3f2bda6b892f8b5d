"""apply_patch: the client changes one file of its workspace."""

from types import MappingProxyType
from typing import Any, Final

from moorage.tools.apply_patch import shapes
from moorage.tools.calls import CallOpening, ItemPosition
from moorage.tools.function_items import function, function_call, function_output
from moorage.tools.room import InputWriter, Room
from moorage.wire.types import Item, Tool

_DESCRIPTION: Final = """\
Create, change or delete one file of the user's workspace. The diff of update_file is V4A: sections that begin with `@@` and
optionally a line such as `@@ def name():` to say where, then about three lines of context before and after (each after one
space), removed lines with `-` and added ones with `+`. There are no line numbers."""


class ApplyPatch(Room):
    types = ("apply_patch",)
    call_type = "apply_patch_call"
    output_type = "apply_patch_call_output"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"apply_patch": shapes.ApplyPatchTool})
    item_shapes = MappingProxyType({"apply_patch_call": shapes.ApplyPatchCall, "apply_patch_call_output": shapes.ApplyPatchCallOutput})
    listing_defaults = MappingProxyType({"apply_patch_call": {"status": "completed"}})
    function_name = "apply_patch"

    def function_tool(self, name: str, tool: Tool) -> Tool:
        properties = {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string", "description": "Path relative to the workspace."},
            "diff": {
                "type": "string",
                "description": "V4A diff; every line of a new file begins with +. Left out for delete_file.",
            },
        }
        return function(name, _DESCRIPTION, properties, ["type", "path"])

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        operation = value.get("operation", value) if isinstance(value, dict) else None
        if not isinstance(operation, dict):
            return None
        kind, path, diff = operation.get("type"), operation.get("path"), operation.get("diff")
        if not isinstance(path, str):
            return None
        if kind == "delete_file":
            return {"type": self.call_type, "operation": {"type": kind, "path": path}}
        if kind in ("create_file", "update_file") and isinstance(diff, str):
            return {"type": self.call_type, "operation": {"type": kind, "path": path, "diff": diff}}
        return None

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        if "apply_patch" in reader.native:
            return [item]
        if item["type"] == self.call_type:
            return [function_call(item, reader.name("apply_patch", self.function_name), item["operation"])]
        return [function_output(item, "\n".join(part for part in (item["status"], item.get("output")) if part))]

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        """Live streams have two events for the diff. They are left out: openai-node's stream helper fails at unknown events."""
        operation = call["operation"]
        shown = operation | {"diff": ""} if "diff" in operation else operation
        added = call | {"id": place.item_id, "operation": shown, "status": "in_progress"}
        return CallOpening(added, (), added | {"operation": operation})
