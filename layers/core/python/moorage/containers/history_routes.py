"""``/v1/containers/{id}/sandboxes``, ``/versions`` and ``/skills``: what a container has been, and was given. Extensions of ours;
looking does not count as use."""

from moorage.api.caller import Caller
from moorage.api.queries import AnyPage
from moorage.api.routing import Router
from moorage.containers.versions import versions
from moorage.store.listing import page_of
from moorage.wire.answers import ListOf
from moorage.wire.operator_answers import ContainerSkillEntry, ContainerVersion, SandboxRun

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
