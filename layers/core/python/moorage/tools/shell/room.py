"""The shell: commands in the response's container, or on the client's own machine."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from moorage import limits
from moorage.errors import SandboxError
from moorage.model.base import HOSTED_SHELL
from moorage.tools.approval_tool import ApprovalTool
from moorage.tools.calls import CallEnd, CallLogNote, CallOpening, ItemPosition, KnownCall, Piece
from moorage.tools.capabilities import RunsInContainer
from moorage.tools.execs import exec_id
from moorage.tools.function_items import function_call, function_output, without
from moorage.tools.room import CallRunner, InputWriter, RerunPolicy
from moorage.tools.run import Run, StoppingPlace
from moorage.tools.shell import approval, commands, offer, shapes
from moorage.wire.types import Event, Item, Tool

_FILES = "shell_call_output.output_files"


class Shell(ApprovalTool, RunsInContainer):
    types = ("shell",)
    call_type = "shell_call"
    output_type = "shell_call_output"
    id_prefixes = shapes.PREFIXES
    tool_shapes = MappingProxyType({"shell": shapes.ShellTool})
    item_tool_shapes = MappingProxyType({"shell": shapes.ShellToolOfItem})
    item_shapes = MappingProxyType({"shell_call": shapes.ShellCall, "shell_call_output": shapes.ShellCallOutput})
    listing_defaults = MappingProxyType(
        {
            "shell_call": {"status": "completed", "environment": None},
            "shell_call_output": {"status": "completed", "max_output_length": None},
        }
    )
    events = shapes.EVENTS
    obfuscated_events = frozenset({"shell_call_command.delta"})
    function_name = offer.NAME
    rerun_policy = RerunPolicy.ATTACH
    end_messages = commands.WORDS
    allowed_by = "call_id"
    not_offered = "The hosted shell of this call is not among 'tools'."
    no_call = "what was asked for is no call of a shell."

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        environment: dict[str, Any] = thing.get("environment") or {}
        return CallRunner.SANDBOX if environment.get("type") in approval.HOSTED else CallRunner.CLIENT

    # --- a person's word ---

    def is_gated(self, call: Item, tools: Sequence[Tool]) -> bool:
        return approval.is_needed(approval.asked_of(tools), commands.action_of(call)["commands"])

    def arguments_of(self, call: Item) -> Mapping[str, Any]:
        action: dict[str, Any] = call["action"]
        return action

    def read_denied(self, request: Item, words: str, reader: InputWriter) -> list[Item]:
        call = self.call_of(request)
        if call is None:
            return []
        call |= {"status": "completed", "call_id": request["id"][: limits.CALL_ID_CHARS_MAX]}
        answer = without(commands.announced(call, "", [commands.refused(words) for _ in call["action"]["commands"]]), "id")
        return [*self.input_items(call, reader), *self.input_items(answer, reader)]

    # --- what models read ---

    def native_tool(self, tool: Tool, reader: InputWriter) -> tuple[str, Tool]:
        """One shell for every runner: an upstream that knows it is told that its client runs it, if the upstream does not."""
        if self.call_runner(tool) is CallRunner.CLIENT or HOSTED_SHELL in reader.native:
            return "\0shell", tool
        skills = offer.skills_of(tool)
        return "\0shell", {"type": "shell", "environment": {"type": "local", **({"skills": skills} if skills else {})}}

    def function_tool(self, name: str, tool: Tool) -> Tool:
        return offer.of_client(name, tool) if self.call_runner(tool) is CallRunner.CLIENT else offer.hosted(name, tool)

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        action = offer.action_of(value) if isinstance(value, dict) else None
        return None if action is None else {"type": self.call_type, "action": action}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        is_call, is_native = item["type"] == self.call_type, "shell" in reader.native
        if HOSTED_SHELL in reader.native:
            return [item]
        if is_native:
            return [without(item | {"environment": {"type": "local"}}, "created_by") if is_call else without(item, commands.FILES)]
        if not is_call:
            return [function_output(item, offer.output_text(item["output"]))]
        action = {key: value for key, value in item["action"].items() if value is not None}
        return [function_call(item, reader.name("shell", self.function_name), action)]

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        action = commands.action_of(call)
        hosted = place.container_id is not None and place.is_hosted
        added = {
            "id": place.item_id,
            "type": self.call_type,
            "status": "in_progress",
            "call_id": call["call_id"],
            "action": {
                "commands": [],
                "max_output_length": action.get("max_output_length"),
                "timeout_ms": action.get("timeout_ms"),
            },
            "environment": {"type": "container_reference", "container_id": place.container_id} if hosted else {"type": "local"},
        }
        whole = added | {"action": {**added["action"], "commands": list(action["commands"])}}
        return CallOpening(added, self._spoken(action["commands"], place.output_index), whole)

    def _spoken(self, said: list[str], output_index: int) -> Iterable[Event]:
        for index, command in enumerate(said):
            # These three events have no item_id (recorded live streams, openai SDK types).
            head = {"output_index": output_index, "command_index": index}
            yield {"type": "response.shell_call_command.added", "command": "", **head}
            for start in range(0, len(command), limits.CALL_PIECE_CHARS):
                piece = command[start : start + limits.CALL_PIECE_CHARS]
                yield {"type": "response.shell_call_command.delta", "delta": piece, **head}
            yield {"type": "response.shell_call_command.done", "command": command, **head}

    def empty_output(self, call: Item, output_item_id: str) -> Item:
        return commands.announced(call, output_item_id, [])

    def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        return commands.run(run)

    async def stop(self, place: StoppingPlace, known: KnownCall) -> None:
        for index in range(commands.count(known.item)):
            with suppress(SandboxError):
                await place.client.kill(exec_id(known.response_id, known.call_id, index))

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        return commands.end(known, end, detail)

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        commands.grow(item, name, event)

    def incomplete_item(self, item: Item) -> Item:
        if item["type"] == self.output_type:
            for output in item["output"]:
                output["outcome"] = output.get("outcome") or {"type": "timeout"}
        return item | {"status": "incomplete"}

    def missing_output(self, call: Item) -> Item | None:
        return None if self.call_runner(call) is CallRunner.CLIENT else commands.orphaned(call)

    def response_tool(self, tool: Tool, container_id: str | None) -> Tool:
        """A hosted shell as a reference to its container, with the versions of its skills."""
        environment = tool.get("environment") or {}
        if self.call_runner(tool) is CallRunner.CLIENT:
            return {**tool, "environment": {"type": "local"}}
        if environment["type"] == "container_auto" and container_id is None:
            return tool  # The model's upstream hosts it, and has not said where.
        shown = {"type": "container_reference", "container_id": environment.get("container_id", container_id)}
        return {**tool, "environment": {**shown, "skills": environment["skills"]} if environment.get("skills") else shown}

    def visible_item(self, item: Item, include: frozenset[str]) -> Item:
        if item["type"] != self.output_type:
            return item
        return {commands.FILES: [], **item} if _FILES in include else without(item, commands.FILES)

    def container_id(self, item: Item) -> str | None:
        container_id: str | None = (item.get("environment") or {}).get("container_id")
        return container_id

    def with_container(self, item: Item, container_id: str) -> Item:
        return item | {"environment": {**item["environment"], "container_id": container_id}}

    def title(self, item: Item) -> str | None:
        return None

    def log_notes(self, name: str, event: Event) -> Iterable[CallLogNote]:
        match name:
            case "shell_call_command.done":
                yield CallLogNote(f"$ {event['command']}", "call")
            case "shell_call_output_content.delta":
                for stream, text in event["delta"].items():
                    if text:
                        yield CallLogNote(text, "problem" if stream == "stderr" else "output", (event["command_index"], stream))
            case "shell_call_output_content.done":
                outcome = event["output"][0]["outcome"]
                said = "timed out" if outcome["type"] == "timeout" else f"exit {outcome['exit_code']}"
                yield CallLogNote(f"[{said}]", "note" if outcome.get("exit_code") == 0 else "failure")
