"""Query strings of listings and retrievals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from moorage import errors, limits
from moorage.wire.types import INCLUDABLE

Query = Sequence[tuple[str, str]]
"""Names and values in the order sent: ``include[]=a&include[]=b`` repeats its name (both SDKs write the brackets)."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted."""

    limit: int = limits.PAGE_ITEMS_DEFAULT
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How a response is wanted: as an object, or as its stream after an event."""

    stream: bool = False
    starting_after: int | None = None
    include_obfuscation: bool = True
    include: tuple[str, ...] = ()


def parse_page(
    query: Query,
    *,
    limit_default: int = limits.PAGE_ITEMS_DEFAULT,
    limit_max: int = limits.PAGE_ITEMS_MAX,
    others: tuple[str, ...] = (),
) -> Page:
    """``limit``, ``order``, ``after`` and ``include``; ``others`` are names that the route reads itself.

    Raises :class:`~moorage.errors.ApiError` for anything else.
    """
    values = _single(query, ("limit", "order", "after", "before", *others))
    if values.get("before"):
        raise errors.unsupported_parameter("before", "Go through the list with 'after' and 'order'.")
    order = values.get("order", "desc")
    if order not in ("asc", "desc"):
        raise errors.invalid_choice("order", order[: limits.PARAM_NAME_CHARS_MAX], ("asc", "desc"))
    return Page(
        limit=_whole_number("limit", values["limit"], 1, limit_max) if "limit" in values else limit_default,
        order="asc" if order == "asc" else "desc",
        after=values.get("after") or None,
        include=_include(query),
    )


def parse_retrieval(query: Query) -> Retrieval:
    """The query of ``GET /v1/responses/{id}``. Raises :class:`~moorage.errors.ApiError`."""
    values = _single(query, ("stream", "starting_after", "include_obfuscation"))
    is_stream = _flag("stream", values.get("stream", "false"))
    if "starting_after" in values and not is_stream:
        raise errors.invalid_value("starting_after", "it is only allowed together with 'stream=true'.")
    return Retrieval(
        stream=is_stream,
        starting_after=_whole_number("starting_after", values["starting_after"], 0, 2**53) if "starting_after" in values else None,
        include_obfuscation=_flag("include_obfuscation", values.get("include_obfuscation", "true")),
        include=_include(query),
    )


_BETA: Final = ("beta", "true")
"""What the SDK's beta methods put behind every address. What is new in their bodies has to be refused by its own name."""


def _single(query: Query, known: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for name, value in query:
        if name in ("include", "include[]") or (name, value) == _BETA:
            continue
        if name not in known:
            raise errors.unknown_parameter(name[: limits.PARAM_NAME_CHARS_MAX])
        values[name] = value
    return values


def _include(query: Query) -> tuple[str, ...]:
    wanted = [part for name, value in query if name in ("include", "include[]") for part in value.split(",") if part]
    for index, value in enumerate(wanted):
        if value not in INCLUDABLE:
            raise errors.invalid_choice(f"include[{index}]", value[: limits.PARAM_NAME_CHARS_MAX], INCLUDABLE)
    return tuple(dict.fromkeys(wanted))


def _whole_number(name: str, value: str, minimum: int, maximum: int) -> int:
    if not (value.isascii() and value.removeprefix("-").isdigit() and len(value) <= limits.QUERY_DIGITS_MAX):
        raise errors.invalid_type(name, "an integer", "a string")
    number = int(value)
    if number < minimum:
        raise errors.below_minimum(name, "integer", number, minimum)
    if number > maximum:
        raise errors.above_maximum(name, "integer", number, maximum)
    return number


def _flag(name: str, value: str) -> bool:
    match value.lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise errors.invalid_type(name, "a boolean", "a string")
