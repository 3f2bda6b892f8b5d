"""The skills of a container: rows beside those of its files, each with a copy of the bundle that is the container's own.

A container keeps what it was given: a version that is deleted, or another default, changes nothing in it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from moorage.containers.store import ContainerRecord
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed
from moorage.skills.bundle import SKILLS
from moorage.store import keys
from moorage.store.table import Record, Table
from moorage.wire.operator_answers import ContainerSkillEntry

_HASH_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class ContainerSkill:
    name: str
    description: str
    digest: str
    """Of its bundle (``skills/bundle.py``)."""
    key: str
    """Where the container's copy of the bundle is in the bucket."""
    skill_id: str | None = None
    """None for a skill that came with a request."""
    version: str | None = None
    plugin: str | None = None
    """The name of the plugin that it is a part of."""
    staged_in: int = 0
    """The incarnation whose sandbox has it; 0 if none has had it yet."""

    @property
    def directory(self) -> str:
        return directory_of(self.name, self.digest)

    @property
    def path(self) -> str:
        return f"{SKILLS}/{self.directory}"

    def to_json(self) -> ContainerSkillEntry:
        return {
            "id": self.directory,
            "object": "container.skill",
            "name": self.name,
            "description": self.description,
            "path": self.path,
            "skill_id": self.skill_id,
            "version": self.version,
        }


def directory_of(name: str, digest: str) -> str:
    """The folder of a skill: the same bundle has the same one in every container."""
    return f"{name}-{digest[:_HASH_CHARS]}"


class ContainerSkills:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def of(self, container: ContainerRecord) -> list[ContainerSkill]:
        """All rows, by folder."""
        pk = keys.container(container.tenant_id, container.id)
        return [_skill(record) for record in await self._table.query(pk, prefix=keys.container_skill.prefix)]

    async def put(self, container: ContainerRecord, skills: Iterable[ContainerSkill]) -> None:
        pk = keys.container(container.tenant_id, container.id)
        await self._table.write_many(puts=[_record(pk, skill) for skill in skills])

    async def mark_staged(self, container: ContainerRecord, skill: ContainerSkill) -> ContainerSkill:
        """Note that the container's present sandbox has it."""
        pk = keys.container(container.tenant_id, container.id)
        try:
            await self._table.update(pk, keys.container_skill(skill.directory), set={"staged_in": container.incarnation})
        except ConditionFailed:
            return skill  # the container is being erased
        return replace(skill, staged_in=container.incarnation)


def _record(pk: str, skill: ContainerSkill) -> Record:
    return {
        "PK": pk,
        "SK": keys.container_skill(skill.directory),
        "name": skill.name,
        "description": skill.description,
        "digest": skill.digest,
        "key": skill.key,
        "skill_id": skill.skill_id,
        "version": skill.version,
        "staged_in": skill.staged_in,
    } | ({} if skill.plugin is None else {"plugin": skill.plugin})


def _skill(record: Record) -> ContainerSkill:
    fields = ("name", "description", "digest", "key", "skill_id", "version", "staged_in")
    return ContainerSkill(**{field: record[field] for field in fields}, plugin=record.get("plugin"))
