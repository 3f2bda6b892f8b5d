"""What follows a model step: a pure decision over what the model said."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from moorage import limits
from moorage.model.base import Finished, Item
from moorage.state import Next
from moorage.wire.responses import Status

CLIENT_CALLS: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "apply_patch_call",
        "computer_call",
        "tool_search_call",
        "mcp_approval_request",
    }
)
"""Calls that the client answers: the response ends with them."""


def is_hosted(item: Item) -> bool:
    """True for a call that runs here."""
    if item["type"] == "shell_call":
        environment: Mapping[str, Any] = item.get("environment") or {}
        return environment.get("type") == "container_reference"
    return bool(item["type"] == "code_interpreter_call")


def is_for_client(item: Item) -> bool:
    return item["type"] in CLIENT_CALLS or (item["type"] == "shell_call" and not is_hosted(item))


@dataclass(frozen=True, slots=True)
class Decision:
    next: Next
    hosted: tuple[int, ...] = ()
    """Output indexes of the calls that run."""
    refused: tuple[int, ...] = ()
    """Output indexes of hosted calls that do not run any more: over a bound."""
    is_last: bool = False
    status: Status = "completed"
    incomplete_reason: str | None = None


def after_model(
    items: Mapping[int, Item], finished: Finished | None, *, calls_made: int, max_tool_calls: int | None
) -> Decision:
    """``items`` are the step's finished items by output index; ``finished`` is None when the upstream broke off.

    Of a step that is taken over they may hold outputs too: calls that were refused are settled.
    """
    answered = {item["call_id"] for item in items.values() if item["type"].endswith("_output")}
    unsettled = {index: item for index, item in items.items() if not _is_settled(item, answered)}
    hosted = [index for index in sorted(unsettled) if is_hosted(unsettled[index])]
    for_client = any(is_for_client(item) for item in unsettled.values())
    if finished is not None and finished.is_cut:
        return Decision(Next.DONE, refused=tuple(hosted), status="incomplete", incomplete_reason=finished.reason)
    if hosted:
        budget = limits.CALLS_PER_ROUND_MAX
        if max_tool_calls is not None:
            budget = min(budget, max(0, max_tool_calls - calls_made))
        run, refused = tuple(hosted[:budget]), tuple(hosted[budget:])
        if run:
            return Decision(Next.TOOLS, hosted=run, refused=refused, is_last=for_client)
        return Decision(Next.DONE if for_client else Next.MODEL, refused=refused)
    if finished is None and not for_client and not _ends_with_answer(items):
        return Decision(Next.MODEL)  # Broken off with nothing to act on: ask again.
    return Decision(Next.DONE)


def _is_settled(call: Item, answered: Set[str]) -> bool:
    """Whether a call has its output, which a ``code_interpreter_call`` holds itself."""
    if call["type"] == "code_interpreter_call":
        return call.get("status") in ("completed", "failed")
    return call.get("call_id") in answered


def _ends_with_answer(items: Mapping[int, Item]) -> bool:
    if not items:
        return False
    last = items[max(items)]
    return bool(last["type"] == "message") and last["status"] == "completed" and last.get("phase") != "commentary"


def tool_choice_of(requested: str | dict[str, Any], *, step: int, calls_made: int, max_tool_calls: int | None) -> Any:
    """A forced choice holds for the first step only, or the loop would never end; no calls are left over the maximum."""
    if max_tool_calls is not None and calls_made >= max_tool_calls:
        return "none"
    if step == 0 or requested in ("auto", "none"):
        return requested
    if isinstance(requested, dict) and requested.get("type") == "allowed_tools":
        return requested | {"mode": "auto"}
    return "auto"
