"""The next step after a model step: a pure decision over the model's items."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.model.base import StreamFinished
from moorage.state import Next
from moorage.tools.capabilities import RunsInContainer
from moorage.tools.registry import ROOMS
from moorage.tools.room import CallRunner, HostedTool, Room
from moorage.wire.responses import Status
from moorage.wire.types import Item, Tool

_HOSTED: Final = frozenset({CallRunner.SANDBOX, CallRunner.SERVICE})


def where(item: Item) -> CallRunner | None:
    """The runner of a call; None for another item."""
    room = ROOMS.of_call(item["type"])
    return None if room is None else room.call_runner(item)


def where_tool(tool: Tool) -> CallRunner | None:
    """The runner of a tool's calls."""
    room = ROOMS.of_tool(tool["type"])
    return None if room is None else room.call_runner(tool)


def is_hosted(item: Item) -> bool:
    """True for a call that runs here."""
    return where(item) in _HOSTED


def is_own(item: Item) -> bool:
    """True for a call that the model step settles which made it."""
    return where(item) is CallRunner.STEP


def is_upstreams(item: Item, own_container: str | None) -> bool:
    """True for a call that the model's upstream runs: in a container, but not in the response's own."""
    room = ROOMS.of_call(item["type"])
    return isinstance(room, RunsInContainer) and is_hosted(item) and room.container_id(item) not in (None, own_container)


def is_for_client(item: Item) -> bool:
    """True for items that the client answers: the response ends with them. Half a call has no answer, and that of an ``async``
    call comes later."""
    if item.get("status") == "incomplete" or item.get("async"):
        return False
    return ROOMS.of_question(item["type"]) is not None or where(item) is CallRunner.CLIENT


@dataclass(frozen=True, slots=True)
class LoopDecision:
    next: Next
    hosted: tuple[int, ...] = ()
    """Output indexes of the calls that run."""
    refused: tuple[int, ...] = ()
    """Output indexes of hosted calls that do not run any more: over a bound."""
    own: tuple[int, ...] = ()
    """Output indexes of the calls that the step itself settles, or that an earlier run of it has settled."""
    is_last: bool = False
    goes_on: bool = False
    """The model goes on while calls of the client are open."""
    status: Status = "completed"
    incomplete_reason: str | None = None


def without_calls(decision: LoopDecision) -> LoopDecision:
    """The same, but none of the calls runs."""
    refused = tuple(sorted((*decision.hosted, *decision.refused)))
    return replace(decision, next=Next.DONE if decision.is_last else Next.MODEL, hosted=(), refused=refused, is_last=False)


def after_model(
    items: Mapping[int, Item],
    finished: StreamFinished | None,
    *,
    calls_made: int,
    max_tool_calls: int | None,
    own_container: str | None,
    broke_inside: bool = False,
) -> LoopDecision:
    """``items`` are the step's finished items by output index; ``finished`` is None when the upstream broke off.

    ``broke_inside``: it did so, or may have done so, in the middle of an item, which may have been a call that only shows when it is
    whole. A message before it is an announcement, and no answer.

    Of a step that is taken over the items may hold outputs too: calls that were refused are settled.
    """
    answered = {item["call_id"] for item in items.values() if item["type"].endswith("_output")}
    hosted: list[int] = []
    own: list[int] = []
    for_client = goes_on = False
    rooms = {type_: _room(type_) for type_ in {item["type"] for item in items.values()}}
    for index in sorted(items):  # There may be 10,000 calls: each is looked at once.
        item = items[index]
        room, holder = rooms[item["type"]]
        runner = None if room is None else room.call_runner(item)
        is_settled = item.get("call_id") in answered if holder is None else holder.is_settled(item)
        if runner is not CallRunner.STEP and is_settled:
            continue
        for_client = for_client or is_for_client(item)
        goes_on = goes_on or (item.get("async") is True and item.get("status") == "completed")
        if runner in _HOSTED and not is_upstreams(item, own_container):
            hosted.append(index)
        elif runner is CallRunner.STEP:
            own.append(index)
    if finished is not None and finished.is_cut:
        return LoopDecision(Next.DONE, refused=(*hosted, *own), status="incomplete", incomplete_reason=finished.reason)
    if hosted or own:
        budget = limits.CALLS_PER_ROUND_MAX
        if max_tool_calls is not None:
            budget = min(budget, max(0, max_tool_calls - calls_made))
        run, refused = _within_bounds(hosted, items, budget)
        settled, others = tuple(own[: limits.CALLS_PER_ROUND_MAX]), own[limits.CALLS_PER_ROUND_MAX :]
        refused = (*refused, *others)
        if run:
            return LoopDecision(Next.TOOLS, hosted=run, refused=refused, own=settled, is_last=for_client)
        return LoopDecision(Next.DONE if for_client else Next.MODEL, refused=refused, own=settled)
    if goes_on and not for_client:
        return LoopDecision(Next.MODEL, goes_on=True)
    if finished is None and not for_client and (broke_inside or not _ends_with_answer(items)):
        return LoopDecision(Next.MODEL)  # Broken off with nothing to act on: ask again.
    return LoopDecision(Next.DONE)


def _within_bounds(hosted: Sequence[int], items: Mapping[int, Item], budget: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The calls that run, and the refused ones: over ``budget``, or over their tool's limit for one round."""
    run: list[int] = []
    made: Counter[str] = Counter()
    for index in hosted:
        type_ = items[index]["type"]
        room = ROOMS.hosted(type_)
        assert room is not None
        made[type_] += 1
        if len(run) < budget and made[type_] <= room.call_limits.calls_per_round:
            run.append(index)
    runs = set(run)
    return tuple(run), tuple(index for index in hosted if index not in runs)


def _room(type_: str) -> tuple[Room | None, HostedTool | None]:
    """The room of calls of this type, twice if they hold their outputs themselves. To ask whether it is a hosted tool takes long."""
    room = ROOMS.of_call(type_)
    return room, room if isinstance(room, HostedTool) and room.output_type is None else None


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
