"""tool_search: the client looks for further tools. What it finds joins the conversation (``tools/lowering.py``)."""

from types import MappingProxyType
from typing import Any, Final

from moorage.tools.lowered import function
from moorage.tools.room import Room
from moorage.tools.tool_search import shapes
from moorage.wire.types import Item, Tool

_DESCRIPTION: Final = "Search for further tools by what they should do. Tools that are found can be called afterwards."


class ToolSearch(Room):
    types = ("tool_search",)
    call = "tool_search_call"
    output = "tool_search_output"
    prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"tool_search": shapes.ToolSearchTool})
    item_shapes = MappingProxyType({"tool_search_call": shapes.ToolSearchCall, "tool_search_output": shapes.ToolSearchOutput})
    unsaid = MappingProxyType(
        {name: {"status": "completed", "execution": "client"} for name in ("tool_search_call", "tool_search_output")}
    )
    function = "tool_search"

    def offer(self, name: str, tool: Tool) -> Tool:
        text = tool.get("description") or _DESCRIPTION
        made = function(name, text, {"query": {"type": "string"}}, ["query"])
        parameters = tool.get("parameters")
        return made | {"parameters": parameters} if parameters else made

    def call_of(self, value: Any, arguments: str, type_: str) -> Item | None:
        if not isinstance(value, dict):
            return None
        return {"type": self.call, "status": "completed", "execution": "client", "arguments": value}
