from __future__ import annotations

import collections
from typing import Deque, List, Tuple

PIECE_CHARS = 4_096


class Scrollback:
    """The end of a terminal's output, by offsets: any number of readers, each with its own offset."""

    def __init__(self, chars_max: int) -> None:
        self._chars_max = chars_max
        self._pieces: Deque[str] = collections.deque()
        self._kept = 0
        self.end = 0
        """Characters that were shown in all."""

    def add(self, text: str) -> None:
        self.end += len(text)
        if self._pieces and len(self._pieces[-1]) < PIECE_CHARS:  # single characters would each take as much as a page
            self._kept -= len(self._pieces[-1])
            text = self._pieces.pop() + text
        self._pieces.append(text[-self._chars_max :])
        self._kept += len(self._pieces[-1])
        while self._kept > self._chars_max:
            self._kept -= len(self._pieces.popleft())

    def after(self, offset: int, chars_max: int) -> Tuple[int, str]:
        """The output from there on, as far as it is kept and at most so much, and its offset."""
        offset = min(max(offset, self.end - self._kept), self.end)
        at = self.end
        found: List[str] = []
        for piece in reversed(self._pieces):
            if at <= offset:
                break
            at -= len(piece)
            found.append(piece)
        text = "".join(reversed(found))[offset - at :]
        return offset, text[:chars_max]
