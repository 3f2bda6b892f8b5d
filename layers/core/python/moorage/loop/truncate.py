"""``truncation``: what happens to an input that is longer than the model's context window.

``disabled`` refuses it with both numbers, ``auto`` leaves out the oldest items. Never left out: system and developer messages, the
last user message and what follows it; and a call is never parted from its output, nor reasoning from what it led to. The count is
an estimate (``model/tokens.py``), so a refusal wants a clear excess: what is only a little over is left to the model's provider,
who counts exactly.
"""

from collections.abc import Sequence
from typing import Final

from moorage import limits
from moorage.errors import context_length_exceeded
from moorage.loop.context import OUTPUT_OF
from moorage.model.tokens import at_most, estimate_item
from moorage.tools.capabilities import KeepsItems
from moorage.tools.registry import ROOMS
from moorage.wire.types import Item

_OUTPUTS: Final = frozenset(OUTPUT_OF.values())


def fit(items: Sequence[Item], *, frame_tokens: int, window_tokens: int, output_tokens: int | None, is_auto: bool) -> list[Item]:
    """The items that go to the model. Raises :class:`~moorage.errors.UpstreamError` (``context_length_exceeded``) when they are
    too many and none may be left out.

    ``frame_tokens`` are those of instructions and tools, ``output_tokens`` those that the answer may take; without a number a
    quarter of the window is kept free for it.
    """
    quarter = window_tokens // 4
    room = window_tokens - min(quarter if output_tokens is None else output_tokens, quarter)
    if frame_tokens + at_most(items) <= room:
        return list(items)
    costs = [estimate_item(item) for item in items]
    total = frame_tokens + sum(costs)
    if not is_auto:
        if total > window_tokens * limits.TRUNCATION_EXCESS:
            raise context_length_exceeded(window_tokens, total)
        return list(items)
    if total <= room:
        return list(items)
    last_user = max((i for i, item in enumerate(items) if item.get("role") == "user"), default=0)
    kept: list[Item] = []
    end = 0
    for cut in (cut for cut in cuts(items) if cut <= last_user):
        for item, cost in zip(items[end:cut], costs[end:cut], strict=True):
            if stays(item):
                kept.append(item)
            else:
                total -= cost
        end = cut
        if total <= room:
            return [*kept, *items[cut:]]
    raise context_length_exceeded(window_tokens, frame_tokens + sum(costs))


def stays(item: Item) -> bool:
    """Items that are never left out, however old they are."""
    if item["type"] in ("additional_tools", "compaction") or item.get("role") in ("system", "developer"):
        return True
    room = ROOMS.of_item(item["type"])
    return isinstance(room, KeepsItems) and room.survives_truncation(item)


def cuts(items: Sequence[Item]) -> list[int]:
    """The possible cuts of the beginning, the shortest first."""
    found: list[int] = []
    unanswered: set[str | None] = set()
    for end, item in enumerate(items, 1):
        if item["type"] in OUTPUT_OF and not item.get("async"):
            unanswered.add(item.get("call_id"))
        elif item["type"] in _OUTPUTS:
            unanswered.discard(item.get("call_id"))
        if not unanswered and item["type"] != "reasoning":
            found.append(end)
    return found
