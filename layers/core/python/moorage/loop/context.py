"""The model's input: the chain's items, then this request's, then what this response has made so far.

Items are only ever appended, in this order, so that the rendered input of a step is an exact prefix of the next step's: that is
what makes prompt caching work. Items that were left open when something broke are not part of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moorage.errors import bad_request, duplicate_item
from moorage.model.base import Item

OUTPUT_OF: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "tool_search_call": "tool_search_output",
}
"""Which item answers which call."""

_OPEN: Final = ("incomplete", "in_progress", "interpreting")
"""Statuses of items that are not whole."""

_CALL_OF: Final = {output: call for call, output in OUTPUT_OF.items()}


def output_items(output: Iterable[Item], *, is_cut: bool = False) -> list[Item]:
    """The items of a response that count for what comes after it: whole ones.

    If the response ended at a limit (``is_cut``), so does what its last message says so far: a user may ask to go on.
    """
    items = list(output)
    return [
        item
        for position, item in enumerate(items, 1)
        if item.get("status") not in _OPEN
        or (is_cut and position == len(items) and item["type"] == "message" and item["content"])
    ]


def own_items(done: Mapping[int, Item]) -> list[Item]:
    """A running response's finished items, in output order."""
    return output_items(done[index] for index in sorted(done))


def answer_orphans(items: list[Item]) -> list[Item]:
    """Give every hosted call that never got its output (cancelled, failed) one that says so, and leave out what answers a call that is
    not there any more, because its response was deleted.

    Every model provider refuses the one without the other. Only items of earlier responses can be orphans.
    """
    answered = {item.get("call_id") for item in items if item["type"] == "shell_call_output"}
    asked: set[tuple[str, str | None]] = set()
    repaired: list[Item] = []
    for item in items:
        if item["type"] in OUTPUT_OF:
            asked.add((item["type"], item.get("call_id")))
        elif item["type"] in _CALL_OF and (_CALL_OF[item["type"]], item.get("call_id")) not in asked:
            continue
        repaired.append(item)
        if (
            item["type"] == "shell_call"
            and item["call_id"] not in answered
            and (item.get("environment") or {}).get("type") == "container_reference"
        ):
            repaired.append(
                {
                    "type": "shell_call_output",
                    "call_id": item["call_id"],
                    "status": "incomplete",
                    "max_output_length": None,
                    "output": [
                        {
                            "stdout": "",
                            "stderr": "The response ended before this command did; its output was not kept.",
                            "outcome": {"type": "timeout"},
                        }
                    ],
                }
            )
    return repaired


def check_calls(items: Sequence[Item], chain: Sequence[Item] = ()) -> None:
    """Calls and outputs must belong together, as the OpenAI API demands of ``input``; ``chain`` are the items before it.

    Raises 400 for an output without its call, for a client's call without its output, and for an item whose id is taken. Two items
    of the chain may share one: a request that was sent twice leaves them so, and nobody could go on from there otherwise.
    """
    taken = {item["id"] for item in chain if "id" in item}
    for item in items:
        if item.get("id") in taken:
            raise duplicate_item("input", item["id"])
        if "id" in item:
            taken.add(item["id"])
    calls: dict[tuple[str, str], str] = {}
    answered: set[tuple[str, str]] = set()
    for item in (*chain, *items):
        type_ = item["type"]
        call_id = item.get("call_id")
        if call_id is None:
            continue
        if type_ in OUTPUT_OF:
            calls[(type_, call_id)] = type_
        elif type_ in _CALL_OF:
            key = (_CALL_OF[type_], call_id)
            if key not in calls:
                raise bad_request(
                    f"No tool call found for {type_.replace('_', ' ')} with call_id {call_id}.", param="input"
                )
            answered.add(key)
    for key, type_ in calls.items():
        if key not in answered:
            raise bad_request(f"No tool output found for {type_.replace('_', ' ')} {key[1]}.", param="input")


def tools_of(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Tools that joined the conversation on the way."""
    return [tool for item in items if item["type"] in ("additional_tools", "tool_search_output") for tool in item.get("tools") or ()]


def container_of(items: Iterable[Item]) -> str | None:
    """The container that the chain used last, which ``container_auto`` goes on with."""
    found = None
    for item in items:
        if item["type"] == "shell_call":
            environment: dict[str, Any] = item.get("environment") or {}
            found = environment.get("container_id", found)
        elif item["type"] == "code_interpreter_call":
            found = item.get("container_id", found)
    return found
