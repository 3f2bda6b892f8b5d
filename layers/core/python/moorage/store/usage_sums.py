"""Kept sums of usage: of hours and days in a tenant's list of responses that are final.

Nothing is written for them when a response ends. A process that adds up a large past hour or day notes that it had no open response.
The next one that adds it up, ``USAGE_SETTLED_SECONDS`` later, keeps the sum. So a row that the index lacked at the first look is there
at the second. A deletion changes the count: it drops the sums and raises ``changes``. Keeping is conditional on that number. Digests of
the list are kept with the sums (``store/list_digest.py``). After a tenant's first question the reaper keeps its sums up to date
(``follow``), so that clients find past hours kept.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed
from moorage.store import keys, schema
from moorage.store.list_digest import ListDigest
from moorage.store.response_list import ResponseRow
from moorage.store.table import Record, Table

KIND: Final = "usage"
HOUR_SECONDS: Final = 3600
DAY_SECONDS: Final = 24 * HOUR_SECONDS
_FORM: Final = 2
"""Of what is packed: another form is not read, and added up anew."""
TOKENS: Final = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """An hour or a day, in UTC."""

    start: int
    seconds: int

    @property
    def end(self) -> int:
        return self.start + self.seconds

    def holds(self, moment: float) -> bool:
        return self.start <= moment < self.end


def day_of(moment: int) -> int:
    return moment - moment % DAY_SECONDS


def hours_of(day: TimeSpan) -> list[TimeSpan]:
    return [TimeSpan(start, HOUR_SECONDS) for start in range(day.start, day.end, HOUR_SECONDS)]


@dataclass(slots=True)
class Sum:
    responses: int = 0
    tool_calls: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    nanodollars: int = 0
    unpriced: int = 0
    """Responses whose price was not known."""

    def add(self, row: ResponseRow, tool_calls: int) -> None:
        self.responses += 1
        self.tool_calls += tool_calls
        self.statuses[row.status] += 1
        self.nanodollars += row.nanodollars or 0
        self.unpriced += row.nanodollars is None and bool(row.input_tokens or row.output_tokens)
        for name in TOKENS:
            self.tokens[name] += getattr(row, name)

    def join(self, other: "Sum") -> None:
        self.responses += other.responses
        self.tool_calls += other.tool_calls
        self.statuses += other.statuses
        self.nanodollars += other.nanodollars
        self.unpriced += other.unpriced
        self.tokens.update(other.tokens)

    def to_json(self) -> list[Any]:
        counted = [self.responses, self.tool_calls, self.nanodollars, self.unpriced]
        return [*counted, [self.tokens[name] for name in TOKENS], dict(self.statuses)]

    @classmethod
    def from_json(cls, packed: Sequence[Any]) -> "Sum":
        responses, tool_calls, nanodollars, unpriced, tokens, statuses = packed
        counted = Counter(dict(zip(TOKENS, tokens, strict=True)))
        return cls(responses, tool_calls, counted, Counter(statuses), nanodollars, unpriced)


@dataclass(slots=True)
class Sums:
    """Of a part of the list, as finely as anybody asks."""

    by_model_and_key: dict[tuple[str, str], Sum] = field(default_factory=dict)
    by_tool: dict[str, Sum] = field(default_factory=dict)

    def add(self, row: ResponseRow) -> None:
        self.by_model_and_key.setdefault((row.model, row.key_id), Sum()).add(row, sum(row.tools.values()))
        for name, calls in row.tools.items():
            self.by_tool.setdefault(name, Sum()).add(row, calls)

    def join(self, other: "Sums") -> None:
        for group, each in other.by_model_and_key.items():
            self.by_model_and_key.setdefault(group, Sum()).join(each)
        for name, each in other.by_tool.items():
            self.by_tool.setdefault(name, Sum()).join(each)

    def pack(self) -> bytes:
        rows = [[model, key_id, each.to_json()] for (model, key_id), each in self.by_model_and_key.items()]
        tools = [[name, each.to_json()] for name, each in self.by_tool.items()]
        return zlib.compress(orjson.dumps([_FORM, rows, tools]))

    @classmethod
    def unpack(cls, packed: bytes) -> "Sums | None":
        """None for another version's."""
        form, *parts = orjson.loads(zlib.decompress(packed))
        if form != _FORM:
            return None
        rows, tools = parts
        return cls(
            {(model, key_id): Sum.from_json(each) for model, key_id, each in rows}, {name: Sum.from_json(each) for name, each in tools}
        )


@dataclass(frozen=True, slots=True)
class StoredSums:
    """The noted state of a span."""

    sums: Sums | None
    settled_at: int
    """When nothing was open in it any more; 0 if that has not been seen."""
    changes: int
    """How often what was counted has changed."""


class UsageSums:
    def __init__(self, table: Table, tenant_id: str, *, retention_seconds: int) -> None:
        self._table = table
        self._tenant_id = tenant_id
        self._retention_seconds = retention_seconds

    async def known(self, spans: Iterable[TimeSpan]) -> dict[TimeSpan, StoredSums]:
        places = {self._place(span): span for span in spans}
        found = await self._table.get_many(places, consistent=True)
        return {places[record["PK"], record["SK"]]: _kept(record) for record in found}

    async def note(
        self, span: TimeSpan, known: StoredSums | None, sums: Sums, digest: ListDigest, *, now: int, is_settled: bool
    ) -> bool:
        """Note the sums just read; True if another look would find more to note.

        A writer that comes later than another's change or sums leaves them.
        """
        pk, sk = self._place(span)
        if known is None:
            first = {"PK": pk, "SK": sk, "settled_at": now if is_settled else 0, "changes": 0}
            with suppress(ConditionFailed):
                await self._table.put(first | self._ttl(span), if_absent=True)
            await self.follow(now)
            return True
        if is_settled and known.settled_at and now - known.settled_at < limits.USAGE_SETTLED_SECONDS:
            return True
        noted: dict[str, Any] = {"settled_at": now if is_settled else 0}
        if is_settled and known.settled_at:
            noted = {"sums": sums.pack()}
            if len(noted["sums"]) > limits.USAGE_KEPT_BYTES_MAX:
                return False
            await self._keep(span, digest)
        elif noted["settled_at"] == known.settled_at:
            return False
        with suppress(ConditionFailed):
            await self._table.update(pk, sk, set=noted, condition={"changes": known.changes, "settled_at": known.settled_at})
        return "sums" not in noted

    async def _keep(self, span: TimeSpan, digest: ListDigest) -> None:
        """The first digest of a final part of the list stays; a second one would say the same."""
        packed = digest.pack()
        if len(packed) <= limits.USAGE_KEPT_BYTES_MAX:
            place = {"PK": keys.usage(self._tenant_id), "SK": keys.usage_digest(span.start, span.seconds)}
            await self._table.put(place | {"digest": packed} | self._ttl(span))

    async def digests(self, spans: Iterable[TimeSpan]) -> dict[TimeSpan, ListDigest]:
        """The responses of these parts of the list, by their digests; parts without a digest are left out."""
        places = {keys.usage_digest(span.start, span.seconds): span for span in spans}
        found = await self._table.get_many((keys.usage(self._tenant_id), sk) for sk in places)
        digests = {places[record["SK"]]: ListDigest.unpack(record["digest"]) for record in found}
        return {span: digest for span, digest in digests.items() if digest is not None}

    async def follow(self, now: int) -> None:
        """Have the reaper keep sums from now on; harmless to repeat."""
        due = {"GSI1PK": keys.due_list(KIND), "GSI1SK": keys.due(now, self._tenant_id)}
        with suppress(ConditionFailed):
            await self._table.put({"PK": keys.usage(self._tenant_id), "SK": keys.USAGE_FOLLOWED, **due}, if_absent=True)

    async def look_again(self, at: int | None) -> None:
        """The time of the reaper's next look; None for never."""
        pk = keys.usage(self._tenant_id)
        if at is None:
            await self._table.delete(pk, keys.USAGE_FOLLOWED)
            return
        with suppress(ConditionFailed):
            await self._table.update(pk, keys.USAGE_FOLLOWED, set={"GSI1SK": keys.due(at, self._tenant_id)})

    def _ttl(self, span: TimeSpan) -> Record:
        return {schema.TTL_ATTRIBUTE: span.end + self._retention_seconds}

    async def forget(self, created_at: int) -> None:
        """A response of this time counts differently now."""
        for seconds in (HOUR_SECONDS, DAY_SECONDS):
            pk, sk = self._place(TimeSpan(created_at - created_at % seconds, seconds))
            with suppress(ConditionFailed):  # nothing is noted of it
                await self._table.update(pk, sk, set={"settled_at": 0}, add={"changes": 1}, remove=["sums"])

    def _place(self, span: TimeSpan) -> tuple[str, str]:
        return keys.usage(self._tenant_id), keys.usage_span(span.start, span.seconds)


async def due(table: Table, now: float) -> list[str]:
    """The tenants for the reaper's look."""
    listed = keys.due_list(KIND)
    return [keys.usage_tenant(entry["PK"]) for entry in await table.query(listed, up_to=keys.due(int(now), "~"), index=schema.INDEX)]


def _kept(record: Record) -> StoredSums:
    sums = Sums.unpack(record["sums"]) if "sums" in record else None
    return StoredSums(sums, record["settled_at"], record["changes"])
