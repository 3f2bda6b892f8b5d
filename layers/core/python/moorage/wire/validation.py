"""Types of the wire, checked by pydantic.

A JSON object that the rest of the code goes on with is a ``TypedDict`` under :func:`wire`: checking it yields a plain dictionary in
canonical form. Unknown fields are refused, optional fields that are null are left out, types are never converted. A small body that
a route takes as it is, is a :class:`Body`.

    @wire
    class Click(TypedDict, total=False):
        type: Required[Literal["click"]]
        x: Required[int]
        keys: Array[Text]

    parse_click: Final = Parser[Click](Click)

The annotations below say what types alone cannot: objects told apart by ``type`` (:class:`OneOf`), fields and variants that are known
and not honoured (:class:`RefusedField`, :class:`RefusedVariant`). The OpenAPI document is made from the same types (``schema.py``).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Generic, TypeVar, cast
from weakref import WeakSet

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticOmit, SchemaValidator, core_schema

from moorage import errors, limits
from moorage.dataclass import dataclass
from moorage.errors import too_many_values
from moorage.wire.refusals import KIND, LABEL, VARIANT, problem, refusal, wrong_value
from moorage.wire.values import holds_more

T = TypeVar("T")
_Class = TypeVar("_Class", bound=type)
Fields = dict[str, Any]

_CONFIG: Final = ConfigDict(extra="forbid", strict=True, frozen=True)


class JsonValidator(Generic[T]):
    """Checks a JSON value and brings it into canonical form. Built when it is first used: not every process parses everything. One that
    serves many builds them all first (:func:`build_validators`)."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        _VALIDATORS.add(self)

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(self.kind.__annotations__)

    @cached_property
    def schema(self) -> CoreSchema:
        """Of pydantic's core, complete in itself."""
        return TypeAdapter(self.kind).core_schema

    @cached_property
    def _check(self) -> Callable[[Any], T]:
        check: Callable[[Any], T] = SchemaValidator(self.schema).validate_python
        return check

    @property
    def is_built(self) -> bool:
        return "_check" in self.__dict__

    def build(self, schema: CoreSchema) -> None:
        """Have it ready for its first use, from the schema of its kind."""
        self.schema = schema
        self._check  # noqa: B018

    def __call__(self, value: Any) -> T:
        """Raises :class:`~moorage.errors.ApiError` that names the field."""
        try:
            return self._check(value)
        except ValidationError as error:
            raise refusal(error, value, self._check, getattr(self.kind, "__annotations__", ())) from None

    def body(self, body: bytes | Fields) -> T:
        """The same of a request's body."""
        return self(parse_object(body))


_VALIDATORS: Final["WeakSet[JsonValidator[Any]]"] = WeakSet()


def build_validators(chosen: Iterable[JsonValidator[Any]] | None = None) -> None:
    """Build these, or all that the modules so far imported declare, in some 70 ms. A process that serves many has that behind it when
    it begins: of the first request of a kind others would wait for it, up to 50 ms each.

    pydantic looks at all kinds together. Alone, each kind would have it look at all items and tools again."""
    validators = [validator for validator in (_VALIDATORS if chosen is None else chosen) if not validator.is_built]
    kinds: Any = tuple[tuple(validator.kind for validator in validators)]  # type: ignore[misc]
    whole: Fields = {"definitions": [], **TypeAdapter(kinds).core_schema}
    inner: Fields = whole["schema"] if whole["type"] == "definitions" else whole
    definitions = {str(each["ref"]): each for each in whole["definitions"]}
    named = {ref: _named_in(each) for ref, each in definitions.items()}
    for validator, own in zip(validators, inner["items_schema"], strict=True):
        needed, found = set[str](), _named_in(own)
        while found:
            needed |= found
            found = set[str]().union(*(named[ref] for ref in found)) - needed
        validator.build(core_schema.definitions_schema(own, [each for ref, each in definitions.items() if ref in needed]))


def _named_in(schema: Any) -> set[str]:
    """The definitions that a schema refers to."""
    found, parts = set[str](), [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if part.get("type") == "definition-ref":
                found.add(part["schema_ref"])
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
    return found


def parse_object(body: bytes | Fields, *, values_max: int = limits.REQUEST_VALUES_MAX) -> Fields:
    """A body as a JSON object. Raises :class:`~moorage.errors.ApiError`."""
    if isinstance(body, dict):
        return body
    if len(body) > limits.REQUEST_BODY_BYTES_MAX:
        raise errors.body_too_large(limits.REQUEST_BODY_BYTES_MAX)
    if holds_more(body, values_max):
        raise too_many_values(values_max)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.unparsable_body(str(error)) from error
    if type(value) is not dict:
        raise errors.unparsable_body("it must be a JSON object")
    return value


class Body(BaseModel):
    """The body of a request, as a frozen object with defaults."""

    model_config = _CONFIG

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: inner for name, inner in value.items() if inner is not None or _is_required(cls, name)}


def _is_required(model: type[BaseModel], name: str) -> bool:
    return name in model.model_fields and model.model_fields[name].is_required()


# --- Objects ----------------------------------------------------------------------------------------------------------


def wire(cls: _Class) -> _Class:
    """Makes a ``TypedDict`` a type of the wire."""
    return wire_with(None)(cls)


def wire_with(then: Callable[[Fields], Fields] | None) -> Callable[[_Class], _Class]:
    """The same, with a last step: it looks at what belongs together, or completes the canonical object."""

    def get_core_schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = dict(handler(source))
        fields: dict[str, Any] = cast("dict[str, Any]", schema["fields"])
        optional = frozenset(name for name, field in fields.items() if not field.get("required"))
        nullable = {name: {**fields[name], "schema": core_schema.nullable_schema(fields[name]["schema"])} for name in optional}
        # The name that other uses of the type refer to must be that of the whole, last step included.
        ref = str(schema.pop("ref"))
        checked: Any = {**schema, "fields": fields | nullable}
        return core_schema.no_info_after_validator_function(_canonical(optional, then), checked, ref=ref)

    def decorate(cls: _Class) -> _Class:
        marked: Any = cls
        marked.__pydantic_config__ = _CONFIG
        marked.__get_pydantic_core_schema__ = get_core_schema
        return cls

    return decorate


def _canonical(optional: frozenset[str], then: Callable[[Fields], Fields] | None) -> Callable[[Fields], Fields]:
    def canonical(value: Fields) -> Fields:
        if None in value.values():
            value = {name: inner for name, inner in value.items() if inner is not None or name not in optional}
        return value if then is None else then(value)

    return canonical


@dataclass(frozen=True, slots=True)
class RefusedVariant:
    """A variant that is known and not honoured; the error stands at its ``type``."""

    reason: str
    code: str = "unsupported_value"

    def refuse(self, value: Any) -> Any:
        kind, reason = str(value["type"]), self.reason
        if self.code == "unsupported_parameter":
            raise problem(lambda param: errors.unsupported_parameter(param, f"'{kind}': {reason}"), "type")
        raise problem(lambda param: errors.unsupported_value(param, kind, reason), "type")


@dataclass(frozen=True, slots=True)
class OneOf:
    """Objects that are told apart by ``type``. ``tag_of`` finds it if it may be left out."""

    variants: Mapping[str, Any]
    tag_of: Callable[[Any], str | None] | None = None

    @property
    def supported(self) -> tuple[str, ...]:
        """The variants that are honoured."""
        return tuple(tag for tag, kind in self.variants.items() if not isinstance(kind, RefusedVariant) and not tag.startswith(LABEL))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.tagged_union_schema(
            {tag: self._variant(kind, handler) for tag, kind in self.variants.items()},
            "type" if self.tag_of is None else self.tag_of,
            custom_error_type=VARIANT,
            custom_error_message="no variant",
            custom_error_context={"supported": self.supported},  # type: ignore[dict-item]
        )

    def _variant(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if isinstance(kind, RefusedVariant):
            return core_schema.no_info_plain_validator_function(kind.refuse)
        return handler.generate_schema(kind)


class Either:
    """A value of one JSON type or another: ``Either("a string or an array", string=..., array=...)``."""

    def __init__(self, expected: str, **kinds: Any) -> None:
        self._expected = expected
        self._kinds = kinds

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.tagged_union_schema(
            {LABEL + name: handler.generate_schema(kind) for name, kind in self._kinds.items()},
            _json_type,
            custom_error_type=KIND,
            custom_error_message="another type",
            custom_error_context={"expected": self._expected},
        )


def _json_type(value: Any) -> str | None:
    return _JSON_TYPES.get(type(value))


_JSON_TYPES: Final[dict[type, str]] = {str: LABEL + "string", list: LABEL + "array", dict: LABEL + "object"}


# --- Fields that are not honoured -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RefusedField:
    """A field that is known and cannot be honoured."""

    reason: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._refuse)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        raise PydanticOmit

    def _refuse(self, value: Any) -> Any:
        reason = self.reason
        raise problem(lambda param: errors.unsupported_parameter(param, reason))


@dataclass(frozen=True, slots=True)
class Only:
    """Exactly one value is honoured, the others of its type are refused with a sentence."""

    supported: bool | str
    reason: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [self.supported]}

    def _check(self, value: Any) -> Any:
        if value != self.supported:
            shown, reason = str(value).lower() if isinstance(value, bool) else str(value)[:80], self.reason
            raise problem(lambda param: errors.unsupported_value(param, shown, reason))
        return value


Dropped: Final = AfterValidator(lambda value: None)
"""Of an optional field: checked, then left out. It has no effect here and must not be stored."""


# --- Values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Length:
    """The bounds of a list. It stops at the first entry that is wrong."""

    maximum: int = limits.INPUT_ITEMS_MAX
    minimum: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = cast("core_schema.ListSchema", handler(source))
        bounds: Any = {"max_length": self.maximum, "fail_fast": True, **({"min_length": self.minimum} if self.minimum else {})}
        return {**schema, **bounds}


Array = Annotated[list[T], Length()]
"""As long as the input may be."""

Text = Annotated[str, Field(max_length=limits.TEXT_CHARS_MAX)]
NonEmpty = Annotated[str, Field(min_length=1, max_length=limits.TEXT_CHARS_MAX)]
Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS_MAX)]
Id = Annotated[str, Field(min_length=1, max_length=limits.ITEM_ID_CHARS_MAX)]
CallId = Annotated[str, Field(min_length=1, max_length=limits.CALL_ID_CHARS_MAX)]
Identifier = Annotated[str, Field(max_length=limits.IDENTIFIER_CHARS_MAX)]
Number = Annotated[float, Field(allow_inf_nan=False)]


def _is_shallow(value: Any, levels: int) -> bool:
    if type(value) is dict:
        value = value.values()
    elif type(value) is not list:
        return not (type(value) is float and not math.isfinite(value))
    if levels == 0:
        return False
    return all(_is_shallow(inner, levels - 1) for inner in value)


def _shallow(value: Any) -> Any:
    if not _is_shallow(value, limits.JSON_DEPTH_MAX):
        raise wrong_value(f"it is nested deeper than {limits.JSON_DEPTH_MAX} levels.")
    return value


Free = Annotated[Any, AfterValidator(_shallow)]
"""Any JSON, passed on as it is, but not nested too deep: what is stored and sent on gets more levels around it."""
FreeObject = Annotated[dict[str, Any], AfterValidator(_shallow)]
