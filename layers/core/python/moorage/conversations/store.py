"""Conversations: ordered items that grow by atomic appends.

An append is one numbered batch, whatever the number of its items: its bytes lie in the batch's record, or in the bucket if they are
many, and the conversation's record counts the batches. One transaction writes the batch, the count and, for a response's items, the
mark that this response has been appended; so an append happens wholly or not at all, two at once come one after the other, and a
repeated one changes nothing.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final

from moorage import limits
from moorage.codec import Codec, FieldCodec
from moorage.dataclass import dataclass
from moorage.errors import (
    ConditionFailed,
    conversation_busy,
    conversation_item_not_found,
    conversation_not_found,
    conversation_rewound,
    duplicate_item,
)
from moorage.files.store import Clock
from moorage.ids import new_listed_id
from moorage.parallel import side_by_side
from moorage.store import keys, object_keys
from moorage.store.blobs import Blobs
from moorage.store.listing import Page, unknown_after
from moorage.store.packing import packed, unpacked_with_size
from moorage.store.table import Record, Table
from moorage.wire.answers import Conversation
from moorage.wire.queries import PageQuery
from moorage.wire.types import Item

_BATCHES_PER_READ: Final = 8
_READS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    tenant_id: str
    id: str
    created_at: int
    metadata: Mapping[str, str]
    batches: int = 0
    """How many appends there have been."""
    cuts: tuple[tuple[int, int], ...] = ()
    """Appends that are not part of it any more, since it was rewound: from a number up to, and without, another. They are kept."""

    def holds(self, number: int) -> bool:
        return not any(first <= number < end for first, end in self.cuts)

    def cut(self, first: int) -> tuple[tuple[int, int], ...]:
        """The cuts once the appends from this one on are replaced by the next one."""
        if first >= self.batches:
            return self.cuts
        return (*((start, min(end, first)) for start, end in self.cuts if start < first), (first, self.batches))


@dataclass(frozen=True, slots=True)
class _ItemBatch:
    record: Record
    items: list[Item]
    """Those that have not been deleted, in order."""
    size: int = 0
    """Of them, in bytes of JSON."""

    @property
    def ids(self) -> list[str]:
        """Ids of all items, the deleted ones too: a page may go on after them."""
        ids: list[str] = self.record["ids"]
        return ids


class Conversations:
    def __init__(self, table: Table, blobs: Blobs, *, clock: Clock) -> None:
        self._table = table
        self._blobs = blobs
        self._clock = clock

    async def create(self, tenant_id: str, *, metadata: Mapping[str, str], items: Sequence[Item] = ()) -> ConversationRecord:
        """A new conversation with these items; every item has an id."""
        now = self._clock()
        conversation = ConversationRecord(tenant_id, new_listed_id("conv", now), int(now), dict(metadata), batches=1 if items else 0)
        if items:
            await self._table.put(_batch_record(conversation, 0, items, await self._body(conversation, items)))
        # The record comes last: until it is there, nobody can see half of it.
        await self._table.put(_record(conversation))
        return conversation

    async def get(self, tenant_id: str, conversation_id: str, *, param: str | None = None) -> ConversationRecord:
        record = await self._table.get(keys.conversation(tenant_id, conversation_id), keys.META)
        if record is None:
            raise conversation_not_found(conversation_id, param=param)
        return _CONVERSATION.unpack(record)

    async def update(self, tenant_id: str, conversation_id: str, metadata: Mapping[str, str]) -> ConversationRecord:
        """Replace the metadata."""
        try:
            record = await self._table.update(
                keys.conversation(tenant_id, conversation_id), keys.META, set={"metadata": dict(metadata)}
            )
        except ConditionFailed as error:
            raise conversation_not_found(conversation_id) from error
        return _CONVERSATION.unpack(record)

    async def delete(self, tenant_id: str, conversation_id: str) -> None:
        """Delete it with its items. Its children go first, so that a deletion that breaks off can be repeated."""
        await self.get(tenant_id, conversation_id)
        pk = keys.conversation(tenant_id, conversation_id)
        await self._blobs.delete_prefix(object_keys.conversation_objects(tenant_id, conversation_id))
        records = await self._table.query(pk, without=("body",))
        await self._table.write_many(deletes=[(pk, record["SK"]) for record in records if record["SK"] != keys.META])
        await self._table.write_many(deletes=[(pk, keys.META)])

    async def check_rewind(self, tenant_id: str, conversation_id: str) -> None:
        """Raises an :class:`~moorage.errors.ApiError` if nothing more can be taken out."""
        conversation = await self.get(tenant_id, conversation_id, param="rewind")
        if len(conversation.cuts) >= limits.CONVERSATION_REWINDS_MAX:
            raise conversation_rewound(conversation_id, limits.CONVERSATION_REWINDS_MAX)

    async def append(
        self,
        tenant_id: str,
        conversation_id: str,
        items: Sequence[Item],
        *,
        source: str | None = None,
        instead_of: int | None = None,
    ) -> None:
        """Append items that all have ids, all or nothing. With ``source`` (a response's id) a repetition changes nothing; without it
        an id that the conversation has, or had, is refused: pages go on after ids. ``instead_of``: in the place of that append and all
        behind it."""
        if not items:
            return
        param = None if source is None else "conversation"  # A response names the conversation in its body, others in their path.
        conversation = await self.get(tenant_id, conversation_id, param=param)
        pk = keys.conversation(tenant_id, conversation_id)
        body = await self._body(conversation, items)
        mark = [] if source is None else [{"PK": pk, "SK": keys.source(source)}]
        for lost in range(limits.CONVERSATION_WRITES_MAX):
            await _step_aside(lost)
            taken = await self._taken(conversation, items) if source is None else None
            if taken is not None:
                await self._drop(body)
                raise duplicate_item("items", taken)
            number = conversation.batches
            if instead_of is not None and len(conversation.cuts) >= limits.CONVERSATION_REWINDS_MAX:
                await self._drop(body)
                raise conversation_rewound(conversation_id, limits.CONVERSATION_REWINDS_MAX)
            cuts = {} if instead_of is None else {"cuts": [_packed_cut(cut) for cut in conversation.cut(instead_of)]}
            failed = await self._table.transact(
                [_batch_record(conversation, number, items, body), *mark],
                pk=pk,
                sk=keys.META,
                set={"batches": number + 1, **cuts},
                condition={"batches": number},
            )
            if not failed:
                return
            if mark and 1 in failed:
                await self._drop(body)
                return
            conversation = await self.get(tenant_id, conversation_id, param=param)
        await self._drop(body)
        raise conversation_busy(conversation_id)

    async def _taken(self, conversation: ConversationRecord, items: Sequence[Item]) -> str | None:
        """An id of these items that the conversation has, or had."""
        pk = keys.conversation(conversation.tenant_id, conversation.id)
        records = await self._table.query(pk, prefix=keys.batch.prefix, up_to=_last(conversation))
        known = {item_id for record in records for item_id in record["ids"]}
        return next((item["id"] for item in items if item["id"] in known), None)

    async def load_items(self, tenant_id: str, conversation_id: str) -> list[Item]:
        """All items in order, for a request that names the conversation."""
        items, _ = await self.items_before(tenant_id, conversation_id, ())
        return items

    async def items_before(self, tenant_id: str, conversation_id: str, ids: Collection[str]) -> tuple[list[Item], int]:
        """The items that were there before some with these ids came, and the number of the append that brought these; all of them, and
        the number of the next append, if none did."""
        conversation = await self.get(tenant_id, conversation_id, param="conversation")

        async def opened(record: Record) -> list[Item]:
            return (await self._open(conversation, record)).items

        records = await self._table.query(
            keys.conversation(tenant_id, conversation.id), prefix=keys.batch.prefix, up_to=_last(conversation)
        )
        numbered = [(keys.batch.read(record["SK"]), record) for record in records]
        there = [(number, record) for number, record in numbered if conversation.holds(number)]
        came = next((number for number, record in there if not set(ids).isdisjoint(record["ids"])), conversation.batches)
        before = await side_by_side(opened, [record for number, record in there if number < came], at_once=_READS_AT_ONCE)
        return [item for items in before for item in items], came

    async def page(self, conversation: ConversationRecord, page: PageQuery) -> Page[Item]:
        """One page of the items; ``after`` may name an item that was deleted."""
        wanted = page.limit + 1
        found: list[Item] = []
        is_beyond = page.after is None
        read, size, is_long = 0, 0, False
        async for batch in self._batches(conversation, descending=page.order == "desc"):
            read += 1
            items = {item["id"]: item for item in batch.items}
            for item_id in reversed(batch.ids) if page.order == "desc" else batch.ids:
                if is_beyond and item_id in items:
                    found.append(items[item_id])
                is_beyond = is_beyond or item_id == page.after
            size += batch.size if found else 0
            is_long = size >= limits.PAGE_BYTES_MAX
            if len(found) >= wanted or is_long:
                break
        if not is_beyond:
            assert page.after is not None
            raise unknown_after(page.after)
        return Page(found[: page.limit], len(found) > page.limit or (is_long and read < conversation.batches))

    async def item(self, conversation: ConversationRecord, item_id: str) -> Item:
        batch = await self._batch_of(conversation, item_id)
        return next(item for item in batch.items if item["id"] == item_id)

    async def delete_item(self, conversation: ConversationRecord, item_id: str) -> None:
        for lost in range(limits.CONVERSATION_WRITES_MAX):
            await _step_aside(lost)
            batch = await self._batch_of(conversation, item_id)
            body = await self._body(conversation, [item for item in batch.items if item["id"] != item_id])
            try:
                await self._table.update(
                    batch.record["PK"],
                    batch.record["SK"],
                    set={**body, "version": batch.record["version"] + 1},
                    remove=[name for name in ("body", "blob") if name not in body],
                    condition={"version": batch.record["version"]},
                )
            except ConditionFailed:
                await self._drop(body)
                continue
            await self._drop(batch.record)
            return
        raise conversation_busy(conversation.id)

    async def _batch_of(self, conversation: ConversationRecord, item_id: str) -> _ItemBatch:
        async for batch in self._batches(conversation, descending=True):
            if any(item["id"] == item_id for item in batch.items):
                return batch
        raise conversation_item_not_found(item_id)

    async def _batches(self, conversation: ConversationRecord, *, descending: bool) -> AsyncIterator[_ItemBatch]:
        pk = keys.conversation(conversation.tenant_id, conversation.id)
        records: list[Record] = []
        left = conversation.batches
        while left > 0:
            if descending:
                records = await self._table.query(
                    pk, prefix=keys.batch.prefix, up_to=keys.batch(left - 1), descending=True, limit=min(left, _BATCHES_PER_READ)
                )
            else:
                after = records[-1]["SK"] if records else keys.batch.prefix
                records = await self._table.query(pk, prefix=keys.batch.prefix, after=after, limit=min(left, _BATCHES_PER_READ))
            for record in records:
                yield await self._open(conversation, record)
            left -= _BATCHES_PER_READ

    async def _open(self, conversation: ConversationRecord, record: Record) -> _ItemBatch:
        if not conversation.holds(keys.batch.read(record["SK"])):
            return _ItemBatch(record, [])
        body = record["body"] if "body" in record else await self._blobs.get_bytes(record["blob"])
        return _ItemBatch(record, *await unpacked_with_size(body))

    async def _body(self, conversation: ConversationRecord, items: Sequence[Item]) -> Record:
        """``body``, or ``blob`` with the key of an object that nobody else writes."""
        body = await packed(list(items))
        if len(body) <= limits.CONVERSATION_BATCH_INLINE_BYTES_MAX:
            return {"body": body}
        key = object_keys.conversation_objects(conversation.tenant_id, conversation.id, secrets.token_hex(16))
        await self._blobs.put_bytes(key, body)
        return {"blob": key}

    async def _drop(self, body: Record) -> None:
        """Delete the object of a body that no batch has, or has any more."""
        if "blob" in body:
            await self._blobs.delete(body["blob"])


async def _step_aside(lost: int) -> None:
    """Wait a while, longer with every try that another writer won: those that come at once spread out."""
    if lost:
        pause = min(limits.CONVERSATION_PAUSE_SECONDS_MAX, 0.02 * lost)
        await asyncio.sleep(random.uniform(0, pause))  # noqa: S311  (no secret)


def as_object(conversation: ConversationRecord) -> Conversation:
    """The wire's Conversation object."""
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": dict(conversation.metadata),
    }


def _last(conversation: ConversationRecord) -> str:
    """Sort key of the last batch that is counted."""
    return keys.batch(max(0, conversation.batches - 1))


def _batch_record(conversation: ConversationRecord, number: int, items: Sequence[Item], body: Record) -> Record:
    return {
        "PK": keys.conversation(conversation.tenant_id, conversation.id),
        "SK": keys.batch(number),
        "ids": [item["id"] for item in items],
        "version": 0,
        **body,
    }


def _packed_cut(cut: tuple[int, int]) -> str:
    return f"{cut[0]}-{cut[1]}"


def _cut_of(packed: str) -> tuple[int, int]:
    first, _, end = packed.partition("-")
    return int(first), int(end)


_CONVERSATION: Final = Codec(ConversationRecord, nested={"cuts": FieldCodec(_packed_cut, _cut_of)}, sparse=("cuts",))


def _record(conversation: ConversationRecord) -> Record:
    return {
        "PK": keys.conversation(conversation.tenant_id, conversation.id),
        "SK": keys.META,
        **_CONVERSATION.pack(conversation),
    }
