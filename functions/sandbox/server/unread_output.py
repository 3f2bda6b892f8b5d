from __future__ import annotations

import collections
from typing import Deque, List

MARKER = "\n[… {count} characters were not kept …]\n"
PIECE_CHARS = 4_096


class UnreadOutput:
    """What a session has printed since somebody last looked, of bounded size: its beginning and its end stay, and what falls out
    between them is counted."""

    def __init__(self, chars_max: int) -> None:
        self._head_max = chars_max // 2
        self._tail_max = chars_max - self._head_max
        self._clear()

    def _clear(self) -> None:
        self._head: List[str] = []
        self._head_chars = 0
        self._tail: Deque[str] = collections.deque()
        self._tail_chars = 0
        self.chars = 0
        """All that was printed, kept or not."""

    def add(self, text: str) -> None:
        self.chars += len(text)
        room = self._head_max - self._head_chars
        if room > 0:
            self._head.append(text[:room])
            self._head_chars += len(self._head[-1])
            text = text[room:]
        if text:
            self._add_to_tail(text)

    def _add_to_tail(self, text: str) -> None:
        self._tail_chars += len(text)
        if self._tail and len(self._tail[-1]) < PIECE_CHARS:  # single characters would each take as much as a page
            text = self._tail.pop() + text
        self._tail.append(text)
        while self._tail_chars > self._tail_max:
            excess = self._tail_chars - self._tail_max
            first = self._tail.popleft()
            if len(first) > excess:
                self._tail.appendleft(first[excess:])
            self._tail_chars -= min(excess, len(first))

    def take(self) -> str:
        """The unread output; it is read then."""
        lost = self.chars - self._head_chars - self._tail_chars
        marker = MARKER.format(count=lost) if lost else ""
        text = "".join(self._head) + marker + "".join(self._tail)
        self._clear()
        return text
