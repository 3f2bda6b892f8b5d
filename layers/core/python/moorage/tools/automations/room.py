"""Automations that an agent makes for its own session: it is woken with its own words at a time, or again and again.

    {"type": "automation_call", "id", "status", "arguments", "output", "error"}

A call that runs again after a death finds what it has made: an automation's id follows from its call (``automations/by_agents.py``).
"""

from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import Any, Final

from moorage import limits
from moorage.errors import ApiError
from moorage.tools.automations import shapes
from moorage.tools.calls import CallEnd, CallFinished, CallOpening, ItemPosition, Piece
from moorage.tools.capabilities import NeedsSession
from moorage.tools.function_items import compact_json, function, parsed
from moorage.tools.room import CallLimits
from moorage.tools.run import Run
from moorage.tools.service_tool import WORDS, ServiceTool, failed
from moorage.wire.types import Event, Item, Tool

_CALL: Final = "automation_call"
_ACTIONS: Final = ("create", "list", "update", "pause", "resume", "delete")
_WORDS: Final = ("automation_id", "name", "expression", "timezone", "run_at", "instructions")

DESCRIPTION: Final = """\
Wake yourself later in this session, with instructions that you write now.
- action "create" with name and instructions, and with expression and timezone (again and again), or with run_at (once).
- action "list": the automations of this session, and the time now.
- action "update" with automation_id and what changes; "pause", "resume" and "delete" with automation_id.
- Make one only if the user wants it. Delete one that is of no use any more."""

_PARAMETERS: Final[dict[str, Any]] = {
    "action": {"type": "string", "enum": list(_ACTIONS)},
    "automation_id": {"type": "string"},
    "name": {"type": "string", "description": "A few words for the user."},
    "expression": {"type": "string", "description": "Five fields of cron, such as 0 9 * * MON."},
    "timezone": {"type": "string", "description": "Such as Europe/Berlin."},
    "run_at": {"type": "string", "description": "A time with its offset, such as 2027-01-31T12:00:00+01:00."},
    "instructions": {"type": "string", "description": "What you are told then. You see this conversation too."},
}


class WakeUps(ServiceTool, NeedsSession):
    types = ("automations",)
    call_type = _CALL
    id_prefixes = shapes.PREFIXES
    tool_shapes = shapes.TOOLS
    item_shapes = MappingProxyType({_CALL: shapes.AutomationCall})
    listing_defaults = MappingProxyType({_CALL: {"status": "completed", "output": None, "error": None}})
    function_name = "automations"
    call_limits = CallLimits(
        seconds=limits.AGENT_AUTOMATION_CALL_SECONDS_MAX,
        bytes=limits.AGENT_AUTOMATION_CALL_BYTES_MAX,
        calls_per_round=limits.AGENT_AUTOMATION_CALLS_PER_ROUND_MAX,
    )

    # --- what models read ---

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return function(name, DESCRIPTION, _PARAMETERS, ["action"])

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        if not isinstance(value, dict) or value.get("action") not in _ACTIONS:
            return None
        said = {name: value[name] for name in _WORDS if value.get(name) is not None}
        if any(not isinstance(word, str) or len(word) > limits.AGENT_AUTOMATION_WORD_CHARS_MAX for word in said.values()):
            return None
        return {"type": _CALL, "arguments": compact_json({"action": value["action"], **said})}

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        said: Mapping[str, Any] = parsed(call["arguments"])
        return said

    def result_for_model(self, item: Item) -> Any:
        return item.get("error") or item.get("output") or WORDS[CallEnd.LOST]

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        item = {"id": place.item_id, "type": _CALL, "status": "in_progress", "arguments": call["arguments"], **self.allowance(call)}
        return CallOpening(item, (), dict(item), is_whole=False)

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        known, act = run.known, run.outside.automations
        if act is None:
            yield failed(known, "There is no session to wake.")
            return
        try:
            output = await act(known.item["id"], self.arguments_of(known.item))
        except ApiError as error:
            if error.status >= 500 or error.status == 409:
                raise
            yield failed(known, error.message)
            return
        yield CallFinished(known.item | {"status": "completed", "output": output})

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        raise AssertionError(f"automations have no events, and {name} is one")

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        return {"require_approval": "never"} | tool

    def title(self, item: Item) -> str | None:
        return f"automations: {item['arguments']}"
