"""Whether an answer is the JSON that its request asked for: of ``json_object`` and ``json_schema``.

Many model servers take a format and pass over it. The check is lenient: unsupported rules pass. It runs no foreign regular expression
(``pattern``, ``patternProperties``), knows no ``format``, and negates nothing (``not``, ``if``, the exclusive half of ``oneOf``). So a
skipped keyword never makes a good answer a bad one. Its work is counted. An answer that would take more than its bound fits.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.parallel import worked

_CHARS_SHOWN: Final = 40
"""Of a name, or of a value, in a sentence about it."""
_PLACE_CHARS_MAX: Final = 300
_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")


def is_asked_for(format_: Mapping[str, Any]) -> bool:
    """Whether an answer has to be JSON."""
    return format_.get("type") in ("json_object", "json_schema")


def is_binding(format_: Mapping[str, Any]) -> bool:
    """Whether OpenAI's API would give no other answer: a schema without ``strict`` is a wish there."""
    return format_.get("type") == "json_object" or bool(format_.get("strict"))


def begins_with_a_brace(format_: Mapping[str, Any]) -> bool:
    """Whether the first character of an answer tells it from prose."""
    return format_.get("type") == "json_object" or (format_.get("type") == "json_schema" and format_["schema"].get("type") == "object")


async def fault_of(text: str, format_: Mapping[str, Any]) -> str | None:
    """The place and reason if ``text`` does not fit, such as ``at $.items[2].price: expected number, found string``; None if it fits.

    A small answer is judged at once, within ``limits.ANSWER_STEPS_HERE_MAX``, and a larger one on a thread.
    """
    if len(text) > limits.ANSWER_CHECKED_CHARS_MAX:
        return None
    if len(text) <= limits.ANSWER_CHECKED_HERE_CHARS_MAX:
        try:
            return _fault(text, format_, limits.ANSWER_STEPS_HERE_MAX)
        except _TooMuch:
            pass
    return await worked(lambda: _fault_or_none(text, format_))


def _fault_or_none(text: str, format_: Mapping[str, Any]) -> str | None:
    try:
        return _fault(text, format_, limits.ANSWER_STEPS_MAX)
    except _TooMuch:
        return None


def _fault(text: str, format_: Mapping[str, Any], steps: int) -> str | None:
    if not text.strip():
        return "at $: it is empty"
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"at $: it is not JSON (character {error.pos + 1})"
    schema = format_["schema"] if format_["type"] == "json_schema" else {"type": "object"}
    found = _SchemaCheck(schema, steps).fault(schema, value, None, 0)
    return None if found is None else f"at {found.place}: {found.why}"


class _TooMuch(Exception):
    """The check has reached its bound."""


_Place = tuple[Any, str | int] | None
"""The place that holds it, and its name or number there; None is the whole answer."""


@dataclass(frozen=True, slots=True)
class _Fault:
    at: _Place
    why: str

    @property
    def depth(self) -> int:
        return sum(1 for _ in _names(self.at))

    @property
    def place(self) -> str:
        place = "$" + "".join(_written(name) for name in reversed(list(_names(self.at))))
        return place if len(place) <= _PLACE_CHARS_MAX else f"{place[:_PLACE_CHARS_MAX]}..."


def _names(at: _Place) -> Iterator[str | int]:
    while at is not None:
        at, name = at
        yield name


def _written(name: str | int) -> str:
    if isinstance(name, int):
        return f"[{name}]"
    return f".{name[:_CHARS_SHOWN]}" if name.isidentifier() else f"[{_short(name)}]"


def _short(value: Any) -> str:
    text = orjson.dumps(value[: _CHARS_SHOWN * 2] if isinstance(value, str) else value).decode()
    return text if len(text) <= _CHARS_SHOWN else f"{text[:_CHARS_SHOWN]}..."


@dataclass(slots=True)
class _SchemaCheck:
    root: Any
    steps_left: int

    def fault(self, schema: Any, value: Any, at: _Place, depth: int) -> _Fault | None:
        self._count(1)
        if depth > limits.ANSWER_DEPTH_MAX:
            raise _TooMuch
        if schema is False:
            return _Fault(at, "nothing may stand here")
        if not isinstance(schema, dict):
            return None
        why = self._own_fault(schema, value)
        if why is not None:
            return _Fault(at, why)
        return self._inner_fault(schema, value, at, depth + 1) or self._joined_fault(schema, value, at, depth + 1)

    def _count(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise _TooMuch

    def _own_fault(self, schema: dict[str, Any], value: Any) -> str | None:
        """Of the value itself, without its elements."""
        types = schema.get("type")
        wanted = types[: len(_TYPES)] if isinstance(types, list) else [types]
        if all(each in _TYPES for each in wanted) and not any(_is_of(value, each) for each in wanted):
            return f"expected {' or '.join(map(str, wanted))}, found {_type_of(value)}"
        if "const" in schema and not _same(value, schema["const"]):
            return f"expected {_short(schema['const'])}"
        choices = schema.get("enum")
        if isinstance(choices, list):
            self._count(len(choices))
            if not any(_same(value, choice) for choice in choices):
                return f"expected one of {', '.join(_short(choice) for choice in choices[:8])}{', ...' if len(choices) > 8 else ''}"
        return _bound_fault(schema, value)

    def _inner_fault(self, schema: dict[str, Any], value: Any, at: _Place, depth: int) -> _Fault | None:
        """Of its elements."""
        if isinstance(value, dict):
            return self._object_fault(schema, value, at, depth)
        if isinstance(value, list):
            return self._array_fault(schema, value, at, depth)
        return None

    def _object_fault(self, schema: dict[str, Any], value: dict[str, Any], at: _Place, depth: int) -> _Fault | None:
        required = schema.get("required")
        if isinstance(required, list):
            self._count(len(required))
            missing = next((name for name in required if isinstance(name, str) and name not in value), None)
            if missing is not None:
                return _Fault(at, f"the property {_short(missing)} is missing")
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
        for name, each in value.items():
            if name not in known and others is False:
                return _Fault((at, name), "the schema has no such property")
            found = self.fault(known.get(name, others), each, (at, name), depth)
            if found is not None:
                return found
        return None

    def _array_fault(self, schema: dict[str, Any], value: list[Any], at: _Place, depth: int) -> _Fault | None:
        items = schema.get("items", True)
        first = schema.get("prefixItems")
        if isinstance(items, list):  # draft 7
            first, items = items, schema.get("additionalItems", True)
        first = first if isinstance(first, list) else []
        for number, each in enumerate(value):
            found = self.fault(first[number] if number < len(first) else items, each, (at, number), depth)
            if found is not None:
                return found
        return None

    def _joined_fault(self, schema: dict[str, Any], value: Any, at: _Place, depth: int) -> _Fault | None:
        """Of other schemas that are named for it."""
        reference = schema.get("$ref")
        every = schema.get("allOf")
        for each in [*([self._named(reference)] if isinstance(reference, str) else []), *(every if isinstance(every, list) else [])]:
            found = self.fault(each, value, at, depth)
            if found is not None:
                return found
        for keyword in ("anyOf", "oneOf"):
            some = schema.get(keyword)
            found = self._fault_of_all(some, value, at, depth) if isinstance(some, list) and some else None
            if found is not None:
                return found
        return None

    def _fault_of_all(self, some: list[Any], value: Any, at: _Place, depth: int) -> _Fault | None:
        """None if one of them fits; otherwise the fault of the one that fits furthest."""
        faults: list[_Fault] = []
        for each in some:
            found = self.fault(each, value, at, depth)
            if found is None:
                return None
            faults.append(found)
        deepest = max(faults, key=lambda fault: fault.depth)
        alike = list(dict.fromkeys(fault.why for fault in faults if fault.depth == deepest.depth))
        return _Fault(deepest.at, ", or ".join(alike[:4]))

    def _named(self, reference: str) -> Any:
        """The schema of ``#/$defs/name``; True (everything fits) if the document has none of this name."""
        if not reference.startswith("#"):
            return True
        found = self.root
        for part in unquote(reference[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return True
        return found


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _is_of(value: Any, type_: Any) -> bool:
    found = _type_of(value)
    if type_ == "integer" and found == "number":
        return bool(value % 1 == 0)
    return bool(found == type_)


def _same(one: Any, other: Any) -> bool:
    """Equal in JSON: ``true`` is not 1, also within arrays and objects."""
    return bool(one == other) and _has_same_booleans(one, other)


def _has_same_booleans(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return all(map(_has_same_booleans, one, other))
    if isinstance(one, dict):
        return all(_has_same_booleans(value, other[name]) for name, value in one.items())
    return isinstance(one, bool) == isinstance(other, bool)


def _bound_fault(schema: dict[str, Any], value: Any) -> str | None:
    match value:
        case bool() | None:
            return None
        case int() | float():
            return _number_fault(schema, value)
        case str():
            return _size_fault(schema, "Length", len(value), "characters")
        case list():
            return _size_fault(schema, "Items", len(value), "items")
    return _size_fault(schema, "Properties", len(value), "properties")


def _size_fault(schema: dict[str, Any], of: str, size: int, things: str) -> str | None:
    least, most = _number(schema.get(f"min{of}")), _number(schema.get(f"max{of}"))
    if least is not None and size < least:
        return f"expected at least {least} {things}, found {size}"
    if most is not None and size > most:
        return f"expected at most {most} {things}, found {size}"
    return None


def _number_fault(schema: dict[str, Any], value: float) -> str | None:
    bounds = {name: _number(schema.get(name)) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")}
    least, most, above, below, unit = bounds.values()
    if least is not None and value < least:
        return f"expected at least {least}, found {value}"
    if most is not None and value > most:
        return f"expected at most {most}, found {value}"
    if above is not None and value <= above:
        return f"expected more than {above}, found {value}"
    if below is not None and value >= below:
        return f"expected less than {below}, found {value}"
    if unit is not None and unit > 0 and unit % 1 == 0 and value % unit:  # Fractions cannot be divided exactly.
        return f"expected a multiple of {unit}, found {value}"
    return None


def _number(bound: Any) -> float | None:
    return None if isinstance(bound, bool) or not isinstance(bound, int | float) else bound
