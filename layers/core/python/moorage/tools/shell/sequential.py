"""The shell for models that were not trained on it: one command a call.

Such a model writes the steps of its work as the ``commands`` of one call, and these run side by side: the copy before its folder is
made. So it is offered ``command``, one string, and what it nevertheless writes as several runs as one script, line after line.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.tools.function_items import compact_json, parsed
from moorage.tools.lowering import LoweredInput, OriginalTool
from moorage.wire.types import Item, Tool

_COMMAND: Final = {"type": "string", "description": "A command, or several as a script: one line after another, or `a && b`."}
_HOSTED: Final = (
    ("Run shell commands (bash) in a Linux container and read what they print.", "Run a shell command (bash) in a Linux container."),
    ("- The commands of one call run concurrently, each in its own shell of the same container.", "- A call is one command."),
    ("Ordered work is one command: `a && b`.", "Ordered work is a script of several lines, or `a && b`."),
    ("- They start in", "- It starts in"),
)
_WORDS: Final = (
    *_HOSTED,
    ("Run shell commands on the user's computer and read what they print.", "Run a shell command on the user's computer."),
)
"""What is said of several commands, and what of one."""


@dataclass(frozen=True, slots=True)
class OneCommand(OriginalTool):
    def call_item(self, arguments: str, call_id: str) -> Item | None:
        item = OriginalTool.call_item(self, arguments, call_id)
        if item is None:
            return None
        commands = item["action"]["commands"]
        return item | {"action": item["action"] | {"commands": ["\n".join(commands)]}}


def one_command(lowered: LoweredInput) -> LoweredInput:
    """The same conversation, its shell offered and called with one command."""
    names = {name for name, original in lowered.names.items() if original.type == "shell"}
    return replace(
        lowered,
        items=tuple(_read(item, names) for item in lowered.items),
        tools=tuple(_offered(tool) if tool.get("name") in names else tool for tool in lowered.tools),
        names=MappingProxyType({name: _original(original) for name, original in lowered.names.items()}),
    )


def _original(original: OriginalTool) -> OriginalTool:
    return OneCommand(original.type, original.name, original.namespace) if original.type == "shell" else original


def _offered(tool: Tool) -> Tool:
    description: str = tool["description"]
    for several, one in _WORDS:
        description = description.replace(several, one)
    parameters: Mapping[str, Any] = tool["parameters"]
    properties = {"command": _COMMAND} | {key: value for key, value in parameters["properties"].items() if key != "commands"}
    return tool | {"description": description, "parameters": {**parameters, "properties": properties, "required": ["command"]}}


def _read(item: Item, names: set[str]) -> Item:
    """An earlier call, as the model would make it now."""
    if item.get("type") != "function_call" or item["name"] not in names:
        return item
    action = parsed(item["arguments"])
    commands = action.pop("commands", None) if isinstance(action, dict) else None
    if not isinstance(commands, list):
        return item
    return item | {"arguments": compact_json({"command": "\n".join(commands)} | action)}
