"""Whether a file's attributes fit a filter (``wire/attribute_filters.py`` has its shapes).

An attribute that a file does not have equals nothing, and is neither more nor less than anything: of all comparisons only ``ne`` and
``nin`` fit it. Values of different types are unequal, and not ordered; a boolean is no number. ``filename`` is an attribute of every
file, unless the file bears one of this name.
"""

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

Value = str | float | bool

FILENAME: Final = "filename"


def matches(filter: Mapping[str, Any] | None, attributes: Mapping[str, Value], filename: str) -> bool:
    """``filter`` has been checked."""
    return filter is None or _fits(filter, {FILENAME: filename, **attributes})


def _fits(filter: Mapping[str, Any], attributes: Mapping[str, Value]) -> bool:
    kind = filter["type"]
    match kind:
        case "and":
            return all(_fits(inner, attributes) for inner in filter["filters"])
        case "or":
            return any(_fits(inner, attributes) for inner in filter["filters"])
        case _:
            return _COMPARISONS[kind](attributes.get(filter["key"]), filter["value"])


def _equal(value: Value | None, other: Value) -> bool:
    return value is not None and _is_alike(value, other) and value == other


def _is_alike(value: Value, other: Value) -> bool:
    return _kind(value) is _kind(other)


def _kind(value: Value) -> type:
    return type(value) if isinstance(value, str | bool) else float


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value | None, Any], bool]:
    return lambda value, other: value is not None and _is_alike(value, other) and not isinstance(value, bool) and compare(value, other)


_COMPARISONS: Final[Mapping[str, Callable[[Value | None, Any], bool]]] = MappingProxyType(
    {
        "eq": _equal,
        "ne": lambda value, other: not _equal(value, other),
        "gt": _ordered(operator.gt),
        "gte": _ordered(operator.ge),
        "lt": _ordered(operator.lt),
        "lte": _ordered(operator.le),
        "in": lambda value, others: any(_equal(value, other) for other in others),
        "nin": lambda value, others: not any(_equal(value, other) for other in others),
    }
)
