"""tool_search: further tools are looked for when they are needed, by the client or here. What is found joins the conversation
(``tools/lowering.py``).

Here (``execution: server``) the search goes over the tools of the request that say ``defer_loading``; an upstream that knows the tool
itself searches by itself, unless there are tools among them that no upstream is told of.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

from moorage import limits
from moorage.tools.calls import CallEnd, CallFinished, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import KeepsItems
from moorage.tools.function_items import function
from moorage.tools.room import CallLimits, CallRunner, HostedTool, InputWriter, RerunPolicy
from moorage.tools.run import Run
from moorage.tools.tool_search import ranking, shapes
from moorage.wire.types import Event, Item, Tool

_DESCRIPTION: Final = "Search for further tools by what they should do. Tools that are found can be called afterwards."
_COUNT_DEFAULT: Final = 5
_COUNT: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": limits.TOOLS_FOUND_MAX,
    "description": f"Tools to find at most; {_COUNT_DEFAULT} if left out.",
}


class ToolCatalog(Protocol):
    """A room with tools that are known from items of the conversation alone."""

    async def deferred(self, tools: Sequence[Tool], earlier: AsyncIterator[Item]) -> list[ranking.DeferredTool]:
        """Those that are not offered before they are found. ``tools`` are all of the request, ``earlier`` is what was said, the latest
        first."""
        ...


class ToolSearch(HostedTool, KeepsItems):
    types = ("tool_search",)
    call_type = "tool_search_call"
    output_type = "tool_search_output"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"tool_search": shapes.ToolSearchTool})
    item_tool_shapes = MappingProxyType({"tool_search": shapes.ToolSearchTool})
    item_shapes = MappingProxyType({"tool_search_call": shapes.ToolSearchCall, "tool_search_output": shapes.ToolSearchOutput})
    listing_defaults = MappingProxyType(
        {name: {"status": "completed", "execution": "client"} for name in ("tool_search_call", "tool_search_output")}
    )
    function_name = "tool_search"
    rerun_policy = RerunPolicy.REPEAT
    call_limits = CallLimits(seconds=30, bytes=limits.TOOLS_FOUND_BYTES_MAX)
    """What is searched stands in memory."""

    def __init__(self, catalogs: Iterable[ToolCatalog] = ()) -> None:
        self._catalogs = tuple(catalogs)

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        """A call without an id is an upstream's own."""
        is_ours = thing.get("execution") == "server" and (thing["type"] in self.types or thing.get("call_id") is not None)
        return CallRunner.SERVICE if is_ours else CallRunner.CLIENT

    def function_tool(self, name: str, tool: Tool) -> Tool:
        if self.call_runner(tool) is CallRunner.SERVICE:
            wanted = {"type": "string", "description": "What the tools should do, in a few words."}
            return function(name, _DESCRIPTION, {"query": wanted, "limit": _COUNT}, ["query"])
        text = tool.get("description") or _DESCRIPTION
        made = function(name, text, {"query": {"type": "string"}}, ["query"])
        parameters = tool.get("parameters")
        return made | {"parameters": parameters} if parameters else made

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        if not isinstance(value, dict):
            return None
        return {"type": self.call_type, "status": "completed", "execution": "client", "arguments": value}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        raise AssertionError("the lowering reads it: what was found joins the tools")

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        item = {**call, "id": place.item_id}
        return CallOpening(item, (), item)

    def empty_output(self, call: Item, output_item_id: str) -> Item:
        return {
            "id": output_item_id,
            "type": self.output_type,
            "status": "in_progress",
            "call_id": call["call_id"],
            "execution": "server",
            "tools": [],
        }

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        arguments = run.known.item["arguments"]
        query, count = arguments.get("query"), arguments.get("limit")
        wanted = count if isinstance(count, int) and 0 < count <= limits.TOOLS_FOUND_MAX else _COUNT_DEFAULT
        there = ranking.deferred(run.offered)
        for catalog in self._catalogs:
            there += await catalog.deferred(run.offered, run.earlier())
        found = await ranking.best(query if isinstance(query, str) else "", there, wanted)
        run.counts["found"] = len(found)
        yield self._found(run.known, ranking.as_tools(found))

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        yield self._found(known, [])

    def _found(self, known: KnownCall, tools: list[Tool]) -> CallFinished:
        return CallFinished(self.empty_output(known.item, known.output_item_id) | {"status": "completed", "tools": tools})

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        raise AssertionError("it has no events of its own")

    def survives_truncation(self, item: Item) -> bool:
        """A found tool is offered from then on."""
        return item["type"] in (self.call_type, self.output_type)

    def missing_output(self, call: Item) -> Item | None:
        return None if self.call_runner(call) is CallRunner.CLIENT else self.empty_output(call, "") | {"status": "incomplete"}
