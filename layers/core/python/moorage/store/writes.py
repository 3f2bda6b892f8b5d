"""A write of one record with its conditions, as a value that every table understands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]
"""Attributes by name: str, int, float, bool, bytes, None, lists and dicts of these."""


@dataclass(frozen=True, slots=True)
class Write:
    """A change to one record, the whole of it, or its end, and what must be true of what stands there.

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

    @classmethod
    def put(cls, record: Record, *, if_absent: bool = False) -> "Write":
        return cls(record["PK"], record["SK"], record=record, is_there=False if if_absent else None)
