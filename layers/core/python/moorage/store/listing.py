"""Pages of one tenant's resources of a kind, newest or oldest first, as every list of the API gives them.

The index holds keys only; the records are read in batches of a page. An id that was deleted in the meantime still marks its place
for an hour (``keys.GONE``), because ``for file in client.files.list(): client.files.delete(file.id)`` is how people clean up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar, cast

from moorage import limits
from moorage.errors import ApiError, invalid_value
from moorage.store import keys, schema
from moorage.store.table import Record, Table
from moorage.wire.answers import ListOf, One
from moorage.wire.queries import PageQuery
from moorage.wire.responses import list_object

Entry = TypeVar("Entry")
Read = TypeVar("Read")


class Page(NamedTuple, Generic[Entry]):
    """A part of a list, in the order that was asked for."""

    entries: list[Entry]
    has_more: bool

    @classmethod
    def of(cls, found: Sequence[Entry], limit: int) -> "Page[Entry]":
        """The first ``limit`` of what was found: there are more if more were found."""
        return cls(list(found[:limit]), len(found) > limit)

    def turned(self) -> "Page[Entry]":
        return Page(self.entries[::-1], self.has_more)

    def fitting(self, size_of: Callable[[Entry], int]) -> "Page[Entry]":
        """As many of its entries as one answer may hold bytes; ``size_of`` counts those of an entry."""
        taken = fitting([size_of(entry) for entry in self.entries])
        return Page(self.entries[:taken], self.has_more or taken < len(self.entries))

    def read(self, read: Callable[[Entry], Read]) -> "Page[Read]":
        return Page([read(entry) for entry in self.entries], self.has_more)

    async def opened(self, opened: Callable[[Entry], Awaitable[Read]]) -> "Page[Read]":
        return Page(await asyncio.gather(*map(opened, self.entries)), self.has_more)

    def shown(self, show: Callable[[Entry], One]) -> ListOf[One]:
        """The page as a list of the API."""
        return list_object([show(entry) for entry in self.entries], has_more=self.has_more)


def unknown_after(after: str, param: str = "after") -> ApiError:
    return invalid_value(param, f"'{after}' is not in this list.")


def listing_attributes(tenant_id: str, kind: str, created_at: int, resource_id: str) -> Record:
    """The attributes that put a record into the list of its kind."""
    return {"GSI1PK": keys.listing(tenant_id, kind), "GSI1SK": keys.listed(created_at, resource_id)}


def gone_record(pk: str, sk: str, created_at: int, resource_id: str, now: float) -> Record:
    """The mark in a deleted resource's place of its list."""
    return {
        "PK": pk,
        "SK": sk,
        "created_at": created_at,
        "place": keys.listed(created_at, resource_id),
        schema.TTL_ATTRIBUTE: int(now) + limits.GONE_SECONDS,
    }


async def read_page(
    table: Table,
    tenant_id: str,
    kind: str,
    page: PageQuery,
    *,
    pk_of: Callable[[str, str], str],
    keep: Callable[[Record], bool] = lambda _: True,
) -> Page[Record]:
    """One page of the records that ``keep`` accepts. Raises an :class:`ApiError` if ``after`` or ``before`` is no id of this list."""

    async def place_of(resource_id: str, param: str) -> str:
        pk = pk_of(tenant_id, resource_id)
        return await place_among(table, [(pk, keys.META), (pk, keys.GONE)], resource_id, param)

    async def kept(entries: Sequence[Record]) -> list[Record]:
        return [record for record in await records_of(table, entries) if keep(record)]

    return await walk(table, keys.listing(tenant_id, kind), page, place_of=place_of, kept=kept)


async def walk(
    table: Table,
    partition: str,
    page: PageQuery,
    *,
    place_of: Callable[[str, str], Awaitable[str]],
    kept: Callable[[Sequence[Record]], Awaitable[Sequence[Entry]]],
) -> Page[Entry]:
    """One page of a partition of the index.

    ``place_of`` finds the place of an id, and takes the parameter that names it. ``kept`` reads entries of the index, and leaves out
    what is not of this list.
    """
    end = None if page.before is None else await place_of(page.before, "before")
    if (backward := page.backward) is not None:
        return (await walk(table, partition, backward, place_of=place_of, kept=kept)).turned()
    place = None if page.after is None else await place_of(page.after, "after")
    wanted = page.limit + 1
    found: list[Entry] = []
    while len(found) < wanted:
        entries = _until(end, page.order, await entries_beyond(table, partition, place, page.order, wanted))
        found += await kept(entries)
        if len(entries) < wanted:
            break
        place = entries[-1]["GSI1SK"]
    return Page.of(found, page.limit)


async def records_of(table: Table, entries: Sequence[Record]) -> list[Record]:
    """The records of these entries of an index that still exist, in the same order."""
    there = {(record["PK"], record["SK"]): record for record in await table.get_many((entry["PK"], entry["SK"]) for entry in entries)}
    return [there[place] for entry in entries if (place := (entry["PK"], entry["SK"])) in there]


async def place_among(table: Table, candidates: Iterable[tuple[str, str]], resource_id: str, param: str) -> str:
    """The place in its list of the one of these records that exists."""
    for record in await table.get_many(candidates):
        place: str | None = record.get("place") or record.get("GSI1SK")
        if place is not None:
            return place
    raise unknown_after(resource_id, param)


def part_of(oldest_first: Sequence[Entry], page: PageQuery, id_of: Callable[[Entry], str]) -> Page[Entry]:
    """A page of entries that are all at hand, and whether there are more. Raises an :class:`ApiError` if ``after`` is none of them."""
    entries = oldest_first[::-1] if page.order == "desc" else oldest_first
    if page.after is not None:
        ids = [id_of(entry) for entry in entries]
        if page.after not in ids:
            raise unknown_after(page.after)
        entries = entries[ids.index(page.after) + 1 :]
    return Page.of(entries, page.limit)


def page_of(oldest_first: Sequence[One], page: PageQuery) -> ListOf[One]:
    """The same of JSON objects, as a list of the API."""
    return part_of(oldest_first, page, lambda entry: cast("Mapping[str, str]", entry)["id"]).shown(lambda entry: entry)


def fitting(sizes: Sequence[int]) -> int:
    """How many entries of these sizes a page has; one at least."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > limits.PAGE_BYTES_MAX:
            return count
    return len(sizes)


def _until(end: str | None, order: str, entries: list[Record]) -> list[Record]:
    """Those that stand before a place."""
    if end is None:
        return entries
    return [entry for entry in entries if (entry["GSI1SK"] < end if order == "asc" else entry["GSI1SK"] > end)]


async def entries_beyond(table: Table, partition: str, place: str | None, order: str, limit: int) -> list[Record]:
    """Up to ``limit`` index entries beyond ``place``."""
    if order == "asc":
        return await table.query(partition, after=place, limit=limit, index=schema.INDEX)
    entries = await table.query(partition, up_to=place, descending=True, limit=limit + 1, index=schema.INDEX)
    return [entry for entry in entries if entry["GSI1SK"] != place][:limit]
