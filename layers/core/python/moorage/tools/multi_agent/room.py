"""The calls by which an agent builds and leads a team. The model step that made one settles it (``loop/team_calls.py``).

No tool of a request stands for them: its ``multi_agent`` offers them.
"""

import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

from moorage import limits
from moorage.tools.calls import (
    CallEnd,
    CallFinished,
    CallOpening,
    ItemPosition,
    KnownCall,
    OfferedFunction,
    OfferedFunctions,
    Piece,
    ToolKey,
)
from moorage.tools.capabilities import KeepsItems, OffersFunctions
from moorage.tools.function_items import compact_json, function, function_output, message
from moorage.tools.multi_agent import shapes
from moorage.tools.room import CallRunner, HostedTool, InputWriter
from moorage.tools.run import Run
from moorage.wire.types import Event, Item, Tool

_TARGET: Final = {"type": "string", "description": "Name of the agent: /root/…, or what follows your own name."}
_TEXT: Final = {"type": "string", "description": "All that the agent needs to know."}
_ACTIONS: Final[tuple[tuple[str, str, dict[str, Any], list[str]], ...]] = (
    (
        "spawn_agent",
        "Start an agent that works on a task beside you.",
        {
            "task_name": {"type": "string", "description": "A short name for it: letters, digits, _ and -."},
            "message": {"type": "string", "description": "Its task, with all that it needs to know."},
            "fork_turns": {
                "type": "string",
                "description": "How much of your conversation it sees: 'all' (default), 'none', or the number of the latest turns.",
            },
            "workspace": {
                "type": "string",
                "enum": ["shared", "copied", "read_only", "none"],
                "description": (
                    "Its files: yours (default); a copy of yours, whose changes you do not see; a copy that it can only read "
                    "(read_only); or none, and no commands."
                ),
            },
        },
        ["task_name", "message"],
    ),
    (
        "send_message",
        "Leave a message for an agent, which reads it before it goes on. It starts nothing.",
        {"target": _TARGET, "message": _TEXT},
        ["target", "message"],
    ),
    (
        "followup_task",
        "Give an agent a further task. One that has finished begins again, and knows what it knew.",
        {"target": _TARGET, "message": _TEXT},
        ["target", "message"],
    ),
    (
        "wait_agent",
        "Wait for messages to you, such as the last answers of agents that you have started.",
        {"timeout_ms": {"type": "integer", "description": f"How long at most; {limits.TEAM_WAIT_MS} if left out."}},
        [],
    ),
    ("interrupt_agent", "End what an agent is doing. It keeps what it knows.", {"target": _TARGET}, ["target"]),
    (
        "list_agents",
        "Say which agents there are, and what each does.",
        {"path_prefix": {"type": "string", "description": "Only those whose names begin so."}},
        [],
    ),
)
_ENDS: Final = r"\n\r\v\f\x85\u2028\u2029"
_BEGINS: Final = re.compile(rf"(\A|[{_ENDS}])(?=[^\S{_ENDS}]*message type[^\S{_ENDS}]*:)", re.IGNORECASE)
"""A line that looks as if a message between agents began with it."""
_REFUSED: Final = "This was not done: the limit of calls is reached."
_CANCELLED: Final = "The response ended before this was done."


class AgentTeam(HostedTool, OffersFunctions, KeepsItems):
    types = ("agent_team",)
    call_type = "multi_agent_call"
    output_type = "multi_agent_call_output"
    message_type: ClassVar = "agent_message"
    id_prefixes = shapes.PREFIXES
    item_shapes = MappingProxyType(
        {
            "multi_agent_call": shapes.MultiAgentCall,
            "multi_agent_call_output": shapes.MultiAgentCallOutput,
            "agent_message": shapes.AgentMessageItem,
        }
    )
    may_run_upstream = False
    """An upstream's own agents would work in a place of theirs."""

    def call_runner(self, thing: Tool | Item) -> CallRunner:
        return CallRunner.STEP

    def may_stay_open(self, call: Item) -> bool:
        """An agent waits on while others wait for their client."""
        return bool(call["action"] == "wait_agent")

    # --- what models read ---

    def offered_functions(self, item: Item, tools: Sequence[Tool]) -> OfferedFunctions | None:
        if item["type"] not in self.types:
            return None
        return OfferedFunctions(
            self.types[0],
            tuple(
                OfferedFunction(name, function(name, text, fields, required), {"action": name}, has_own_name=True)
                for name, text, fields, required in _ACTIONS
            ),
        )

    def function_tool(self, name: str, tool: Tool) -> Tool:
        raise AssertionError("a team is six functions")

    def deferred_functions(self, tool: Tool, kept_back: Iterable[ToolKey]) -> Iterable[ToolKey]:
        return ()

    def discovered_functions(self, item: Item, tools: Sequence[Tool]) -> Iterable[ToolKey]:
        return ()

    def parse_call(self, value: Any, arguments: str, type_: str) -> Item | None:
        if not isinstance(value, dict):
            return None
        return {"type": self.call_type, "arguments": compact_json(value)}

    def input_items(self, item: Item, reader: InputWriter) -> list[Item]:
        if item["type"] == "agent_message":
            return [message("user", _quoted("".join(part["text"] for part in item["content"])))]
        if item["type"] == self.output_type:
            return [function_output(item, "".join(part["text"] for part in item["output"]))]
        name = reader.name(self.types[0], item["action"], self.types[0])
        return [{"type": "function_call", "call_id": item["call_id"], "name": name, "arguments": item["arguments"]}]

    # --- the call ---

    def open_call(self, call: Item, place: ItemPosition) -> CallOpening:
        item = {"id": place.item_id, **call}
        return CallOpening(item, (), item)

    def empty_output(self, call: Item, output_item_id: str) -> Item:
        return {"id": output_item_id, **output(call, "")}

    def run(self, run: Run) -> AsyncGenerator[Piece, None]:
        raise AssertionError("the model step settles its calls")

    def end(self, known: KnownCall, end: CallEnd, detail: str = "") -> Iterable[Piece]:
        yield CallFinished({"id": known.output_item_id, **output(known.item, _REFUSED)})

    def apply_event(self, item: Item, name: str, event: Event) -> None:
        raise AssertionError("it has no events of its own")

    def incomplete_item(self, item: Item) -> Item:
        """It has no status."""
        return item

    def missing_output(self, call: Item) -> Item | None:
        return output(call, _CANCELLED)

    def survives_truncation(self, item: Item) -> bool:
        """What an agent was asked to do is what users have asked others."""
        return item["type"] == "agent_message" and bool(item["content"][:1]) and is_task(item)

    def title(self, item: Item) -> str | None:
        if item["type"] == "agent_message":
            return f"{item['author']} → {item['recipient']}"
        return f"{item['action']} {item['arguments']}" if item["type"] == self.call_type else None


def _quoted(text: str) -> str:
    """A message as its recipient reads it: what its author wrote begins no second message in another agent's name."""
    head, payload, said = text.partition("\nPayload:\n")
    return head + payload + _BEGINS.sub(r"\1> ", said)


def is_task(sent: Item) -> bool:
    """Whether a message between agents gives a task."""
    text: str = sent["content"][0]["text"]
    return text.startswith("Message Type: NEW_TASK")


def is_last_answer(sent: Item) -> bool:
    """Whether a message between agents says what its author's turn has come to."""
    text: str = sent["content"][0]["text"]
    return text.startswith("Message Type: FINAL_ANSWER")


def output(call: Item, text: str) -> Item:
    """The item that says what came of a call, but for its id."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": AgentTeam.output_type, "call_id": call["call_id"], "action": call["action"], "output": [part]}
