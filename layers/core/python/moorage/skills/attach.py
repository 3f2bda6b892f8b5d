"""The skills that a request asks for, found, checked and given to a container.

``latest`` and the default version are resolved once: a container that has been given a skill so keeps that version, however often it is
asked for again, and a response says which one it was.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from moorage import limits
from moorage.containers.store import ContainerRecord, ContainerStore
from moorage.containers.transfers import bounded
from moorage.dataclass import dataclass
from moorage.errors import ApiError, bad_request, invalid_value, too_many_skills
from moorage.parallel import beside, worked
from moorage.skills import bundle as bundles
from moorage.skills import curated, plugins
from moorage.skills.attached_store import ContainerSkill, ContainerSkills, directory_of
from moorage.skills.bundle import SKILLS, SkillBundle
from moorage.skills.front_matter import SkillProblem
from moorage.skills.plugins import PluginProblem
from moorage.skills.store import SkillStore
from moorage.store import object_keys
from moorage.store.blobs import Blobs
from moorage.telemetry import tell

MARKDOWN: Final = "text/markdown"


@dataclass(frozen=True, slots=True)
class GivenSkill:
    """A skill that a container is to have."""

    name: str
    description: str
    digest: str
    source: str | bytes
    """The key of its bundle in the bucket, or the bundle."""
    skill_id: str | None = None
    """None for a skill that came with the request."""
    version: str | None = None
    plugin: str | None = None
    """The name of the plugin that it is a part of."""

    @property
    def directory(self) -> str:
        return directory_of(self.name, self.digest)

    def to_json(self) -> dict[str, Any]:
        """As a response's tools show it: its version, and its folder."""
        what = {"type": "inline"}
        if self.skill_id is not None and self.version is not None:
            what = {"type": "skill_reference", "skill_id": self.skill_id, "version": self.version}
        return what | {"name": self.name, "description": self.description, "path": f"{SKILLS}/{self.directory}"}


def given(row: ContainerSkill) -> GivenSkill:
    """A skill that a container has, to be given to another one, or again."""
    return GivenSkill(row.name, row.description, row.digest, row.key, row.skill_id, row.version, row.plugin)


@dataclass(frozen=True, slots=True)
class GivenPlugin:
    """A plugin that an environment is to have: its skills."""

    name: str
    description: str
    skills: tuple[GivenSkill, ...]


class GivenSkills:
    def __init__(self, store: ContainerStore, rows: ContainerSkills, skills: SkillStore, blobs: Blobs) -> None:
        self._store = store
        self._rows = rows
        self._skills = skills
        self._blobs = blobs

    async def of(self, record: ContainerRecord) -> list[ContainerSkill]:
        """The container's skills, by folder."""
        return await self._rows.of(record) if record.has_skills else []

    async def resolve(
        self, tenant_id: str, asked: Sequence[Mapping[str, Any]], *, param: str, container: ContainerRecord | None = None
    ) -> list[GivenSkill]:
        """The skills of a request (``skill_reference`` and ``inline``), in its order, each once. ``container`` is the one that they
        are for, if there is one. Raises :class:`ApiError` with ``param`` and the place of the entry."""
        there = [] if container is None else await self.of(container)
        known = {row.skill_id: row for row in there if row.skill_id is not None}
        by_path = {row.path: row for row in there}
        found = [
            # What a response shows of its skills says where they lie; a request cannot.
            given(by_path[each["path"]])
            if each.get("path") in by_path
            else await self._resolve(tenant_id, each, f"{param}[{index}]", known)
            for index, each in enumerate(asked)
        ]
        return list({skill.directory: skill for skill in found}.values())

    async def with_defaults(
        self, tenant_id: str, given: Sequence[GivenSkill], default: Sequence[str], *, container: ContainerRecord | None
    ) -> list[GivenSkill]:
        """What a request asks for, and behind it what the operator gives to all. A default that the tenant does not have is left out,
        and the operator's log says so: no request is at fault."""
        skills = list(given)
        asked = {skill.skill_id for skill in given}
        for skill_id in default:
            if skill_id in asked or len(skills) >= limits.SKILLS_ATTACHED_MAX:
                continue
            reference = {"type": "skill_reference", "skill_id": skill_id}
            try:
                skills += await self.resolve(tenant_id, [reference], param="skills", container=container)
            except ApiError:
                tell("default_skill_missing", {"tenant_id": tenant_id, "skill_id": skill_id})
        return list({skill.directory: skill for skill in skills}.values())

    async def add(self, record: ContainerRecord, skills: Sequence[GivenSkill]) -> ContainerRecord:
        """Give the container skills, each as a copy of its bundle; a running sandbox has them by the next command. Those that it has
        already stay as they are. Raises ``too_many_skills``."""
        known = {skill.directory for skill in await self.of(record)}
        new = {skill.directory: skill for skill in skills if skill.directory not in known}
        if not new:
            return record
        if len(known) + len(new) > limits.SKILLS_ATTACHED_MAX:
            raise too_many_skills(limits.SKILLS_ATTACHED_MAX)
        rows = await bounded(lambda skill: self._copied(record, skill), list(new.values()))
        await self._rows.put(record, rows)
        return await self._store.change(record, set={"has_skills": True}, add={"files_added": len(rows)})

    async def _copied(self, record: ContainerRecord, skill: GivenSkill) -> ContainerSkill:
        key = object_keys.container_objects(record.tenant_id, record.id, f"skill-{skill.digest}")
        if isinstance(skill.source, str):
            await self._blobs.copy(skill.source, key)
        else:
            await self._blobs.put_bytes(key, skill.source)
        return ContainerSkill(skill.name, skill.description, skill.digest, key, skill.skill_id, skill.version, skill.plugin)

    async def _resolve(self, tenant_id: str, asked: Mapping[str, Any], param: str, known: Mapping[str, ContainerSkill]) -> GivenSkill:
        if asked["type"] == "inline":
            return await _inline(asked, param)
        skill_id, wanted = asked["skill_id"], asked.get("version")
        before = known.get(skill_id)
        if before is not None and wanted in (None, "latest", before.version):
            return given(before)
        provided = curated.find(skill_id)
        if provided is not None:
            return _curated(provided, skill_id, wanted, param)
        version = await self._skills.version(tenant_id, skill_id, wanted, param=f"{param}.skill_id")
        return GivenSkill(version.name, version.description, version.digest, version.key, skill_id, str(version.version))


async def given_plugins(asked: Sequence[Mapping[str, Any]], *, param: str) -> list[GivenPlugin]:
    """The plugins of an environment (``environments/shapes.py: PluginParam``). Raises :class:`ApiError` with the place of the entry."""
    return [await _plugin(each, f"{param}[{index}]") for index, each in enumerate(asked)]


async def _plugin(asked: Mapping[str, Any], param: str) -> GivenPlugin:
    data = await _decoded(asked["source"]["data"], param)
    try:
        plugin = await worked(lambda: plugins.of_zip(data))
    except PluginProblem as problem:
        raise bad_request(f"Invalid plugin: {problem}", param=f"{param}.source.data", code="invalid_plugin") from problem
    for field, inside in (("name", plugin.name), ("description", plugin.description)):
        if asked[field].strip() != inside.strip():
            raise invalid_value(f"{param}.{field}", f"it must be the {field} in '{plugins.MANIFEST}'.")
    skills = [replace(_of_bundle(skill), plugin=plugin.name) for skill in plugin.skills]
    return GivenPlugin(plugin.name, plugin.description, tuple(skills))


async def _decoded(data: str, param: str) -> bytes:
    try:
        return await beside(len(data), lambda: base64.b64decode(data, validate=True))
    except ValueError as error:
        raise invalid_value(f"{param}.source.data", f"it is not base64 ({error}).") from error


async def _inline(asked: Mapping[str, Any], param: str) -> GivenSkill:
    source = asked["source"]
    data = await _decoded(source["data"], param)
    make = bundles.of_markdown if source["media_type"] == MARKDOWN else bundles.of_zip
    try:
        bundle = await worked(lambda: make(data))
    except SkillProblem as problem:
        raise invalid_skill(problem, f"{param}.source.data") from problem
    for field, inside in (("name", bundle.name), ("description", bundle.description)):
        if asked[field].strip() != inside:
            raise invalid_value(f"{param}.{field}", f"it must be the {field} in the front matter of SKILL.md.")
    return _of_bundle(bundle)


def _curated(bundle: SkillBundle, skill_id: str, wanted: str | None, param: str) -> GivenSkill:
    if wanted not in (None, "latest", curated.VERSION):
        raise invalid_value(f"{param}.version", f"'{skill_id}' comes with this service, in version '{curated.VERSION}' alone.")
    return _of_bundle(bundle, skill_id, curated.VERSION)


def _of_bundle(bundle: SkillBundle, skill_id: str | None = None, version: str | None = None) -> GivenSkill:
    return GivenSkill(bundle.name, bundle.description, bundle.digest, bundle.archive, skill_id, version)


def invalid_skill(problem: SkillProblem, param: str) -> ApiError:
    return bad_request(f"Invalid skill: {problem}", param=param, code="invalid_skill")
