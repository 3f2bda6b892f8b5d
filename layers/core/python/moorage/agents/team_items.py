"""What the agents of a team ask of each other, as items of a session: pure.

A call of the Responses API names an agent by its path (``/root/tides``). An item of a session names it by an id, and ``/root`` is the
session's agent. Lists of agents have no type in the Agents API, and are left out. No call of ours closes an agent, or resumes one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from moorage import ids
from moorage.dataclass import dataclass
from moorage.store.responses import ROOT_AGENT
from moorage.tools.function_items import parsed
from moorage.wire.types import Item

CALL: Final = "multi_agent_call"
OUTPUT: Final = "multi_agent_call_output"
MESSAGE: Final = "agent_message"
_PAYLOAD: Final = "\nPayload:\n"


@dataclass(frozen=True, slots=True)
class AgentNames:
    """The ids of the agents of a turn's team, which follow from their names."""

    root_id: str
    turn_id: str

    def id_of(self, name: str) -> str:
        return self.root_id if name == ROOT_AGENT else ids.id_within_turn("subagent", self.turn_id, name)


def spawned(caller: str, call: Item) -> tuple[str, str] | None:
    """The name and the task of the agent that a call starts, if it does; None for another call."""
    given = _given(call)
    if call["action"] != "spawn_agent" or "task_name" not in given:
        return None
    return f"{caller}/{given['task_name']}", str(given.get("message", ""))


def target_of(caller: str, call: Item) -> str:
    """The name of the agent that a call is about, as far as it says."""
    named = str(_given(call).get("target", ""))
    return named if named.startswith("/") else f"{caller}/{named}"


def team_call(
    turn_id: str, caller: str, call: Item, status: str, names: AgentNames, waits_for: Callable[[], Sequence[str]]
) -> Item | None:
    """None for a call that the Agents API has no type for. ``waits_for`` tells the names of those that a waiting agent has started."""
    sender = names.id_of(caller)
    about: dict[str, Any]
    match call["action"]:
        case "spawn_agent":
            about = {
                "type": "create_subagent_call",
                "agent_id": sender,
                "content": content_of(str(_given(call).get("message", ""))),
                "model": None,
                "reasoning_effort": None,
            }
        case "send_message" | "followup_task":
            text = str(_given(call).get("message", ""))
            recipient = names.id_of(target_of(caller, call))
            about = {"type": "send_subagent_input_call", "sender_agent_id": sender, "recipient_agent_id": recipient}
            about["content"] = content_of(text)
        case "interrupt_agent":
            recipient = names.id_of(target_of(caller, call))
            about = {"type": "interrupt_subagent_call", "sender_agent_id": sender, "recipient_agent_id": recipient}
        case "wait_agent":
            waited = [names.id_of(name) for name in waits_for()]
            about = {"type": "wait_for_subagents_call", "sender_agent_id": sender, "recipient_agent_ids": waited}
        case _:
            return None
    return {"id": call["id"], **about, "status": status, "turn_id": turn_id}


def status_of_output(output: Item) -> str:
    """What came of a call, by its output."""
    return "failed" if "error" in (parsed(text_of(output["output"])) or {}) else "completed"


def agent_message(turn_id: str, item: Item, names: AgentNames) -> Item:
    return {
        "id": item["id"],
        "type": MESSAGE,
        "sender_agent_id": names.id_of(item["author"]),
        "recipient_agent_id": names.id_of(item["recipient"]),
        "content": content_of(payload_of(item)),
        "turn_id": turn_id,
    }


def payload_of(item: Item) -> str:
    """What a message between agents says, without the lines that its recipient reads before it."""
    return text_of(item["content"]).partition(_PAYLOAD)[2]


def text_of(parts: Sequence[Any]) -> str:
    return "".join(part["text"] for part in parts)


def content_of(text: str) -> list[dict[str, Any]]:
    return [{"type": "output_text", "text": text}]


def _given(call: Item) -> dict[str, Any]:
    given = parsed(call["arguments"])
    return given if isinstance(given, dict) else {}
