"""Events that are too long for one message of API Gateway's WebSocket.

All that is long in a response comes in small deltas first; what exceeds a message is an event that says it all once more: the end of an
item, or of the response. It is sent without its longest members, which are named in ``shortened``, so that nobody takes an empty
text for what the model has said. The event as it is can be read over HTTP by its number.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from moorage import limits

Place = tuple[str | int, ...]
_ENVELOPE_BYTES: Final = 1_024
"""For ``shortened`` without the names in it."""

_OUTER_LEVELS: Final = 1
"""The event, and the response or item that it brings, whose ids clients go by, stay."""


def fitted(text: str, *, bytes_max: int = limits.WEBSOCKET_MESSAGE_BYTES_MAX) -> str:
    """The event as it is if it fits, else shortened."""
    body = text.encode()
    if len(body) <= bytes_max:
        return text
    event = orjson.loads(body)
    left_out: dict[Place, str] = {}
    too_much = len(body) - bytes_max + _ENVELOPE_BYTES
    for place, size in _longest_first(event):
        if too_much <= 0:
            break
        # Inside of something that was emptied already there is nothing left.
        if any(place[:length] in left_out for length in range(1, len(place))):
            continue
        _empty(event, place)
        left_out[place] = name = ".".join(map(str, place))
        too_much -= size - len(name) - 8
    event["shortened"] = {"bytes": len(body), "members": list(left_out.values())}
    short: bytes = orjson.dumps(event)
    assert len(short) <= bytes_max, f"an event of {len(body)} bytes cannot be shortened below {len(short)}"
    return short.decode()


def _longest_first(event: dict[str, Any]) -> Iterator[tuple[Place, int]]:
    """Long texts; for an event of many short things whole lists; and then objects, such as the schema of an answer."""
    yield from _sorted(_texts(event, ()))
    yield from _sorted((place, _size(_at(event, place))) for place in _all(list, event, ()))
    yield from _sorted((place, _size(_at(event, place))) for place in _all(dict, event, ()) if len(place) > _OUTER_LEVELS)


def _sorted(found: Iterable[tuple[Place, int]]) -> list[tuple[Place, int]]:
    return sorted(found, key=lambda each: each[1], reverse=True)


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, int]]:
    match value:
        case str() if len(value) > limits.WEBSOCKET_SHORT_CHARS:
            yield place, _size(value)
        case dict() | list():
            for key, inner in _members(value):
                yield from _texts(inner, (*place, key))


def _all(kind: type, value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, kind):
        yield place
    if isinstance(value, dict | list):
        for key, inner in _members(value):
            yield from _all(kind, inner, (*place, key))


def _members(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str | int, Any]]:
    yield from value.items() if isinstance(value, dict) else enumerate(value)


def _size(value: Any) -> int:
    return len(orjson.dumps(value))


def _at(event: Any, place: Place) -> Any:
    for key in place:
        event = event[key]
    return event


def _empty(event: Any, place: Place) -> None:
    inside = _at(event, place[:-1])
    inside[place[-1]] = type(inside[place[-1]])()
