"""What a server offers, as the item that lists it says it: which of it a request wants, what needs a person's word, and the function
that a model is offered. All of it is a server's claim, and nothing here trusts its form."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from moorage import limits
from moorage.tools.function_items import compact_json
from moorage.wire.types import Tool

_DEPTH_MAX: Final = 24
_HINTS: Final = {"idempotent_hint": "idempotent", "destructive_hint": "destructive", "open_world_hint": "open_world"}


def entry(name: str, description: str | None, schema: Mapping[str, Any], annotations: Mapping[str, Any]) -> dict[str, Any]:
    """One tool of the list. ``annotations`` are the hints that the server gave, by their names in the SDK."""
    hints = {shown: annotations[hint] for hint, shown in _HINTS.items() if annotations.get(hint) is not None}
    return {
        "name": name,
        "description": description,
        "input_schema": plain(dict(schema)),
        "annotations": {"read_only": annotations.get("read_only_hint") is True, **hints},
    }


def plain(value: Any) -> Any:
    """JSON that everybody can read: a whole number of more than 64 bits becomes a floating one, as most readers would take it."""
    match value:
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case int() if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            return float(value) if abs(value) < _FLOAT_END else None
    return value


_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**64 - 1
_FLOAT_END: Final = 2**1023


def ordered(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """By name, each once: the same server gives the same list however it sorts it, so prompts stay equal. What has no name that an
    item could bear cannot be called."""
    by_name: dict[str, dict[str, Any]] = {}
    for each in entries:
        if 0 < len(each["name"]) <= limits.NAME_CHARS_MAX:
            by_name.setdefault(each["name"], each)
    return [by_name[name] for name in sorted(by_name)]


def hints_of(listed: Mapping[str, Any]) -> Mapping[str, Any]:
    annotations = listed.get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def is_read_only(listed: Mapping[str, Any]) -> bool:
    return hints_of(listed).get("read_only") is True


def is_repeatable(listed: Mapping[str, Any]) -> bool:
    """Whether a second run does no harm, by the server's own word: a lie about this hurts the server alone."""
    return is_read_only(listed) or hints_of(listed).get("idempotent") is True


def is_allowed(tool: Tool, listed: Mapping[str, Any]) -> bool:
    allowed = tool.get("allowed_tools")
    if allowed is None or allowed == {}:
        return True
    return _matches({"tool_names": allowed} if isinstance(allowed, list) else allowed, listed)


def needs_approval(tool: Tool, listed: Mapping[str, Any]) -> bool:
    """A tool that no filter names, or both do, needs it: the safe reading."""
    asked = tool.get("require_approval", "always")
    if isinstance(asked, str):
        return asked != "never"
    is_free = "never" in asked and _matches(asked["never"], listed)
    return not is_free or ("always" in asked and _matches(asked["always"], listed))


def _matches(filter_: Mapping[str, Any], listed: Mapping[str, Any]) -> bool:
    names, read_only = filter_.get("tool_names"), filter_.get("read_only")
    if names is None and read_only is None:
        return False
    return (names is None or listed["name"] in names) and (read_only is None or is_read_only(listed) == read_only)


def names_wanted(tool: Tool) -> frozenset[str]:
    """The tools that a request names one by one."""
    allowed = tool.get("allowed_tools")
    names = allowed.get("tool_names") if isinstance(allowed, dict) else allowed
    return frozenset(names or ())


def function_of(listed: Mapping[str, Any]) -> Tool:
    """The function that stands for a server's tool, but for its name, and for what is told of the server."""
    return {
        "type": "function",
        "description": listed.get("description") or "",
        "parameters": parameters_of(listed.get("input_schema")),
        "strict": False,
    }


# --- schemas ------------------------------------------------------------------------------------------------------------------


def parameters_of(schema: Any) -> dict[str, Any]:
    """A schema that every upstream takes: an object's, without combinations at its top. A keyword that is none is left out alone, since
    an upstream would refuse the whole request for it. A schema that is no object's stands for any object: the server says itself what
    it cannot use."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return {"type": "object", "properties": {}}
    kept = {key: value for key, value in _schema(schema, _DEPTH_MAX).items() if key in _TOP}
    return {"properties": {}, **kept, "type": "object"}


_TOP: Final = frozenset({"properties", "required", "additionalProperties", "$defs", "definitions", "description", "title"})
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_PATTERN_CHARS_MAX: Final = 200


class _NoneSuchError(Exception):
    """The value does not have the form that its keyword asks for."""


def _schema(value: dict[str, Any], levels: int) -> dict[str, Any]:
    """The same without values of the wrong type. Raises :class:`_NoneSuchError` if it is too deep."""
    if levels == 0:
        raise _NoneSuchError
    kept: dict[str, Any] = {}
    for key, inner in value.items():
        try:
            kept[key] = _KEYWORDS[key](inner, levels - 1) if key in _KEYWORDS else inner
        except _NoneSuchError:
            continue
    items = value.get("items")
    if isinstance(items, list):  # A tuple as JSON Schema had it before 2020-12.
        kept |= {"prefixItems": [_any_schema(inner, levels - 1) for inner in items]}
    return _described(kept)


def _described(kept: dict[str, Any]) -> dict[str, Any]:
    """A pattern is told in words. Its language is JavaScript's, and a stranger's expression is compiled by nobody here."""
    pattern = kept.pop("pattern", None)
    if not isinstance(pattern, str) or len(pattern) > _PATTERN_CHARS_MAX:
        return kept
    said = kept.get("description")
    return kept | {"description": f"{said} (pattern: {pattern})" if isinstance(said, str) and said else f"Pattern: {pattern}"}


def _any_schema(value: Any, levels: int) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict):
        raise _NoneSuchError
    return _schema(value, levels)


def _schemas_by_name(value: Any, levels: int) -> dict[str, Any]:
    """An unusable schema allows any value."""
    if not isinstance(value, dict):
        raise _NoneSuchError
    return {name: _any_schema(inner, levels) if isinstance(inner, dict | bool) else {} for name, inner in value.items()}


def _schemas(value: Any, levels: int) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _NoneSuchError
    return [_any_schema(inner, levels) for inner in value]


def _kept_if(is_good: Callable[[Any], bool]) -> Callable[[Any, int], Any]:
    def check(value: Any, levels: int) -> Any:
        if not is_good(value):
            raise _NoneSuchError
        return value

    return check


def _is_type(value: Any) -> bool:
    words = [value] if isinstance(value, str) else value
    return isinstance(words, list) and bool(words) and all(isinstance(word, str) and word in _TYPES for word in words)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_inner_reference(value: Any) -> bool:
    """References to other documents are not fetched."""
    return isinstance(value, str) and value.startswith("#")


_KEYWORDS: Final[Mapping[str, Callable[[Any, int], Any]]] = {
    "type": _kept_if(_is_type),
    **dict.fromkeys(("properties", "$defs", "definitions"), _schemas_by_name),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _schemas),
    **dict.fromkeys(("items", "additionalProperties", "not", "if", "then", "else", "contains"), _any_schema),
    "required": _kept_if(_are_names),
    "enum": _kept_if(lambda value: isinstance(value, list) and bool(value)),
    "$ref": _kept_if(_is_inner_reference),
    "patternProperties": _kept_if(lambda value: False),
}
"""What makes a value of each keyword; ``patternProperties`` is left out, since its names are expressions."""


# --- what a call came to ------------------------------------------------------------------------------------------------------


def output_of(content: list[dict[str, Any]], structured: Any) -> str:
    """One string, as the item holds it: text as it is, and JSON of all parts if some are none."""
    if all(part.get("type") == "text" for part in content):
        text = "\n".join(str(part["text"]) for part in content)
        return text or ("" if structured is None else compact_json(structured))
    return compact_json(content)
