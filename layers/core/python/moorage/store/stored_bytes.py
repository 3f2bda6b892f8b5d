"""The bytes that a tenant stores: an entry for each file, upload, container, vector store, and response with pictures, and their sum.
Its limit applies to the sum.

An entry changes with the sum, in one transaction that is conditional on the sum staying within the limit, if something is added. So
with parallel writers too, the sum is that of the entries and does not pass the limit.

An entry equals the bytes in the bucket, or is less for a moment. A process that erased objects or does not know their bytes has them
counted (:meth:`StoredBytes.settle`), and so does the reaper once a day (``recount.py``).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, get_args

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import storage_busy, storage_limit_reached
from moorage.store import keys, schema
from moorage.store.table import Record, Table, Write
from moorage.wire.operator_answers import StorageShown

Kind = Literal["file", "container", "vector_store"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Holder:
    """The kinds of stored objects."""

    tenant_id: str
    kind: Kind
    id: str

    @classmethod
    def container(cls, tenant_id: str, container_id: str) -> "Holder":
        """All objects of a container in the bucket: its files, their kept past, its skills, and its loans."""
        return cls(tenant_id, "container", container_id)

    @classmethod
    def upload(cls, tenant_id: str, upload_id: str) -> "Holder":
        """The parts of a pending upload: they count as its later file."""
        return cls(tenant_id, "file", upload_id)

    @classmethod
    def response(cls, tenant_id: str, response_id: str) -> "Holder":
        """The pictures of a response's calls: they count as files of the tenant's."""
        return cls(tenant_id, "file", response_id)

    @property
    def key(self) -> tuple[str, str]:
        return keys.stored(self.tenant_id), keys.holder(self.kind, self.id)


@dataclass(frozen=True, slots=True)
class StorageStatus:
    """A tenant's stored bytes, and its limit."""

    used: int
    limit: int
    of: Mapping[Kind, int]

    @property
    def room(self) -> int:
        return max(0, self.limit - self.used)

    def to_json(self) -> StorageShown:
        return {
            "used_bytes": self.used,
            "limit_bytes": self.limit,
            "file_bytes": self.of["file"],
            "container_bytes": self.of["container"],
            "vector_store_bytes": self.of["vector_store"],
        }


@dataclass(frozen=True, slots=True)
class RecountTask:
    """A tenant with entries to check, from a place on."""

    tenant_id: str
    place: str


class StoredBytes:
    def __init__(self, table: Table, *, clock: Callable[[], float], most: int = limits.STORED_BYTES_MAX) -> None:
        self._table = table
        self._clock = clock
        self.most = most

    async def standing(self, tenant_id: str) -> StorageStatus:
        total = await self._table.get(keys.stored(tenant_id), keys.TOTAL)
        if total is None or "GSI1PK" not in total:
            total = await self._open(tenant_id)
        # What was stored before it was counted may have gone before it was.
        return StorageStatus(max(0, total["bytes"]), self.most, {kind: max(0, total.get(kind, 0)) for kind in KINDS})

    async def room(self, tenant_id: str) -> int:
        """How many bytes more may be stored. Raises ``storage_limit_reached`` for none."""
        standing = await self.standing(tenant_id)
        if not standing.room:
            raise storage_limit_reached(standing.used, standing.limit)
        return standing.room

    async def add(self, holder: Holder, size: int) -> None:
        """Count new content, or content of this moment. Raises ``storage_limit_reached``."""
        if not await self.add_some(holder, [size]):
            await self.check(holder.tenant_id, size)
            raise storage_busy()

    async def add_some(self, holder: Holder, sizes: Sequence[int]) -> list[int]:
        """Count as many of these sizes as fit, in their order; the places of those that do."""
        places = list(range(len(sizes)))
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            size = sum(sizes[place] for place in places)
            if not size or not await self._table.write_together((), self.changes(holder, size, is_bounded=True)):
                return places
            places = _fitting(sizes, (await self.standing(holder.tenant_id)).room)
        return []

    async def correct(self, holder: Holder, size: int) -> None:
        """More or less was stored than was counted beforehand."""
        if size:
            await self._table.write_together((), self.changes(holder, size))

    async def check(self, tenant_id: str, size: int) -> None:
        """Raises ``storage_limit_reached`` if so much does not fit."""
        standing = await self.standing(tenant_id)
        if size > standing.room:
            raise storage_limit_reached(standing.used, standing.limit)

    def changes(self, holder: Holder, size: int, *, is_bounded: bool = False) -> list[Write]:
        """A change of an entry by a size, as part of a transaction. If one fails because it ``is_bounded`` by the limit,
        :meth:`check` says so; if it says nothing, it may be tried again."""
        if not size:
            return []
        pk, sk = holder.key
        # A sum that nobody has opened is no limit's: what was stored before anything was counted is missing from it.
        condition = {"tenant_id": holder.tenant_id} if is_bounded else {}
        below = {"bytes": self.most - size + 1} if is_bounded else {}
        return [
            Write(pk, sk, set={}, condition={}, add={"bytes": size}),
            Write(pk, keys.TOTAL, set={}, condition=condition, add={"bytes": size, holder.kind: size}, below=below),
        ]

    async def settle(self, holder: Holder, count: Callable[[], Awaitable[int]]) -> bool:
        """Set the entry to the bytes in the bucket; True if it differed.

        The entry is read before the count, and written if it is unchanged. A later writer counts in turn.
        """
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            entry = await self._table.get(*holder.key)
            before = 0 if entry is None else entry["bytes"]
            now = await count()
            if now == before and (entry is None or now):
                return False
            puts, changes = _turned(holder, entry, now)
            sums = {"bytes": now - before, holder.kind: now - before}
            total = Write(keys.stored(holder.tenant_id), keys.TOTAL, set={}, condition={}, add=sums)
            if not await self._table.write_together(puts, [*changes, total]):
                return True
        raise storage_busy()

    async def forget(self, holder: Holder) -> None:
        """Nothing of it is stored any more. Harmless to repeat."""

        async def nothing() -> int:
            return 0

        await self.settle(holder, nothing)

    # --- looking through them ---

    async def due(self, now: float) -> list[RecountTask]:
        """Tenants that are to be looked through in one round, those first that were begun or have waited longest."""
        listed = keys.due_list(keys.STORED)
        entries = await self._table.query(listed, up_to=keys.due(int(now), "~"), index=schema.INDEX, limit=limits.RECOUNT_TENANTS)
        totals = await self._table.get_many((entry["PK"], entry["SK"]) for entry in entries)
        return [RecountTask(total["tenant_id"], total["place"]) for total in totals]

    async def looked(self, due: RecountTask, place: str) -> None:
        """It was looked through up to a place; "" is the end, and the next look is a day later."""
        at = 0 if place else int(self._clock()) + limits.RECOUNT_SECONDS
        await self._table.update(keys.stored(due.tenant_id), keys.TOTAL, set={"place": place, "GSI1SK": keys.due(at, due.tenant_id)})

    async def holders(self, tenant_id: str, after: str, limit: int) -> list[Holder]:
        """Those that have an entry, in the order of their keys."""
        pk = keys.stored(tenant_id)
        records = await self._table.query(pk, after=after or keys.TOTAL, limit=limit)
        named = [keys.holder_of(record["SK"]) for record in records]
        return [Holder(tenant_id, kind, name) for found, name in named for kind in KINDS if kind == found]

    async def _open(self, tenant_id: str) -> Record:
        """A tenant's sum that is due to be counted: it may have stored something before anything was counted."""
        return await self._table.update(
            keys.stored(tenant_id),
            keys.TOTAL,
            set_once={
                "bytes": 0,
                "tenant_id": tenant_id,
                "place": "",
                "GSI1PK": keys.due_list(keys.STORED),
                "GSI1SK": keys.due(0, tenant_id),
            },
            must_exist=False,
        )


def _fitting(sizes: Sequence[int], room: int) -> list[int]:
    places = []
    for place, size in enumerate(sizes):
        if size <= room:
            room -= size
            places.append(place)
    return places


def _turned(holder: Holder, entry: Record | None, now: int) -> tuple[list[Record], list[Write]]:
    """A write that renews an entry that stands as ``entry``."""
    pk, sk = holder.key
    if entry is None:
        return [{"PK": pk, "SK": sk, "bytes": now}], []
    as_it_was = {"bytes": entry["bytes"]}
    return [], [Write(pk, sk, set={"bytes": now} if now else {}, condition=as_it_was, is_end=not now)]
