"""Query strings. A frozen dataclass is the description of one: requests are read by it, and the OpenAPI document is made from it.

    @dataclass(frozen=True, slots=True)
    class TreeQuery:
        path: Annotated[str, TEXT] = "/mnt/data"
        depth: Annotated[int | None, whole_number(1, 100)] = None

A field without a :class:`Parameter` is for code that makes the dataclass itself: no query sets it.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, get_type_hints

from moorage import errors, limits
from moorage.dataclass import dataclass
from moorage.wire.schema import BOOLEAN, STRING, JsonSchema
from moorage.wire.types import INCLUDABLE

T = TypeVar("T")
Query = Sequence[tuple[str, str]]
"""Names and values in the order sent: ``include[]=a&include[]=b`` repeats its name (both SDKs write the brackets)."""

_WITHOUT_EFFECT: Final = (("beta", "true"), ("include", ""), ("include[]", ""))
"""The SDK's beta methods put ``beta=true`` behind every address. What is new in their bodies has to be refused by its own name."""
_INTEGER_MAX: Final = 2**53
"""The largest whole number that every reader of JSON keeps. The document does not repeat it."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query: its schema, and how its values are read."""

    schema: JsonSchema | None
    """None for one that the document does not tell of."""
    read: Callable[[str, Query], Any]
    """Takes the parameter's name and all that was sent for it, at least one pair. Raises :class:`~moorage.errors.ApiError`."""
    name: str | None = None
    """Unless it is the field's."""
    brackets: str = ""
    """A pattern of what may follow the name."""
    example: str = ""
    """What follows the name in the OpenAPI document."""


class QueryReader(Generic[T]):
    """Reads query strings as a dataclass describes them. Of a query that ``ignores_others`` unknown parameters are left out."""

    def __init__(self, kind: type[T], *, ignores_others: bool = False) -> None:
        self._kind = kind
        self._ignores_others = ignores_others
        hints = get_type_hints(kind, include_extras=True)
        fields = {field.name: field.default for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # a dataclass
        said = [(name, each) for name in fields for each in getattr(hints[name], "__metadata__", ()) if isinstance(each, Parameter)]
        self._parameters = {parameter.name or name: (name, parameter) for name, parameter in said}
        self.schemas = tuple(
            (name + parameter.example, _with_default(parameter.schema, fields[field]))
            for name, (field, parameter) in self._parameters.items()
            if parameter.schema is not None
        )
        """The parameters of the OpenAPI document: names, and what each takes."""

    def __call__(self, query: Query) -> T:
        """Raises :class:`~moorage.errors.ApiError` that names the parameter."""
        given: dict[str, list[tuple[str, str]]] = {}
        for sent, value in query:
            name = sent.partition("[")[0]
            if name in self._parameters and re.fullmatch(self._parameters[name][1].brackets, sent[len(name) :], re.DOTALL):
                given.setdefault(name, []).append((sent, value))
            elif not self._ignores_others and (sent, value) not in _WITHOUT_EFFECT:
                raise self._unknown(sent, name)
        return self._kind(**{self._parameters[name][0]: self._parameters[name][1].read(name, sent) for name, sent in given.items()})

    def _unknown(self, sent: str, name: str) -> errors.ApiError:
        if name in self._parameters:  # With brackets that it does not take, or without those that it needs.
            return errors.unknown_parameter(sent[: limits.PARAM_NAME_CHARS_MAX])
        return errors.unknown_parameter(sent.removesuffix("[]")[: limits.PARAM_NAME_CHARS_MAX], known=self._parameters)


def _with_default(schema: JsonSchema, default: Any) -> JsonSchema:
    return schema | {"default": default} if isinstance(default, int | str) and default != "" else schema


def last(query: Query) -> str:
    """Of a parameter that was sent several times."""
    return query[-1][1]


TEXT: Final = Parameter(STRING, lambda name, sent: last(sent))
CURSOR: Final = Parameter(STRING, lambda name, sent: last(sent) or None)


def refused(reason: str) -> Parameter:
    """A parameter of other lists. An empty one is no request for it."""

    def read(name: str, sent: Query) -> None:
        if last(sent):
            raise errors.unsupported_parameter(name, reason)

    return Parameter(None, read)


def whole_number(minimum: int = 0, maximum: int = _INTEGER_MAX) -> Parameter:
    schema = {"type": "integer", "minimum": minimum} | ({} if maximum == _INTEGER_MAX else {"maximum": maximum})
    return Parameter(schema, lambda name, sent: number_of(name, last(sent), minimum, maximum))


def number_of(name: str, value: str, minimum: int, maximum: int) -> int:
    if not (value.isascii() and value.removeprefix("-").isdigit() and len(value) <= limits.QUERY_DIGITS_MAX):
        raise errors.invalid_type(name, "an integer", "a string")
    number = int(value)
    if number < minimum:
        raise errors.below_minimum(name, "integer", number, minimum)
    if number > maximum:
        raise errors.above_maximum(name, "integer", number, maximum)
    return number


def choice(*values: str) -> Parameter:
    return Parameter({"type": "string", "enum": list(values)}, lambda name, sent: _chosen(name, last(sent), values))


def _chosen(name: str, value: str, values: tuple[str, ...]) -> str:
    if value not in values:
        raise errors.invalid_choice(name, value[: limits.PARAM_NAME_CHARS_MAX], values)
    return value


def _flag(name: str, sent: Query) -> bool:
    match last(sent).lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise errors.invalid_type(name, "a boolean", "a string")


FLAG: Final = Parameter(BOOLEAN, _flag)


def words(*values: str) -> Parameter:
    """Words with commas between them, or the parameter repeated; only of ``values`` if there are any."""

    def read(name: str, sent: Query) -> frozenset[str]:
        found = _words(sent)
        return frozenset(_chosen(name, word, values) for word in found) if values else frozenset(found)

    return Parameter(STRING, read, brackets=r"(\[\])?")


def _words(sent: Query) -> list[str]:
    return [word.strip() for _, value in sent for word in value.split(",") if word.strip()]


def _included(name: str, sent: Query) -> tuple[str, ...]:
    wanted = [_chosen(f"{name}[{index}]", value, INCLUDABLE) for index, value in enumerate(_words(sent))]
    return tuple(dict.fromkeys(wanted))


INCLUDE: Final = Parameter(
    {"type": "array", "items": {"type": "string", "enum": list(INCLUDABLE)}}, _included, brackets=r"(\[\])?", example="[]"
)


def _pairs(name: str, sent: Query) -> dict[str, str]:
    found = {key[len(name) + 1 : -1]: value for key, value in sent}
    if len(found) > limits.METADATA_PAIRS_MAX:
        raise errors.too_many_properties(name, len(found), limits.METADATA_PAIRS_MAX)
    return found


METADATA: Final = Parameter(STRING, _pairs, brackets=r"\[.+\]", example="[team]")
"""``metadata[team]=blue``: pairs that all must match."""
