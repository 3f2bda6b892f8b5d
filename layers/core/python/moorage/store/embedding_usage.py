"""The use of embeddings: counted by the hour, the model and the key, in the partition of the tenant's sums of usage.

Each request to an embedding model counts up one record, whether it is a client's, one for a search or one for a file that is read; what
needs no embeddings writes nothing here. A count that cannot be written is told in the log, and lost: what it counts has been done.
"""

from collections.abc import Callable
from typing import Final

from moorage.dataclass import dataclass
from moorage.store import keys, schema
from moorage.store.table import TABLE_ERRORS, Table
from moorage.store.usage_sums import HOUR_SECONDS
from moorage.telemetry import tell_error

_PREFIX: Final = "EMBEDDED#"


@dataclass(slots=True)
class EmbeddingCounts:
    """Of some hour, or of many."""

    requests: int = 0
    tokens: int = 0
    nanodollars: int = 0
    unpriced: int = 0
    """Requests whose price was not known."""

    def join(self, other: "EmbeddingCounts") -> None:
        self.requests += other.requests
        self.tokens += other.tokens
        self.nanodollars += other.nanodollars
        self.unpriced += other.unpriced


@dataclass(frozen=True, slots=True)
class EmbeddingUsageEntry:
    hour: int
    model: str
    key_id: str
    """Empty for files that are read and for searches: no key stands for these."""
    embedding: EmbeddingCounts


class EmbeddingUsageStore:
    def __init__(self, table: Table, *, clock: Callable[[], float], retention_seconds: int) -> None:
        self._table = table
        self._clock = clock
        self._retention_seconds = retention_seconds

    async def count(self, tenant_id: str, model: str, key_id: str, tokens: int, nanodollars: int | None) -> None:
        """A request, and what it has cost; None if that is not known."""
        now = int(self._clock())
        hour = now - now % HOUR_SECONDS
        try:
            await self._table.update(
                keys.usage(tenant_id),
                f"{_at(hour)}#{key_id}#{model}",
                set={
                    "hour": hour,
                    "model": model,
                    "key_id": key_id,
                    schema.TTL_ATTRIBUTE: hour + HOUR_SECONDS + self._retention_seconds,
                },
                add={"requests": 1, "tokens": tokens, "nanodollars": nanodollars or 0, "unpriced": int(nanodollars is None)},
                must_exist=False,
            )
        except TABLE_ERRORS as error:
            tell_error(error, "embeddings could not be counted", tenant_id=tenant_id, tokens=tokens)

    async def between(self, tenant_id: str, since: int, until: int) -> list[EmbeddingUsageEntry]:
        """Of all hours that have a part in this time, both ends included."""
        before_first = _at(since - since % HOUR_SECONDS)
        records = await self._table.query(keys.usage(tenant_id), prefix=_PREFIX, after=before_first)
        return [
            EmbeddingUsageEntry(
                record["hour"],
                record["model"],
                record["key_id"],
                EmbeddingCounts(record["requests"], record["tokens"], record["nanodollars"], record["unpriced"]),
            )
            for record in records
            if record["hour"] <= until
        ]


def _at(hour: int) -> str:
    return f"{_PREFIX}{hour:012d}"
