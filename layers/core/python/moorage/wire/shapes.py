"""Small validators, composed into the shapes of the wire.

A validator is a function from a JSON value to its canonical form; it raises :class:`Problem` if the value is wrong. A Problem
knows its own place only from the inside out: every container that it passes on its way up adds one step, so that the happy path
never builds a path at all. At the rim it becomes an :class:`~moorage.errors.ApiError` in the API's own words
(``input[3].content[0].type``).

Canonical form: unknown fields are refused, optional fields that are null are left out, the order of fields is the client's.

Every validator can say what it takes as JSON Schema (:func:`schema_of`): the OpenAPI document is made from what is really checked.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from moorage import errors, limits
from moorage.errors import ApiError

Validator = Callable[[Any], Any]
JsonSchema = dict[str, Any]

_V = TypeVar("_V", bound=Validator)
_DROPPED: Final = object()


class Problem(Exception):
    """Something is wrong with a value; ``describe`` makes the answer once the place is known."""

    def __init__(self, describe: Callable[[str], ApiError], *steps: str | int) -> None:
        super().__init__()
        self.describe = describe
        self.steps: list[str | int] = list(reversed(steps))

    def at(self, step: str | int) -> "Problem":
        """The same problem, seen from one container further out."""
        self.steps.append(step)
        return self

    def to_error(self, root: str = "") -> ApiError:
        return self.describe(_path(root, self.steps))


def _path(root: str, steps: list[str | int]) -> str:
    path = root
    for step in reversed(steps):
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def type_name(value: Any) -> str:
    """The JSON type with its article, as the API words it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def wrong_type(expected: str, value: Any, *steps: str | int) -> Problem:
    got = type_name(value)
    return Problem(lambda param: errors.invalid_type(param, expected, got), *steps)


def wrong_choice(value: object, supported: "tuple[str, ...]", *steps: str | int) -> Problem:
    shown = str(value)[:80]
    return Problem(lambda param: errors.invalid_choice(param, shown, supported), *steps)


def wrong_value(message: str, *steps: str | int) -> Problem:
    return Problem(lambda param: errors.invalid_value(param, message), *steps)


def described(schema: JsonSchema) -> Callable[[_V], _V]:
    """Decorates a validator with the JSON Schema of what it takes."""

    def decorate(validate: _V) -> _V:
        vars(validate)["schema"] = schema
        return validate

    return decorate


def schema_of(validate: Validator) -> JsonSchema | None:
    """What a validator takes, as JSON Schema; None if it takes nothing (a refused field or variant)."""
    schema: JsonSchema | None = getattr(validate, "schema", None)
    return schema


def _bounds(**bounds: Any) -> JsonSchema:
    return {name: value for name, value in bounds.items() if value is not None}


def text(*, chars_max: int = limits.TEXT_CHARS_MAX, chars_min: int = 0, pattern: str | None = None) -> Validator:
    """A string, bounded in characters."""
    compiled = re.compile(pattern) if pattern is not None else None
    anchored = None if pattern is None else f"^(?:{pattern})$"

    @described({"type": "string", "maxLength": chars_max, **_bounds(minLength=chars_min or None, pattern=anchored)})
    def check(value: Any) -> str:
        if type(value) is not str:
            raise wrong_type("a string", value)
        if not chars_min <= len(value) <= chars_max:
            length = len(value)
            raise Problem(lambda param: errors.invalid_length(param, "string", length, chars_min, chars_max))
        if compiled is not None and not compiled.fullmatch(value):
            shown = value[:80]
            raise Problem(lambda param: errors.invalid_pattern(param, shown, pattern or ""))
        return value

    return check


@described({"type": "boolean"})
def boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise wrong_type("a boolean", value)
    return value


def integer(*, minimum: int | None = None, maximum: int | None = None) -> Validator:
    @described({"type": "integer", **_bounds(minimum=minimum, maximum=maximum)})
    def check(value: Any) -> int:
        if type(value) is not int:
            raise wrong_type("an integer", value)
        _check_range("integer", value, minimum, maximum)
        return value

    return check


def number(*, minimum: float | None = None, maximum: float | None = None) -> Validator:
    """A finite number."""

    @described({"type": "number", **_bounds(minimum=minimum, maximum=maximum)})
    def check(value: Any) -> float:
        if type(value) is not float and type(value) is not int:
            raise wrong_type("a number", value)
        if not math.isfinite(value):
            raise wrong_value("it must be a finite number.")
        _check_range("decimal", value, minimum, maximum)
        return value

    return check


def _check_range(kind: str, value: float, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and value < minimum:
        raise Problem(lambda param: errors.below_minimum(param, kind, value, minimum))
    if maximum is not None and value > maximum:
        raise Problem(lambda param: errors.above_maximum(param, kind, value, maximum))


def choice(*supported: str) -> Validator:
    allowed = frozenset(supported)

    @described({"type": "string", "enum": list(supported)})
    def check(value: Any) -> str:
        if type(value) is not str:
            raise wrong_type("a string", value)
        if value not in allowed:
            raise wrong_choice(value, supported)
        return value

    return check


def array(of: Validator, *, items_max: int = limits.INPUT_ITEMS_MAX, items_min: int = 0) -> Validator:
    entries = schema_of(of)
    bounds = {"maxItems": items_max if entries is not None else 0, **_bounds(minItems=items_min or None)}

    @described({"type": "array", "items": entries if entries is not None else {}, **bounds})
    def check(value: Any) -> list[Any]:
        if type(value) is not list:
            raise wrong_type("an array", value)
        if not items_min <= len(value) <= items_max:
            length = len(value)
            raise Problem(lambda param: errors.invalid_length(param, "array", length, items_min, items_max))
        result = []
        for index, element in enumerate(value):
            try:
                result.append(of(element))
            except Problem as problem:
                problem.at(index)
                raise
        return result

    return check


class Shape:
    """An object with known fields. ``check`` sees the canonical object and looks at what belongs together."""

    __slots__ = ("_check", "_fields", "_optional", "required")

    def __init__(
        self,
        required: Mapping[str, Validator],
        optional: Mapping[str, Validator] | None = None,
        *,
        check: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.required = tuple(required)
        self._optional = frozenset(optional or ())
        self._fields = {**required, **(optional or {})}
        self._check = check

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(self._fields)

    @property
    def schema(self) -> JsonSchema:
        properties: JsonSchema = {}
        for name, validate in self._fields.items():
            taken = schema_of(validate)
            if taken is not None:
                properties[name] = {"anyOf": [taken, {"type": "null"}]} if name in self._optional else taken
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            **({"required": list(self.required)} if self.required else {}),
        }

    def __call__(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise wrong_type("an object", value)
        result: dict[str, Any] = {}
        fields = self._fields
        for key, inner in value.items():
            validate = fields.get(key)
            if validate is None:
                raise Problem(errors.unknown_parameter, str(key)[: limits.PARAM_NAME_CHARS_MAX])
            if inner is None and key in self._optional:
                continue
            try:
                canonical = validate(inner)
            except Problem as problem:
                problem.at(key)
                raise
            if canonical is not _DROPPED:
                result[key] = canonical
        for key in self.required:
            if key not in result:
                raise Problem(errors.missing_parameter, key)
        if self._check is not None:
            self._check(result)
        return result


class Tagged:
    """One of several objects, told apart by the field ``type``."""

    __slots__ = ("shapes", "supported")

    def __init__(self, shapes: Mapping[str, Validator]) -> None:
        self.shapes = dict(shapes)
        self.supported = supported(shapes)

    @property
    def schema(self) -> JsonSchema:
        variants = [schema for schema in map(schema_of, self.shapes.values()) if schema is not None]
        return {"oneOf": variants}

    def __call__(self, value: Any) -> Any:
        if type(value) is not dict:
            raise wrong_type("an object", value)
        tag = value.get("type")
        if tag is None:
            raise Problem(errors.missing_parameter, "type")
        if type(tag) is not str:
            raise wrong_type("a string", tag, "type")
        shape = self.shapes.get(tag)
        if shape is None:
            raise wrong_choice(tag, self.supported, "type")
        return shape(value)


def supported(shapes: Mapping[str, Validator]) -> tuple[str, ...]:
    """The variants that are honoured."""
    return tuple(tag for tag, shape in shapes.items() if not isinstance(shape, RefusedType))


@described({})
def free(value: Any) -> Any:
    """Any JSON, passed on as it is, but not nested too deep: what is stored and sent on gets more levels around it."""
    if not _is_shallow(value, limits.JSON_DEPTH_MAX):
        raise wrong_value(f"it is nested deeper than {limits.JSON_DEPTH_MAX} levels.")
    return value


@described({"type": "object"})
def free_object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise wrong_type("an object", value)
    checked: dict[str, Any] = free(value)
    return checked


def _is_shallow(value: Any, levels: int) -> bool:
    if type(value) is dict:
        value = value.values()
    elif type(value) is not list:
        return not (type(value) is float and not math.isfinite(value))
    if levels == 0:
        return False
    return all(_is_shallow(inner, levels - 1) for inner in value)


def dropped(validate: Validator) -> Validator:
    """Validated, then left out: it has no effect here and must not be stored."""

    @described(schema_of(validate) or {})
    def check(value: Any) -> object:
        validate(value)
        return _DROPPED

    return check


def refused(reason: str) -> Validator:
    """A field that is known and that cannot be honoured."""

    def check(value: Any) -> None:
        raise Problem(lambda param: errors.unsupported_parameter(param, reason))

    return check


class RefusedType:
    """A variant that is known and that cannot be honoured; the error stands at its ``type``."""

    __slots__ = ("_code", "_reason")

    def __init__(self, reason: str, *, code: str = "unsupported_value") -> None:
        self._reason = reason
        self._code = code

    def __call__(self, value: Any) -> Any:
        kind = str(value["type"])
        if self._code == "unsupported_parameter":
            raise Problem(lambda param: errors.unsupported_parameter(param, f"'{kind}': {self._reason}"), "type")
        raise Problem(lambda param: errors.unsupported_value(param, kind, self._reason), "type")


def only(supported: Any, reason: str) -> Validator:
    """Exactly one value is honoured, the others are refused with a sentence."""

    @described({"enum": [supported]})
    def check(value: Any) -> Any:
        if type(value) is not type(supported):
            raise wrong_type(type_name(supported), value)
        if value != supported:
            shown = str(value).lower() if isinstance(value, bool) else str(value)[:80]
            raise Problem(lambda param: errors.unsupported_value(param, shown, reason))
        return value

    return check


def constant(value: str) -> Validator:
    """A ``type`` that is known already."""
    return choice(value)
