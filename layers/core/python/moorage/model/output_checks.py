"""What was asked of a model and its server did not see to.

Many Chat Completions servers take ``tool_choice: "none"`` and ``parallel_tool_calls: false`` and pass over them, and models put the
JSON that they were asked for into a fence. A call that must not be is left out, the first of several stays, and a fence around JSON
goes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from moorage.model import base
from moorage.model.base import Delta, ModelRequest
from moorage.model.http import Decoder

_FENCE: Final = re.compile(r"\s*```(?:json)?[ \t]*\n")
_END: Final = re.compile(r"\s*`{0,3}\s*\Z")


def obeying(decoder: Decoder, request: ModelRequest) -> Decoder:
    """The decoder, held to what the request says; the decoder itself where the request forbids nothing."""
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
    """Takes away a fence around a whole text, which comes in pieces."""

    _held: str = ""
    _is_settled: bool = False
    _is_fenced: bool = False

    def feed(self, piece: str) -> str:
        self._held += piece
        if not self._is_settled:
            opening = _FENCE.match(self._held)
            if opening is not None:
                self._held, self._is_fenced, self._is_settled = self._held[opening.end() :], True, True
            elif not "```json".startswith(self._held.strip()[:7]) and not self._held.lstrip().startswith("```"):
                self._is_settled = True
            else:
                return ""
        if not self._is_fenced:
            shown, self._held = self._held, ""
            return shown
        end = _END.search(self._held)
        assert end is not None, "it matches an empty end"
        shown, self._held = self._held[: end.start()], self._held[end.start() :]
        return shown

    def end(self) -> str:
        rest, self._held = self._held, ""
        return "" if self._is_fenced and rest.strip("` \t\r\n") == "" else rest
