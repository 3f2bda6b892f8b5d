"""The code interpreter: Python in a session of the response's container."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from moorage import limits
from moorage.errors import SandboxError
from moorage.tools.approval_tool import ApprovalTool
from moorage.tools.calls import CallEnd, CallLogNote, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import HidesField, RunsInContainer
from moorage.tools.code_interpreter import code, shapes
from moorage.tools.execs import WORDS, exec_id
from moorage.tools.function_items import compact_json, function
from moorage.tools.room import CallRunner, InputWriter, RerunPolicy
from moorage.tools.run import Run, StoppingPlace
from moorage.wire.types import Event, Item, Tool

_DESCRIPTION: Final = """\
Run Python code in a Linux container and read what it prints, and the value of a last expression.
- Variables and imports are kept from call to call; you are told when they are gone.
- It starts in /mnt/data. Files there are kept; the user can download those that you name in your answer.
- matplotlib figures that are left open are saved there, and shown to the user.
- Code that runs for minutes is stopped, and its variables are lost. No network unless the user was granted some."""

_OUTPUTS: Final = "code_interpreter_call.outputs"


class CodeInterpreter(ApprovalTool, HidesField, RunsInContainer):
    types = ("code_interpreter",)
    call_type = "code_interpreter_call"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"code_interpreter": shapes.CodeInterpreterTool})
    item_shapes = MappingProxyType({"code_interpreter_call": shapes.CodeInterpreterCall})
    listing_defaults = MappingProxyType({"code_interpreter_call": {"status": "completed", "code": None, "outputs": None}})
    events = shapes.EVENTS
    obfuscated_events = frozenset({"code_interpreter_call_code.delta"})
    function_name = "python"
    may_run_upstream = False
    """An upstream's own interpreter would run in the upstream's container, without the user's files."""
    rerun_policy = RerunPolicy.ATTACH
    end_messages = WORDS
    hidden_field = "outputs"

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        return CallRunner.SANDBOX

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return function(name, _DESCRIPTION, {"code": {"type": "string", "description": "Python source code."}}, ["code"])

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        """Small models write the code itself, without JSON around it."""
        source = value.get("code") if isinstance(value, dict) else value
        return {"type": self.call_type, "code": source if isinstance(source, str) else arguments}

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        return {"code": call["code"]}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        call_id = item.get("call_id") or item["id"][:64]
        source = {"code": item.get("code") or ""}
        call = {"type": "function_call", "call_id": call_id, "name": reader.name("code_interpreter", self.function_name)}
        return [
            call | {"arguments": compact_json(source)},
            {"type": "function_call_output", "call_id": call_id, "output": _logs(item.get("outputs"))},
        ]

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        source = call["code"]
        added: Item = {
            "id": place.item_id,
            "type": self.call_type,
            "status": "in_progress",
            "code": "",
            "container_id": place.container_id,
            "outputs": [],
            **self.allowance(call),
        }
        return CallOpening(added, self._spoken(source, place), added | {"code": source}, is_whole=False)

    def _spoken(self, source: str, place: ItemPosition) -> Iterable[Event]:
        yield place.event("code_interpreter_call.in_progress")
        for start in range(0, len(source), limits.CALL_PIECE_CHARS):
            yield place.event("code_interpreter_call_code.delta", delta=source[start : start + limits.CALL_PIECE_CHARS])
        yield place.event("code_interpreter_call_code.done", code=source)

    def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        return code.run(run)

    async def stop(self, place: StoppingPlace, known: KnownCall) -> None:
        with suppress(SandboxError):
            await place.client.kill(exec_id(known.response_id, known.call_id, 0))

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        return code.end(known, end, detail)

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        code.grow(item, name, event)

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        """``auto`` stays ``auto`` (recorded live), without its options."""
        return tool if isinstance(tool["container"], str) else {**tool, "container": {"type": "auto"}}

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        return item if _OUTPUTS in include else item | {"outputs": None}

    def log_notes(self, name: str, event: Event) -> Iterable[CallLogNote]:
        if name == "code_interpreter_call_code.delta":
            yield CallLogNote(event["delta"], "call", ("arguments",))


def _logs(outputs: list[dict[str, Any]] | None) -> str:
    if outputs is None:
        return "(the output was not sent back)"
    texts = [output.get("logs", "") if output["type"] == "logs" else "[image]" for output in outputs]
    return "\n".join(text.rstrip("\n") for text in texts) or "(no output)"
