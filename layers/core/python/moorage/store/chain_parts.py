"""What a response adds to its chain, read from its records without the rest of them.

A request at the end of a chain reads hundreds of responses. Of each it needs the input and the output, so that is what is parsed: a
response's last batch often holds all its events, and ten times as much as the last one. The next request of the conversation reads
the same ones again, so what was parsed is kept for a while.
"""

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import field
from time import monotonic
from typing import Any, Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.limits.units import KIB
from moorage.store.packing import loaded
from moorage.wire.events import FINAL
from moorage.wire.types import Event, Item

_BEGINNING: Final = b',{"type":"response.'
_FRAME_BYTES: Final = 200
"""Of an entry in a dictionary, with its name."""
_LONG_BYTES: Final = 64 * KIB
"""Of a part that is not kept."""


@dataclass(frozen=True, slots=True)
class ChainPart:
    input_items: list[Item]
    output: list[Item] = field(default_factory=list)
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


class KnownParts:
    """What parts were made of, and their JSON.

    The records are read each time. So a response that was deleted, or has expired, is as unknown here as it is there, whoever deleted
    it. What nobody has asked for since ``CHAIN_PARTS_KEPT_SECONDS`` is let go within as long again.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._recent: dict[bytes, bytes] = {}
        self._older: dict[bytes, bytes] = {}
        self._recent_bytes = 0
        self._since = clock()

    def part_of(self, tenant_id: str, body: bytes, last_batch: bytes) -> ChainPart:
        """The same as the function, with items of its own."""
        name = hashlib.sha256(b"%b %d %b%b" % (tenant_id.encode(), len(body), body, last_batch)).digest()
        text = self._recent.get(name)
        if text is None:
            text = self._older.get(name)
            if text is None:
                part = part_of(body, last_batch)
                text = orjson.dumps((part.input_items, part.output, part.is_cut))
            self._keep(name, text)
        return ChainPart(*orjson.loads(text))

    def let_go(self) -> float | None:
        """Forget what is too old. Answers in how many seconds there will be more; None if nothing is left."""
        if self._clock() - self._since >= limits.CHAIN_PARTS_KEPT_SECONDS:
            self._turn()
        if not (self._recent or self._older):
            return None
        return limits.CHAIN_PARTS_KEPT_SECONDS - (self._clock() - self._since)

    def _keep(self, name: bytes, text: bytes) -> None:
        size = len(text) + _FRAME_BYTES
        if size > _LONG_BYTES:
            return
        if self._recent_bytes + size > limits.CHAIN_PARTS_KEPT_BYTES_MAX // 2:
            self._turn()
        self._recent[name] = text
        self._recent_bytes += size

    def _turn(self) -> None:
        """What is recent is older from now on."""
        self._recent, self._older, self._recent_bytes, self._since = {}, self._recent, 0, self._clock()


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
