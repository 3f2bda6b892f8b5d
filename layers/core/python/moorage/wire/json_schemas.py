"""JSON schemas that a request brings, as far as OpenAI's API checks them on entry.

Every schema: ``type`` names types of JSON. In strict mode also: the root is an object, every object closes itself by
``additionalProperties: false`` and requires all of its properties, and keywords that cannot guide a model's tokens are absent.
Source: OpenAI's guide "Structured Outputs", section "Supported schemas", and its error messages. One pass over the schema, which
``validation.FreeObject`` bounds in depth.
"""

from collections.abc import Iterator
from typing import Any, Final

_Place = tuple[str, ...]

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_ONE: Final = ("items", "additionalProperties")
_SOME: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "$defs", "definitions")
"""Keywords that hold a schema, a list of schemas, and schemas by name."""

_NOT_STRICT: Final = ("oneOf", "allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas")


def fault_of(schema: dict[str, Any], *, strict: bool) -> str | None:
    """What is wrong with a schema, as a sentence; None if nothing is."""
    if strict and schema.get("type") != "object":
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{str(schema.get('type'))[:40]}\"'."
    for place, each in _walk(schema, ()):
        fault = _type_fault(each) or (_strict_fault(each) if strict else None)
        if fault is not None:
            return f"In context={place}, {fault}"
    return None


def _walk(schema: Any, place: _Place) -> Iterator[tuple[_Place, dict[str, Any]]]:
    """The schema, and all schemas in it. What is no schema where one should stand is left to the model's server."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for keyword in _ONE:
        yield from _walk(schema.get(keyword), (*place, keyword))
    for keyword in _SOME:
        inner = schema.get(keyword)
        for number, each in enumerate(inner if isinstance(inner, list) else ()):
            yield from _walk(each, (*place, keyword, str(number)))
    for keyword in _NAMED:
        named = schema.get(keyword)
        for name, each in named.items() if isinstance(named, dict) else ():
            yield from _walk(each, (*place, keyword, name[:40]))


def _type_fault(schema: dict[str, Any]) -> str | None:
    said = schema.get("type")
    for each in said if isinstance(said, list) else [said]:
        if "type" in schema and not (isinstance(each, str) and each in _TYPES):
            return f"{str(each)[:40]!r} is not a type of JSON Schema; these are: {', '.join(sorted(_TYPES))}."
    return None


def _strict_fault(schema: dict[str, Any]) -> str | None:
    for keyword in _NOT_STRICT:
        if keyword in schema:
            return f"'{keyword}' is not permitted."
    said = schema.get("type")
    if "object" not in (said if isinstance(said, list) else [said]):
        return None
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties, required = schema.get("properties") or {}, schema.get("required", [])
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    known = frozenset(names)
    missing = next((name for name in properties if name not in known), None)
    if missing is not None:
        return (
            "'required' is required to be supplied and to be an array including every key in properties. "
            f"Missing '{missing[:80]}'. An optional property takes null: 'type': ['string', 'null']."
        )
    extra = next((name for name in names if name not in properties), None)
    return None if extra is None else f"'required' names '{extra[:80]}', which is no key in properties."
