"""custom: a tool of the client's that takes free text. Its calls are told letter by letter, as they come (``loop/assemble.py``)."""

from types import MappingProxyType

from moorage.tools.function_items import function, function_call, function_output, with_visible_parts, without
from moorage.tools.room import InputWriter, Room
from moorage.wire.choices import ChosenByName
from moorage.wire.item import ID_PREFIXES
from moorage.wire.types import Item, Tool


class Custom(Room):
    types = ("custom",)
    call_type = "custom_tool_call"
    output_type = "custom_tool_call_output"
    id_prefixes = MappingProxyType({name: ID_PREFIXES[name] for name in ("custom_tool_call", "custom_tool_call_output")})
    choice_shapes = MappingProxyType({"custom": ChosenByName})
    listing_defaults = MappingProxyType({name: {"status": "completed"} for name in ("custom_tool_call", "custom_tool_call_output")})

    def function_tool(self, name: str, tool: Tool) -> Tool:
        """Free text as one string parameter; the upstream cannot enforce a grammar, so the model reads it."""
        description = tool.get("description") or ""
        form = tool.get("format") or {"type": "text"}
        if form["type"] == "grammar":
            description += f"\n\nThe input must match this {form['syntax']} grammar:\n{form['definition']}"
        return function(name, description.strip(), {"input": {"type": "string", "description": "The tool's raw input."}}, ["input"])

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        if "custom" in reader.native:
            return [self._natively_named(item, reader)]
        if item["type"] == self.output_type:
            return [with_visible_parts(function_output(item, item["output"]), "output")]
        return [function_call(item, reader.name("custom", item["name"], item.get("namespace")), {"input": item.get("input", "")})]

    def _natively_named(self, item: Item, reader: InputWriter) -> Item:
        """For an upstream that knows custom tools, but maybe no namespaces."""
        namespace = item.get("namespace")
        if namespace is None or "namespace" in reader.native or "name" not in item:
            return item
        return without(item, "namespace") | {"name": reader.name("custom", item["name"], namespace)}

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        return {"description": None, "format": {"type": "text"}, **tool}

    def title(self, item: Item) -> str | None:
        return f"calls {item['name']}"
