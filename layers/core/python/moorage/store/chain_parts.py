"""What a response adds to its chain, read from its records without the rest of them.

A request at the end of a chain reads hundreds of responses. Of each it needs the input and the output, so that is what is parsed: a
response's last batch often holds all its events, and ten times as much as the last one.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from moorage.store.packing import loaded
from moorage.wire.events import FINAL
from moorage.wire.types import Event, Item

_BEGINNING: Final = b',{"type":"response.'


@dataclass(frozen=True, slots=True)
class ChainPart:
    input_items: list[Item]
    output: Sequence[Item] = ()
    """Of a response that has ended."""
    is_cut: bool = False
    """It ended at a limit."""

    @classmethod
    def of(cls, input_items: list[Item], final: dict[str, Any]) -> "ChainPart":
        """``final`` is the response object at its end."""
        return cls(input_items, final["output"], final["status"] == "incomplete")


def part_of(body: bytes, last_batch: bytes) -> ChainPart:
    """From the packed bodies of a response's record and of its last batch."""
    input_items, event = loaded(body)["input"], last_event(zlib.decompress(last_batch))
    return ChainPart.of(input_items, event["response"]) if event["type"] in FINAL else ChainPart(input_items)


def last_event(text: bytes) -> Event:
    """The last of the events of a batch, from their JSON.

    It begins at the last place that looks like the beginning of an event, unless an object inside of it looks so too. What is parsed
    from such an object on does not end where the list does, and is no JSON: then all events are parsed.
    """
    at = text.rfind(_BEGINNING)
    if at >= 0:
        try:
            event: Event = orjson.loads(memoryview(text)[at + 1 : -1])
        except orjson.JSONDecodeError:
            pass
        else:
            return event
    whole: list[Event] = orjson.loads(text)
    return whole[-1]
