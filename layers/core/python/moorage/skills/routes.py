"""``/v1/skills`` and their versions."""

from collections.abc import Callable
from typing import Annotated, Final, Literal

from fastapi import Request
from starlette.responses import Response

from moorage import errors, limits
from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.downloads import download
from moorage.api.multipart import Part, parts
from moorage.api.queries import AnyPage
from moorage.api.routing import BINARY, Router
from moorage.parallel import worked
from moorage.skills import bundle as bundles
from moorage.skills.bundle import SkillBundle
from moorage.skills.front_matter import SkillProblem
from moorage.skills.store import SkillVersionRecord, as_object, version_as_object
from moorage.wire.answers import Deleted, ListOf, Skill, SkillVersion, SkillVersionDeleted
from moorage.wire.forms import SKILL_FORM, SKILL_VERSION_FORM
from moorage.wire.resources import UpdateSkill
from moorage.wire.responses import deleted

router = Router()


_FILES: Final = ("files", "files[]")
_TOO_LARGE: Final = f"The files of a skill have at most {limits.SKILL_ZIP_BYTES_MAX >> 20} MiB together."
_TRUE: Final = {"true": True, "1": True, "false": False, "0": False}


@router.post("/skills", "createSkill", "Upload a skill: a zip, or a folder's files", form=SKILL_FORM)
async def create(request: Request, caller: Caller) -> Skill:
    bundle, _ = await _form(request)
    return as_object(await caller.runtime.stores.skills.create(caller.tenant_id, bundle))


@router.get("/skills", "listSkills", "All skills")
async def list_skills(caller: Caller, page: AnyPage) -> ListOf[Skill]:
    return (await caller.runtime.stores.skills.page(caller.tenant_id, page)).shown(as_object)


@router.get("/skills/{skill_id}", "retrieveSkill", "A skill")
async def retrieve(caller: Caller, skill_id: str) -> Skill:
    return as_object(await caller.runtime.stores.skills.get(caller.tenant_id, skill_id))


@router.post("/skills/{skill_id}", "updateSkill", "Choose the default version", statuses=(409,))
async def update(caller: Caller, skill_id: str, wanted: Annotated[UpdateSkill, body_of(UpdateSkill)]) -> Skill:
    return as_object(await caller.runtime.stores.skills.set_default(caller.tenant_id, skill_id, wanted.default_version))


@router.delete("/skills/{skill_id}", "deleteSkill", "Delete a skill with its versions")
async def delete(caller: Caller, skill_id: str) -> Deleted[Literal["skill.deleted"]]:
    await caller.runtime.stores.skills.delete(caller.tenant_id, skill_id)
    return deleted(skill_id, "skill.deleted")


@router.get("/skills/{skill_id}/content", "downloadSkill", "The default version as a zip", sends=BINARY, statuses=(206, 302, 416))
async def content(request: Request, caller: Caller, skill_id: str) -> Response:
    return await _download(request, caller, await caller.runtime.stores.skills.version(caller.tenant_id, skill_id))


@router.post(
    "/skills/{skill_id}/versions", "createSkillVersion", "Upload another version of a skill", form=SKILL_VERSION_FORM, statuses=(409,)
)
async def create_version(request: Request, caller: Caller, skill_id: str) -> SkillVersion:
    await caller.runtime.stores.skills.get(caller.tenant_id, skill_id)
    bundle, is_default = await _form(request, of_version=True)
    return version_as_object(await caller.runtime.stores.skills.add_version(caller.tenant_id, skill_id, bundle, is_default=is_default))


@router.get("/skills/{skill_id}/versions", "listSkillVersions", "The versions of a skill")
async def list_versions(caller: Caller, skill_id: str, page: AnyPage) -> ListOf[SkillVersion]:
    return (await caller.runtime.stores.skills.version_page(caller.tenant_id, skill_id, page)).shown(version_as_object)


@router.get("/skills/{skill_id}/versions/{version}", "retrieveSkillVersion", "A version of a skill")
async def retrieve_version(caller: Caller, skill_id: str, version: str) -> SkillVersion:
    return version_as_object(await caller.runtime.stores.skills.version(caller.tenant_id, skill_id, version))


@router.delete(
    "/skills/{skill_id}/versions/{version}", "deleteSkillVersion", "Delete a version that is not the default", statuses=(409,)
)
async def delete_version(caller: Caller, skill_id: str, version: str) -> SkillVersionDeleted:
    gone = await caller.runtime.stores.skills.delete_version(caller.tenant_id, skill_id, version)
    shown = version_as_object(gone)
    return {"id": shown["id"], "object": "skill.version.deleted", "deleted": True, "version": shown["version"]}


@router.get(
    "/skills/{skill_id}/versions/{version}/content",
    "downloadSkillVersion",
    "A version of a skill as a zip",
    sends=BINARY,
    statuses=(206, 302, 416),
)
async def version_content(request: Request, caller: Caller, skill_id: str, version: str) -> Response:
    return await _download(request, caller, await caller.runtime.stores.skills.version(caller.tenant_id, skill_id, version))


async def _download(request: Request, caller: Caller, version: SkillVersionRecord) -> Response:
    return await download(
        request,
        caller.runtime.stores,
        caller.runtime.settings,
        key=version.key,
        filename=f"{version.name}.zip",
        size=version.bytes,
        content=lambda start, end: caller.runtime.stores.skills.content(version, start=start, end=end),
    )


async def _form(request: Request, *, of_version: bool = False) -> tuple[SkillBundle, bool]:
    """The bundle that a form holds (one zip file as ``files``, or a folder's files as ``files[]``), and its ``default``."""
    files: list[tuple[str, bytes]] = []
    is_default = False
    bytes_max = limits.SKILL_ZIP_BYTES_MAX + limits.SKILL_FORM_OVERHEAD_BYTES_MAX
    async for part in parts(request, bytes_max=bytes_max, too_large=_TOO_LARGE, parts_max=limits.SKILL_FILES_MAX + 1):
        if part.name in _FILES:
            files.append((_path_of(part), b"".join([chunk async for chunk in part.chunks()])))
        elif part.name == "default" and of_version:
            is_default = _flag(await part.text())
        else:
            raise errors.unknown_parameter(part.name[: limits.PARAM_NAME_CHARS_MAX])
    if not files:
        raise errors.missing_parameter("files")
    path, first = files[0]
    if len(files) == 1 and "/" not in path:
        return await checked("files", lambda: bundles.of_zip(first)), is_default
    return await checked("files", lambda: bundles.of_files(files)), is_default


async def checked(param: str, make: Callable[[], SkillBundle]) -> SkillBundle:
    """A bundle, made on another thread; its fault is an error of ``param``."""
    try:
        return await worked(make)
    except SkillProblem as problem:
        raise errors.bad_request(f"Invalid skill: {problem}", param=param, code="invalid_skill") from problem


def _path_of(part: Part) -> str:
    if not part.filename:
        raise errors.invalid_type("files", "a file with a name", "a field without one")
    return part.filename


def _flag(value: str) -> bool:
    if value.lower() not in _TRUE:
        raise errors.invalid_type("default", "a boolean", "a string")
    return _TRUE[value.lower()]
