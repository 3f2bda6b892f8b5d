"""An agent with its versions and sessions as one archive (``archive_format.py``), written while it is read.

What the API shows comes along, and what the next turn of a session needs: turns, the items of their responses, the files of
environments, artifacts. Secrets do not: variables of environments, their commands and vaults stay, and an archive says which sessions
had some. What was sealed for this deployment and tenant is opened, so that an import seals it again.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import orjson

from moorage import limits
from moorage.agents.archive_format import ArchiveWriter
from moorage.agents.archive_shapes import FORMAT, VERSION
from moorage.agents.artifacts import publish_latest
from moorage.agents.session_store import ArtifactRecord, SessionRecord, TurnRecord
from moorage.agents.store import AgentRecord
from moorage.agents.turns import snapshot_of, stand, standing_of
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerFileRecord
from moorage.dataclass import dataclass
from moorage.environments.opening import environment_path
from moorage.errors.agents import export_busy, export_too_large
from moorage.loop.notes import Notes
from moorage.parallel import as_json, beside
from moorage.runtime import Runtime
from moorage.store.responses import Snapshot
from moorage.stores import Stores
from moorage.wire.queries import PageQuery
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item
from moorage.wire.values import holds_more

OPENED: Final = "opened"
"""Marks an item whose ``encrypted_content`` is clear text in the archive."""
_KEPT_OF_ENVIRONMENT: Final = ("container_size", "network", "packages")


@dataclass(frozen=True, slots=True)
class _ExportedSession:
    session: SessionRecord
    turns: list[TurnRecord]
    files: list[ContainerFileRecord]
    artifacts: list[ArtifactRecord]

    @property
    def bytes_of_files(self) -> int:
        return sum(row.bytes for row in self.files) + sum(artifact.bytes for artifact in self.artifacts)


async def export(runtime: Runtime, tenant_id: str, agent_id: str) -> AsyncIterator[bytes]:
    """The archive. Raises :class:`~moorage.errors.ApiError` before the first piece where there is none."""
    agent = await runtime.stores.agents.get(tenant_id, agent_id)
    sessions = [await _looked_at(runtime, session) for session in await _sessions_of(runtime.stores, agent)]
    size = sum(found.bytes_of_files for found in sessions)
    if size > limits.FILE_BYTES_MAX:
        raise export_too_large("bytes of files", limits.FILE_BYTES_MAX)
    writer = ArchiveWriter()
    about = {"format": FORMAT, "version": VERSION, "id": agent.id, "versions": agent.version, "sessions": len(sessions)}
    async for piece in writer.text("agent.json", orjson.dumps(about)):
        yield piece
    for number in range(1, agent.version + 1):
        version = await runtime.stores.agents.get(tenant_id, agent_id, version=number)
        said = await as_json({"updated_at": version.updated_at, "settings": dict(version.settings)})
        async for piece in writer.text(f"versions/{number:04d}.json", said):
            yield piece
    for position, exported in enumerate(sessions, 1):
        async for piece in _session(runtime.stores, runtime.computers.containers, writer, f"sessions/{position:04d}", exported):
            yield piece
    yield writer.end()


async def _sessions_of(stores: Stores, agent: AgentRecord) -> list[SessionRecord]:
    """Oldest first."""
    found: list[SessionRecord] = []
    page, has_more = PageQuery(limit=limits.PAGE_ITEMS_MAX, order="asc"), True
    while has_more:
        sessions, has_more = await stores.agent_sessions.page(agent.tenant_id, page, lambda record: record["agent_id"] == agent.id)
        found += sessions
        if len(found) > limits.AGENT_EXPORT_SESSIONS_MAX:
            raise export_too_large("sessions", limits.AGENT_EXPORT_SESSIONS_MAX)
        has_more = has_more and bool(sessions)
        page = PageQuery(limit=limits.PAGE_ITEMS_MAX, order="asc", after=found[-1].id if found else None)
    return found


async def _looked_at(runtime: Runtime, session: SessionRecord) -> _ExportedSession:
    standing = await stand(runtime.stores, session)
    if not (standing.is_over or standing.open_calls) or await runtime.stores.agent_sessions.inputs(session):
        raise export_busy(session.id)
    await publish_latest(runtime, session)
    turns = await runtime.stores.agent_sessions.turns(session)
    if len(turns) > limits.AGENT_EXPORT_TURNS_MAX:
        raise export_too_large("turns of one session", limits.AGENT_EXPORT_TURNS_MAX)
    container_id = session.container_id
    files = [] if container_id is None else await runtime.computers.containers.files_of(session.tenant_id, container_id)
    numbers = {turn.number for turn in turns}
    artifacts = [each for each in await _artifacts_of(runtime.stores, session) if each.turn_number in numbers]
    return _ExportedSession(session, turns, files, artifacts)


async def _artifacts_of(stores: Stores, session: SessionRecord) -> list[ArtifactRecord]:
    found: list[ArtifactRecord] = []
    has_more = True
    while has_more:
        page = PageQuery(limit=limits.PAGE_ITEMS_MAX, order="asc", after=found[-1].id if found else None)
        more, has_more = await stores.agent_sessions.artifacts(session, page, None)
        found += more
        if len(found) > limits.AGENT_EXPORT_ARTIFACTS_MAX:
            raise export_too_large("artifacts of one session", limits.AGENT_EXPORT_ARTIFACTS_MAX)
    return found


async def _session(
    stores: Stores, containers: Containers, writer: ArchiveWriter, folder: str, exported: _ExportedSession
) -> AsyncIterator[bytes]:
    session, tenant_id = exported.session, exported.session.tenant_id
    async for piece in writer.text(f"{folder}/session.json", await as_json(await _facts(stores, containers, exported))):
        yield piece
    if session.begins_with:
        async for piece in writer.text(f"{folder}/past.jsonl", await _response(stores, session, session.begins_with)):
            yield piece
    for number, turn in enumerate(exported.turns, 1):
        for position, response_id in enumerate(turn.responses, 1):
            said = await _response(stores, session, response_id)
            async for piece in writer.text(response_name(folder, number, position), said):
                yield piece
    for position, row in enumerate(exported.files, 1):
        async for piece in writer.file(f"{folder}/files/{position:06d}", row.bytes, containers.content(row)):
            yield piece
    for position, artifact in enumerate(exported.artifacts, 1):
        file = await stores.files.get(tenant_id, artifact.file_id)
        async for piece in writer.file(f"{folder}/artifacts/{position:06d}", artifact.bytes, stores.files.content(file)):
            yield piece


def response_name(folder: str, turn: int, position: int) -> str:
    """The entry of a response, by the places of its turn and of itself in it, from 1."""
    return f"{folder}/turns/{turn:06d}/{position:04d}.jsonl"


async def _facts(stores: Stores, containers: Containers, exported: _ExportedSession) -> dict[str, Any]:
    """``archive_shapes.py: ArchivedSession``."""
    session = exported.session
    environment, left_out = await _environment(stores, containers, session)
    facts: dict[str, Any] = {
        "id": session.id,
        "agent_version": session.agent_version,
        "settings": dict(session.settings),
        "metadata": dict(session.metadata),
        "left_out": [*left_out, *(["vaults"] if session.vault_ids else [])],
        "turns": [await _turn(stores, session, turn) for turn in exported.turns],
        "files": [{"path": environment_path(row.path), "bytes": row.bytes} for row in exported.files],
        "artifacts": [
            {"turn": each.turn_number, "path": environment_path(each.path), "bytes": each.bytes, "created_at": each.created_at}
            for each in exported.artifacts
        ],
    }
    facts |= {} if environment is None else {"environment": environment}
    facts |= {"budget": dict(session.budget)} if session.budget else {}
    return facts | ({"begins_with": session.begins_with} if session.begins_with else {})


async def _environment(stores: Stores, containers: Containers, session: SessionRecord) -> tuple[dict[str, Any] | None, list[str]]:
    """What a new one is made with, and the names of what stays."""
    if session.container_id is None:
        return None, []
    sealed = await stores.agent_sessions.environment_of(session)
    text = await beside(len(sealed), lambda: stores.sealer.open(session.tenant_id, sealed))
    asked: Mapping[str, Any] = {} if text is None else orjson.loads(text)
    container = await containers.peek(session.tenant_id, session.container_id)
    left_out = [name for name in ("env", "setup_commands", "skills", "plugins") if asked.get(name)]
    if not left_out and container is not None:
        left_out += ["setup_commands"] if container.has_setup else []
        skills = await containers.skills.of(container)
        left_out += ["skills"] if any(skill.plugin is None for skill in skills) else []
        left_out += ["plugins"] if container.plugins else []
    kept = {name: asked[name] for name in _KEPT_OF_ENVIRONMENT if name in asked}
    return {"container_id": session.container_id, **kept}, left_out


async def _turn(stores: Stores, session: SessionRecord, turn: TurnRecord) -> dict[str, Any]:
    standing = await standing_of(stores, session, turn)
    cost = standing.cost
    return {
        "id": turn.id,
        "number": turn.number,
        "created_at": turn.created_at,
        "cancelled_at": turn.cancelled_at,
        "responses": list(turn.responses),
        "used": _tokens(turn.used + standing.used),
        "earlier": _tokens(turn.earlier),
        "cost": -1 if cost is None or turn.cost < 0 else turn.cost + cost,
    }


def _tokens(used: TokenUsage) -> dict[str, int]:
    return asdict(used)


async def _response(stores: Stores, session: SessionRecord, response_id: str) -> bytes:
    """A response in JSON lines: what is true of it, and its items."""
    snapshot = await snapshot_of(stores, session.tenant_id, response_id)
    if snapshot is None:
        return orjson.dumps({"id": response_id, "status": "deleted", "ended_at_ms": 0})
    if not snapshot.is_final or snapshot.last is None:
        raise export_busy(session.id)
    stored, final = snapshot.stored, snapshot.final_object
    lines: list[bytes] = [orjson.dumps(_head(snapshot, snapshot.last.at_ms))]
    past = stored.input_items[: stored.recent_items]
    for of, items in (("past", past), ("input", stored.own_input), ("output", final["output"])):
        lines += [await as_json({"of": of, "item": item}) for item in await _opened(stores, session, items)]
    said = b"\n".join(lines)
    if len(said) > limits.AGENT_ARCHIVE_TEXT_BYTES_MAX:
        raise export_too_large("bytes of one response", limits.AGENT_ARCHIVE_TEXT_BYTES_MAX)
    if await beside(len(said), lambda: holds_more(said, limits.AGENT_ARCHIVE_VALUES_MAX)):
        raise export_too_large("JSON values of one response", limits.AGENT_ARCHIVE_VALUES_MAX)
    return said


def _head(snapshot: Snapshot, ended_at_ms: int) -> dict[str, Any]:
    final = snapshot.final_object
    head: dict[str, Any] = {"id": snapshot.stored.response_id, "status": final["status"], "ended_at_ms": ended_at_ms}
    if final["error"] is not None:
        head["error"] = {name: value for name, value in final["error"].items() if value is not None}
    reason = (final["incomplete_details"] or {}).get("reason")
    return head if reason is None else head | {"incomplete_reason": reason}


async def _opened(stores: Stores, session: SessionRecord, items: Sequence[Item]) -> list[Item]:
    """The items whole, what this deployment has sealed of them in clear text."""
    found: list[Item] = []
    for item in await stores.contents_of(session.tenant_id).items(items):
        sealed = item.get("encrypted_content")
        text = None if sealed is None else await beside(len(sealed), lambda: stores.sealer.open(session.tenant_id, sealed))  # noqa: B023
        if text is not None and item["type"] == "compaction":
            notes = await beside(len(text), partial(Notes.unpacked, text))
            text = replace(notes, recent=tuple(await _opened(stores, session, notes.recent))).packed() if notes.recent else text
        found.append(item if text is None else {**item, "encrypted_content": text, OPENED: True})
    return found
