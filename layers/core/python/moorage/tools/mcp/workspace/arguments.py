"""A model's arguments of a tool, checked against the schema that it was shown."""

from collections.abc import Mapping
from typing import Any, Final

from moorage.errors import MoorageError

_KINDS: Final[dict[str, tuple[str, type]]] = {
    "string": ("a string", str),
    "integer": ("a whole number", int),
    "boolean": ("true or false", bool),
    "array": ("a list", list),
    "object": ("an object", dict),
}


class InvalidArguments(MoorageError):
    """Arguments that do not fit, as a sentence for the model."""


def schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Of an object that has these fields and no others."""
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def checked(kind: Mapping[str, Any], value: Any, at: str = "") -> Any:
    """The value, without optional fields that are null. Raises :class:`InvalidArguments`."""
    expected, type_ = _KINDS[kind["type"]]
    if type_ is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not type_:
        raise InvalidArguments(f"{_named(at)} must be {expected}.")
    return _within(kind, value, at)


def _within(kind: Mapping[str, Any], value: Any, at: str) -> Any:
    """The same of a value that has the right type."""
    if "enum" in kind and value not in kind["enum"]:
        raise InvalidArguments(f"{_named(at)} must be one of {', '.join(kind['enum'])}.")
    if kind["type"] == "integer" and not kind.get("minimum", value) <= value <= kind.get("maximum", value):
        raise InvalidArguments(f"{_named(at)} must be {_range(kind)}.")
    if kind["type"] == "array":
        return [checked(kind["items"], inner, f"{at}[{index}]") for index, inner in enumerate(value)]
    return _object(kind, value, at) if kind["type"] == "object" else value


def _object(kind: Mapping[str, Any], value: dict[str, Any], at: str) -> dict[str, Any]:
    properties, required = kind["properties"], kind["required"]
    given = {name: inner for name, inner in value.items() if inner is not None or name in required}
    for name in required:
        if name not in given:
            raise InvalidArguments(f"{_named(_path(at, name))} is missing.")
    unknown = next((name for name in given if name not in properties), None)
    if unknown is not None:
        raise InvalidArguments(f"There is no '{_path(at, unknown)[:80]}'; there are {', '.join(properties) or 'no arguments'}.")
    return {name: checked(properties[name], inner, _path(at, name)) for name, inner in given.items()}


def _path(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _named(at: str) -> str:
    return f"'{at}'" if at else "What a tool is called with"


def _range(kind: Mapping[str, Any]) -> str:
    if "maximum" not in kind:
        return f"{kind['minimum']} or more"
    return f"between {kind['minimum']} and {kind['maximum']}" if "minimum" in kind else f"{kind['maximum']} or less"
