"""``/v1/containers`` and their files."""

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from moorage import errors, limits
from moorage.api.downloads import download
from moorage.api.listings import json_body, page_of
from moorage.api.multipart import is_multipart, parts
from moorage.runtime import Runtime
from moorage.store.containers import ContainerFile, ContainerRecord, as_object, file_as_object
from moorage.wire.network_policy import parse_network_policy
from moorage.wire.responses import deleted, list_object
from moorage.wire.shapes import Shape, array, choice, constant, free_object, integer, refused, text

router = APIRouter()

_FILE_ID: Final = text(chars_min=1, chars_max=limits.NAME_CHARS_MAX)
_CREATE: Final = Shape(
    {"name": text(chars_min=1, chars_max=limits.CONTAINER_NAME_CHARS_MAX)},
    {
        "file_ids": array(_FILE_ID, items_max=limits.CONTAINER_FILE_IDS_MAX),
        "expires_after": Shape(
            {
                "anchor": constant("last_active_at"),
                "minutes": integer(minimum=1, maximum=limits.CONTAINER_IDLE_MINUTES_MAX),
            }
        ),
        "memory_limit": choice(*limits.MEMORY_LIMITS),
        "network_policy": free_object,
        "skills": refused("This deployment has no skills yet. Put the files into the container with 'file_ids'."),
    },
)
_ADD_FILE: Final = Shape({"file_id": _FILE_ID})


@router.post("/containers")
async def create(request: Request) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    body = await json_body(request, _CREATE)
    policy = body.get("network_policy")
    record = await runtime.containers.reserve(
        request.state.tenant_id,
        name=body["name"],
        file_ids=body.get("file_ids", ()),
        idle_minutes=body.get("expires_after", {}).get("minutes", limits.CONTAINER_IDLE_MINUTES_DEFAULT),
        memory_limit=body.get("memory_limit", "1g"),
        network_policy=parse_network_policy(policy, "network_policy") if policy is not None else None,
    )
    return as_object(record, now=runtime.clock())


@router.get("/containers")
async def list_containers(request: Request) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    page = page_of(request, others=("name",))
    found = await runtime.containers.page(request.state.tenant_id, page, name=request.query_params.get("name"))
    return list_object([as_object(record, now=runtime.clock()) for record in found.containers], has_more=found.has_more)


@router.get("/containers/{container_id}")
async def retrieve(request: Request, container_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    return as_object(await _touched(request, container_id), now=runtime.clock())


@router.delete("/containers/{container_id}")
async def delete(request: Request, container_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    await runtime.containers.delete(request.state.tenant_id, container_id)
    return deleted(container_id, "container.deleted")


@router.post("/containers/{container_id}/files")
async def create_file(request: Request, container_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    record = await runtime.containers.use(request.state.tenant_id, container_id)
    if is_multipart(request):
        return file_as_object(await _upload(request, record))
    body = await json_body(request, _ADD_FILE)
    return file_as_object(await runtime.containers.add_file_of(record, body["file_id"]))


@router.get("/containers/{container_id}/files")
async def list_files(request: Request, container_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    page = page_of(request)
    found = await runtime.containers.file_page(await _touched(request, container_id), page)
    return list_object([file_as_object(file) for file in found.files], has_more=found.has_more)


@router.get("/containers/{container_id}/files/{file_id}")
async def retrieve_file(request: Request, container_id: str, file_id: str) -> dict[str, Any]:
    return file_as_object(await _file(request, container_id, file_id))


@router.delete("/containers/{container_id}/files/{file_id}")
async def delete_file(request: Request, container_id: str, file_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    await runtime.containers.delete_file(await _touched(request, container_id), file_id)
    return deleted(file_id, "container.file.deleted")


@router.get("/containers/{container_id}/files/{file_id}/content")
async def content(request: Request, container_id: str, file_id: str) -> Response:
    runtime: Runtime = request.app.state.runtime
    file = await _file(request, container_id, file_id)
    return await download(
        request,
        key=file.key,
        filename=file.filename,
        size=file.bytes,
        content=lambda start, end: runtime.containers.content(file, start=start, end=end),
    )


async def _touched(request: Request, container_id: str) -> ContainerRecord:
    """The container; looking at it counts as use."""
    runtime: Runtime = request.app.state.runtime
    return await runtime.containers.touch(request.state.tenant_id, container_id)


async def _file(request: Request, container_id: str, file_id: str) -> ContainerFile:
    runtime: Runtime = request.app.state.runtime
    return await runtime.containers.file(await _touched(request, container_id), file_id)


async def _upload(request: Request, record: ContainerRecord) -> ContainerFile:
    """The one file of a form, or the ``file_id`` that stands in one."""
    runtime: Runtime = request.app.state.runtime
    added: ContainerFile | None = None
    async for part in parts(request, bytes_max=limits.FILE_BYTES_MAX + limits.FORM_OVERHEAD_BYTES_MAX):
        if part.name not in ("file", "file_id"):
            raise errors.unknown_parameter(part.name[: limits.PARAM_NAME_CHARS_MAX])
        if added is not None:
            raise errors.invalid_value(part.name, "give one file.")
        if part.name == "file_id":
            added = await runtime.containers.add_file_of(record, await part.text())
        elif part.filename:
            added = await runtime.containers.add_file(record, filename=part.filename, chunks=part.chunks())
        else:
            raise errors.invalid_type("file", "a file with a name", "a field without one")
    if added is None:
        raise errors.missing_parameter("file")
    return added
