"""Tool calls that a model writes as text.

Small local models, and servers without a parser for their model, answer a call as a fenced JSON block, a bare JSON object, between
``<tool_call>`` tags, or as ``<function=name>`` with its parameters (``text_function_calls.py``). Some double the braces, as their
template's source does. Such text is understood as a call if it names a tool that was offered and has arguments; everything
else is the answer's text. Text is held back only while it can still turn out to be a call: the first key of the object, or the
name in it, settles most cases after a few characters.

A fenced block within prose counts only as the last thing said, because an answer may well explain how a tool is called.

Other texts than calls cost what they are long: a block that is not whole yet is looked at again when it has grown by an eighth, and
an answer that takes more looking than a few times its length is read as text from there on.

``TextCallDecoder`` stands around a provider's decoder and does this to its deltas; ``TextCallParser`` does it to text.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.model import base, text_function_calls
from moorage.model.base import Delta, ModelRequest
from moorage.model.http import Decoder
from moorage.wire.types import Tool

_LANGUAGES: Final = ("json", "tool_call", "tool_code", "function_call")
_FIRST_KEYS: Final = ("name", "function", "tool", "tool_name", "type", "id", "arguments", "parameters", "tool_calls")
_CALL_KEYS: Final = frozenset({"name", "function", "tool", "tool_name", "type", "id", "arguments", "parameters"})
_TAGS: Final = {"<tool_call>": "</tool_call>"}
_OPENINGS: Final = (*_TAGS, *text_function_calls.OPENINGS)
_OPENING: Final = re.compile(r"(?:^|(?<=\n))[ \t]*```|" + "|".join(map(re.escape, _OPENINGS)))
_NAME: Final = re.compile(r'[\[\s]*\{{1,2}\s*"(?:name|tool|tool_name)"\s*:\s*"([^"\\]*)"')
_FIRST_KEY: Final = re.compile(r'[\[\s]*(?:\{{1,2}\s*(?:"([^"\\]*)("?))?)?$')


_MARK: Final = re.compile(r'[\\"{}\[\]]')


@dataclass(frozen=True, slots=True)
class TextCall:
    name: str
    arguments: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class _CallBlock:
    """A finished block: its value, and the start of the text after it."""

    value: Any
    end: int


_Verdict = _CallBlock | Literal["more", "no"]


_JUDGED_ALWAYS_CHARS: Final = 1_024
"""A block so short is looked at with each piece, so that text is not held back for longer than it must be."""
_WORK_PER_CHAR_MAX: Final = 8
_WORK_FREE: Final = 64 * limits.KIB
_CHARS_COPIED_AS_ONE: Final = 64
"""How many characters are copied in the time in which the scanner looks at one, at least."""


@dataclass(slots=True)
class TextCallParser:
    """Sorts an answer's text into text and calls, as it comes in pieces."""

    offered: frozenset[str]
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters of the tools, by name: what is written without JSON's marks is a number or a text by them."""
    _buffer: str = ""
    """Not passed on yet."""
    _grown: list[str] = field(default_factory=list)
    """What came after the buffer and was not looked at yet."""
    _chars: int = 0
    """Of the whole answer so far."""
    _waiting_chars: int = 0
    """Of the buffer and what came after it."""
    _judge_at: int = 0
    """How long the buffer has to be before a block, or space before one, is looked at again."""
    _work: int = 0
    """Characters looked at so far, each as often as it was."""
    _state: Literal["start", "prose", "block", "last", "text"] = "start"
    """``start``: nothing but space so far, or since a call; ``block``: the buffer begins with an opening; ``last``: with a whole
    call in a fence that counts if nothing follows; ``text``: nothing is a call any more."""
    _is_in_prose: bool = False
    _is_line_start: bool = True
    _scan: "_Scan" = field(default_factory=lambda: _Scan())

    def feed(self, text: str) -> list[str | TextCall]:
        if self._state == "text":
            return [text]
        self._grown.append(text)
        self._chars += len(text)
        self._waiting_chars += len(text)
        if self._state in ("start", "block", "last") and self._waiting_chars < self._judge_at:
            return []
        self._take_grown()
        out: list[str | TextCall] = []
        while self._step(out):
            if self._work > _WORK_FREE + _WORK_PER_CHAR_MAX * self._chars:
                self._say(out, len(self._buffer))
                self._state = "text"
                break
        self._waiting_chars = len(self._buffer)
        self._judge_at = self._waiting_chars + (self._waiting_chars // 8 if self._waiting_chars > _JUDGED_ALWAYS_CHARS else 0)
        return out

    def end(self) -> list[str | TextCall]:
        """The answer is over: the held text is a whole call, or text after all."""
        self._take_grown()
        if self._state in ("block", "last"):
            verdict = self._judge(is_over=True)
            calls = _calls(verdict.value, self.offered) if isinstance(verdict, _CallBlock) else None
            if calls is not None:
                self._buffer = ""
                return list(calls)
        rest, self._buffer = self._buffer, ""
        return [rest] if rest.strip() or (rest and self._state != "start") else []

    def _take_grown(self) -> None:
        self._buffer = "".join((self._buffer, *self._grown))
        self._grown.clear()

    def _step(self, out: list[str | TextCall]) -> bool:
        """One decision about the buffer; False when it needs more text."""
        self._work += len(self._buffer) // _CHARS_COPIED_AS_ONE
        match self._state:
            case "start":
                return self._begin()
            case "prose":
                return self._read_prose(out)
            case "block":
                return self._read_block(out)
            case "last":
                return self._read_after_last()
        return False

    def _begin(self) -> bool:
        text = self._buffer.lstrip()
        if not text:
            return False
        openings = ("```", "{", "[", *_OPENINGS)
        if text.startswith(openings):
            self._state, self._is_in_prose, self._scan = "block", False, _Scan()
            return True
        if any(opening.startswith(text) for opening in openings):
            return False
        self._state = "prose"
        return True

    def _read_prose(self, out: list[str | TextCall]) -> bool:
        # The text before the buffer decides whether the buffer's first line is a line's start.
        offset = 0 if self._is_line_start else 1
        found = _OPENING.search(("" if offset == 0 else "·") + self._buffer)
        if found is None:
            self._say(out, len(self._buffer) - self._held_back())
            return False
        self._say(out, found.start() - offset)
        self._state, self._is_in_prose, self._scan = "block", True, _Scan()
        return True

    def _held_back(self) -> int:
        """Characters at the end that may be the beginning of an opening."""
        line_start = self._buffer.rfind("\n") + 1
        last_line = self._buffer[line_start:]
        is_fresh = line_start > 0 or self._is_line_start
        if is_fresh and re.fullmatch(r"[ \t]*`{0,2}", last_line):
            return len(last_line)
        return max((n for tag in _OPENINGS for n in range(1, len(tag)) if self._buffer.endswith(tag[:n])), default=0)

    def _say(self, out: list[str | TextCall], count: int) -> None:
        text, self._buffer = self._buffer[:count], self._buffer[count:]
        if text:
            out.append(text)
            self._is_line_start = text.endswith("\n")

    def _read_block(self, out: list[str | TextCall]) -> bool:
        verdict = self._judge(is_over=False)
        if verdict == "more":
            return False
        calls = _calls(verdict.value, self.offered) if isinstance(verdict, _CallBlock) else None
        if calls is None or not isinstance(verdict, _CallBlock):
            return self._was_text(out)
        if self._is_in_prose and not self._buffer.startswith(_OPENINGS):
            self._state = "last"
            return True
        out.extend(calls)
        self._buffer, self._state, self._is_line_start = self._buffer[verdict.end :], "start", True
        return True

    def _was_text(self, out: list[str | TextCall]) -> bool:
        opening = re.match(r"\s*(```[^\n]*|<tool_call>|<function|.)", self._buffer)
        self._state = "prose"
        self._say(out, opening.end() if opening else 1)
        return True

    def _read_after_last(self) -> bool:
        verdict = self._judge(is_over=False)
        if isinstance(verdict, _CallBlock) and self._buffer[verdict.end :].strip():
            # Prose follows, so this was an explanation; its fence is passed over.
            self._state, self._is_line_start = "prose", False
            return True
        return False

    def _judge(self, *, is_over: bool) -> _Verdict:
        """The kind of the block at the buffer's beginning."""
        text = self._buffer.lstrip()
        lead = len(self._buffer) - len(text)
        closing = ""
        start = 0
        for tag, end_tag in _TAGS.items():
            if text.startswith(tag):
                start, closing = len(tag), end_tag
        found = text_function_calls.read(text, start, closing, self.offered, self.schemas, is_over=is_over)
        if found is not None:
            end = text.find(text_function_calls.END, start) if found != "more" else start
            self._work += (len(text) if end < 0 else end) - start
            return found if isinstance(found, str) else _CallBlock(found[0], lead + found[1])
        if text.startswith("```"):
            language, newline, _ = text[3:].partition("\n")
            if not newline:
                word = language.strip()
                return "more" if not is_over and any(known.startswith(word) for known in _LANGUAGES) else "no"
            if language.strip() not in ("", *_LANGUAGES):
                return "no"
            start, closing = 4 + len(language), "```"
        self._work -= max(self._scan.at, start)
        verdict = self._scan.value(text, start, self.offered)
        self._work += max(self._scan.at, start)
        if not isinstance(verdict, _CallBlock) or not closing:
            return verdict if not isinstance(verdict, _CallBlock) else _CallBlock(verdict.value, lead + verdict.end)
        after = text[verdict.end :].lstrip()
        if after.startswith(closing):
            return _CallBlock(verdict.value, lead + len(text) - len(after) + len(closing))
        if is_over:
            return _CallBlock(verdict.value, lead + len(text))
        return "more" if closing.startswith(after) else "no"


@dataclass(slots=True)
class _Scan:
    """Finds the end of one JSON value in growing text, each character once."""

    at: int = -1
    depth: int = 0
    is_in_string: bool = False
    found: _CallBlock | None = None
    is_settled: bool = False
    """The value begins like a call of an offered tool."""

    def value(self, text: str, start: int, offered: frozenset[str]) -> _Verdict:
        if self.found is not None:
            return self.found
        body = text[start:]
        if not self.is_settled:
            plausible = _plausible(body, offered)
            if plausible == "no":
                return "no"
            self.is_settled = plausible == "yes"
        end = self._end(text, start)
        if end is None:
            return "more"
        value = _value(text[start:end])
        if value is None:
            return "no"
        self.found = _CallBlock(value, end)
        return self.found

    def _end(self, text: str, start: int) -> int | None:
        position = start if self.at < 0 else self.at
        while (mark := _MARK.search(text, position)) is not None:
            position = mark.start()
            char = text[position]
            if self.is_in_string:
                if char == "\\":
                    if position + 1 == len(text):
                        self.at = position
                        return None
                    position += 1
                elif char == '"':
                    self.is_in_string = False
            elif char == '"':
                self.is_in_string = True
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                if self.depth <= 0:
                    self.at = position + 1
                    return self.at
            position += 1
        self.at = len(text)
        return None


def _value(text: str) -> Any:
    """JSON, also with its braces doubled; None for anything else."""
    for written in (text, text.replace("{{", "{").replace("}}", "}")):
        try:
            return json.loads(written)
        except ValueError:
            continue
    return None


class TextCallDecoder:
    """A decoder that looks for calls in messages."""

    def __init__(self, decoder: Decoder, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._decoder = decoder
        self._schemas = schemas
        self._spoken = self._new()
        self._started: base.MessageStarted | None = None
        """The open message, as long as none of its text went out."""
        self._is_in_message = False
        self._is_open = False
        """The message's start has gone out."""
        self._has_called = False

    @property
    def is_finished(self) -> bool:
        return self._decoder.is_finished

    def feed(self, piece: bytes) -> list[Delta]:
        return self._heard(self._decoder.feed(piece))

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        return self._heard(self._decoder.whole(body))

    def end(self) -> list[Delta]:
        return self._heard(self._decoder.end())

    def _heard(self, deltas: list[Delta]) -> list[Delta]:
        return [result for delta in deltas for result in self._delta(delta)]

    def _delta(self, delta: Delta) -> list[Delta]:
        match delta:
            case base.MessageStarted():
                self._started, self._spoken = delta, self._new()
                self._is_in_message, self._is_open = True, False
                return []
            case base.TextDelta(text):
                pieces = self._spoken.feed(text)
                return [*self._open(), delta] if pieces == [text] else self._pieces(pieces)
            case base.ItemDone() if self._is_in_message:
                rest = self._pieces(self._spoken.end())
                # A message without any text is still a message, unless it was nothing but calls.
                opened = [] if self._is_open or self._has_called else self._open()
                self._is_in_message = False
                return [*rest, *opened, *([delta] if self._is_open else [])]
            case base.StreamFinished("stop") if self._has_called:
                return [base.StreamFinished("tool_calls")]
            case base.AnnotationAdded() | base.RefusalDelta() if self._is_in_message:
                return [*self._open(), delta]
        return [delta]

    def _new(self) -> TextCallParser:
        return TextCallParser(frozenset(self._schemas), self._schemas)

    def _open(self) -> list[Delta]:
        if self._is_open:
            return []
        self._is_open = True
        return [self._started or base.MessageStarted()]

    def _pieces(self, pieces: list[str | TextCall]) -> list[Delta]:
        deltas: list[Delta] = []
        for piece in pieces:
            if isinstance(piece, str):
                deltas += [*self._open(), base.TextDelta(piece)]
                continue
            deltas += [base.ItemDone()] if self._is_open else []
            deltas += [base.CallStarted(piece.name), base.CallDelta(piece.arguments), base.ItemDone()]
            self._is_open, self._has_called = False, True
        return deltas


def listening(decoder: Decoder, request: ModelRequest) -> Decoder:
    """The decoder of an upstream with models that may write their calls as text; the decoder itself if no call can come."""
    tools, choice = chosen_tools(request)
    wants_json = (request.text or {}).get("format", {}).get("type", "text") != "text"
    if not tools or choice == "none" or (wants_json and choice == "auto"):
        return decoder
    return TextCallDecoder(decoder, {tool["name"]: tool.get("parameters") or {} for tool in tools})


def chosen_tools(request: ModelRequest) -> tuple[list[Tool], str | dict[str, Any]]:
    """Function tools and the choice among them, for upstreams that cannot be told of ``allowed_tools``."""
    tools = [tool for tool in request.tools if tool["type"] == "function"]
    choice = request.tool_choice
    if isinstance(choice, str):
        return tools, choice
    if choice.get("type") == "allowed_tools":
        allowed = {tool.get("name") for tool in choice.get("tools", [])}
        return [tool for tool in tools if tool["name"] in allowed], str(choice.get("mode", "auto"))
    return tools, choice if choice.get("type") == "function" else "auto"


def _plausible(body: str, offered: frozenset[str]) -> Literal["yes", "no", "maybe"]:
    """Whether text that begins like this can be a call."""
    name = _NAME.match(body)
    if name is not None:
        return "yes" if name[1] in offered else "no"
    beginning = _FIRST_KEY.match(body)
    if beginning is not None:
        key, closed = beginning[1] or "", beginning[2] or ""
        is_possible = key in _FIRST_KEYS if closed else any(known.startswith(key) for known in _FIRST_KEYS)
        return "maybe" if is_possible else "no"
    first = re.match(r'[\[\s]*\{{1,2}\s*"([^"\\]*)"', body)
    return "maybe" if first is not None and first[1] in _FIRST_KEYS else "no"


def _calls(value: Any, offered: frozenset[str]) -> list[TextCall] | None:
    """The calls that a JSON value stands for, or None if it is something else."""
    if isinstance(value, dict) and set(value) == {"tool_calls"}:
        value = value["tool_calls"]
    values = value if isinstance(value, list) else [value]
    calls = [_call(entry, offered) for entry in values]
    whole = [call for call in calls if call is not None]
    return whole if whole and len(whole) == len(calls) else None


def _call(value: Any, offered: frozenset[str]) -> TextCall | None:
    if not isinstance(value, dict) or not set(value) <= _CALL_KEYS:
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        return _call(inner, offered)
    name = value.get("name") or value.get("tool") or value.get("tool_name") or inner
    if name not in offered or not ("arguments" in value or "parameters" in value):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        return TextCall(name, arguments)
    return TextCall(name, orjson.dumps(arguments or {}).decode()) if isinstance(arguments, dict | None) else None
