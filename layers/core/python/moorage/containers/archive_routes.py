"""``/v1/archives/{container_id}``: the files of a container as one zip. An extension of ours.

It has an address of its own because another function serves it on AWS than what is below ``/v1/containers``: one that streams. Looking
does not count as use.
"""

from typing import Annotated

from starlette.responses import Response, StreamingResponse

from moorage.api.caller import Caller
from moorage.api.downloads import begun, content_disposition
from moorage.api.queries import query_of
from moorage.api.routing import BINARY, Router
from moorage.containers.archive import archive
from moorage.wire.queries import AtQuery

router = Router()


@router.get(
    "/archives/{container_id}",
    "downloadContainerArchive",
    "The files of a container, as they are or were, as a zip",
    sends=BINARY,
)
async def download_archive(caller: Caller, container_id: str, wanted: Annotated[AtQuery, query_of(AtQuery)]) -> Response:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    files = await (containers.files_of(caller.tenant_id, record.id) if wanted.at is None else containers.files_at(record, wanted.at))
    stream = await begun(archive(files, containers.content))
    headers = {"content-disposition": content_disposition(f"{container_id}.zip"), "x-content-type-options": "nosniff"}
    return StreamingResponse(stream, media_type="application/octet-stream", headers=headers)
