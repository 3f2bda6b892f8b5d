"""local_shell: the client runs one program on its own machine."""

from types import MappingProxyType
from typing import Any

from moorage.tools.function_items import function, function_call, function_output
from moorage.tools.local_shell import shapes
from moorage.tools.room import InputWriter, Room
from moorage.wire.types import Item, Tool


class LocalShell(Room):
    types = ("local_shell",)
    call_type = "local_shell_call"
    output_type = "local_shell_call_output"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"local_shell": shapes.LocalShellTool})
    item_shapes = MappingProxyType({"local_shell_call": shapes.LocalShellCall, "local_shell_call_output": shapes.LocalShellCallOutput})
    listing_defaults = MappingProxyType({"local_shell_call": {"status": "completed"}})
    function_name = "local_shell"

    def function_tool(self, name: str, tool: Tool) -> Tool:
        properties = {
            "command": {"type": "array", "items": {"type": "string"}, "description": 'Program and arguments: ["bash", "-lc", "ls"].'},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "timeout_ms": {"type": "integer"},
            "user": {"type": "string"},
            "working_directory": {"type": "string"},
        }
        return function(name, "Run a command on the user's computer and read what it prints.", properties, ["command"])

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        command = value.get("command") if isinstance(value, dict) else None
        if isinstance(command, str):
            command = ["bash", "-lc", command]
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            return None
        env = value.get("env")
        action: dict[str, Any] = {"type": "exec", "command": command, "env": env if isinstance(env, dict) else {}}
        for key in ("timeout_ms", "user", "working_directory"):
            if value.get(key) is not None:
                action[key] = value[key]
        return {"type": self.call_type, "status": "completed", "action": action}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        if "local_shell" in reader.native:
            return [item]
        if item["type"] == self.call_type:
            action = {k: v for k, v in item["action"].items() if v is not None and k != "type"}
            return [function_call(item, reader.name("local_shell", self.function_name), action)]
        return [function_output(item | {"call_id": item.get("call_id") or item["id"]}, item["output"])]
