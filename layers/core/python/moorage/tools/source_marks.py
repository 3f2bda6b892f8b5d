"""Marks in a model's text: ``【fs:file-123】`` names a source, for citations and not for readers.

A tool asks its model to write them. They are taken out of the text as it streams: what may become a mark is kept back until it is one,
or cannot be one any more. A text with brackets of another kind goes through as it is.
"""

import re
from dataclasses import field
from typing import Final

from moorage.dataclass import dataclass

_OPENING, _CLOSING = "【", "】"
_CHARS_MAX: Final = 96
"""Of a mark: an id has 70 characters at most."""


@dataclass(frozen=True, slots=True)
class SourceMark:
    kind: str
    content: str
    index: int
    """Where it stood in the text without marks, in characters."""


@dataclass(slots=True)
class MarkedText:
    """One text, piece by piece."""

    kinds: frozenset[str]
    marks: list[SourceMark] = field(default_factory=list)
    _held: str = ""
    _length: int = 0

    def feed(self, text: str) -> str:
        """The new text that can be shown."""
        text = self._held + text
        shown: list[str] = []
        at = 0
        while (opening := text.find(_OPENING, at)) >= 0:
            shown.append(self._shown(text[at:opening]))
            at = opening
            inner, closing, _ = text[at + 1 : at + 2 + _CHARS_MAX].partition(_CLOSING)
            if not closing and len(inner) < _CHARS_MAX and self._may_begin(inner):
                self._held = text[at:]
                return "".join(shown)
            mark = self._mark(inner) if closing else None
            if mark is None:
                shown.append(self._shown(_OPENING))
                at += 1
            else:
                self.marks.append(mark)
                at += len(inner) + 2
        self._held = ""
        shown.append(self._shown(text[at:]))
        return "".join(shown)

    def end(self) -> str:
        """The held text, if it is no mark after all."""
        rest, self._held = self._held, ""
        return self._shown(rest)

    def _mark(self, inner: str) -> SourceMark | None:
        """The mark between two brackets, if it is one."""
        kinds = "|".join(map(re.escape, sorted(self.kinds)))
        found = re.fullmatch(rf"\s*({kinds}):\s*([^\s【】]+)\s*", inner)
        return None if found is None else SourceMark(found[1], found[2], self._length)

    def _may_begin(self, inner: str) -> bool:
        said = inner.lstrip()
        return _OPENING not in inner and any(f"{kind}:".startswith(said[: len(kind) + 1]) for kind in self.kinds)

    def _shown(self, text: str) -> str:
        self._length += len(text)
        return text
