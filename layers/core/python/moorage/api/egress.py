"""``/v1/containers/{id}/egress``: a container's attempts to reach hosts, and their results. An extension of ours."""

import re
from typing import Final

from moorage.api.caller import Caller
from moorage.api.queries import AnyPage
from moorage.api.routing import Router
from moorage.egress.service import entry_sentence
from moorage.egress.store import EgressLogEntry
from moorage.store.listing import unknown_after
from moorage.wire.answers import EgressEntry, ListOf
from moorage.wire.responses import list_object

router = Router()

_ID_PREFIX: Final = "egress_"
_ID: Final = re.compile(rf"{_ID_PREFIX}\d{{13}}-.+")
"""Begins with the time: an entry that has expired marks its place."""


@router.get("/containers/{container_id}/egress", "listContainerEgress", "What a container tried to reach, and what came of it")
async def list_egress(caller: Caller, container_id: str, page: AnyPage) -> ListOf[EgressEntry]:
    """The container's decisions, newest first. Looking does not count as use: it must not keep an idle container alive."""
    await caller.runtime.computers.containers.get(caller.tenant_id, container_id)
    if page.after is not None and _ID.fullmatch(page.after) is None:
        raise unknown_after(page.after)
    entries = await caller.runtime.computers.egress.log(
        caller.tenant_id,
        container_id,
        after=None if page.after is None else page.after.removeprefix(_ID_PREFIX),
        descending=page.order == "desc",
        limit=page.limit + 1,
    )
    return list_object([as_object(entry) for entry in entries[: page.limit]], has_more=len(entries) > page.limit)


def as_object(entry: EgressLogEntry) -> EgressEntry:
    return {
        "id": _ID_PREFIX + entry.id,
        "object": "container.egress",
        "created_at": entry.at_ms // 1000,
        "container_id": entry.container_id,
        "decision": entry.decision,
        "reason": entry.reason,
        "message": entry_sentence(entry) or None,
        "host": entry.host,
        "port": entry.port,
        "method": entry.method,
        "path": entry.path,
        "address": entry.address,
        "secrets": list(entry.secrets),
        "bytes_sent": entry.bytes_sent,
        "bytes_received": entry.bytes_received,
        "status": entry.status,
        "error": entry.error,
        "count": entry.count,
    }
