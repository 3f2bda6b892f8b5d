"""``/v1/containers/{id}/sandboxes``, ``/versions`` and ``/skills``: what a container has been, and was given. Extensions of ours;
looking does not count as use."""

from collections.abc import Mapping
from typing import cast

from moorage.api.caller import Caller
from moorage.api.queries import AnyPage
from moorage.api.routing import Router
from moorage.containers.versions import versions
from moorage.store.listing import unknown_after
from moorage.wire.answers import ListOf, One
from moorage.wire.operator_answers import ContainerSkillEntry, ContainerVersion, SandboxRun
from moorage.wire.queries import PageQuery
from moorage.wire.responses import list_object

router = Router()


@router.get(
    "/containers/{container_id}/sandboxes",
    "listContainerSandboxes",
    "The sandboxes that a container has had, with their times",
)
async def list_sandboxes(caller: Caller, container_id: str, page: AnyPage) -> ListOf[SandboxRun]:
    containers = caller.runtime.containers
    record = await containers.get(caller.tenant_id, container_id)
    return _page([life.to_json() for life in await containers.lives.of(record)], page)


@router.get("/containers/{container_id}/versions", "listContainerVersions", "How the files of a container have changed")
async def list_versions(caller: Caller, container_id: str, page: AnyPage) -> ListOf[ContainerVersion]:
    containers = caller.runtime.containers
    record = await containers.get(caller.tenant_id, container_id)
    now = await containers.files_of(caller.tenant_id, record.id)
    return _page([version.to_json() for version in await versions(containers.past, record, now)], page)


@router.get("/containers/{container_id}/skills", "listContainerSkills", "The skills that a container was given, by their folders")
async def list_skills(caller: Caller, container_id: str, page: AnyPage) -> ListOf[ContainerSkillEntry]:
    containers = caller.runtime.containers
    record = await containers.get(caller.tenant_id, container_id)
    return _page([skill.to_json() for skill in await containers.skills.of(record)][::-1], page)


def _page(newest_first: list[One], page: PageQuery) -> ListOf[One]:
    entries = newest_first if page.order == "desc" else newest_first[::-1]
    ids = [cast("Mapping[str, str]", entry)["id"] for entry in entries]
    if page.after is not None and page.after not in ids:
        raise unknown_after(page.after)
    rest = entries if page.after is None else entries[ids.index(page.after) + 1 :]
    return list_object(rest[: page.limit], has_more=len(rest) > page.limit)
