"""Pages of one tenant's resources of a kind, newest or oldest first, as every list of the API gives them.

The index holds keys only; the records are read in batches of a page. An id that was deleted in the meantime still marks its place
for an hour (``keys.GONE``), because ``for file in client.files.list(): client.files.delete(file.id)`` is how people clean up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from moorage import limits
from moorage.errors import ApiError, invalid_value
from moorage.store import keys, schema
from moorage.store.table import Record, Table
from moorage.wire.answers import ListOf, One
from moorage.wire.queries import PageQuery
from moorage.wire.responses import list_object

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class RecordPage:
    records: list[Record]
    has_more: bool


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
    keep: Callable[[Record], bool],
) -> RecordPage:
    """One page of the records that ``keep`` accepts. Raises an :class:`ApiError` if ``after`` or ``before`` is no id of this list."""
    end = await _place(table, pk_of(tenant_id, page.before), page.before, "before") if page.before is not None else None
    if (backward := page.backward) is not None:
        turned = await read_page(table, tenant_id, kind, backward, pk_of=pk_of, keep=keep)
        return RecordPage(turned.records[::-1], turned.has_more)
    place = await _place(table, pk_of(tenant_id, page.after), page.after) if page.after is not None else None
    wanted = page.limit + 1
    kept: list[Record] = []
    while len(kept) < wanted:
        entries = until(end, page.order, await entries_beyond(table, keys.listing(tenant_id, kind), place, page.order, wanted))
        records = {record["PK"]: record for record in await table.get_many((entry["PK"], entry["SK"]) for entry in entries)}
        kept += [records[entry["PK"]] for entry in entries if entry["PK"] in records and keep(records[entry["PK"]])]
        if len(entries) < wanted:
            break
        place = entries[-1]["GSI1SK"]
    return RecordPage(kept[: page.limit], len(kept) > page.limit)


def part_of(oldest_first: Sequence[Entry], page: PageQuery, id_of: Callable[[Entry], str]) -> tuple[Sequence[Entry], bool]:
    """A page of entries that are all at hand, and whether there are more. Raises an :class:`ApiError` if ``after`` is none of them."""
    entries = oldest_first[::-1] if page.order == "desc" else oldest_first
    if page.after is not None:
        ids = [id_of(entry) for entry in entries]
        if page.after not in ids:
            raise unknown_after(page.after)
        entries = entries[ids.index(page.after) + 1 :]
    return entries[: page.limit], len(entries) > page.limit


def page_of(oldest_first: Sequence[One], page: PageQuery) -> ListOf[One]:
    """The same of JSON objects, as a list of the API."""
    shown, has_more = part_of(oldest_first, page, lambda entry: cast("Mapping[str, str]", entry)["id"])
    return list_object(shown, has_more=has_more)


def fitting(sizes: Sequence[int]) -> int:
    """How many entries of these sizes a page has; one at least."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > limits.PAGE_BYTES_MAX:
            return count
    return len(sizes)


def until(end: str | None, order: str, entries: list[Record]) -> list[Record]:
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


async def _place(table: Table, pk: str, after: str, param: str = "after") -> str:
    for record in await table.get_many([(pk, keys.META), (pk, keys.GONE)]):
        place: str | None = record.get("place") or record.get("GSI1SK")
        if place is not None:
            return place
    raise unknown_after(after, param)
