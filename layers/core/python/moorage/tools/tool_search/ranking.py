"""BM25 over deferred tools: their names, their descriptions, and the names of their arguments."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.limits import BM25_B, BM25_K1, LOWERED_HERE_MAX, TOOLS_QUERY_CHARS_MAX
from moorage.parallel import outweighs, worked
from moorage.tools.function_items import without
from moorage.wire.types import Tool

_NAME_WEIGHT: Final = 3
"""A word of a tool's name says more than one of its description."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")


@dataclass(frozen=True, slots=True)
class DeferredTool:
    """A tool that is not offered before it is found."""

    tool: Tool
    """What it is called, what it says of itself, and its ``parameters``."""
    about: Tool | None = None
    """Name and description of what it belongs to: a namespace, or a server."""
    group: Tool | None = None
    """That as it is brought, without what was found of it."""
    members: str = ""
    """The field of ``group`` for that."""
    member: Any = None
    """The tool there."""


def deferred(tools: Iterable[Tool]) -> list[DeferredTool]:
    """Functions and custom tools that say so, those of a namespace too, in the request's order."""
    found: list[DeferredTool] = []
    for tool in tools:
        if tool["type"] == "namespace":
            group = {**tool, "tools": []}
            found += [
                DeferredTool(member, tool, group, "tools", without(member, "defer_loading"))
                for member in tool["tools"]
                if member.get("defer_loading")
            ]
        elif tool.get("defer_loading") and tool["type"] in ("function", "custom"):
            found.append(DeferredTool(tool))
    return found


async def best(query: str, tools: Sequence[DeferredTool], count: int) -> list[DeferredTool]:
    """Those that fit the query, the best first; of equals the first of the request."""
    return [each for each, _ in await ranked(query, tools, count)]


async def ranked(query: str, tools: Sequence[DeferredTool], count: int) -> list[tuple[DeferredTool, float]]:
    """The same, each with its score. Long texts are read on a thread."""
    owners = {id(each.about): each.about for each in tools}
    is_long = outweighs([each.tool for each in tools], LOWERED_HERE_MAX) or outweighs(owners.values(), LOWERED_HERE_MAX)
    return await worked(lambda: _ranked(query, tools, count)) if is_long else _ranked(query, tools, count)


def _ranked(query: str, tools: Sequence[DeferredTool], count: int) -> list[tuple[DeferredTool, float]]:
    wanted = frozenset(words(query[:TOOLS_QUERY_CHARS_MAX]))
    owners = {id(each.about): each.about for each in tools}
    told = {key: _Document.of(_words_of(about), wanted) for key, about in owners.items() if about is not None}
    documents = [_Document.of(_own_words(each), wanted).with_owner(told.get(id(each.about))) for each in tools]
    average = sum(document.length for document in documents) / len(documents) if documents else 0.0
    having = Counter(word for document in documents for word in document.times)
    scored = [
        (sum(_score(times, having[word], len(tools), document.length / average) for word, times in document.times.items()), -at)
        for at, document in enumerate(documents)
    ]
    fitting = sorted((entry for entry in scored if entry[0] > 0), reverse=True)
    return [(tools[-at], score) for score, at in fitting[:count]]


@dataclass(frozen=True, slots=True)
class _Document:
    """The length of a text in words, and the count of each wanted word."""

    length: int
    times: Counter[str]

    @classmethod
    def of(cls, text: Iterable[str], wanted: frozenset[str]) -> "_Document":
        length, times = 0, Counter[str]()
        for word in text:
            length += 1
            if word in wanted:
                times[word] += 1
        return cls(length, times)

    def with_owner(self, owner: "_Document | None") -> "_Document":
        """With the words of its namespace or server, counted once for all its tools."""
        return self if owner is None else _Document(self.length + owner.length, self.times + owner.times)


def _score(times: int, having: int, count: int, relative_length: float) -> float:
    rarity = math.log(1 + (count - having + 0.5) / (having + 0.5))
    return rarity * times * (BM25_K1 + 1) / (times + BM25_K1 * (1 - BM25_B + BM25_B * relative_length))


def as_tools(found: Sequence[DeferredTool]) -> list[Tool]:
    """The found tools, offered from now on: members of a namespace or a server together, in the place of the first."""
    tools: list[Tool] = []
    groups: dict[tuple[str, str], Tool] = {}
    for each in found:
        if each.group is None:
            tools.append(without(each.tool, "defer_loading"))
            continue
        key = (each.group["type"], each.about["name"] if each.about else "")
        if key not in groups:
            groups[key] = {**each.group, each.members: []}
            tools.append(groups[key])
        groups[key][each.members].append(each.member)
    return tools


def words(text: str) -> list[str]:
    """In lower case; ``sendMail`` and ``send_mail`` are two each."""
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    """Mails and mail are the same thing."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _own_words(each: DeferredTool) -> Iterator[str]:
    yield from _words_of(each.tool)
    yield from _argument_words(each.tool.get("parameters"))


def _words_of(tool: Tool) -> Iterator[str]:
    for _ in range(_NAME_WEIGHT):
        yield from words(tool.get("name", ""))
    yield from words(tool.get("description") or "")


def argument_names(tool: Tool) -> list[str]:
    return [str(name) for name in _properties(tool.get("parameters"))]


def _properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _argument_words(schema: Any) -> Iterator[str]:
    for name, kind in _properties(schema).items():
        yield from words(str(name))
        description = kind.get("description") if isinstance(kind, Mapping) else None
        yield from words(description) if isinstance(description, str) else ()
