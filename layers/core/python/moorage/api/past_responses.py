"""``GET /v1/responses/{id}?at=N``: a response, the files of its container and what it had cost, as of an event. An extension."""

from contextlib import suppress
from typing import Any

from moorage.api.view import ResponseView
from moorage.containers.store import ContainerFileRecord
from moorage.errors import ApiError
from moorage.loop.past_responses import PastResponse, as_of
from moorage.runtime import Runtime
from moorage.store.responses import Snapshot


async def as_it_was(runtime: Runtime, snapshot: Snapshot, number: int, view: ResponseView) -> dict[str, Any]:
    then = await as_of(runtime, snapshot, number)
    files = await _files(runtime, snapshot, then)
    files_at = None if files is None else then.files_at_ms
    whole = await runtime.contents_of(snapshot.stored.tenant_id, view.include).response(then.response)
    return view.response(whole) | {
        "as_of": {
            "sequence_number": then.number,
            "said_at": then.at_ms,
            "steps": then.steps,
            "usage": then.usage.to_json(),
            "cost_usd": then.cost_usd,
            "boundary": then.boundary.number,
            "container_id": snapshot.stored.container_id,
            "files_at": files_at,
            "files": None if files is None else [_shown(file) for file in files],
        }
    }


async def _files(runtime: Runtime, snapshot: Snapshot, then: PastResponse) -> list[ContainerFileRecord] | None:
    """None if they are not known (any more), and without a container."""
    container_id = snapshot.stored.container_id
    if container_id is None or then.files_at_ms is None:
        return None
    with suppress(ApiError):  # The container was deleted, or that was too long ago.
        record = await runtime.containers.get(snapshot.stored.tenant_id, container_id)
        return await runtime.containers.files_at(record, then.files_at_ms)
    return None


def _shown(file: ContainerFileRecord) -> dict[str, Any]:
    return {"id": file.id, "path": file.path, "bytes": file.bytes, "source": file.source, "sha256": file.sha256}
