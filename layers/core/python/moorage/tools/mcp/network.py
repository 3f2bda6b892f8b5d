"""Asking a person for a way out of the container, in the form of a call: nothing runs, and the proxy lets pass what was allowed.

    {"type": "mcp_approval_request", "id", "server_label": "moorage://network", "name": "allow_host", "arguments": "{\\"host\\": ...}"}
    {"type": "mcp_call", "id", "approval_request_id", "status", "output", "error", ...}   if it waited in its place, and was decided

The model reads what was decided as a note: it has called nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage.egress.policy import EgressOpening
from moorage.tools import approval_items
from moorage.tools.function_items import message, parsed
from moorage.tools.room import InputWriter
from moorage.wire.types import Item

LABEL: Final = f"{approval_items.OURS}network"
_NAMES: Final = {"host": "allow_host", "secret": "use_secret"}


class NetworkApprovals:
    """As other rooms that ask in this form."""

    label = LABEL

    def read_denied(self, request: Item, words: str, reader: InputWriter) -> list[Item]:
        opening = opening_of(request)
        said = words.partition("They say: ")[2]
        return [] if opening is None else _note(denied(opening, f"They say: {said}" if said else ""))


def question(opening: EgressOpening) -> Item:
    return approval_items.request(LABEL, _NAMES[opening.kind], {opening.kind: opening.name})


def decided(opening: EgressOpening, approval_id: str, denial: str | None) -> Item:
    """The item with the result of a question that waited in its place; ``denial`` is the reason of a refusal."""
    what = {"type": "mcp_call", "server_label": LABEL, "name": _NAMES[opening.kind], "arguments": question(opening)["arguments"]}
    error = None if denial is None else {"type": "mcp_protocol_error", "code": -32603, "message": denied(opening, denial)}
    return {
        **what,
        "approval_request_id": approval_id,
        "status": "completed" if denial is None else "failed",
        "output": allowed(opening) if denial is None else None,
        "error": error,
    }


def opening_of(item: Item) -> EgressOpening | None:
    """The subject of one of these items; None for all others, and for a client's invention."""
    if item.get("server_label") != LABEL:
        return None
    value = parsed(item["arguments"])
    for kind, name in (("host", "allow_host"), ("secret", "use_secret")):
        if item["name"] == name and isinstance(value, dict) and isinstance(value.get(kind), str):
            return EgressOpening("host" if kind == "host" else "secret", value[kind])
    return None


def allowed_by(said: Iterable[Item], items: Iterable[Item]) -> Iterator[EgressOpening]:
    """The allowed hosts and secrets among ``said``, of the questions in ``items``."""
    there = approval_items.asked(items, LABEL)
    for item in approval_items.responses(said):
        opening = opening_of(there.get(item["approval_request_id"], {}))
        if item["approve"] and opening is not None:
            yield opening


def read(item: Item) -> list[Item]:
    error: Any = item.get("error")
    return _note(str(error["message"]) if isinstance(error, dict) else item.get("output") or "")


def read_allowed(request: Item) -> list[Item]:
    opening = opening_of(request)
    return [] if opening is None else _note(allowed(opening))


def allowed(opening: EgressOpening) -> str:
    return f"{what(opening)} has been allowed: run again what needs it."


def denied(opening: EgressOpening, said: str) -> str:
    return f"{what(opening)} was not allowed. {said}".strip()


def what(opening: EgressOpening) -> str:
    """The question, in words."""
    return f"Network access to '{opening.name}'" if opening.kind == "host" else f"The use of the secret '{opening.name}'"


def _note(words: str) -> list[Item]:
    return [message("user", f"[{words}]")]
