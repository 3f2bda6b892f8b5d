"""Skills and their versions: records in the table, bundles in the bucket.

A skill is one record that counts its versions; a version is a record that never changes. Bundles are addressed by their content: all
versions of a tenant that have the same files share one object, and the bundle's own record counts them. It is erased when it is found
unused, never by the deletion that made it so:

    (none) -> 0 versions, due in an hour -> n versions -> 0 versions, due in an hour -> dying -> (none)

Whoever is about to name a bundle without versions writes its bytes (again) first, and then names it by a transaction that holds only
if the record is still as it was; so no version names a bundle that an eraser has begun with.
"""

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ApiError, ConditionFailed, bad_request, skill_not_found, skill_version_not_found
from moorage.files.store import Clock
from moorage.ids import new_listed_id
from moorage.skills.bundle import SkillBundle
from moorage.store import keys, object_keys, schema
from moorage.store.blobs import BlobNotFound, Blobs
from moorage.store.listing import Page, gone_record, listing_attributes, read_page, unknown_after
from moorage.store.table import Record, Table, Write
from moorage.wire.answers import Skill, SkillVersion
from moorage.wire.queries import PageQuery

KIND: Final = "skills"
_BUNDLES: Final = "bundles"
_DYING: Final = -1
"""Count of a bundle that is being erased."""


@dataclass(frozen=True, slots=True)
class SkillRecord:
    tenant_id: str
    id: str
    name: str
    """Of the default version, like ``description``."""
    description: str
    created_at: int
    default_version: int
    latest_version: int
    """The highest number that was ever given, even if that version was deleted."""
    versions: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class SkillVersionRecord:
    tenant_id: str
    skill_id: str
    version: int
    name: str
    description: str
    created_at: int
    digest: str
    """Of the bundle."""
    key: str
    """Where its zip lies in the bucket."""
    bytes: int


@dataclass(frozen=True, slots=True)
class _StoredBundle:
    """A bundle's record."""

    key: str
    count: int


class SkillStore:
    def __init__(self, table: Table, blobs: Blobs, *, clock: Clock) -> None:
        self._table = table
        self._blobs = blobs
        self._clock = clock

    async def create(self, tenant_id: str, bundle: SkillBundle) -> SkillRecord:
        """A skill with this bundle as version 1."""
        now = self._clock()
        skill = SkillRecord(
            tenant_id=tenant_id,
            id=new_listed_id("skill", now),
            name=bundle.name,
            description=bundle.description,
            created_at=int(now),
            default_version=1,
            latest_version=1,
            versions=1,
        )
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            stored = await self._store_bundle(tenant_id, bundle)
            version = self._version(skill, 1, bundle, stored.key)
            puts = [_skill_record(skill), _version_record(version)]
            if not await self._table.write_together(puts, [self._counted(tenant_id, bundle.digest, stored, stored.count + 1)]):
                return skill
        raise _busy()

    async def add_version(self, tenant_id: str, skill_id: str, bundle: SkillBundle, *, is_default: bool) -> SkillVersionRecord:
        """The bundle as the skill's next version."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            skill = await self.get(tenant_id, skill_id)
            if skill.versions >= limits.SKILL_VERSIONS_MAX:
                raise bad_request(f"A skill has at most {limits.SKILL_VERSIONS_MAX} versions; delete some first.")
            number = skill.latest_version + 1
            stored = await self._store_bundle(tenant_id, bundle)
            version = self._version(skill, number, bundle, stored.key)
            counts: Record = {"latest_version": number, "versions": skill.versions + 1}
            if is_default:
                counts |= {"default_version": number, "name": bundle.name, "description": bundle.description}
            changes = [_changed(skill, counts), self._counted(tenant_id, bundle.digest, stored, stored.count + 1)]
            if not await self._table.write_together([_version_record(version)], changes):
                return version
        raise _busy()

    async def get(self, tenant_id: str, skill_id: str, *, param: str | None = None) -> SkillRecord:
        record = await self._table.get(keys.skill(tenant_id, skill_id), keys.META)
        if record is None:
            raise skill_not_found(skill_id, param=param)
        return _SKILL.unpack(record)

    async def version(
        self, tenant_id: str, skill_id: str, version: int | str | None = None, *, param: str | None = None
    ) -> SkillVersionRecord:
        """A version by its number, ``latest``, or the default one if None."""
        skill = await self.get(tenant_id, skill_id, param=param)
        if version == "latest":
            return (await self._versions(skill, descending=True, limit=1))[0]
        number = skill.default_version if version is None else _number(version)
        record = None
        if number is not None:
            record = await self._table.get(keys.skill(tenant_id, skill_id), keys.version(number))
        if record is None:
            raise skill_version_not_found(skill_id, str(version), param=param)
        return _VERSION.unpack(record)

    async def page(self, tenant_id: str, page: PageQuery) -> Page[SkillRecord]:
        return (await read_page(self._table, tenant_id, KIND, page, pk_of=keys.skill)).read(_SKILL.unpack)

    async def version_page(self, tenant_id: str, skill_id: str, page: PageQuery) -> Page[SkillVersionRecord]:
        """``after`` is a version's id or number."""
        skill = await self.get(tenant_id, skill_id)
        after = None
        if page.after is not None:
            after = _number(page.after.removeprefix(version_id(skill_id, "")))
            if after is None or after > skill.latest_version:
                raise unknown_after(page.after)
        found = await self._versions(skill, descending=page.order == "desc", after=after, limit=page.limit + 1)
        return Page.of(found, page.limit)

    async def content(self, version: SkillVersionRecord, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bundle's zip from ``start`` up to and with ``end``."""
        try:
            async for chunk in self._blobs.get_stream(version.key, start=start, end=end):
                yield chunk
        except BlobNotFound as error:
            raise skill_version_not_found(version.skill_id, str(version.version)) from error

    async def set_default(self, tenant_id: str, skill_id: str, version: int | str) -> SkillRecord:
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            skill = await self.get(tenant_id, skill_id)
            chosen = await self.version(tenant_id, skill_id, version, param="default_version")
            values: Record = {"default_version": chosen.version, "name": chosen.name, "description": chosen.description}
            is_there = {"version": chosen.version}
            pk = keys.skill(tenant_id, skill_id)
            still = Write(pk, keys.version(chosen.version), set=is_there, condition=is_there)
            if not await self._table.write_together([], [_changed(skill, values), still]):
                return replace(skill, default_version=chosen.version, name=chosen.name, description=chosen.description)
        raise _busy()

    async def delete(self, tenant_id: str, skill_id: str) -> None:
        """Delete a skill with all versions; the sweep finishes a deletion that breaks off."""
        skill = await self.get(tenant_id, skill_id)
        pk = keys.skill(tenant_id, skill_id)
        due = {"PK": pk, "SK": keys.PURGE, "GSI1PK": keys.due_list(KIND), "GSI1SK": keys.due(0, skill_id), "tenant_id": tenant_id}
        await self._table.put(due)
        await self._table.write_many(
            puts=[gone_record(pk, keys.GONE, skill.created_at, skill_id, self._clock())], deletes=[(pk, keys.META)]
        )
        await self._erase(tenant_id, pk)

    async def delete_version(self, tenant_id: str, skill_id: str, version: str) -> SkillVersionRecord:
        """Delete a version that is not the default; with the last one the skill goes."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            skill = await self.get(tenant_id, skill_id)
            doomed = await self.version(tenant_id, skill_id, version)
            if skill.versions == 1:
                await self.delete(tenant_id, skill_id)
                return doomed
            if doomed.version == skill.default_version:
                raise bad_request(
                    f"Version '{doomed.version}' is the default version of this skill. Make another one the default first: "
                    f"POST /v1/skills/{skill_id} with 'default_version'."
                )
            stored = await self._stored(tenant_id, doomed.digest)
            assert stored is not None, f"{doomed.digest} is named by {skill_id} and has no record"
            changes = [
                _changed(skill, {"versions": skill.versions - 1}),
                self._counted(tenant_id, doomed.digest, stored, stored.count - 1),
            ]
            doomed_key = (keys.skill(tenant_id, skill_id), keys.version(doomed.version))
            if not await self._table.write_together([], changes, [doomed_key]):
                return doomed
        raise _busy()

    async def purge_due(self, now: float) -> int:
        """Finish deletions that broke off and erase bundles that no version names; answers how many. Harmless to run twice."""
        doomed = await self._due(KIND, now)
        for entry in doomed:
            await self._erase(entry["tenant_id"], entry["PK"])
        unused = await self._due(_BUNDLES, now)
        for record in unused:
            await self._erase_bundle(record["PK"], record["key"], record["count"])
        return len(doomed) + len(unused)

    # --- Versions --------------------------------------------------------------------------------------------------------------

    def _version(self, skill: SkillRecord, number: int, bundle: SkillBundle, key: str) -> SkillVersionRecord:
        return SkillVersionRecord(
            tenant_id=skill.tenant_id,
            skill_id=skill.id,
            version=number,
            name=bundle.name,
            description=bundle.description,
            created_at=int(self._clock()),
            digest=bundle.digest,
            key=key,
            bytes=len(bundle.archive),
        )

    async def _versions(
        self, skill: SkillRecord, *, descending: bool, limit: int, after: int | None = None
    ) -> list[SkillVersionRecord]:
        """Versions in order of their numbers, from beyond ``after`` on."""
        pk = keys.skill(skill.tenant_id, skill.id)
        place = skill.latest_version + 1 if descending and after is None else after or 0
        records = await self._table.query_beyond(
            pk, keys.version(place), prefix=keys.version.prefix, descending=descending, limit=limit
        )
        return [_VERSION.unpack(record) for record in records]

    async def _erase(self, tenant_id: str, pk: str) -> None:
        """Take a deleted skill's versions away, and at last the record that says that this is to be done."""
        for record in await self._table.query(pk, prefix=keys.version.prefix):
            version = _VERSION.unpack(record)
            for _ in range(limits.CONDITIONAL_WRITES_MAX):
                stored = await self._stored(tenant_id, version.digest)
                if stored is None:
                    break  # another eraser has been here
                counted = self._counted(tenant_id, version.digest, stored, stored.count - 1)
                failed = await self._table.write_together([], [counted], [(pk, record["SK"])])
                if 1 in failed or not failed:
                    break
        await self._table.delete(pk, keys.PURGE)

    # --- Bundles ---------------------------------------------------------------------------------------------------------------

    async def _stored(self, tenant_id: str, digest: str) -> _StoredBundle | None:
        record = await self._table.get(keys.skill_bundle(tenant_id, digest), keys.META)
        return None if record is None else _StoredBundle(record["key"], record["count"])

    async def _store_bundle(self, tenant_id: str, bundle: SkillBundle) -> _StoredBundle:
        """The bundle's record, its bytes in the bucket, and nobody about to erase them for a while."""
        pk = keys.skill_bundle(tenant_id, bundle.digest)
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            stored = await self._stored(tenant_id, bundle.digest)
            if stored is None:
                stored = _StoredBundle(object_keys.skill_object(tenant_id, f"{bundle.digest}-{secrets.token_hex(8)}.zip"), 0)
                record = {"PK": pk, "SK": keys.META, "key": stored.key, "count": 0, **self._due_attributes(bundle.digest)}
                try:
                    await self._table.put(record, if_absent=True)
                except ConditionFailed:
                    continue
            if stored.count == _DYING:
                await self._erase_bundle(pk, stored.key, stored.count)
                continue
            if stored.count == 0:
                await self._blobs.put_bytes(stored.key, bundle.archive)
            return stored
        raise _busy()

    def _counted(self, tenant_id: str, digest: str, stored: _StoredBundle, count: int) -> Write:
        """One version more or less names the bundle."""
        condition = {"key": stored.key, "count": stored.count}
        pk = keys.skill_bundle(tenant_id, digest)
        if count > 0:
            return Write(pk, keys.META, set={"count": count}, condition=condition, remove=("GSI1PK", "GSI1SK"))
        return Write(pk, keys.META, set={"count": 0, **self._due_attributes(digest)}, condition=condition)

    def _due_attributes(self, digest: str) -> Record:
        at = int(self._clock()) + limits.SKILL_UNUSED_SECONDS
        return {"GSI1PK": keys.due_list(_BUNDLES), "GSI1SK": keys.due(at, digest)}

    async def _erase_bundle(self, pk: str, key: str, count: int) -> None:
        """Unless a version has come to name it."""
        try:
            if count != _DYING:
                await self._table.update(pk, keys.META, set={"count": _DYING}, condition={"key": key, "count": 0})
            await self._blobs.delete(key)
            await self._table.delete(pk, keys.META, condition={"key": key, "count": _DYING})
        except ConditionFailed:
            return

    async def _due(self, kind: str, now: float) -> list[Record]:
        entries = await self._table.query(keys.due_list(kind), up_to=keys.due(int(now), "~"), index=schema.INDEX)
        return await self._table.get_many((entry["PK"], entry["SK"]) for entry in entries)


def as_object(skill: SkillRecord) -> Skill:
    """The wire's Skill object."""
    return {
        "id": skill.id,
        "object": "skill",
        "name": skill.name,
        "description": skill.description,
        "created_at": skill.created_at,
        "default_version": str(skill.default_version),
        "latest_version": str(skill.latest_version),
    }


def version_as_object(version: SkillVersionRecord) -> SkillVersion:
    """The wire's SkillVersion object."""
    return {
        "id": version_id(version.skill_id, version.version),
        "object": "skill.version",
        "skill_id": version.skill_id,
        "version": str(version.version),
        "name": version.name,
        "description": version.description,
        "created_at": version.created_at,
    }


def version_id(skill_id: str, version: int | str) -> str:
    return f"{skill_id.replace('skill_', 'skillver_', 1)}_{version}"


def _busy() -> ApiError:
    return ApiError(409, "The skill is being changed by other requests; try again.", code="conflict")


def _number(version: int | str) -> int | None:
    """A version's number as the wire has it; None for a text that is no number."""
    text = str(version)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= limits.QUERY_DIGITS_MAX and int(text) > 0 else None


def _changed(skill: SkillRecord, values: Record) -> Write:
    """A change of the skill as it was read."""
    seen = {"default_version": skill.default_version, "latest_version": skill.latest_version, "versions": skill.versions}
    return Write(keys.skill(skill.tenant_id, skill.id), keys.META, set=values, condition=seen)


_SKILL: Final = Codec(SkillRecord)
_VERSION: Final = Codec(SkillVersionRecord)


def _skill_record(skill: SkillRecord) -> Record:
    return {
        "PK": keys.skill(skill.tenant_id, skill.id),
        "SK": keys.META,
        **listing_attributes(skill.tenant_id, KIND, skill.created_at, skill.id),
        **_SKILL.pack(skill),
    }


def _version_record(version: SkillVersionRecord) -> Record:
    return {
        "PK": keys.skill(version.tenant_id, version.skill_id),
        "SK": keys.version(version.version),
        **_VERSION.pack(version),
    }
