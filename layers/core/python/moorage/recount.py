"""Once a day: correct the count of a tenant's stored bytes.

Writers and deleters count their bytes (``store/stored_bytes.py``). This finds bytes without a count, from an older version or from a
process that died in between, and counts of objects that are gone.
"""

from collections.abc import Sequence
from typing import Final

from moorage import ids, limits
from moorage.containers.containers import Containers
from moorage.containers.store import KIND as CONTAINER_KIND
from moorage.containers.transfers import bytes_of
from moorage.files import store as files
from moorage.files.upload_store import is_upload, parts_bytes
from moorage.parallel import side_by_side
from moorage.store import keys, object_keys
from moorage.store.item_contents import COUNTED
from moorage.store.listing import entries_beyond
from moorage.store.stored_bytes import Holder, Kind, RecountTask, StoredBytes
from moorage.stores import Stores

_LISTS: Final[Sequence[tuple[Kind, str]]] = (
    ("file", files.KIND),
    ("container", CONTAINER_KIND),
    ("vector_store", keys.VECTOR_STORES),
)
"""What is looked through, one after the other, and after them the entries."""
_ENTRIES: Final = "entries"


async def recount_due(stores: Stores, containers: Containers, now: float) -> int:
    """Look through a part of each tenant that is due; answers how many entries were wrong. Harmless to run twice, or twice at once."""
    stored = stores.files.stored

    async def look(due: RecountTask) -> int:
        holders, place = await _part(stores, stored, due)

        async def settle(holder: Holder) -> bool:
            return not await _is_in_use(containers, holder) and await stored.settle(holder, lambda: _count(stores, holder))

        wrong = sum(await side_by_side(settle, holders, at_once=limits.SWEEP_AT_ONCE))
        await stored.looked(due, place)
        return wrong

    return sum(await side_by_side(look, await stored.due(now), at_once=1))


async def _part(stores: Stores, stored: StoredBytes, due: RecountTask) -> tuple[list[Holder], str]:
    """The next ones to look at, and the place behind them."""
    kinds = [kind for _, kind in _LISTS]
    at, _, after = (due.place or f"{kinds[0]}|").partition("|")
    if at == _ENTRIES:
        found = await stored.holders(due.tenant_id, after, limits.RECOUNT_TOGETHER)
        is_end = len(found) < limits.RECOUNT_TOGETHER
        return found, "" if is_end else f"{_ENTRIES}|{found[-1].key[1]}"
    listing = keys.listing(due.tenant_id, at)
    entries = await entries_beyond(stores.table, listing, after or None, "asc", limits.RECOUNT_TOGETHER)
    holders = [Holder(due.tenant_id, _LISTS[kinds.index(at)][0], entry["PK"].rpartition("#")[2]) for entry in entries]
    if len(entries) == limits.RECOUNT_TOGETHER:
        return holders, f"{at}|{entries[-1]['GSI1SK']}"
    following = [*kinds[kinds.index(at) + 1 :], _ENTRIES][0]
    return holders, f"{following}|"


async def _is_in_use(containers: Containers, holder: Holder) -> bool:
    """A container with a sandbox has room for files that are being stored; it is counted when the sandbox is stopped."""
    if holder.kind != "container":
        return False
    record = await containers.peek(holder.tenant_id, holder.id)
    return record is not None and record.sandbox is not None


async def _count(stores: Stores, holder: Holder) -> int:
    match holder.kind:
        case "container":
            return await bytes_of(stores.blobs, holder.tenant_id, holder.id)
        case "file" if is_upload(holder.id):
            return await parts_bytes(stores.table, holder)
        case "file" if holder.id.startswith(ids.RESPONSE_PREFIX):
            return await stores.blobs.bytes_under(object_keys.response_blob(holder.tenant_id, holder.id, COUNTED))
        case "file":
            record = await stores.table.get(keys.file(holder.tenant_id, holder.id), keys.META)
            return 0 if record is None else int(record["bytes"])
        case "vector_store":
            record = await stores.table.get(keys.vector_store(holder.tenant_id, holder.id), keys.META)
            return 0 if record is None or record["phase"] != "active" else int(record["usage_bytes"])
