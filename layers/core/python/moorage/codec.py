"""A frozen dataclass as attributes of a record, by its fields, and back: what every kind of record is written and read by.

Only a batch of events is packed by hand (``store/event_log.py``): it is what is written and read most.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from moorage.dataclass import dataclass

T = TypeVar("T")
Attributes = dict[str, Any]


class Packer(Protocol):
    def pack(self, value: Any, /) -> Any: ...

    def unpack(self, packed: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """A value that two functions pack and unpack."""

    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    attribute: str
    default: Any
    """``MISSING`` if it has none."""
    is_sparse: bool
    packer: Packer | None

    def packed(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value if self.packer is None else self.packer.pack(value)
        if isinstance(value, tuple):
            return list(value) if self.packer is None else [self.packer.pack(inner) for inner in value]
        if self.packer is not None:
            return None if value is None else self.packer.pack(value)
        if isinstance(value, StrEnum):
            return str(value)
        return dict(value) if isinstance(value, Mapping) else value

    def unpacked(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value) if self.packer is None else tuple(self.packer.unpack(inner) for inner in value)
        return value if self.packer is None or value is None else self.packer.unpack(value)


_PLAIN: Final = frozenset((str, int, bool, bytes, float))
"""What stands in a record as it is, unless its field has a packer."""


class Codec(Generic[T]):
    """Tuples are lists in a record. A field that a record does not have, because it is older, is its default.

    ``names``: attributes that are not called as their fields. ``nested``: fields that another codec packs, or a tuple of such values,
    or None. ``sparse``: fields that are written only if they are not their default. ``beside``: fields that stand elsewhere, in the
    record's key or its body; ``unpack`` is given them.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        names: Mapping[str, str] | None = None,
        nested: Mapping[str, Packer] | None = None,
        sparse: Collection[str] = (),
        beside: Collection[str] = (),
    ) -> None:
        self._kind = kind
        known = fields(kind)  # type: ignore[arg-type]
        others = {*(names or ()), *(nested or ()), *sparse, *beside} - {field.name for field in known}
        assert not others, f"{kind.__name__} has no {sorted(others)}"
        self._fields: Final = tuple(
            _Field(
                name=field.name,
                attribute=(names or {}).get(field.name, field.name),
                default=_default(field),
                is_sparse=field.name in sparse,
                packer=(nested or {}).get(field.name),
            )
            for field in known
            if field.name not in beside
        )
        self._by_attribute: Final = {field.attribute: field for field in self._fields}
        self._required: Final = tuple(field for field in self._fields if field.default is MISSING)

    def pack(self, value: T) -> Attributes:
        attributes: Attributes = {}
        for field in self._fields:
            inner = getattr(value, field.name)
            if not (field.is_sparse and inner == field.default):
                attributes[field.attribute] = field.packed(inner)
        return attributes

    def unpack(self, record: Mapping[str, Any], **beside: Any) -> T:
        """``beside`` is also what stands for a field that the record does not have. Raises KeyError if a field is missing that has no
        default; what else stands in the record is left alone."""
        for attribute, value in record.items():
            field = self._by_attribute.get(attribute)
            if field is not None:
                beside[field.name] = value if field.packer is None and type(value) is not list else field.unpacked(value)
        for field in self._required:
            if field.name not in beside:
                raise KeyError(field.attribute)
        return self._kind(**beside)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
