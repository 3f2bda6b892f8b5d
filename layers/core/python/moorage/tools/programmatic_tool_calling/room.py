"""Programs: JavaScript of the model's that calls other tools, without their results coming before the model.

A program runs in the response's container, and its calls are the loop's (``loop/programs.py``), each with the program as its
``caller``. The model sees the program and its output alone. Every model gets it as a function.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from moorage import errors, limits
from moorage.errors import SandboxError
from moorage.tools.calls import NOT_ALLOWED, CallEnd, CallFinished, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import ValidatesItems
from moorage.tools.function_items import compact_json, function, function_call, function_output
from moorage.tools.programmatic_tool_calling import javascript, shapes
from moorage.tools.room import CallLimits, CallRunner, HostedTool, InputWriter, RerunPolicy
from moorage.tools.run import Run, StoppingPlace
from moorage.wire.item import program_of
from moorage.wire.types import Event, Item, Tool

_DESCRIPTION: Final = """\
Run a JavaScript program that calls tools, and read what it says. Use it for several calls, above all where their results are long and \
you need only a part of them: you see nothing of the calls but what the program says.
- It is the body of an async function. `await tools.name({...})` calls a tool; await several with Promise.all to have them run at once.
- `text(value)` says something, and so does a value that is returned. Say little: only what you need.
- There are no modules, timers, files, network, clock or randomness, and nothing is kept from program to program.
These tools can be called in a program:"""

WORDS: Final = MappingProxyType(
    {
        CallEnd.DENIED: NOT_ALLOWED,
        CallEnd.REFUSED: "This program was not run: the limit of tool calls is reached. Answer with what you have.",
        CallEnd.LOST: "This program could not go on.",
        CallEnd.GAVE_UP: "This program could not be run.",
        CallEnd.CANCELLED: "The response ended before this program did.",
        CallEnd.TIME_OVER: "This program took too long.",
        CallEnd.TOO_LARGE: "This program said too much.",
    }
)


class ProgrammaticToolCalling(HostedTool, ValidatesItems):
    types = ("programmatic_tool_calling",)
    call_type = "program"
    output_type = "program_output"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"programmatic_tool_calling": shapes.ProgrammaticToolCallingTool})
    item_shapes = MappingProxyType({"program": shapes.Program, "program_output": shapes.ProgramOutput})
    listing_defaults = MappingProxyType({"program_output": {"status": "completed"}})
    function_name = "run_program"
    may_run_upstream = False
    """An upstream's own programs would call tools that run here."""
    makes_calls = True
    rerun_policy = RerunPolicy.REPEAT
    call_limits = CallLimits(seconds=limits.PROGRAM_SECONDS_MAX)
    end_messages = WORDS

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        return CallRunner.SANDBOX

    def validate_items(self, items: Sequence[Item], chain: Sequence[Item], tools: Sequence[Tool]) -> None:
        programs = {item["call_id"] for item in (*chain, *items) if item["type"] == self.call_type}
        callers = {item["call_id"]: program_of(item) for item in (*chain, *items) if program_of(item) and "call_id" in item}
        for index, item in enumerate(items):
            if item["type"] == self.call_type and item["fingerprint"] != javascript.fingerprint_of(item["code"]):
                raise errors.invalid_value(f"input[{index}].fingerprint", "it is not that of this program's code.")
            caller = program_of(item)
            if caller is not None and (caller not in programs or callers.get(item.get("call_id", "")) != caller):
                raise errors.invalid_value(f"input[{index}].caller", "there is no such program, or it has not made this call.")

    # --- what models read ---

    def function_tool(self, name: str, tool: Tool) -> Tool:
        listed = [_line(offered) for offered in tool.get("callable", ())]
        described = "\n".join([_DESCRIPTION, *(listed or ["(none)"])])
        return function(name, described, {"code": {"type": "string", "description": "JavaScript source code."}}, ["code"])

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        """Small models write the code itself, without JSON around it."""
        source = value.get("code") if isinstance(value, dict) else value
        code = source if isinstance(source, str) else arguments
        return {"type": self.call_type, "code": code, "fingerprint": javascript.fingerprint_of(code)}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        if item["type"] == self.output_type:
            return [function_output(item, item["result"] or "(the program said nothing)")]
        return [function_call(item, reader.name(self.types[0], self.function_name), {"code": item["code"]})]

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        item = {"id": place.item_id, **call}
        return CallOpening(item | {"code": "", "fingerprint": ""}, (), item)

    def empty_output(self, call: Item, output_item_id: str) -> Item:
        return {"id": output_item_id, **javascript.output(call, "", None)}

    async def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        yield CallFinished(await javascript.ran(run))

    async def stop(self, place: StoppingPlace, known: KnownCall) -> None:
        with suppress(SandboxError):
            await place.client.kill(javascript.run_id(known.response_id, known.item))

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        words = f"{WORDS[end]} {detail}".strip()
        yield CallFinished(self.empty_output(known.item, known.output_item_id) | {"result": words})

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        raise AssertionError(f"a program has no events, and {name} came")

    def missing_output(self, call: Item) -> Item | None:
        return javascript.output(call, WORDS[CallEnd.CANCELLED], None) | {"status": "incomplete"}

    def title(self, item: Item) -> str | None:
        return f"program: {item['code']}" if item["type"] == self.call_type else None


def _line(offered: Tool) -> str:
    """A function as a program calls it."""
    returns = f" It gives {compact_json(offered['output_schema'])}." if offered.get("output_schema") else " It gives a text."
    about = " ".join((offered.get("description") or "").split())
    return f"- tools.{offered['name']}({compact_json(offered.get('parameters') or {})}): {about}{returns}"
