"""Agents: settings under a name, which change by versions that stay.

An agent's record counts its versions. A version is a record that never changes; if its settings are long they are an object in the
bucket. One transaction writes a version and counts it, so that two changes at once come one after the other.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import agent_busy, agent_not_found, bad_request
from moorage.files.store import Clock
from moorage.ids import new_listed_id
from moorage.parallel import as_json
from moorage.store import keys, object_keys
from moorage.store.blobs import Blobs
from moorage.store.listing import Page, gone_record, listing_attributes, read_page
from moorage.store.packing import packed, unpacked
from moorage.store.table import Record, Table, Write
from moorage.wire.queries import PageQuery

KIND: Final = "agents"


@dataclass(frozen=True, slots=True)
class AgentRecord:
    tenant_id: str
    id: str
    created_at: int
    version: int
    updated_at: int
    """When this version was made."""
    settings: Mapping[str, Any]
    """Fields of ``shapes.py: CreateAgent`` in canonical form, ``metadata`` among them."""


class Agents:
    def __init__(self, table: Table, blobs: Blobs, *, clock: Clock) -> None:
        self._table = table
        self._blobs = blobs
        self._clock = clock

    async def create(self, tenant_id: str, settings: Mapping[str, Any]) -> AgentRecord:
        now = self._clock()
        agent = AgentRecord(tenant_id, new_listed_id("agent", now), int(now), 1, int(now), dict(settings))
        await self._table.put(await self._version_record(agent))
        # The record comes last: until it is there, nobody can see half of it.
        await self._table.put(self._record(agent))
        return agent

    @staticmethod
    def _record(agent: AgentRecord) -> Record:
        return {
            "PK": keys.agent(agent.tenant_id, agent.id),
            "SK": keys.META,
            "id": agent.id,
            "created_at": agent.created_at,
            "version": agent.version,
            **listing_attributes(agent.tenant_id, KIND, agent.created_at, agent.id),
        }

    def new_id(self) -> str:
        """Of an agent that :meth:`restore` is to make."""
        return new_listed_id("agent", self._clock())

    async def restore(self, tenant_id: str, agent_id: str, versions: AsyncIterator[tuple[int, Mapping[str, Any]]]) -> AgentRecord:
        """Save an agent with its versions, oldest first: when each was made, and its settings. It is seen once all are there."""
        now, count = int(self._clock()), 0
        agent = AgentRecord(tenant_id, agent_id, now, 0, now, {})
        async for updated_at, settings in versions:
            count += 1
            agent = replace(agent, version=count, updated_at=updated_at, settings=dict(settings))
            await self._table.put(await self._version_record(agent))
        await self._table.put(self._record(agent))
        return agent

    async def is_there(self, tenant_id: str, agent_id: str) -> bool:
        return await self._table.get(keys.agent(tenant_id, agent_id), keys.META) is not None

    async def get(self, tenant_id: str, agent_id: str, *, version: int | None = None, param: str | None = None) -> AgentRecord:
        """An agent as it is, or as it was in a version. Raises 404 for what is unknown, deleted or foreign."""
        record = await self._table.get(keys.agent(tenant_id, agent_id), keys.META)
        if record is None:
            raise agent_not_found(agent_id, param=param)
        if version is not None and not 0 < version <= record["version"]:
            raise bad_request(f"Agent '{agent_id}' has {record['version']} versions.", param="version", code="invalid_value")
        return await self._read(tenant_id, record, version or record["version"], param)

    async def page(self, tenant_id: str, page: PageQuery) -> Page[AgentRecord]:
        """A page is shorter than asked for if its settings are long."""
        found = await read_page(self._table, tenant_id, KIND, page, pk_of=keys.agent)
        places = [(record["PK"], keys.version(record["version"])) for record in found.entries]
        versions = {record["PK"]: record for record in await self._table.get_many(places)}
        whole = Page([(record, versions[record["PK"]]) for record in found.entries if record["PK"] in versions], found.has_more)
        return await whole.fitting(lambda each: each[1]["size"]).opened(lambda each: self._opened(tenant_id, *each))

    async def update(
        self, tenant_id: str, agent_id: str, change: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    ) -> AgentRecord:
        """``change`` makes the next settings of the latest; the same again are no version. Raises :class:`~moorage.errors.ApiError`."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            agent = await self.get(tenant_id, agent_id)
            settings = await change(agent.settings)
            if settings == agent.settings:
                return agent
            if agent.version >= limits.AGENT_VERSIONS_MAX:
                raise bad_request(f"An agent has at most {limits.AGENT_VERSIONS_MAX} versions. Create another one.")
            following = replace(agent, version=agent.version + 1, updated_at=int(self._clock()), settings=dict(settings))
            record = await self._version_record(following)
            counted = Write(
                keys.agent(tenant_id, agent_id), keys.META, set={"version": following.version}, condition={"version": agent.version}
            )
            if not await self._table.write_together([record], [counted]):
                return following
            if "blob" in record:
                await self._blobs.delete(record["blob"])
        raise agent_busy(agent_id)

    async def delete(self, tenant_id: str, agent_id: str) -> None:
        """The versions go first, so that a deletion that breaks off can be repeated. They go once more after the agent's record,
        because a change may have written one meanwhile. No change comes after that: each counts on the record."""
        pk = keys.agent(tenant_id, agent_id)
        agent = await self._table.get(pk, keys.META)
        if agent is None:
            raise agent_not_found(agent_id)
        await self.forget_versions(tenant_id, agent_id)
        gone = gone_record(pk, keys.GONE, agent["created_at"], agent_id, self._clock())
        await self._table.write_many(puts=[gone], deletes=[(pk, keys.META)])
        await self.forget_versions(tenant_id, agent_id)

    async def forget_versions(self, tenant_id: str, agent_id: str) -> None:
        """Delete all versions of an agent that is being deleted, or that was not restored to its end."""
        pk = keys.agent(tenant_id, agent_id)
        await self._blobs.delete_prefix(object_keys.agent_objects(tenant_id, agent_id))
        versions = await self._table.query(pk, prefix=keys.version.prefix)
        await self._table.write_many(deletes=[(pk, record["SK"]) for record in versions])

    async def _read(self, tenant_id: str, record: Record, version: int, param: str | None) -> AgentRecord:
        agent_id = record["id"]
        stored = await self._table.get(keys.agent(tenant_id, agent_id), keys.version(version))
        if stored is None:
            raise agent_not_found(agent_id, param=param)
        return await self._opened(tenant_id, record, stored)

    async def _opened(self, tenant_id: str, record: Record, version: Record) -> AgentRecord:
        body = version["body"] if "body" in version else await self._blobs.get_bytes(version["blob"])
        return AgentRecord(
            tenant_id, record["id"], record["created_at"], version["version"], version["updated_at"], await unpacked(body)
        )

    async def _version_record(self, agent: AgentRecord) -> Record:
        body = await packed(dict(agent.settings))
        record: Record = {
            "PK": keys.agent(agent.tenant_id, agent.id),
            "SK": keys.version(agent.version),
            "version": agent.version,
            "updated_at": agent.updated_at,
            "size": len(await as_json(dict(agent.settings))),
        }
        if len(body) <= limits.AGENT_INLINE_BYTES_MAX:
            return record | {"body": body}
        key = object_keys.agent_objects(agent.tenant_id, agent.id, secrets.token_hex(16))
        await self._blobs.put_bytes(key, body)
        return record | {"blob": key}
