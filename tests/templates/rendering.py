"""Chat templates of open models, rendered as llama.cpp renders them (its ``common/jinja/caps.cpp`` and ``common/chat.cpp``).

A template is first looked at with a few probes: whether it shows contents that are strings, and whether it wants a call's arguments
as an object. Messages are then brought into the form it takes.
"""

import copy
import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import GeneratorType
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

Message = dict[str, Any]

FOLDER = Path(__file__).parents[2] / ".build" / "templates"
_NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
_MARK = "a-mark-that-no-template-has"


class _Generation(Extension):
    """``{% generation %}`` marks what a model is trained on; it renders as what it holds."""

    tags = {"generation"}  # noqa: RUF012  (jinja2's own way)

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(message)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(list(value) if isinstance(value, GeneratorType) else value, ensure_ascii=ensure_ascii, **options)


def _environment() -> SandboxedEnvironment:
    extensions: list[str | type[Extension]] = [loopcontrols, "jinja2.ext.do", _Generation]
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise, "strftime_now": _NOW.strftime}
    # What fireworks' servers add; nobody else's template wants them.
    environment.globals |= {"functions": "(functions)", "datetime": "(now)"}
    return environment


class _Watched(dict[str, Any]):
    """An object that knows whether it was read as one."""

    is_read = False

    def __getitem__(self, key: str) -> Any:
        self.is_read = True
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        self.is_read = True
        return super().__iter__()

    def items(self) -> Any:
        self.is_read = True
        return super().items()


@dataclass(frozen=True)
class ChatTemplate:
    name: str
    _template: jinja2.Template
    _takes_strings: bool
    _takes_objects: bool

    @classmethod
    def read(cls, path: Path) -> "ChatTemplate":
        template = _environment().from_string(path.read_text(encoding="utf-8"))
        takes_strings = _takes_strings(template)
        return cls(path.stem, template, takes_strings, _takes_objects(template, takes_strings))

    def render(self, messages: list[Message], tools: list[dict[str, Any]]) -> str:
        return _rendered(self._template, [self._prepared(message) for message in messages], tools)

    def _prepared(self, message: Message) -> Message:
        message = copy.deepcopy(message)
        if isinstance(message["content"], list):
            message["content"] = "\n".join(part.get("text", "<__media__>") for part in message["content"])
        for call in message.get("tool_calls", ()) if self._takes_objects else ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return message if self._takes_strings else _typed(message)


def _rendered(template: jinja2.Template, messages: list[Message], tools: list[dict[str, Any]]) -> str:
    offered = {"tools": tools} if tools else {}
    return template.render(messages=messages, bos_token="", eos_token="", add_generation_prompt=True, **offered)


def _typed(message: Message) -> Message:
    return message | {"content": [{"type": "text", "text": message["content"]}]}


def _takes_strings(template: jinja2.Template) -> bool:
    probe = {"role": "user", "content": _MARK}
    shows = [_shows(template, [message]) for message in (probe, _typed(probe))]
    return shows[0] or not shows[1]


def _shows(template: jinja2.Template, messages: list[Message]) -> bool:
    try:
        return _MARK in _rendered(template, messages, [])
    except (jinja2.TemplateError, TypeError):
        return False


def _takes_objects(template: jinja2.Template, takes_strings: bool) -> bool:
    arguments = _Watched(at=_MARK)
    call = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": arguments}}
    probe: list[Message] = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "r", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "u"},
    ]
    return _shows(template, probe if takes_strings else [_typed(message) for message in probe]) and arguments.is_read
