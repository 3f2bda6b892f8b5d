"""A write of one record with its conditions, as a value that every table understands."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from moorage.dataclass import dataclass

Record = dict[str, Any]
"""Attributes by name: str, int, float, bool, bytes, None, lists and dicts of these."""


@dataclass(frozen=True, slots=True)
class Write:
    """A change to one record, the whole of it, or its end, and the conditions on the present record.

    An attribute that is missing fulfils neither ``condition`` nor ``below``.
    """

    pk: str
    sk: str
    set: Mapping[str, Any] = field(default_factory=dict)
    condition: Mapping[str, Any] = field(default_factory=dict)
    """Attributes as they must be; none at all for a record that may be there or not."""
    remove: tuple[str, ...] = ()
    add: Mapping[str, int] = field(default_factory=dict)
    """To numbers; one that is missing counts as 0."""
    below: Mapping[str, int] = field(default_factory=dict)
    """Numbers that must be less than this."""
    set_once: Mapping[str, Any] = field(default_factory=dict)
    """Values for attributes that are not there yet."""
    absent: tuple[str, ...] = ()
    """Attributes that must not be there."""
    is_there: bool | None = None
    """Whether a record must stand there, or must not."""
    record: Record | None = None
    """What is put in the place of the whole record."""
    is_end: bool = False
    """It is not changed but deleted."""

    def holds(self, there: Record | None) -> bool:
        """Whether the conditions are true of the present record."""
        if self.is_there is not None and self.is_there != (there is not None):
            return False
        record = there or {}
        return (
            all(name in record and _is_same(record[name], value) for name, value in self.condition.items())
            and not any(name in record for name in self.absent)
            and all(_is_number(record.get(name)) and record[name] < value for name, value in self.below.items())
        )

    def applied(self, there: Record | None) -> Record:
        """The record after a write that is no end. Shares its values with the write."""
        if self.record is not None:
            return self.record
        changed = {"PK": self.pk, "SK": self.sk, **self.set_once, **(there or {}), **self.set}
        for name, number in self.add.items():
            changed[name] = changed.get(name, 0) + number
        for name in self.remove:
            changed.pop(name, None)
        return changed

    @classmethod
    def put(cls, record: Record, *, if_absent: bool = False) -> "Write":
        return cls(record["PK"], record["SK"], record=record, is_there=False if if_absent else None)


def _is_same(one: Any, other: Any) -> bool:
    """Python's True equals 1, a table's does not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
