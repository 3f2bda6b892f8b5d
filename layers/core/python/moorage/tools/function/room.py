"""function: a tool of the client's with a JSON Schema, which every model knows. Its calls are told letter by letter, as they come
(``loop/assemble.py``)."""

from types import MappingProxyType

from moorage.tools.function_items import with_visible_parts, without
from moorage.tools.room import InputWriter, Room
from moorage.wire.choices import ChosenByName
from moorage.wire.item import ID_PREFIXES
from moorage.wire.types import Item, Tool


class Function(Room):
    types = ("function",)
    call_type = "function_call"
    output_type = "function_call_output"
    id_prefixes = MappingProxyType({name: ID_PREFIXES[name] for name in ("function_call", "function_call_output")})
    choice_shapes = MappingProxyType({"function": ChosenByName})
    listing_defaults = MappingProxyType({name: {"status": "completed"} for name in ("function_call", "function_call_output")})

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        if item["type"] == self.output_type:
            return [with_visible_parts(item, "output")]
        namespace = item.get("namespace")
        if namespace is not None and "namespace" in reader.native:
            return [item]
        return [without(item, "namespace", "caller") | {"name": reader.name("function", item["name"], namespace)}]

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        return {"description": None, "parameters": None, "strict": None, **tool}

    def title(self, item: Item) -> str | None:
        return f"calls {item['name']}"
