"""A frozen dataclass as attributes of a record, by its fields, and back.

What is written and read most, or must be small, is packed by hand instead: responses, events and steps.
"""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final, Generic, TypeVar

from moorage.store.table import Record

T = TypeVar("T")


class Codec(Generic[T]):
    """``nested`` fields hold a dataclass of another codec, or None; ``sparse`` ones are written only where they are not their default.
    Tuples are lists in a record. A field that a record does not have yet, because it is older, is its default."""

    def __init__(
        self, kind: type[T], *, nested: "Mapping[str, Codec[Any]] | None" = None, sparse: Collection[str] = ()
    ) -> None:
        self._kind = kind
        self._fields: Final[tuple[Field[Any], ...]] = fields(kind)  # type: ignore[arg-type]
        self._nested = dict(nested or {})
        self._sparse = frozenset(sparse)

    def pack(self, value: T) -> Record:
        values = ((field, getattr(value, field.name)) for field in self._fields)
        return {
            field.name: self._packed(field.name, inner)
            for field, inner in values
            if field.name not in self._sparse or inner != field.default
        }

    def _packed(self, name: str, value: Any) -> Any:
        if name in self._nested:
            return None if value is None else self._nested[name].pack(value)
        if isinstance(value, tuple):
            return list(value)
        return dict(value) if isinstance(value, Mapping) else value

    def unpack(self, record: Record) -> T:
        """Raises KeyError if a field is missing that has no default; what else stands in the record is left alone."""
        return self._kind(**{field.name: self._unpacked(field, record) for field in self._fields if self._is_told(field, record)})

    def _is_told(self, field: Field[Any], record: Record) -> bool:
        return field.name in record or (field.default is MISSING and field.default_factory is MISSING)

    def _unpacked(self, field: Field[Any], record: Record) -> Any:
        value = record[field.name]
        if field.name in self._nested:
            return None if value is None else self._nested[field.name].unpack(value)
        return tuple(value) if isinstance(value, list) else value
