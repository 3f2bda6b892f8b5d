"""What was asked of a model and its server did not see to.

Many Chat Completions servers take ``tool_choice: "none"`` and ``parallel_tool_calls: false`` and pass over them, and models put the
JSON that they were asked for into a fence. A call that must not be is left out, the first of several stays, and a fence around JSON
goes.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.model import base
from moorage.model.base import Delta, ModelRequest
from moorage.model.http import Decoder

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\r?\n")
_BEGINNING: Final = re.compile(r"`{0,3}|```j(?:so?)?|```(?:json)?[ \t]*\r?")
_FENCE_CHARS_MAX: Final = 80
"""Of a fence's first line: a longer one is none."""


def obeying(decoder: Decoder, request: ModelRequest) -> Decoder:
    """The decoder, held to the request's rules; the decoder itself if the request forbids nothing."""
    forbids = request.tool_choice == "none"
    wants_json = _wants_json(request)
    if not forbids and request.parallel_tool_calls and not wants_json:
        return decoder
    return CheckedOutput(decoder, calls_left=0 if forbids else 10**9 if request.parallel_tool_calls else 1, unwraps=wants_json)


def unfenced(decoder: Decoder, request: ModelRequest) -> Decoder:
    """The decoder without fences around JSON, for servers that see to the rest. A call that must not be is refused by the loop, which
    then asks for an answer."""
    return CheckedOutput(decoder, calls_left=10**9, unwraps=True) if _wants_json(request) else decoder


def _wants_json(request: ModelRequest) -> bool:
    form: str = (request.text or {}).get("format", {}).get("type", "text")
    return form != "text"


@dataclass(slots=True)
class CheckedOutput:
    _decoder: Decoder
    calls_left: int
    unwraps: bool
    _has_called: bool = False
    _is_dropping: bool = False
    _fence: "Fence | None" = None

    @property
    def is_finished(self) -> bool:
        return self._decoder.is_finished

    def feed(self, piece: bytes) -> list[Delta]:
        return [kept for delta in self._decoder.feed(piece) for kept in self._kept(delta)]

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        return [kept for delta in self._decoder.whole(body) for kept in self._kept(delta)]

    def end(self) -> list[Delta]:
        return [kept for delta in self._decoder.end() for kept in self._kept(delta)]

    def _kept(self, delta: Delta) -> Iterator[Delta]:
        match delta:
            case base.CallStarted():
                self._is_dropping = self.calls_left <= 0
                self.calls_left -= 1
                self._has_called = self._has_called or not self._is_dropping
                if not self._is_dropping:
                    yield delta
            case base.CallDelta() | base.ItemDone() if self._is_dropping:
                self._is_dropping = not isinstance(delta, base.ItemDone)
            case base.MessageStarted():
                self._fence = Fence() if self.unwraps else None
                yield delta
            case base.TextDelta(text, logprobs) if self._fence is not None:
                shown = self._fence.feed(text)
                if shown:
                    yield base.TextDelta(shown, logprobs)
            case base.ItemDone() if self._fence is not None:
                rest, self._fence = self._fence.end(), None
                if rest:
                    yield base.TextDelta(rest)
                yield delta
            case base.StreamFinished("tool_calls") if not self._has_called:
                yield base.StreamFinished("stop")
            case _:
                yield delta


@dataclass(slots=True)
class Fence:
    """Takes away a fence around a whole text that comes in pieces."""

    _space: list[str] = field(default_factory=list)
    """What came before the first other character."""
    _held: list[str] = field(default_factory=list)
    """The first line, as long as it may be a fence; then what may belong to the fence at the end: space, and up to three backticks."""
    _is_settled: bool = False
    _is_fenced: bool = False

    def feed(self, piece: str) -> str:
        """The text that can be shown."""
        if not self._is_settled:
            return self._begin(piece)
        if not self._is_fenced:
            return piece
        self._held.append(piece)
        if piece.isspace():
            return ""  # As long as nothing else comes, it is not looked at again.
        text = self._whole()
        shown = text.rstrip()
        ticks = len(shown) - len(shown.rstrip("`"))
        shown = shown[: len(shown) - min(ticks, 3)].rstrip()
        self._held.append(text[len(shown) :])
        return shown

    def end(self) -> str:
        rest = "".join(self._space) + self._whole()
        return "" if self._is_fenced and rest.strip("` \t\r\n") == "" else rest

    def _begin(self, piece: str) -> str:
        text = piece if self._held else piece.lstrip()
        self._space.append(piece[: len(piece) - len(text)])
        if not text:
            return ""
        line = self._whole() + text
        fence = _FENCE.match(line)
        if fence is not None:
            self._is_settled = self._is_fenced = True
            self._space.clear()
            return self.feed(line[fence.end() :])
        if len(line) <= _FENCE_CHARS_MAX and _BEGINNING.fullmatch(line):
            self._held.append(line)
            return ""
        self._is_settled = True
        line = "".join(self._space) + line
        self._space.clear()
        return line

    def _whole(self) -> str:
        whole = "".join(self._held)
        self._held.clear()
        return whole
