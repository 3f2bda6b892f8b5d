"""The rest of each API key's rate: one record for a key, shared by all processes.

A record is replaced by compare-and-set on its version. It ends by itself: one that is a minute old says nothing that no record does
not say.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed
from moorage.store import keys
from moorage.store.table import Record, Table

_KEPT_SECONDS: Final = 3600
"""Many times a minute: clocks differ."""


@dataclass(frozen=True, slots=True)
class BucketLevels:
    """How much each kind of bucket held at a time. A kind that is missing is full."""

    version: int = 0
    """0: there is no record."""
    at: float = 0.0
    """Unix seconds."""
    left: Mapping[str, float] = field(default_factory=dict)


class Rates:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def replace(self, key_sha256: str, seen: BucketLevels, left: Mapping[str, float], *, at: float) -> tuple[bool, BucketLevels]:
        """Write these levels if ``seen`` still stands there. Whether that was so, and the present record."""
        pk, version = keys.rate(key_sha256), seen.version + 1
        try:
            record = await self._table.update(
                pk,
                keys.META,
                set={"version": version, "at": at, "left": dict(left), "ttl": int(at) + _KEPT_SECONDS},
                condition={"version": seen.version} if seen.version else None,
                absent=() if seen.version else ("version",),
                must_exist=False,
            )
        except ConditionFailed as error:
            return False, BucketLevels() if error.item is None else _levels(error.item)
        return True, _levels(record)


def _levels(record: Record) -> BucketLevels:
    return BucketLevels(record["version"], record["at"], record["left"])
