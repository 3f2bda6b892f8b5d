"""Marks in a model's text: ``【fs:file-123】`` names a source, for citations and not for readers.

A tool asks its model to write them. They are taken out of the text as it streams: what may become a mark is kept back until it is one,
or cannot be one any more. A text with brackets of another kind goes through as it is.
"""

import re
from dataclasses import dataclass, field
from typing import Final

_OPENING, _CLOSING = "【", "】"
_CHARS_MAX: Final = 96
"""Of a mark: an id has 70 characters at most."""


@dataclass(frozen=True, slots=True)
class Mark:
    kind: str
    content: str
    index: int
    """Where it stood in the text without marks, in characters."""


@dataclass(slots=True)
class MarkedText:
    """One text, piece by piece."""

    kinds: frozenset[str]
    marks: list[Mark] = field(default_factory=list)
    _held: str = ""
    _length: int = 0

    def feed(self, text: str) -> str:
        """What can be shown of the text so far, and has not been."""
        self._held += text
        shown: list[str] = []
        while self._held:
            plain, opening, rest = self._held.partition(_OPENING)
            shown.append(self._shown(plain))
            self._held = opening + rest
            if not opening or not self._step(shown):
                break
        return "".join(shown)

    def end(self) -> str:
        """What was kept back, and is no mark after all."""
        rest, self._held = self._held, ""
        return self._shown(rest)

    def _step(self, shown: list[str]) -> bool:
        """What is held begins with a bracket: whether it is known what that is."""
        inner, closing, rest = self._held[1:].partition(_CLOSING)
        if not closing and len(inner) < _CHARS_MAX and self._may_begin(inner):
            return False
        kinds = "|".join(map(re.escape, sorted(self.kinds)))
        mark = re.fullmatch(rf"\s*({kinds}):\s*([^\s【】]+)\s*", inner) if closing and len(inner) <= _CHARS_MAX else None
        if mark is None:
            shown.append(self._shown(_OPENING))
            self._held = self._held[1:]
            return True
        self.marks.append(Mark(mark[1], mark[2], self._length))
        self._held = rest
        return True

    def _may_begin(self, inner: str) -> bool:
        said = inner.lstrip()
        return _OPENING not in inner and any(f"{kind}:".startswith(said[: len(kind) + 1]) for kind in self.kinds)

    def _shown(self, text: str) -> str:
        self._length += len(text)
        return text
