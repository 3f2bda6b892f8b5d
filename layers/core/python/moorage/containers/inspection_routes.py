"""Views of a container: its past, its files as one zip, and what runs in its sandbox. Extensions of ours.

Looking does not count as use. It starts nothing, and wakes no sandbox that sleeps. ``/v1/archives`` and ``/v1/processes`` are not below
``/v1/containers``, because other functions serve them on AWS: one that streams, and one that reaches sandboxes.
"""

from typing import Annotated

from starlette.responses import Response, StreamingResponse

from moorage.api.caller import Caller
from moorage.api.downloads import begun, content_disposition
from moorage.api.queries import AnyPage, query_of
from moorage.api.routing import BINARY, Router
from moorage.containers.archive import archive
from moorage.containers.versions import versions
from moorage.errors import SandboxError, container_elsewhere, container_unavailable
from moorage.sandbox.exec_client import RunningProcess
from moorage.store.listing import page_of
from moorage.wire.answers import ListOf
from moorage.wire.operator_answers import ContainerProcess, ContainerSkillEntry, ContainerVersion, SandboxRun
from moorage.wire.queries import AtQuery
from moorage.wire.responses import list_object

router = Router()


@router.get(
    "/containers/{container_id}/sandboxes",
    "listContainerSandboxes",
    "The sandboxes that a container has had, with their times",
)
async def list_sandboxes(caller: Caller, container_id: str, page: AnyPage) -> ListOf[SandboxRun]:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    return page_of([life.to_json() for life in await containers.lives.of(record)][::-1], page)


@router.get("/containers/{container_id}/versions", "listContainerVersions", "How the files of a container have changed")
async def list_versions(caller: Caller, container_id: str, page: AnyPage) -> ListOf[ContainerVersion]:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    now = await containers.files_of(caller.tenant_id, record.id)
    return page_of([version.to_json() for version in await versions(containers.past, record, now)][::-1], page)


@router.get("/containers/{container_id}/skills", "listContainerSkills", "The skills that a container was given, by their folders")
async def list_skills(caller: Caller, container_id: str, page: AnyPage) -> ListOf[ContainerSkillEntry]:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    return page_of([skill.to_json() for skill in await containers.skills.of(record)], page)


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


@router.get(
    "/processes/{container_id}",
    "listContainerProcesses",
    "What runs in the sandbox of a container, and on which ports it listens",
    statuses=(503,),
)
async def list_processes(caller: Caller, container_id: str) -> ListOf[ContainerProcess]:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    if record.sandbox is None or record.sandbox.state != "running":
        return list_object([], has_more=False)
    if not containers.sandboxes.reaches(record):
        raise container_elsewhere(record.id)
    try:
        async with containers.sandboxes.reach(record, looks_only=True) as live:
            running = await live.client.processes()
    except SandboxError as error:
        raise container_unavailable(error.message) from error
    return list_object([as_object(each) for each in running.processes], has_more=not running.is_complete)


def as_object(process: RunningProcess) -> ContainerProcess:
    return {
        "id": f"proc_{process.pid}",
        "object": "container.process",
        "pid": process.pid,
        "parent_pid": process.parent_pid,
        "command": process.command,
        "started_at": process.started_at_ms,
        "cpu_seconds": process.cpu_seconds,
        "memory_bytes": process.memory_bytes,
        "ports": None if process.ports is None else list(process.ports),
    }
