"""All rooms, each on one line, and the lookup by tool, item or event."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from moorage.tools.apply_patch.room import ApplyPatch
from moorage.tools.automations.room import WakeUps
from moorage.tools.capabilities import HasApprovalItems
from moorage.tools.code_interpreter.room import CodeInterpreter
from moorage.tools.computer.room import Computer
from moorage.tools.custom.room import Custom
from moorage.tools.file_search.room import FileSearch
from moorage.tools.function.room import Function
from moorage.tools.image_generation.room import ImageGeneration
from moorage.tools.local_shell.room import LocalShell
from moorage.tools.mcp.room import Mcp
from moorage.tools.multi_agent.room import AgentTeam
from moorage.tools.programmatic_tool_calling.room import ProgrammaticToolCalling
from moorage.tools.room import HostedTool, Room
from moorage.tools.shell.room import Shell
from moorage.tools.tool_search.room import ToolSearch
from moorage.tools.web_search.room import WebSearch
from moorage.wire import tool_shapes
from moorage.wire.choices import ChosenByType
from moorage.wire.tools import HOSTED_IN_ITEM


def _admit(room: Room) -> None:
    """The wire takes the room's shapes from now on. Before anything is parsed: built validators stay as they are."""
    brought = dict.fromkeys(room.tool_shapes, HOSTED_IN_ITEM) if isinstance(room, HostedTool) else room.tool_shapes
    tool_shapes.TOOLS.update(room.tool_shapes)
    tool_shapes.BROUGHT.update({**brought, **room.item_tool_shapes})
    tool_shapes.CHOICES.update({**(dict.fromkeys(room.types, ChosenByType) if room.tool_shapes else {}), **room.choice_shapes})
    tool_shapes.ITEMS.update(room.item_shapes)
    if isinstance(room, HostedTool):
        tool_shapes.admit_events(room.events, room.obfuscated_events)


class Registry:
    def __init__(self, rooms: Iterable[Room]) -> None:
        self._of_tool: dict[str, Room] = {}
        self._of_item: dict[str, Room] = {}
        self._of_event: dict[str, HostedTool] = {}
        self.output_of: Final[dict[str, str]] = {}
        """Which type of item answers which type of call."""
        for room in rooms:
            self.add(room)

    def add(self, room: Room) -> None:
        """Know a tool from now on. Raises AssertionError if another room has one of its words."""
        events = room.events if isinstance(room, HostedTool) else {}
        for known, names in ((self._of_tool, room.types), (self._of_item, room.id_prefixes), (self._of_event, events)):
            taken = known.keys() & set(names)
            assert not taken, f"{type(room).__name__} and another room both say that they are {sorted(taken)}"
        self._of_tool.update(dict.fromkeys(room.types, room))
        self._of_item.update(dict.fromkeys(room.id_prefixes, room))
        if isinstance(room, HostedTool):
            self._of_event.update(dict.fromkeys(room.events, room))
        if room.output_type is not None:
            self.output_of[room.call_type] = room.output_type
        _admit(room)

    @contextmanager
    def lent(self, room: Room) -> Iterator[None]:
        """Know a tool for a while: one that is tried, or a test's."""
        tables: tuple[dict[str, Any], ...] = (self._of_tool, self._of_item, self._of_event, self.output_of, *tool_shapes.TABLES)
        before = [dict(table) for table in tables]
        self.add(room)
        try:
            yield
        finally:
            for table, known in zip(tables, before, strict=True):
                table.clear()
                table.update(known)

    def of_tool(self, type_: str) -> Room | None:
        return self._of_tool.get(type_)

    def of_item(self, type_: str) -> Room | None:
        """The room of a call, of its output, or of another item of its tool."""
        return self._of_item.get(type_)

    def of_call(self, type_: str) -> Room | None:
        room = self._of_item.get(type_)
        return room if room is not None and room.call_type == type_ else None

    def of_question(self, type_: str) -> Room | None:
        """The room that asks the client something by this type of item."""
        room = self._of_item.get(type_)
        return room if isinstance(room, HasApprovalItems) and room.approval_request_type == type_ else None

    def hosted(self, type_: str) -> HostedTool | None:
        """The room of a call, if its calls can run here."""
        room = self.of_call(type_)
        return room if isinstance(room, HostedTool) else None

    def of_event(self, name: str) -> HostedTool | None:
        """``name`` without ``response.``."""
        return self._of_event.get(name)

    def __iter__(self) -> Iterator[Room]:
        return iter(dict.fromkeys(self._of_tool.values()))


_SHELL: Final = Shell()
_INTERPRETER: Final = CodeInterpreter()
_WEB: Final = WebSearch()
_IMAGES: Final = ImageGeneration()
_FILES: Final = FileSearch()
_COMPUTER: Final = Computer()
_AUTOMATIONS: Final = WakeUps()
_MCP: Final = Mcp(askers=[_SHELL, _INTERPRETER, _WEB, _IMAGES, _FILES, _COMPUTER, _AUTOMATIONS])

ROOMS: Final = Registry(
    (
        Function(),
        Custom(),
        _SHELL,
        _INTERPRETER,
        LocalShell(),
        ApplyPatch(),
        _COMPUTER,
        _MCP,
        ToolSearch(catalogs=[_MCP]),
        _WEB,
        _IMAGES,
        _FILES,
        _AUTOMATIONS,
        ProgrammaticToolCalling(),
        AgentTeam(),
    )
)
