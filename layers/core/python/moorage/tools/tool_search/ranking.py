"""BM25 over deferred tools: their names, their descriptions, and the names of their arguments."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.limits import BM25_B, BM25_K1
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


def best(query: str, tools: Sequence[DeferredTool], count: int) -> list[DeferredTool]:
    """Those that fit the query, the best first; of equals the first of the request."""
    return [each for each, _ in ranked(query, tools, count)]


def ranked(query: str, tools: Sequence[DeferredTool], count: int) -> list[tuple[DeferredTool, float]]:
    """The same, each with its score."""
    documents = [Counter(_words_of(each)) for each in tools]
    lengths = [sum(document.values()) for document in documents]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    having = Counter(word for document in documents for word in document)
    scored = [
        (sum(_score(document[word], having[word], len(tools), length / average) for word in set(words(query)) if word in document), -at)
        for at, (document, length) in enumerate(zip(documents, lengths, strict=True))
    ]
    fitting = sorted((entry for entry in scored if entry[0] > 0), reverse=True)
    return [(tools[-at], score) for score, at in fitting[:count]]


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


def _words_of(each: DeferredTool) -> Iterator[str]:
    for tool in (each.tool, each.about or {}):
        for _ in range(_NAME_WEIGHT):
            yield from words(tool.get("name", ""))
        yield from words(tool.get("description") or "")
    yield from _argument_words(each.tool.get("parameters"))


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
