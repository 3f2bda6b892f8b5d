"""A model that repeats itself: the same calls with the same results, in a row.

Small models do so for ever. Asked once more without any tool, they answer from what they have read: measured with a model of 1.5
billion parameters in five forms of the same history, of which only this one gave an answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from moorage.loop.decide import is_hosted
from moorage.wire.types import Item

_PERIODS_MAX: Final = 4
"""So many different calls may take turns in a repetition."""

_OWN: Final = frozenset({"id", "call_id", "status"})
"""Fields that differ between equal calls."""


def is_repeating(items: Sequence[Item]) -> bool:
    """Whether the latest hosted calls repeat those before them, each with the same result. A user's message begins anew."""
    calls = _calls_with_results(items)
    return any(_ends_twice(calls, period) for period in range(1, _PERIODS_MAX + 1))


def _ends_twice(calls: Sequence[bytes], period: int) -> bool:
    return len(calls) >= 2 * period and calls[-period:] == calls[-2 * period : -period]


def _calls_with_results(items: Sequence[Item]) -> list[bytes]:
    """The latest calls since a user's message, oldest first, in a form for comparison."""
    latest: list[Item] = []
    outputs: dict[Any, Item] = {}
    for item in reversed(items):
        if item["type"] == "message" and item.get("role") == "user":
            break
        if item["type"].endswith("_output"):
            outputs[item.get("call_id")] = item
        elif is_hosted(item):
            latest.append(item)
            if len(latest) == 2 * _PERIODS_MAX:
                break
    return [_told([call, outputs.get(call.get("call_id"))]) for call in reversed(latest)]


def _told(pair: Sequence[Mapping[str, Any] | None]) -> bytes:
    shown = [None if item is None else {name: item[name] for name in item.keys() - _OWN} for item in pair]
    return orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)
