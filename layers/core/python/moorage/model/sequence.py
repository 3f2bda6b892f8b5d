"""Overlapping items made sequential.

Upstreams may open a second tool call before the first has ended; a delta stream has one open item at a time. The item that was
opened first streams, the others wait, in the order in which they were opened.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import field

from moorage.dataclass import dataclass
from moorage.model.base import Delta, ItemDone, ItemRelayed


@dataclass(slots=True)
class _Slot:
    waiting: list[Delta] = field(default_factory=list)
    end: list[Delta] | None = None
    """What closes the item, once nothing more comes for it."""


@dataclass(slots=True)
class Sequence:
    _slots: OrderedDict[Hashable, _Slot] = field(default_factory=OrderedDict)
    """Items that have not been passed on whole; the first streams. A plain dictionary seeks its first among all that have left."""

    def __contains__(self, key: Hashable) -> bool:
        return key in self._slots

    def add(self, key: Hashable, *deltas: Delta) -> list[Delta]:
        """More of the item ``key``: its first delta opens it. Gives the deltas that may go out now."""
        if key not in self._slots:
            self._slots[key] = _Slot()
        if self._is_head(key):
            return list(deltas)
        self._slots[key].waiting.extend(deltas)
        return []

    def close(self, key: Hashable, *, encrypted_content: str | None = None, is_cut: bool = False) -> list[Delta]:
        """Nothing more comes for ``key``; unknown keys are closed already."""
        if key not in self._slots:
            return []
        self._slots[key].end = [ItemDone(encrypted_content, is_cut)]
        return self._drain()

    def end(self, key: Hashable, passed: ItemRelayed) -> list[Delta]:
        """Nothing more comes for ``key``: this is its final form."""
        self._slots[key].end = [passed]
        return self._drain()

    def pass_on(self, key: Hashable, passed: ItemRelayed) -> list[Delta]:
        """A whole item takes its place in the row."""
        self._slots[key] = _Slot([passed], [])
        return self._drain()

    def close_all(self, *, is_cut: bool = False) -> list[Delta]:
        """Nothing more comes for any item."""
        return [delta for key in list(self._slots) for delta in self.close(key, is_cut=is_cut)]

    def _drain(self) -> list[Delta]:
        out: list[Delta] = []
        while self._slots:
            key, slot = next(iter(self._slots.items()))
            out += slot.waiting
            slot.waiting = []
            if slot.end is None:
                return out
            out += slot.end
            del self._slots[key]
        return out

    def _is_head(self, key: Hashable) -> bool:
        return next(iter(self._slots)) == key
