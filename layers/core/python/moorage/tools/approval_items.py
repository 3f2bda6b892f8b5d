"""Asking a person in OpenAI's form, for calls of tools that are no server's: the same items, under a label that no server can have.

    {"type": "mcp_approval_request", "id", "server_label": "moorage://shell", "name", "arguments"}     the response ends with it
    {"type": "mcp_approval_response", "approval_request_id", "approve", "reason"}                      the client's, in the next request

The call that was allowed bears the request's id, as its ``call_id`` or its ``approval_request_id``, and so it is known to have run.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from moorage.tools.calls import CallApproval
from moorage.tools.capabilities import Stage
from moorage.tools.function_items import compact_json
from moorage.tools.room import InputWriter
from moorage.wire.types import Item

REQUEST: Final = "mcp_approval_request"
RESPONSE: Final = "mcp_approval_response"
OURS: Final = "moorage://"


class ApprovalAsker(Protocol):
    """A room that asks in this form."""

    @property
    def label(self) -> str: ...

    def read_denied(self, request: Item, words: str, reader: InputWriter) -> list[Item]:
        """The model's text for a call that was not allowed."""
        ...


def request(label: str, name: str, arguments: Any) -> Item:
    return {"type": REQUEST, "server_label": label, "name": name, "arguments": compact_json(arguments)}


def responses(items: Iterable[Item]) -> Iterator[Item]:
    return (item for item in items if item["type"] == RESPONSE)


def verdict(item: Item) -> CallApproval | None:
    if item["type"] != RESPONSE:
        return None
    return CallApproval(item["approval_request_id"], item["approve"], item.get("reason") or "")


def asked(items: Iterable[Item], label: str | None = None) -> dict[str, Item]:
    """The requests by their ids; with ``label`` those under it."""
    return {item["id"]: item for item in items if item["type"] == REQUEST and label in (None, item["server_label"])}


def is_allowed(call_id: str, said: Iterable[Item]) -> bool:
    """Whether a call stands for a request that ``said`` allows."""
    return any(item["approve"] and item["approval_request_id"] == call_id for item in responses(said))


def run_ids(items: Iterable[Item]) -> frozenset[str]:
    """The ids of the requests with a call."""
    calls = (item for item in items if item["type"] != RESPONSE)
    return frozenset(item[field] for item in calls for field in ("call_id", "approval_request_id") if item.get(field) is not None)


def due(items: Sequence[Item], chain: Sequence[Item], label: str) -> Iterator[tuple[str, Item]]:
    """The requests under a label that answers among the items allow, and that have not run; each behind the field that names it."""
    answers = [(index, item["approval_request_id"]) for index, item in enumerate(items) if item["type"] == RESPONSE and item["approve"]]
    if not answers:
        return
    there, ran = asked((*chain, *items), label), run_ids(items)
    for index, request_id in answers:
        if request_id in there and request_id not in ran:
            yield f"input[{index}].approval_request_id", there[request_id]


def allowed(stage: Stage, label: str) -> list[Item]:
    """The requests under a label that this request allows and that have not run, in the order of the approvals."""
    there = asked(stage.items, label)
    ran = run_ids((*stage.own_input, *stage.made))
    return [
        there[item["approval_request_id"]]
        for item in responses(stage.own_input)
        if item["approve"] and item["approval_request_id"] in there and item["approval_request_id"] not in ran
    ]
