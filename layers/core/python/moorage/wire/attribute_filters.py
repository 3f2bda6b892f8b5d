"""Filters over the attributes of files: what a search may say about them. ``knowledge/filters.py`` says what they mean.

    {"type": "eq", "key": "year", "value": 2026}
    {"type": "and", "filters": [{...}, {...}]}

OpenAI's guide "Retrieval" names what is compared ``property`` in places, and its API document ``key``: both are taken, as ``key``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from moorage import errors, limits
from moorage.wire.refusals import problem, wrong_type, wrong_value

Place = tuple[str | int, ...]

COMPARISONS: Final = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")
COMPOUNDS: Final = ("and", "or")
_LISTS: Final = ("in", "nin")
_ORDERS: Final = ("gt", "gte", "lt", "lte")


class Filter:
    """Of a field: a comparison, or a group of filters, of a bounded depth."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(checked)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return dict(_SCHEMA)


def checked(value: Any) -> Any:
    """The filter, with all that is compared as a ``key``. Raises pydantic's error of ours."""
    return _FilterCheck().filter(value, (), limits.FILTER_DEPTH_MAX)


class _FilterCheck:
    def __init__(self) -> None:
        self.parts = 0

    def filter(self, value: Any, at: Place, levels: int) -> Mapping[str, Any]:
        self.parts += 1
        if self.parts > limits.FILTER_PARTS_MAX:
            raise wrong_value(f"a filter has at most {limits.FILTER_PARTS_MAX} comparisons and groups in all.", *at)
        if not isinstance(value, dict):
            raise wrong_type("an object", value, *at)
        kind = value.get("type")
        if kind is None:
            raise problem(errors.missing_parameter, *at, "type")
        if not isinstance(kind, str):
            raise wrong_type("a string", kind, *at, "type")
        if kind in COMPOUNDS:
            return self._compound(value, at, levels)
        if kind not in COMPARISONS:
            shown = kind[:80]
            raise problem(lambda param: errors.invalid_choice(param, shown, (*COMPARISONS, *COMPOUNDS)), *at, "type")
        named: dict[str, Any] = value
        if "key" not in named:
            named = {"key" if name == "property" else name: each for name, each in named.items()}
        _fields(named, ("type", "key", "value"), at)
        _comparison(kind, named, at)
        return named

    def _compound(self, value: Mapping[str, Any], at: Place, levels: int) -> Mapping[str, Any]:
        if levels == 0:
            raise wrong_value(f"filters are nested at most {limits.FILTER_DEPTH_MAX} levels deep.", *at)
        _fields(value, ("type", "filters"), at)
        filters = value["filters"]
        if not isinstance(filters, list):
            raise wrong_type("an array", filters, *at, "filters")
        if not filters:
            raise wrong_value("it is empty: name at least one filter.", *at, "filters")
        inner = [self.filter(each, (*at, "filters", number), levels - 1) for number, each in enumerate(filters)]
        return {**value, "filters": inner}


def _fields(value: Mapping[str, Any], names: tuple[str, ...], at: Place) -> None:
    for name in value:
        if name not in names:
            raise problem(errors.unknown_parameter, *at, str(name)[: limits.PARAM_NAME_CHARS_MAX])
    for name in names:
        if name not in value:
            raise problem(errors.missing_parameter, *at, name)


def _comparison(kind: str, value: Mapping[str, Any], at: Place) -> None:
    key, operand = value["key"], value["value"]
    if not isinstance(key, str):
        raise wrong_type("a string", key, *at, "key")
    if not 1 <= len(key) <= limits.ATTRIBUTE_KEY_CHARS_MAX:
        raise wrong_value(f"it has 1 to {limits.ATTRIBUTE_KEY_CHARS_MAX} characters.", *at, "key")
    if kind in _LISTS:
        if not isinstance(operand, list):
            raise wrong_type("an array", operand, *at, "value")
        if len(operand) > limits.FILTER_VALUES_MAX:
            raise wrong_value(f"it has at most {limits.FILTER_VALUES_MAX} values.", *at, "value")
        for number, entry in enumerate(operand):
            _operand(entry, "a string or a number", (str, int, float), (*at, "value", number))
        return
    if kind in _ORDERS and isinstance(operand, bool):
        raise wrong_value(f"'{kind}' compares numbers, or strings; a boolean is neither more nor less than another.", *at, "value")
    _operand(operand, "a string, a number or a boolean", (str, int, float, bool), (*at, "value"))


def _operand(value: Any, expected: str, kinds: tuple[type, ...], at: Place) -> None:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise wrong_type(expected, value, *at)
    if isinstance(value, str) and len(value) > limits.ATTRIBUTE_TEXT_CHARS_MAX:
        raise wrong_value(f"it has at most {limits.ATTRIBUTE_TEXT_CHARS_MAX} characters, as attributes do.", *at)
    if isinstance(value, float) and value - value != 0:
        raise wrong_value("it must be a finite number.", *at)


_SCALARS: Final[list[dict[str, Any]]] = [{"type": "string"}, {"type": "number"}]
_SCHEMA: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": list(COMPARISONS)},
                    "key": {"type": "string", "maxLength": limits.ATTRIBUTE_KEY_CHARS_MAX},
                    "value": {"anyOf": [*_SCALARS, {"type": "boolean"}, {"type": "array", "items": {"anyOf": _SCALARS}}]},
                },
                "required": ["type", "key", "value"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": list(COMPOUNDS)},
                    "filters": {"type": "array", "items": {"type": "object"}},
                },
                "required": ["type", "filters"],
                "additionalProperties": False,
            },
        ]
    }
)
