"""What stands in an hour or a day of a tenant's list of responses, and when: where a filter has to look.

A digest tells of each response the second in which it was made, and its *kind*: what a filter asks of a row, with the ids of
conversations and containers shortened. It is kept beside the sums of usage (``store/usage_sums.py``), once nothing can come to its part
of the list any more. What is there, the list itself says: so a digest may say a little too much, and stays as it is when a response is
deleted.
"""

import zlib
from collections.abc import Iterator
from dataclasses import field
from itertools import accumulate
from typing import Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.store.response_list import DELETED, ListedTraits, ListFilter, ResponseRow

_FORM: Final = 1
"""Of what is packed: another form is not read."""


@dataclass(frozen=True, slots=True)
class DigestRange:
    """Seconds of the list, both included, and how many responses were made in them."""

    first: int
    last: int
    rows: int


@dataclass(slots=True)
class ListDigest:
    kinds: dict[ListedTraits, int] = field(default_factory=dict)
    """Their numbers."""
    numbers: list[int] = field(default_factory=list)
    """The kind of each response, oldest first."""
    seconds: list[int] = field(default_factory=list)
    """When each was made."""

    def add(self, created_at: int, row: ResponseRow) -> None:
        if row.status != DELETED:
            self.numbers.append(self.kinds.setdefault(_kind(row), len(self.kinds)))
            self.seconds.append(created_at)

    def join(self, later: "ListDigest") -> None:
        """Add the later ones."""
        numbers = [self.kinds.setdefault(kind, len(self.kinds)) for kind in later.kinds]
        self.numbers += [numbers[number] for number in later.numbers]
        self.seconds += later.seconds

    def pack(self) -> bytes:
        gaps = [second - before for second, before in zip(self.seconds, [0, *self.seconds], strict=False)]
        return zlib.compress(orjson.dumps([_FORM, [list(kind) for kind in self.kinds], self.numbers, gaps]))

    @classmethod
    def unpack(cls, packed: bytes) -> "ListDigest | None":
        """None for another version's."""
        form, *parts = orjson.loads(zlib.decompress(packed))
        if form != _FORM:
            return None
        kinds, numbers, gaps = parts
        return cls({ListedTraits(*kind): number for number, kind in enumerate(kinds)}, numbers, list(accumulate(gaps)))

    def stretches(self, sought: ListFilter) -> list[DigestRange]:
        """Its parts for a search, oldest first. Close responses form one stretch."""
        asked = sought.shortened(_short)
        wanted = {number for kind, number in self.kinds.items() if asked.admits(kind)}
        return list(self._stretches([place for place, number in enumerate(self.numbers) if number in wanted])) if wanted else []

    def _stretches(self, places: list[int]) -> Iterator[DigestRange]:
        """Responses of one second stay together."""
        first = last = places[0]
        for place in places[1:]:
            is_far = place - last > limits.LIST_STRETCH_GAP_ROWS or place - first >= limits.LIST_STRETCH_ROWS_MAX
            if is_far and self.seconds[place] != self.seconds[last]:
                yield DigestRange(self.seconds[first], self.seconds[last], last - first + 1)
                first = place
            last = place
        yield DigestRange(self.seconds[first], self.seconds[last], last - first + 1)


def _kind(row: ResponseRow) -> ListedTraits:
    traits = row.traits
    if not traits.conversation_id and not traits.container_id:
        return traits
    return traits._replace(conversation_id=_short(traits.conversation_id), container_id=_short(traits.container_id))


def _short(name: str) -> str:
    return f"{zlib.crc32(name.encode()):08x}" if name else ""
