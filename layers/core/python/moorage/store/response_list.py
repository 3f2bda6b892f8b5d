"""The list of a tenant's responses: its entries in the index, and how it is read.

A response that has ended is listed by its final batch, which is written once and anyhow, or by its record if both are written by one
request and the record has room: no record more, and one entry of the index. The entry's sort key is the place, ``<created>#<id>``, and
behind it a row: status, model, tokens and what else a list is filtered and summed by. So a filter reads the index alone. What a client
wrote (input, metadata) never stands in a key, because AWS shows keys in trails and reports; of metadata there are tags, a few bits of a
hash.

One that runs is found on the loop's own list (``INFLIGHT``), and one in the foreground, from its first heartbeat on, by an entry of its
record that bears the place alone; its final batch comes right behind it in the list and takes its place.

A deleted response leaves its row, as long as it would have been kept: what it has used stays counted.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, NamedTuple

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import invalid_value
from moorage.store import keys, schema
from moorage.store.table import Record, Table

KIND: Final = "responses"
DELETED: Final = "deleted"
_BEHIND: Final = "#\uffff"
"""After every row of a place, and of a second."""


@dataclass(frozen=True, slots=True)
class ResponseRow:
    """The index entry of a response that has ended."""

    status: str
    model: str
    key_id: str = ""
    """Of the API key that asked for it."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    tools: Mapping[str, int] = field(default_factory=dict)
    """Items of its output that are calls, by type."""
    conversation_id: str = ""
    container_id: str = ""
    nanodollars: int | None = None
    """None where the price was not known."""
    tags: str | None = None
    """Of its metadata (:func:`tags_of`); None in rows of versions that did not keep them."""

    @property
    def traits(self) -> "ListedTraits":
        return ListedTraits(self.status, self.model, self.key_id, self.conversation_id, self.container_id, self.tags)

    @classmethod
    def of(
        cls, response: Mapping[str, Any], *, key_id: str, conversation_id: str | None, container_id: str | None, tags: str
    ) -> "ResponseRow":
        usage = response.get("usage") or {}
        cost = usage.get("cost")
        return cls(
            status=response["status"],
            model=str(response.get("model", ""))[: limits.LISTED_MODEL_CHARS_MAX],
            key_id=key_id,
            input_tokens=usage.get("input_tokens", 0),
            cached_tokens=usage.get("input_tokens_details", {}).get("cached_tokens", 0),
            output_tokens=usage.get("output_tokens", 0),
            reasoning_tokens=usage.get("output_tokens_details", {}).get("reasoning_tokens", 0),
            tools=calls_by_type(response["output"]),
            conversation_id=conversation_id or "",
            container_id=container_id or "",
            nanodollars=None if cost is None else round(cost["usd"] * 1_000_000_000),
            tags=tags,
        )

    def to_text(self) -> str:
        """Without the empty ones at its end."""
        fields = [
            self.status,
            self.model,
            self.key_id,
            self.input_tokens,
            self.cached_tokens,
            self.output_tokens,
            self.reasoning_tokens,
            dict(self.tools),
            self.conversation_id,
            self.container_id,
            self.nanodollars,
            self.tags,
        ]
        while fields[-1] in ({}, None):
            fields.pop()
        return orjson.dumps(fields).decode()

    @classmethod
    def from_text(cls, text: str) -> "ResponseRow":
        """More fields than these may have been written by a later version."""
        return cls(*orjson.loads(text)[: len(cls.__dataclass_fields__)])


class ListedTraits(NamedTuple):
    """The traits of a row, for filters."""

    status: str
    model: str
    key_id: str
    conversation_id: str
    container_id: str
    tags: str | None


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The traits that a filter wants of a row; an empty one matches every row."""

    statuses: frozenset[str] = frozenset()
    model: str = ""
    key_id: str = ""
    conversation_id: str = ""
    container_id: str = ""
    tags: str = ""
    has_container: bool | None = None

    def admits(self, traits: ListedTraits) -> bool:
        """As far as the row tells: of metadata it does not tell all."""
        return (
            traits.status != DELETED
            and (not self.statuses or traits.status in self.statuses)
            and self.model in ("", traits.model)
            and self.key_id in ("", traits.key_id)
            and self.conversation_id in ("", traits.conversation_id)
            and self.container_id in ("", traits.container_id)
            and self.has_container in (None, traits.container_id != "")
            and (traits.tags is None or _parts(self.tags) <= _parts(traits.tags))
        )

    def shortened(self, short: Callable[[str], str]) -> "ListFilter":
        """The wanted traits whose ids of conversations and containers are shortened."""
        return replace(self, conversation_id=short(self.conversation_id), container_id=short(self.container_id))


_TAG_CHARS: Final = 2


def tags_of(tenant_id: str, metadata: Mapping[str, str]) -> str:
    """Twelve bits of a hash of each pair: enough to leave out nearly all rows without it, too few to tell its value."""
    digests = [hashlib.sha256(orjson.dumps([tenant_id, name, value])).digest() for name, value in metadata.items()]
    return "".join(sorted(base64.urlsafe_b64encode(digest[:3])[:_TAG_CHARS].decode() for digest in digests))


def _parts(tags: str) -> set[str]:
    return {tags[start : start + _TAG_CHARS] for start in range(0, len(tags), _TAG_CHARS)}


def calls_by_type(output: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of calls of each tool in an output."""
    calls = [str(item["type"]) for item in output if item["type"].endswith("_call")]
    return {name: calls.count(name) for name in sorted(set(calls))}


@dataclass(frozen=True, slots=True)
class ListedResponse:
    """A response in the list."""

    place: str
    response_id: str
    row: ResponseRow | None
    """None while it runs."""
    final_number: int = 0
    """Number of the first event of its final batch, once it has ended."""

    @property
    def created_at(self) -> int:
        return int(self.place.partition("#")[0])


@dataclass(frozen=True, slots=True)
class ListRange:
    """A part of the list, in one direction."""

    after: str | None = None
    """The place behind which it begins."""
    descending: bool = True
    created_from: int | None = None
    created_to: int | None = None
    """Unix seconds, both included."""

    def holds(self, place: str) -> bool:
        created_at = int(place.partition("#")[0])
        is_beyond = self.after is None or (place < self.after if self.descending else place > self.after)
        return (
            is_beyond
            and (self.created_from is None or created_at >= self.created_from)
            and (self.created_to is None or created_at <= self.created_to)
        )

    def within(self, low: int | None, high: int | None) -> "ListRange":
        """Its responses between these seconds, both included."""
        lows = [second for second in (low, self.created_from) if second is not None]
        highs = [second for second in (high, self.created_to) if second is not None]
        return replace(self, created_from=max(lows, default=None), created_to=min(highs, default=None))


async def inflight(table: Table, tenant_id: str) -> list[ListedResponse]:
    """A tenant's part of the loop's list, oldest first."""
    part = keys.inflight(tenant_id)
    found = await table.query(keys.INFLIGHT, prefix=part, index=schema.INDEX)
    return [ListedResponse(record["GSI1SK"].removeprefix(part), keys.response.read(record["PK"])[1], None) for record in found]


def running_attributes(tenant_id: str, created_at: int, response_id: str) -> Record:
    """The record that lists a response in the foreground that has not ended."""
    return {"GSI1PK": keys.listing(tenant_id, KIND), "GSI1SK": keys.listed(created_at, response_id)}


def ended_attributes(tenant_id: str, created_at: int, response_id: str, row: ResponseRow) -> Record:
    """The record that lists a response that has ended."""
    return {"GSI1PK": keys.listing(tenant_id, KIND), "GSI1SK": f"{keys.listed(created_at, response_id)}#{row.to_text()}"}


def remains(tenant_id: str, response_id: str, records: Sequence[Record]) -> Record | None:
    """A deleted response's rest of these records: its place, and its usage; None if it was not listed."""
    meta = next((record for record in records if record["SK"] == keys.META), None)
    entries = [entry for record in records if (entry := entry_of(record)) is not None and entry.row is not None]
    if meta is None or not meta["store"] or not entries:
        return None
    row = entries[0].row
    assert row is not None
    return {
        "PK": keys.response(tenant_id, response_id),
        "SK": keys.GONE,
        "created_at": meta["created_at"],
        schema.TTL_ATTRIBUTE: meta[schema.TTL_ATTRIBUTE],
        **ended_attributes(
            tenant_id, meta["created_at"], response_id, replace(row, status=DELETED, conversation_id="", container_id="", tags="")
        ),
    }


def entry_of(record: Record) -> ListedResponse | None:
    """A record of the list as an entry; None if it is not listed here."""
    if not record.get("GSI1PK", "").endswith(f"#L#{KIND}"):
        return None
    created, response_id, *row = record["GSI1SK"].split("#", 2)
    number = keys.event.read(record["SK"]) if record["SK"].startswith(keys.event.prefix) else 0
    return ListedResponse(f"{created}#{response_id}", response_id, ResponseRow.from_text(row[0]) if row else None, number)


class ResponseList:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def place(self, tenant_id: str, response_id: str) -> str:
        """The place of a response, also of a deleted one. Raises an :class:`~moorage.errors.ApiError` for an unknown id."""
        pk = keys.response(tenant_id, response_id)
        for record in await self._table.get_many([(pk, keys.META), (pk, keys.GONE)]):
            return keys.listed(record["created_at"], response_id)
        raise invalid_value("after", f"'{response_id}' is not in this list.")

    async def read(self, tenant_id: str, part: ListRange, limit: int) -> tuple[list[ListedResponse], str | None]:
        """Up to ``limit`` entries (two or more) in order, and the place to go on from; None if there are no more. A response may come
        twice, once as one that runs."""
        bottom = None if part.created_from is None else f"{part.created_from:012d}"
        top = None if part.created_to is None else f"{part.created_to:012d}{_BEHIND}"
        if part.after is not None and part.descending:
            top = part.after if top is None else min(top, part.after)
        elif part.after is not None:
            bottom = max(bottom or "", part.after + _BEHIND)
        found = await self._table.query(
            keys.listing(tenant_id, KIND),
            after=bottom,
            up_to=top,
            descending=part.descending,
            limit=limit + 1,
            index=schema.INDEX,
        )
        entries = [entry for record in found[:limit] if (entry := entry_of(record)) is not None]
        if not part.descending and len(found) > limit and entries[-1].row is None:
            del entries[-1]  # Its row may be the next entry, and the two are to be seen together.
        inside = [entry for entry in entries if part.holds(entry.place)]
        return inside, entries[-1].place if len(found) > limit else None

    async def running(self, tenant_id: str) -> list[ListedResponse]:
        """Those that the loop owes an end, oldest first; some may have ended just now."""
        return await inflight(self._table, tenant_id)
