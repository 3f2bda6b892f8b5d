"""Items of a session, as projections of its responses' items (``client.beta.agents.sessions.items``).

Nothing is stored in this form. An item has the id that it has in its response; each command of a shell's call is an item of its own.
What the Agents API has no type for is left out: lists of servers' tools, searches among deferred tools, compactions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from moorage.tools.function_items import parsed
from moorage.wire.types import Item

Phase = Literal["commentary", "final_answer"]

_OUTPUT: Final = "function_call_output"
SEEN: Final = "computer_call_output"
_ACTIONS: Final = {"search": ("query", "queries"), "open_page": ("url",), "find_in_page": ("url", "pattern")}
"""Of a search in the web; an upstream may have others."""
_WORKING: Final = ("in_progress", "calling", "searching")


def items_of_turn(turn_id: str, responses: Sequence[tuple[Sequence[Item], Sequence[Item], bool]], *, has_ended: bool) -> list[Item]:
    """All items of a turn, in order. ``responses`` are the input and the output of each, and whether it ended with an answer.
    ``has_ended``: a function that has no result by now will have none."""
    calls = {item["call_id"] for _, output, _ in responses for item in output if item["type"] == "function_call"}
    results = {item["call_id"]: item for given, _, _ in responses for item in given if item["type"] == _OUTPUT}
    unanswered = calls - results.keys() if has_ended else set()
    found: list[Item] = []
    for given, output, has_answered in responses:
        found += [shown for item in given if (shown := of_input(turn_id, item, calls)) is not None]
        known = [item | {"status": "incomplete"} if item.get("call_id") in unanswered else item for item in output]
        found += _of_output(turn_id, known, results, has_answered=has_answered)
    return found


def of_input(turn_id: str, item: Item, calls: Iterable[str]) -> Item | None:
    """A message of the user, or a function's result; None for a result of another turn's call."""
    if item["type"] == "message" and item["role"] == "user":
        return user_message(turn_id, item)
    if item["type"] == _OUTPUT and item["call_id"] in calls:
        return function_result(turn_id, item)
    return None


def user_message(turn_id: str, item: Item) -> Item:
    content = item["content"]
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else [_input_part(part) for part in content]
    shown = {"id": item["id"], "type": "message", "role": "user", "status": "completed", "phase": None}
    return {**shown, "content": parts, "turn_id": turn_id}


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "input_text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part.get("image_url")}


def function_result(turn_id: str, item: Item) -> Item:
    has_failed = item.get("status") == "incomplete"
    return {
        "id": item["id"],
        "type": _OUTPUT,
        "call_id": item["call_id"],
        "output": None if has_failed else item["output"],
        "error": item["output"] if has_failed else None,
        "status": "failed" if has_failed else "completed",
        "turn_id": turn_id,
    }


def _of_output(turn_id: str, output: Sequence[Item], results: Mapping[str, Item], *, has_answered: bool) -> list[Item]:
    outputs = {item["call_id"]: item for item in output if item["type"] in ("shell_call_output", SEEN)}
    found: list[Item] = []
    for position, item in enumerate(output):
        match item["type"]:
            case "message":
                found.append(message(turn_id, item, phase_of(item, output[position + 1 :], has_answered=has_answered)))
            case "function_call":
                found.append(function_call(turn_id, item, results.get(item["call_id"])))
            case "shell_call":
                found += commands(turn_id, item, outputs.get(item["call_id"]))
            case "computer_call":
                found.append(computer_call(turn_id, item, outputs.get(item["call_id"])))
            case _:
                shown = simple(turn_id, item)
                found += [] if shown is None else [shown]
    return found


def phase_of(item: Item, behind: Sequence[Item], *, has_answered: bool) -> Phase | None:
    """What a message is: the model says so, or what stands behind it."""
    said: Phase | None = item.get("phase")
    if said is not None or item.get("status") != "completed":
        return said
    if any(each["type"] != "message" for each in behind):
        return "commentary"
    return "final_answer" if has_answered else None


def message(turn_id: str, item: Item, phase: Phase | None) -> Item:
    parts = [{"type": "output_text", "text": text_of(part)} for part in item["content"]]
    shown = {"id": item["id"], "type": "message", "role": "assistant", "status": item["status"], "phase": phase}
    return {**shown, "content": parts, "turn_id": turn_id}


def text_of(part: Mapping[str, Any]) -> str:
    """Of a part that a model has said; a refusal is its words."""
    text: str = part.get("text") or part.get("refusal") or ""
    return text


def function_call(turn_id: str, item: Item, result: Item | None) -> Item:
    """It is in progress until its result is there."""
    status = "in_progress"
    if result is not None or item.get("status") == "incomplete":
        status = "incomplete" if result is None else "failed" if result.get("status") == "incomplete" else "completed"
    return {
        "id": item["id"],
        "type": "function_call",
        "name": item["name"],
        "call_id": item["call_id"],
        "arguments": _value(item["arguments"]),
        "status": status,
        "turn_id": turn_id,
    }


def _value(arguments: str) -> Any:
    """JSON, or the text that should have been some."""
    value = parsed(arguments)
    return arguments if value is None and arguments.strip() != "null" else value


def command_id(call: Item, index: int) -> str:
    return f"cmd_{call['id'].rpartition('_')[2]}_{index}"


def commands(turn_id: str, call: Item, output: Item | None) -> list[Item]:
    """One item for each command of a shell's call; those without an output have not ended, or never will."""
    ended = [] if output is None else output["output"]
    status = "in_progress" if output is None and call.get("status") != "incomplete" else "incomplete"
    shown = []
    for index, command in enumerate(call["action"]["commands"]):
        end = ended[index] if index < len(ended) else None
        shown.append(
            {
                "id": command_id(call, index),
                "type": "command_execution",
                "command": command,
                "cwd": None,
                "duration_ms": None,
                **(_no_end(status) if end is None else _end(end)),
                "turn_id": turn_id,
            }
        )
    return shown


def _no_end(status: str) -> dict[str, Any]:
    return {"exit_code": None, "output": None, "status": status}


def _end(end: Mapping[str, Any]) -> dict[str, Any]:
    exit_code = end["outcome"].get("exit_code")
    return {
        "exit_code": exit_code,
        "output": f"{end['stdout']}{end['stderr']}",
        "status": "completed" if exit_code == 0 else "failed",
    }


def computer_call(turn_id: str, call: Item, output: Item | None) -> Item:
    """What a browser was told to do, with its last picture; null where the agent includes none. The page's title stands for it."""
    status = "in_progress" if output is None and call.get("status") != "incomplete" else "incomplete"
    picture, title = None, None
    if output is not None:
        status = "completed" if output.get("status") == "completed" else "failed"
        image_url = output["output"].get("image_url")
        picture = None if image_url is None else {"type": "computer_screenshot", "image_url": image_url}
        title = (output.get("page") or {}).get("title") or None
    return {"id": call["id"], "type": "computer_use_call", "title": title, "output": picture, "status": status, "turn_id": turn_id}


def simple(turn_id: str, item: Item) -> Item | None:
    """One that is an item by itself; None if the Agents API has no type for it."""
    match item["type"]:
        case "reasoning":
            summary = [{"type": "summary_text", "text": part["text"]} for part in item.get("summary", ())]
            return {
                "id": item["id"],
                "type": "reasoning",
                "summary": summary,
                "status": item.get("status") or "completed",
                "turn_id": turn_id,
            }
        case "mcp_call":
            return {
                "id": item["id"],
                "type": "mcp_call",
                "server_label": item["server_label"],
                "name": item["name"],
                "arguments": _value(item["arguments"]),
                "output": item.get("output"),
                "error": item.get("error"),
                "status": "in_progress" if item.get("status") in _WORKING else item.get("status") or "completed",
                "turn_id": turn_id,
            }
        case "automation_call":
            return {
                "id": item["id"],
                "type": "mcp_call",
                "server_label": "moorage",
                "name": "automations",
                "arguments": _value(item["arguments"]),
                "output": item.get("output"),
                "error": item.get("error"),
                "status": item["status"],
                "turn_id": turn_id,
            }
        case "web_search_call":
            status = item.get("status")
            return {
                "id": item["id"],
                "type": "web_search_call",
                "action": _action(item.get("action")),
                "status": "in_progress" if status in _WORKING else "completed" if status == "completed" else "incomplete",
                "turn_id": turn_id,
            }
    return None


def _action(action: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if action is None:
        return None
    fields = _ACTIONS.get(action["type"])
    return {"type": "other"} if fields is None else {"type": action["type"], **{name: action.get(name) for name in fields}}
