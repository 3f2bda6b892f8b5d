"""Programs of the model's, which call tools: what they have called, and how they go on.

A program's calls are items as the model's own are, each with its ``caller``. If all of them have their outputs, the program is run
again from its first line, in the container, with these outputs: it comes to the next calls, or to its end. A run is a call of a step
that fills no item (``tools/programmatic_tool_calling``). The step after it shows what the program has come to, and asks no model while
a program is open. So nothing of a program is anywhere but in the log and in the records of steps, and any process may die.

The client may have to answer: then the response ends with the open program, and the next one goes on with it.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import orjson

from moorage.dataclass import dataclass
from moorage.errors import bad_request, invalid_value
from moorage.loop.context import tools_of
from moorage.tools.calls import CallEnd, KnownCall, finished_of
from moorage.tools.capabilities import AsksApproval
from moorage.tools.function_items import without
from moorage.tools.lowering import NOT_OFFERED, OriginalTool, lower, lowered_for_programs
from moorage.tools.registry import ROOMS
from moorage.tools.room import HostedTool, makes_calls
from moorage.wire.choices import may_call
from moorage.wire.environments import WORKSPACE
from moorage.wire.item import program_of
from moorage.wire.types import Item, Tool


@dataclass(frozen=True, slots=True)
class OpenProgram:
    """A program without an output."""

    item: Item
    calls: list[Item] = field(default_factory=list)
    """What it has called, in order."""
    outputs: dict[str, Item] = field(default_factory=dict)
    """By call id."""

    @property
    def call_id(self) -> str:
        return str(self.item["call_id"])

    @property
    def is_ready(self) -> bool:
        """Whether it can be run: all its calls have their outputs."""
        return all(call["call_id"] in self.outputs for call in self.calls)

    def misfit(self, room: HostedTool) -> Item:
        """Its output if a call fits no tool: it is not gone on with."""
        item = self.item
        known = KnownCall("", self.call_id, item, 0, "")
        said = finished_of(room.end(known, CallEnd.GAVE_UP, "The arguments of a call do not fit its tool: read its description again."))
        return without(said, "id")

    def order(self, tools: Sequence[Tool], items: Sequence[Item]) -> Item:
        """The input of its run: the program, its functions, and the outputs of its calls. ``items`` are those of its conversation."""
        names = lowered_for_programs(tools, items).names
        return {
            **self.item,
            "tools": [{"name": name, "takes_text": original.type == "custom"} for name, original in names.items()],
            "recorded": [
                {"call_id": call["call_id"], "output": _recorded(call, self.outputs[call["call_id"]], tools)} for call in self.calls
            ],
        }


def open_programs(items: Sequence[Item]) -> list[OpenProgram]:
    """Of a conversation. Most hold none, and may have 10,000 items."""
    if not any(makes_calls(ROOMS.of_call(type_)) for type_ in {item["type"] for item in items}):
        return []
    found: dict[str, OpenProgram] = {}
    made: dict[str, OpenProgram] = {}
    for item in items:
        room = ROOMS.of_item(item["type"])
        if room is None:
            continue
        if makes_calls(room) and item["type"] == room.call_type:
            found[item["call_id"]] = OpenProgram(item)
        elif makes_calls(room):
            found.pop(item["call_id"], None)
        elif item["type"] == room.call_type and (caller := program_of(item)) in found:
            made[item["call_id"]] = found[caller]
            found[caller].calls.append(item)
            if room.output_type is None and item["status"] != "in_progress":
                found[caller].outputs[item["call_id"]] = item
        elif item["type"] == room.output_type and item.get("call_id") in made:
            made[item["call_id"]].outputs[item["call_id"]] = item
    return list(found.values())


def is_program(item: Item) -> bool:
    return makes_calls(ROOMS.of_call(item["type"]))


def fits(original: OriginalTool, arguments: str) -> bool:
    """Whether a call is one of this tool."""
    if original.type in ("function", "custom"):
        return True
    return original.type != NOT_OFFERED and original.call_item(arguments, "") is not None


def _recorded(call: Item, output: Item, tools: Sequence[Tool]) -> Any:
    """A program's view of an output: the model's view, and JSON if the function says that it gives some."""
    said = lower((without(call, "caller"), without(output, "caller")), (), "auto", frozenset()).items[-1]["output"]
    if isinstance(said, str) and _output_schema(call, tools) is not None:
        return orjson.loads(said)
    return said


def _output_schema(call: Item, tools: Sequence[Tool]) -> Any:
    """The schema of a function's output; None if it has none."""
    space = call.get("namespace")
    members = tools if space is None else [inner for tool in tools if tool.get("name") == space for inner in tool.get("tools", ())]
    named = (tool for tool in members if tool["type"] == "function" and tool["name"] == call.get("name"))
    return next((tool.get("output_schema") for tool in named), None)


# --- a request ------------------------------------------------------------------------------------------------------------------


def check(items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
    """Refuse tools and items about programs that do not belong together. Raises :class:`~moorage.errors.ApiError`."""
    has_programs = any(makes_calls(ROOMS.of_tool(tool["type"])) for tool in tools)
    for index, tool in enumerate(tools):
        if not may_call(tool, "programmatic"):
            continue
        param = f"tools[{index}]"
        if not has_programs:
            raise invalid_value(f"{param}.allowed_callers", "no program can be written: add 'programmatic_tool_calling' to 'tools'.")
        if tool.get("server_url") == WORKSPACE:
            raise invalid_value(f"{param}.allowed_callers", "a program calls no tools of the workspace in this version.")
        room = ROOMS.of_tool(tool["type"])
        if isinstance(room, AsksApproval) and room.may_ask(tool):
            raise invalid_value(f"{param}.require_approval", "a program cannot wait for a person's word in this version.")
        if any(member.get("defer_loading") for member in (tool, *tool.get("tools", ()))):
            raise invalid_value(f"{param}.defer_loading", "what programs call is told with them, and not searched for.")
    for index, item in enumerate(items):
        if any(may_call(tool, "programmatic") for tool in tools_of([item])):
            raise invalid_value(f"input[{index}].tools", "what programs call stands in 'tools' of the request.")
    waiting = open_programs((*chain, *items))
    if waiting and not has_programs:
        raise bad_request(
            "A program goes on with this input: send 'programmatic_tool_calling' among 'tools', and what it calls.", param="tools"
        )
    for program in waiting:
        _check_outputs(program, tools)


def check_choice(chosen: str | dict[str, Any], tools: Sequence[Tool]) -> None:
    """A model cannot be made to call functions for programs only. Raises :class:`~moorage.errors.ApiError`."""
    if isinstance(chosen, str):
        return
    wanted = [(each["type"], each.get("name")) for each in chosen.get("tools", (chosen,))]
    for tool in tools:
        if (tool["type"], tool.get("name")) in wanted and tool["type"] != "namespace" and not may_call(tool, "direct"):
            named = tool.get("name", tool["type"])
            raise invalid_value("tool_choice", f"only programs may call '{named}': its 'allowed_callers' are without 'direct'.")


def _check_outputs(program: OpenProgram, tools: Sequence[Tool]) -> None:
    for call in program.calls:
        if call["call_id"] in program.outputs:
            check_output(call, program.outputs[call["call_id"]], tools)


def check_output(call: Item, output: Item, tools: Sequence[Tool]) -> None:
    """Refuse an output for a program's call that is not JSON, as its function promises. Raises :class:`~moorage.errors.ApiError`."""
    if program_of(call) is None or _output_schema(call, tools) is None:
        return
    try:
        _recorded(call, output, tools)
    except orjson.JSONDecodeError as error:
        raise bad_request(
            f"Invalid {call['type']}_output.output: expected a JSON string because the function declares output_schema.",
            param="input",
            code="invalid_value",
        ) from error
