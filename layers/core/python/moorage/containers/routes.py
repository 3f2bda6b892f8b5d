"""``/v1/containers`` and their files."""

from typing import Annotated, Final, Literal

from fastapi import Request
from starlette.responses import Response

from moorage import errors, limits
from moorage.api.bodies import body_of, read_body
from moorage.api.caller import Caller
from moorage.api.downloads import download
from moorage.api.multipart import FILE_TOO_LARGE, is_multipart, parts
from moorage.api.queries import AnyPage, query_of
from moorage.api.routing import BINARY, Router
from moorage.containers.store import ContainerFileRecord, ContainerRecord, as_object, file_as_object
from moorage.containers.tree import entries_below
from moorage.containers.upstream_routes import ContainerRoute
from moorage.wire.answers import Container, ContainerFile, Deleted, ListOf
from moorage.wire.forms import form_of
from moorage.wire.operator_answers import TreeEntry
from moorage.wire.queries import AtQuery, ContainersPage, TreeQuery
from moorage.wire.resources import AddContainerFile, CreateContainer
from moorage.wire.responses import deleted, list_object
from moorage.wire.validation import JsonValidator

router = Router(route_class=ContainerRoute)
_parse_added: Final = JsonValidator[AddContainerFile](AddContainerFile)


@router.post("/containers", "createContainer", "Reserve a container", statuses=(404,))
async def create(caller: Caller, wanted: Annotated[CreateContainer, body_of(CreateContainer)]) -> Container:
    skills = await caller.runtime.computers.containers.skills.resolve(caller.tenant_id, wanted.skills, param="skills")
    places = {file_id: f"file_ids[{at}]" for at, file_id in enumerate(wanted.file_ids)}
    record = await caller.runtime.computers.containers.reserve(
        caller.tenant_id,
        name=wanted.name,
        files=await caller.runtime.computers.containers.named(caller.tenant_id, places),
        idle_minutes=wanted.idle_minutes,
        memory_limit=wanted.memory_limit,
        network_policy=wanted.network_policy,
        skills=skills,
    )
    return as_object(record, now=caller.runtime.clock())


@router.get("/containers", "listContainers", "All containers")
async def list_containers(caller: Caller, page: Annotated[ContainersPage, query_of(ContainersPage)]) -> ListOf[Container]:
    found = await caller.runtime.computers.containers.page(caller.tenant_id, page, name=page.name)
    now = caller.runtime.clock()
    return found.shown(lambda record: as_object(record, now=now))


@router.get("/containers/{container_id}", "retrieveContainer", "A container")
async def retrieve(caller: Caller, container_id: str) -> Container:
    return as_object(await _touched(caller, container_id), now=caller.runtime.clock())


@router.delete("/containers/{container_id}", "deleteContainer", "Stop and delete a container")
async def delete(caller: Caller, container_id: str) -> Deleted[Literal["container.deleted"]]:
    await caller.runtime.computers.containers.delete(caller.tenant_id, container_id)
    return deleted(container_id, "container.deleted")


@router.post(
    "/containers/{container_id}/files",
    "createContainerFile",
    "Put a file into a container",
    form=form_of("file"),
    body=("AddContainerFile", _parse_added),
)
async def create_file(request: Request, caller: Caller, container_id: str) -> ContainerFile:
    """A form with the file, or JSON that names one: its content type tells them apart."""
    record = await caller.runtime.computers.containers.use(caller.tenant_id, container_id)
    if is_multipart(request):
        return file_as_object(await _upload(request, caller, record))
    wanted = _parse_added.body(await read_body(request))
    return file_as_object(await caller.runtime.computers.containers.add_file_of(record, wanted.file_id))


@router.get("/containers/{container_id}/files", "listContainerFiles", "The files of a container")
async def list_files(caller: Caller, container_id: str, page: AnyPage) -> ListOf[ContainerFile]:
    found = await caller.runtime.computers.containers.file_page(await _touched(caller, container_id), page)
    return found.shown(file_as_object)


@router.get(
    "/containers/{container_id}/tree",
    "listContainerTree",
    "The saved files of a container as folders",
)
async def tree(caller: Caller, container_id: str, wanted: Annotated[TreeQuery, query_of(TreeQuery)]) -> ListOf[TreeEntry]:
    """The saved files of a container as folders. Looking does not count as use: it must not keep an idle container alive."""
    record = await caller.runtime.computers.containers.get(caller.tenant_id, container_id)
    containers = caller.runtime.computers.containers
    now = wanted.at is None
    files = await (containers.files_of(caller.tenant_id, record.id) if now else containers.files_at(record, wanted.at or 0))
    return list_object(entries_below(wanted.path, files, wanted.depth), has_more=False)


@router.get("/containers/{container_id}/files/{file_id}", "retrieveContainerFile", "A file of a container")
async def retrieve_file(caller: Caller, container_id: str, file_id: str) -> ContainerFile:
    return file_as_object(await _file(caller, container_id, file_id))


@router.delete("/containers/{container_id}/files/{file_id}", "deleteContainerFile", "Delete a file of a container")
async def delete_file(caller: Caller, container_id: str, file_id: str) -> Deleted[Literal["container.file.deleted"]]:
    await caller.runtime.computers.containers.delete_file(await _touched(caller, container_id), file_id)
    return deleted(file_id, "container.file.deleted")


@router.get(
    "/containers/{container_id}/files/{file_id}/content",
    "downloadContainerFile",
    "What a file of a container holds, or held at a time",
    sends=BINARY,
    statuses=(206, 302, 416),
)
async def content(
    request: Request,
    caller: Caller,
    container_id: str,
    file_id: str,
    wanted: Annotated[AtQuery, query_of(AtQuery, ignores_others=True)],
) -> Response:
    at = wanted.at
    file = await (_file(caller, container_id, file_id) if at is None else _file_at(caller, container_id, file_id, at))
    return await download(
        request,
        caller.runtime.stores,
        caller.runtime.settings,
        key=file.key,
        filename=file.filename,
        size=file.bytes,
        content=lambda start, end: caller.runtime.computers.containers.content(file, start=start, end=end),
    )


async def _touched(caller: Caller, container_id: str) -> ContainerRecord:
    """The container; looking at it counts as use."""
    return await caller.runtime.computers.containers.touch(caller.tenant_id, container_id)


async def _file(caller: Caller, container_id: str, file_id: str) -> ContainerFileRecord:
    return await caller.runtime.computers.containers.file(await _touched(caller, container_id), file_id)


async def _file_at(caller: Caller, container_id: str, file_id: str, at_ms: int) -> ContainerFileRecord:
    """The file as it was. Looking back does not count as use."""
    record = await caller.runtime.computers.containers.get(caller.tenant_id, container_id)
    return await caller.runtime.computers.containers.file_at(record, file_id, at_ms)


async def _upload(request: Request, caller: Caller, record: ContainerRecord) -> ContainerFileRecord:
    """The one file of a form, or the ``file_id`` that stands in one."""
    containers = caller.runtime.computers.containers
    added: ContainerFileRecord | None = None
    bytes_max = limits.FILE_BYTES_MAX + limits.FORM_OVERHEAD_BYTES_MAX
    async for part in parts(request, bytes_max=bytes_max, too_large=FILE_TOO_LARGE):
        if part.name not in ("file", "file_id"):
            raise errors.unknown_parameter(part.name[: limits.PARAM_NAME_CHARS_MAX])
        if added is not None:
            raise errors.invalid_value(part.name, "give one file.")
        if part.name == "file_id":
            added = await containers.add_file_of(record, await part.text())
        elif part.filename:
            added = await containers.add_file(record, filename=part.filename, chunks=part.chunks())
        else:
            raise errors.invalid_type("file", "a file with a name", "a field without one")
    if added is None:
        raise errors.missing_parameter("file")
    return added
