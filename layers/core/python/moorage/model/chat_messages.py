"""Items as the messages of Chat Completions.

First the items become entries: what was said, and the assistant's turns, each with its calls and their outputs, whatever came between
the two. Then the entries are written as messages, as OpenAI's own API takes them or as the template of an open model does
(``chat_templates.py``). Entries are only added at the end, and one that is complete is never written differently later.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import takewhile
from typing import Any, Final, Literal

import orjson

from moorage.dataclass import dataclass
from moorage.errors import UpstreamError
from moorage.model import content, reasoning
from moorage.model.base import ModelRequest
from moorage.model.chat_templates import FAMILIES, Template
from moorage.wire.types import Item, Tool

Dialect = Literal["generic", "openai"]
"""``openai``: knows the ``developer`` role, ``max_completion_tokens``, ``prompt_cache_key`` and ``verbosity``, any number of messages
of each role, and files."""

Message = dict[str, Any]
Part = dict[str, Any]

_BEGIN: Final = "(The conversation begins.)"
_GO_ON: Final = "(Go on.)"
_READ: Final = "(I have read the results.)"
_NOTED: Final = "(Noted.)"
"""Fillers, for templates that want the roles to alternate."""

_ID: Final = re.compile(r"[A-Za-z0-9]{9}|functions\.[\w.-]+:\d+|.*__thought__.*", re.DOTALL)
"""Ids that stay: as Mistral's templates demand them, as Kimi's models count them, and LiteLLM's, which carry a signature."""
_ID_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class MessageStyle:
    """How one upstream wants its messages."""

    dialect: Dialect = "generic"
    template: Template = FAMILIES["generic"]
    replays_reasoning: bool = False
    takes_files: bool = False
    """``file`` parts, which OpenAI's API has and hardly any other."""

    @property
    def is_openai(self) -> bool:
        return self.dialect == "openai"


GENERIC: Final = MessageStyle()


def messages(request: ModelRequest, style: MessageStyle) -> list[Message]:
    """Raises :class:`UpstreamError` for a file that this upstream cannot be shown."""
    entries = _Entries(_Parts(style.is_openai or style.takes_files, request.has_container))
    if request.instructions:
        entries.made.append(ChatText("system", [_text_part(request.instructions)]))
    for item in request.items:
        entries.add(item)
    return _for_openai(entries.finished(), style) if style.is_openai else _for_template(entries.finished(), style, request.tools)


# --- entries --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChatText:
    role: Literal["system", "user"]
    parts: list[Part]
    is_message: bool = True
    """Otherwise an output that is told as the user's."""


@dataclass(frozen=True, slots=True)
class ChatOutput:
    call_id: str
    text: str


@dataclass(slots=True)
class AssistantTurn:
    """The assistant's: its text, its calls, and their outputs."""

    text: str = ""
    reasoning: str = ""
    calls: list[Item] = field(default_factory=list)
    outputs: list[ChatOutput] = field(default_factory=list)
    media: list[Part] = field(default_factory=list)
    """Pictures and files out of the outputs, which themselves are text: they follow the last one, as the user's."""

    @property
    def unanswered(self) -> set[str]:
        return {call["call_id"] for call in self.calls} - {output.call_id for output in self.outputs}


Entry = ChatText | AssistantTurn


@dataclass(slots=True)
class _Entries:
    parts: "_Parts"
    made: list[Entry] = field(default_factory=list)
    reasoning: str = ""
    waiting: list[ChatText] = field(default_factory=list)
    """Said between a call and its output: it follows the output, because servers refuse anything else."""

    def add(self, item: Item) -> None:
        match item.get("type", "message"):
            case "message" if content.role_of(item) == "assistant":
                self._assistant(content.plain_text(item.get("content")))
            case "message":
                role: Literal["system", "user"] = "system" if content.role_of(item) in ("system", "developer") else "user"
                self._say(ChatText(role, self.parts.of(item.get("content"))))
            case "function_call":
                self._call(item)
            case "function_call_output":
                self._output(item)
            case "reasoning":
                self.reasoning += reasoning.text_of(item)

    def finished(self) -> list[Entry]:
        return [*self.made, *self.waiting]

    @property
    def _open(self) -> AssistantTurn | None:
        """The turn with calls that wait for their outputs."""
        last = self.made[-1] if self.made else None
        return last if isinstance(last, AssistantTurn) and last.calls and last.unanswered else None

    def _say(self, said: ChatText) -> None:
        (self.made if self._open is None else self.waiting).append(said)

    def _assistant(self, text: str) -> None:
        """Joins the open turn, because nothing may come between its calls and their outputs."""
        if self._open is not None:
            self._open.text = "\n\n".join(part for part in (self._open.text, text) if part)
        else:
            self.made.append(self._turn(text))

    def _turn(self, text: str = "") -> AssistantTurn:
        thought, self.reasoning = self.reasoning, ""
        return AssistantTurn(text, thought)

    def _call(self, item: Item) -> None:
        last = self.made[-1] if self.made else None
        if not isinstance(last, AssistantTurn) or (last.calls and not last.unanswered):
            last = self._turn()
            self.made.append(last)
        last.calls.append(item)

    def _output(self, item: Item) -> None:
        turn = self._open
        text, media = self.parts.of_output(item.get("output"))
        if turn is None or item["call_id"] not in turn.unanswered:
            self._say(ChatText("user", [_text_part(f"[Output of the call {item['call_id']}]\n{text}"), *media], is_message=False))
            return
        turn.outputs.append(ChatOutput(item["call_id"], text))
        turn.media += media
        if not turn.unanswered:
            self.made += self.waiting
            self.waiting = []


@dataclass(frozen=True, slots=True)
class _Parts:
    takes_files: bool
    has_container: bool

    def of(self, value: Any) -> list[Part]:
        return [shown for part in content.parts_of(value) for shown in self._shown(part)]

    def of_output(self, value: Any) -> tuple[str, list[Part]]:
        """The text of an output, and its other parts."""
        texts: list[str] = []
        media: list[Part] = []
        for part in content.parts_of(value):
            for shown in self._shown(part):
                if shown["type"] == "text":
                    texts.append(shown["text"])
                else:
                    texts.append(content.plain_text([part]))
                    media.append(shown)
        return "\n".join(texts), media

    def _shown(self, part: Part) -> list[Part]:
        text = content.text_of(part)
        if text is not None:
            return [_text_part(text)]
        url = content.image_url_of(part)
        if url:
            detail = {"detail": part["detail"]} if part.get("detail") in ("low", "high", "auto") else {}
            return [{"type": "image_url", "image_url": {"url": url} | detail}]
        file = content.file_of(part)
        return [_text_part(content.plain_text([part]))] if file is None else self._file(*file)

    def _file(self, name: str, source: str) -> list[Part]:
        data = content.data_of(source)
        if data is None:
            return [_text_part(f"[file {name}: {source}]")]
        if self.takes_files:
            return [{"type": "file", "file": {"filename": name, "file_data": source}}]
        text = content.readable_text(data)
        if text is not None:
            return [_text_part(f"[File {name}]\n{text}\n[End of {name}]")]
        if self.has_container:
            return []  # A note before it says where it lies.
        raise UpstreamError(
            f"This model's server takes no files, and '{name}' is not text ({data.media_type}). Give the request a tool with a "
            "container, which the file is put into, send its text, or ask the operator for files = true in models.toml.",
            code="invalid_prompt",
            status=400,
            param="input",
            is_retryable=False,
        )


def _text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def _content(parts: list[Part]) -> str | list[Part]:
    """A string, unless there is more than text."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


# --- messages for OpenAI's API ----------------------------------------------------------------------------------------------------


def _for_openai(entries: Iterable[Entry], style: MessageStyle) -> list[Message]:
    written: list[Message] = []
    for entry in entries:
        if isinstance(entry, ChatText):
            role = "developer" if entry.role == "system" else entry.role
            written.append({"role": role, "content": _content(entry.parts)})
        else:
            written += _turn(entry, style)
    return written


def _turn(turn: AssistantTurn, style: MessageStyle) -> Iterator[Message]:
    """A turn in one message, its outputs, and their pictures."""
    text = turn.text if turn.text or not turn.calls or not style.is_openai else None
    message: Message = {"role": "assistant", "content": text}
    if turn.reasoning and style.replays_reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [_call(call, style) for call in turn.calls]
    # vLLM with Mistral's tokenizer refuses a turn that says nothing (vllm issue 21089).
    if turn.text or len(message) > 2:
        yield message
    for output in turn.outputs:
        yield {"role": "tool", "tool_call_id": _call_id(output.call_id, style), "content": output.text}
    if turn.media:
        yield {"role": "user", "content": turn.media}


def _call(call: Item, style: MessageStyle) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": call.get("arguments") or "{}"}
    return {"id": _call_id(call["call_id"], style), "type": "function", "function": function}


def _call_id(call_id: str, style: MessageStyle) -> str:
    if style.is_openai or _ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
    return "".join(_ID_DIGITS[number // 62**place % 62] for place in range(9))


# --- messages for a template ------------------------------------------------------------------------------------------------------


def _for_template(entries: list[Entry], style: MessageStyle, tools: tuple[Tool, ...]) -> list[Message]:
    leading = list(takewhile(lambda entry: isinstance(entry, ChatText) and entry.role == "system", entries))
    system = [_content(entry.parts) for entry in leading if isinstance(entry, ChatText)]
    if tools and not style.template.knows_tools:
        system.append(_described(tools))
    text = "\n\n".join(part for part in system if isinstance(part, str) and part)
    written = [message for entry in _apart(entries[len(leading) :]) for message in _entry(entry, style)]
    if text:
        written.insert(0, {"role": "user" if style.template.folds_system else "system", "content": text})
    joined = _joined(written)
    return list(_alternating(joined)) if style.template.alternates else joined


def _apart(entries: list[Entry]) -> Iterator[Entry]:
    """A word of the assistant's between two messages of the user's. Joined into one, a small model obeys the first sentence alone."""
    before: Entry | None = None
    for entry in entries:
        if _is_users(entry) and _is_users(before):
            yield AssistantTurn(_NOTED)
        yield entry
        before = entry


def _is_users(entry: Entry | None) -> bool:
    return isinstance(entry, ChatText) and entry.role == "user" and entry.is_message


def _entry(entry: Entry, style: MessageStyle) -> Iterator[Message]:
    template = style.template
    if isinstance(entry, ChatText):
        parts = entry.parts if entry.role == "user" else [_text_part(_marked(entry.parts))]
        yield {"role": "user", "content": _content(parts)}
    elif template.calls == "written" and entry.calls:
        yield from _turn_in_words(entry, style)
    else:
        for turn in _split(entry, template):
            yield from _turn(turn, style)


def _marked(parts: list[Part]) -> str:
    """A later message of the developer's keeps its place; templates have no role for it there."""
    text = "\n\n".join(part["text"] for part in parts if part["type"] == "text")
    return f"<developer_message>\n{text}\n</developer_message>"


def _split(turn: AssistantTurn, template: Template) -> Iterator[AssistantTurn]:
    """The turn in as many as the template needs for it."""
    if turn.calls and turn.text and not template.keeps_text_beside_calls:
        yield AssistantTurn(turn.text, turn.reasoning)
        turn = AssistantTurn("", "", turn.calls, turn.outputs, turn.media)
    if len(turn.calls) < 2 or template.calls == "together":
        yield turn
        return
    for number, call in enumerate(turn.calls):
        is_first, is_last = number == 0, number == len(turn.calls) - 1
        outputs = [output for output in turn.outputs if output.call_id == call["call_id"]]
        yield AssistantTurn(
            turn.text if is_first else "", turn.reasoning if is_first else "", [call], outputs, turn.media if is_last else []
        )


def _turn_in_words(turn: AssistantTurn, style: MessageStyle) -> Iterator[Message]:
    """Calls between the tags that most open models have seen in their training, and that ``text_tool_calls.py`` understands."""
    calls = [f"<tool_call>\n{_spoken(call)}\n</tool_call>" for call in turn.calls]
    yield from _turn(AssistantTurn("\n".join([*([turn.text] if turn.text else []), *calls]), turn.reasoning), style)
    outputs = [_text_part(f"<tool_response>\n{output.text}\n</tool_response>") for output in turn.outputs]
    if outputs or turn.media:
        yield {"role": "user", "content": _content([*outputs, *turn.media])}


def _spoken(call: Item) -> str:
    try:
        arguments = orjson.loads(call.get("arguments") or "{}")
    except orjson.JSONDecodeError:
        arguments = call["arguments"]
    return orjson.dumps({"name": call["name"], "arguments": arguments}).decode()


def _described(tools: tuple[Tool, ...]) -> str:
    functions = [{key: tool[key] for key in ("name", "description", "parameters") if tool.get(key)} for tool in tools]
    listed = "\n".join(orjson.dumps(function).decode() for function in functions)
    return (
        "You have these tools:\n"
        f"<tools>\n{listed}\n</tools>\n"
        "To call one, answer with nothing but a JSON object between tags, one for each call:\n"
        '<tool_call>\n{"name": "<name of the tool>", "arguments": {<its arguments>}}\n</tool_call>\n'
        "The user then sends what it gave between <tool_response> tags."
    )


def _joined(written: list[Message]) -> list[Message]:
    """No two plain messages of one role in a row."""
    joined: list[Message] = []
    for message in written:
        last = joined[-1] if joined else {}
        is_plain = message["role"] in ("user", "assistant") and not {"tool_calls", "reasoning_content"} & (message.keys() | last.keys())
        if is_plain and last.get("role") == message["role"]:
            joined[-1] = {"role": message["role"], "content": _content([*_parts_of(last), *_parts_of(message)])}
        else:
            joined.append(message)
    return joined


def _parts_of(message: Message) -> list[Part]:
    value = message["content"]
    return [_text_part(value)] if isinstance(value, str) else value


def _alternating(written: list[Message]) -> Iterator[Message]:
    """Fillers for two turns in a row of the user or the assistant; calls and outputs do not count, but follow the user."""
    speaker: str | None = None
    for message in written:
        role = message["role"]
        if role == "assistant" and speaker is None:
            yield {"role": "user", "content": _BEGIN}
            speaker = "user"
        if role == "assistant" and speaker == "assistant":
            yield {"role": "user", "content": _GO_ON}
            speaker = "user"
        elif role == "user" and speaker == "user":
            yield {"role": "assistant", "content": _READ}
        if role in ("user", "assistant") and "tool_calls" not in message:
            speaker = role
        yield message
