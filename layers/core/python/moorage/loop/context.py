"""The model's input: the chain's items, then this request's, then this response's output so far.

Items are only ever appended, in this order. So the rendered input of a step is an exact prefix of the next step's, as prompt caching
needs it. Items that were left open when something broke are not part of it.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from moorage.errors import bad_request, duplicate_item
from moorage.tools.capabilities import RunsInContainer, TrimsContext
from moorage.tools.multi_agent.room import AgentTeam
from moorage.tools.registry import ROOMS
from moorage.tools.room import CallRunner
from moorage.wire.item import program_of
from moorage.wire.types import Item

OUTPUT_OF: Final = ROOMS.output_of
"""Which item answers which call."""

_OPEN: Final = ("incomplete", "in_progress", "interpreting")
"""Statuses of items that are not whole."""


def _call_of(output: str) -> str | None:
    """The type of call that this type of item answers."""
    room = ROOMS.of_item(output)
    return room.call_type if room is not None and room.output_type == output else None


def output_items(output: Iterable[Item], *, is_cut: bool = False) -> list[Item]:
    """The items of a response that count for later ones: whole ones.

    If the response ended at a limit (``is_cut``), the text so far of its last message counts too: a user may ask to go on.
    """
    items = list(output)
    return [
        item
        for position, item in enumerate(items, 1)
        if item.get("status") not in _OPEN or (is_cut and position == len(items) and item["type"] == "message" and item["content"])
    ]


_CLIENTS_CALLS: Final = ("function_call", "custom_tool_call")
_FROM_OUTSIDE: Final = ("user", "developer", "system")
_DELETED_OUTPUT: Final = "The output of this call was deleted."


def final_output(items: Iterable[Item], *, is_cut: bool = False) -> list[Item]:
    """The output of a response that has ended, without broken calls for the client: clients would run them all the same.

    If the response ended at a limit (``is_cut``), the call that it ended in stays, as in OpenAI's API.
    """
    return [item for item in items if is_cut or item["type"] not in _CLIENTS_CALLS or item.get("status") != "incomplete"]


def own_items(done: Mapping[int, Item]) -> list[Item]:
    """A running response's finished items, in output order."""
    return output_items(done[index] for index in sorted(done))


def answer_orphans(items: list[Item]) -> list[Item]:
    """Give every hosted call without an output (cancelled, failed) one that says so. Leave out outputs of calls that went with a
    deleted response.

    Every model provider refuses the one without the other. Only items of earlier responses can be orphans. A call that goes on when the
    client has answered is none while the client has something to answer.
    """
    if not _has_rooms(items):
        return list(items)
    answered = {(call, item.get("call_id")) for item in items if (call := _call_of(item["type"])) is not None}
    decided = {item.get("approval_request_id") for item in items}
    waits = any(
        item.get("id") not in decided
        if ROOMS.of_question(item["type"]) is not None
        else _is_clients(item) and not item.get("async") and (item["type"], item.get("call_id")) not in answered
        for item in items
    )
    asked: set[tuple[str, str | None]] = set()
    repaired: list[Item] = []
    for item in items:
        if item["type"] in OUTPUT_OF:
            asked.add((item["type"], item.get("call_id")))
        elif (call := _call_of(item["type"])) is not None and (call, item.get("call_id")) not in asked:
            continue
        repaired.append(item)
        room = ROOMS.hosted(item["type"])
        if room is not None and (room.call_type, item.get("call_id")) not in answered and not (room.may_stay_open(item) and waits):
            orphaned = room.missing_output(item)
            repaired += [] if orphaned is None else [orphaned]
    return repaired


def answer_deleted(items: Sequence[Item], then: Iterable[Item]) -> list[Item]:
    """Give a substitute output to each function call that lost its own with a deleted response.

    ``then`` are the items behind these: a client may answer the call itself.
    """
    answered = {(item["type"], item.get("call_id")) for each in (items, then) for item in each}
    repaired: list[Item] = []
    for item in items:
        repaired.append(item)
        output = OUTPUT_OF.get(item["type"]) if item["type"] in _CLIENTS_CALLS and not item.get("async") else None
        if output is not None and (output, item["call_id"]) not in answered:
            repaired.append({"type": output, "call_id": item["call_id"], "output": _DELETED_OUTPUT})
    return repaired


def _has_rooms(items: Iterable[Item]) -> bool:
    """Whether any is a call, an output, or another item of a tool. Hundreds of messages are told from that by a few questions."""
    return any(ROOMS.of_item(kind) is not None for kind in {item["type"] for item in items})


def _is_clients(item: Item) -> bool:
    """Whether it is a call that the client answers."""
    room = ROOMS.of_call(item["type"])
    return room is not None and room.output_type is not None and room.call_runner(item) is CallRunner.CLIENT


def check_calls(items: Sequence[Item], chain: Sequence[Item] = ()) -> None:
    """Calls and outputs must belong together, as the OpenAI API demands of ``input``; ``chain`` are the items before it.

    Raises 400 for an output without its call, a client's call without its output that is not ``async``, and an item with a used id.
    Two items of the chain may share one: a request that was sent twice leaves them so, and nobody could go on from there otherwise.
    """
    taken = {item["id"] for item in chain if "id" in item}
    for item in items:
        if item.get("id") in taken:
            raise duplicate_item("input", item["id"])
        if "id" in item:
            taken.add(item["id"])
    calls: dict[tuple[str, str], Item] = {}
    answered: set[tuple[str, str]] = set()
    for item in (*chain, *items):
        type_ = item["type"]
        call_id = item.get("call_id")
        if call_id is None:
            continue
        if type_ in OUTPUT_OF:
            calls[(type_, call_id)] = item
        elif (call := _call_of(type_)) is not None:
            key = (call, call_id)
            if key not in calls:
                raise bad_request(f"No tool call found for {type_.replace('_', ' ')} with call_id {call_id}.", param="input")
            answered.add(key)
    for key, call_item in calls.items():
        room = ROOMS.hosted(key[0])
        if key not in answered and not call_item.get("async") and not (room is not None and room.may_stay_open(call_item)):
            raise bad_request(f"No tool output found for {key[0].replace('_', ' ')} {key[1]}.", param="input")


def answered_at_once(items: Sequence[Item]) -> Sequence[Item]:
    """A conversation in which each output of the client stands before the messages that came while its call was open, as model
    providers want it. An output of an ``async`` call is such a message.

    An agent of a team that was interrupted goes on with a task, without an output. Its function's call then is as one that is
    ``async``: an output that comes later is a message. Another call is left out, with its output.
    """
    if not _has_rooms(items) or not any(map(_is_clients, items)):
        return items
    waiting: dict[str, int] = {}
    places = {item.get("call_id"): place for place, item in enumerate(items) if _call_of(item["type"]) is not None}
    spoke, latest = [], -1
    for place, item in enumerate(items):
        latest = place if item.get("role") == "assistant" or ROOMS.of_call(item["type"]) is not None else latest
        spoke.append(latest)
    found: dict[int, Item] = {}
    gone: set[int] = set()
    order: list[int] = []
    left_open: set[str] = set()
    for place, item in enumerate(items):
        is_late = item.get("call_id") in left_open
        if is_late or item.get("role") in _FROM_OUTSIDE or item["type"] == AgentTeam.message_type:
            for call_id, called in waiting.items():
                output = places.get(call_id, -1)
                if output > place and spoke[output] < place:
                    order.append(output)
                    gone.add(output)
                elif items[called]["type"] in _CLIENTS_CALLS:
                    found[called] = items[called] | {"async": True}
                else:
                    gone |= {called, output}
                    order.remove(called)
            waiting.clear()
        elif _is_clients(item) and not item.get("async") and program_of(item) is None:
            waiting[item["call_id"]] = place
        elif item.get("async"):
            left_open.add(item["call_id"])
        elif _call_of(item["type"]) is not None:
            waiting.pop(item.get("call_id", ""), None)
        if place not in gone:
            order.append(place)
    return [found.get(place, items[place]) for place in order] if gone or found else items


def trimmed(items: Sequence[Item]) -> list[Item]:
    """A conversation without the parts that the rooms leave out of older items."""
    for room in dict.fromkeys(map(ROOMS.of_item, dict.fromkeys(item["type"] for item in items))):
        if isinstance(room, TrimsContext):
            items = room.trim_context(items)
    return list(items)


def tools_of(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Tools that joined the conversation on the way."""
    return [tool for item in items if item["type"] in ("additional_tools", "tool_search_output") for tool in item.get("tools") or ()]


def container_of(items: Iterable[Item], *, but: Container[str] = ()) -> str | None:
    """The container that the chain used last, ``but`` for these; ``container_auto`` goes on with it."""
    found = None
    for item in items:
        room = ROOMS.of_call(item["type"])
        used = room.container_id(item) if isinstance(room, RunsInContainer) else None
        found = found if used is None or used in but else used
    return found
