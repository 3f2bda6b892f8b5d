"""Events that are too long for one message of API Gateway's WebSocket.

All that is long in a response comes in small deltas first; what exceeds a message is an event that says it all once more: the end of an
item, or of the response. It is sent without its longest members, which are named in ``shortened``, so that nobody takes an empty
text for what the model has said. The event as it is can be read over HTTP by its number.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from moorage import limits

Place = tuple[str | int, ...]
_ENVELOPE_BYTES: Final = 1_024
"""For ``shortened`` without the names in it."""


def fitted(text: str, *, bytes_max: int = limits.WEBSOCKET_MESSAGE_BYTES_MAX) -> str:
    """The event as it is if it fits, else shortened."""
    body = text.encode()
    if len(body) <= bytes_max:
        return text
    event = orjson.loads(body)
    left_out: list[str] = []
    too_much = len(body) - bytes_max + _ENVELOPE_BYTES
    for place, size in _longest_first(event):
        if too_much <= 0:
            break
        # Inside of something that was emptied already there is nothing left.
        name = ".".join(map(str, place))
        if any(name.startswith(f"{outer}.") for outer in left_out):
            continue
        _empty(event, place)
        left_out.append(name)
        too_much -= size - len(name) - 8
    event["shortened"] = {"bytes": len(body), "members": left_out}
    short: bytes = orjson.dumps(event)
    assert len(short) <= bytes_max, f"an event of {len(body)} bytes cannot be shortened below {len(short)}"
    return short.decode()


def _longest_first(event: dict[str, Any]) -> Iterator[tuple[Place, int]]:
    """Long texts, and then whole lists, for an event of many short things."""
    found = sorted(_texts(event, ()), key=lambda each: each[1], reverse=True)
    yield from found
    lists = [(place, _size(_at(event, place))) for place in _lists(event, ())]
    yield from sorted(lists, key=lambda each: each[1], reverse=True)


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, int]]:
    match value:
        case str() if len(value) > limits.WEBSOCKET_SHORT_CHARS:
            yield place, _size(value)
        case dict() | list():
            for key, inner in _members(value):
                yield from _texts(inner, (*place, key))


def _lists(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, list):
        yield place
    if isinstance(value, dict | list):
        for key, inner in _members(value):
            yield from _lists(inner, (*place, key))


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
