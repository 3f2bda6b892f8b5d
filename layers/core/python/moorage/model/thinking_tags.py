"""Reasoning that a model writes into its answer, between ``<think>`` tags at the beginning.

Servers with a parser for their model send it apart; the others leave it in the text, where nobody wants to read it.
"""

from dataclasses import field
from typing import Final, Literal

from moorage.dataclass import dataclass

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"

Kind = Literal["reasoning", "text"]


@dataclass(slots=True)
class ThinkingTags:
    """Sorts an answer's text into reasoning and text, as it comes in pieces."""

    _buffer: str = ""
    _space: list[str] = field(default_factory=list)
    """What came before the first other character, in pieces: joined at each of them, it would be copied as often."""
    _state: Literal["start", "within", "inside", "after", "text"] = "start"
    """``within``: as ``inside``, but an opening tag may still come."""

    @classmethod
    def inside(cls) -> "ThinkingTags":
        """For a model with the opening tag in its template: the answer begins within it."""
        return cls(_state="within")

    def are_parsed(self) -> None:
        """The server itself sends reasoning apart: a missing opening tag is not missed any more."""
        if self._state == "within":
            self._state = "start"

    def feed(self, piece: str) -> list[tuple[Kind, str]]:
        out: list[tuple[Kind, str]] = []
        if self._state in ("start", "within"):
            self._begin(piece)
        else:
            self._buffer += piece
        if self._state == "inside":
            out += self._think()
        if self._state == "after":
            # The space between the tag and the answer belongs to neither.
            self._buffer = self._buffer.lstrip()
            self._state = "text" if self._buffer else "after"
        if self._state == "text" and self._buffer:
            out.append(("text", self._buffer))
            self._buffer = ""
        return out

    def end(self) -> list[tuple[Kind, str]]:
        """The answer is over: the held text was no tag."""
        rest, self._buffer = "".join(self._space) + self._buffer, ""
        if not rest or self._state == "after":
            return []
        return [("reasoning" if self._state in ("inside", "within") else "text", rest)]

    def _begin(self, piece: str) -> None:
        text = self._buffer + piece if self._buffer else piece.lstrip()
        if not self._buffer:
            self._space.append(piece[: len(piece) - len(text)])
        self._buffer = text
        if text.startswith(_OPEN):
            self._buffer, self._state = text[len(_OPEN) :].lstrip("\n"), "inside"
            self._space = []
        elif not _OPEN.startswith(text):
            self._buffer, self._state = "".join(self._space) + text, "inside" if self._state == "within" else "text"
            self._space = []

    def _think(self) -> list[tuple[Kind, str]]:
        thought, closed, rest = self._buffer.partition(_CLOSE)
        if closed:
            self._buffer, self._state = rest, "after"
        else:
            held = max((n for n in range(1, len(_CLOSE)) if thought.endswith(_CLOSE[:n])), default=0)
            cut = len(thought) - held
            thought, self._buffer = thought[:cut], thought[cut:]
        return [("reasoning", thought)] if thought else []
