"""Calls written as ``<function=name>``, as Qwen3-Coder and Llama 3 do when no server parses their answer.

Between the tags stand the arguments as JSON, or each in a tag of its own (``<parameter=city>Paris</parameter>``), where text has no
quotation marks: what is a number and what is a text is told by the tool's schema.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

OPENINGS: Final = ("<function=", "<function name=")
END: Final = "</function>"
_HEAD: Final = re.compile(r"<function(?:=| name=)\s*[\"']?([\w.:-]+)[\"']?\s*>")
_PARAMETER: Final = re.compile(r"<(?:parameter|param)(?:=| name=)\s*[\"']?([\w.-]+)[\"']?\s*>\n?")
_PARAMETER_END: Final = re.compile(r"\n?</param(?:eter)?>")

Found = tuple[dict[str, Any], int]
"""The call, and where the text after it begins."""


def read(
    text: str,
    start: int,
    closing: str,
    offered: frozenset[str],
    schemas: Mapping[str, Mapping[str, Any]],
    *,
    is_over: bool,
) -> Found | Literal["more", "no"] | None:
    """The call at ``start``; None if it is no such call. ``closing`` is the tag that must follow, if one was opened before."""
    begin = start + len(text[start:]) - len(text[start:].lstrip())
    rest = text[begin:]
    if not rest.startswith(OPENINGS):
        may_begin = bool(rest or closing) and any(opening.startswith(rest) for opening in OPENINGS)
        return "more" if may_begin and not is_over else None
    head = _HEAD.match(rest)
    if head is None:
        return "more" if not is_over and len(rest) < 200 and ">" not in rest else "no"
    if head[1] not in offered:
        return "no"
    end = rest.find(END, head.end())
    if end < 0 and not is_over:
        return "more"
    body = rest[head.end() : end] if end >= 0 else rest[head.end() :]
    arguments = _arguments(body, schemas.get(head[1], {}))
    if arguments is None:
        return "no"
    call = {"name": head[1], "arguments": arguments}
    return _closed(call, text, begin + end + len(END) if end >= 0 else len(text), closing, is_over=is_over)


def _closed(call: dict[str, Any], text: str, end: int, closing: str, *, is_over: bool) -> Found | Literal["more", "no"]:
    after = text[end:].lstrip()
    if not closing or is_over:
        return call, len(text) - len(after) + len(closing) if closing and after.startswith(closing) else end
    if after.startswith(closing):
        return call, len(text) - len(after) + len(closing)
    # Several calls may stand between one pair of tags.
    return (call, end) if after.startswith(OPENINGS) else "more" if closing.startswith(after) else "no"


def _arguments(body: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    stripped = body.strip()
    if stripped.startswith("{"):
        try:
            value = json.loads(stripped)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None
    found = _parameters(body)
    if not found and stripped:
        return None
    properties = schema.get("properties") or {}
    return {name: _typed(text, properties.get(name) or {}) for name, text in found.items()}


def _parameters(body: str) -> dict[str, str]:
    """The text of each parameter by its name. The first one without an end is the last: the rest is looked at once."""
    found: dict[str, str] = {}
    place = 0
    while (begin := _PARAMETER.search(body, place)) is not None and (end := _PARAMETER_END.search(body, begin.end())) is not None:
        found[begin[1]] = body[begin.end() : end.start()]
        place = end.end()
    return found


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
