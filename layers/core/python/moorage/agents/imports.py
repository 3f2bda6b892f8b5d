"""An agent out of an archive (``exports.py``), with its sessions, as if they had been here.

The archive is read twice. The first time checks all of it (``archive_plan.py``), so that one that is broken is refused whole. The
second time writes.
Nobody sees a session until all is there. The agent comes last: from then on the sessions are revealed, if need be by the reaper.

Ids that lead somewhere are new: of the agent, sessions, containers, responses, and of the items, which name their responses. What a
response has used counts for its turn alone, because nothing was used here.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from moorage import ids, limits
from moorage.agents.archive_plan import ArchivedItems, ArchivePlan, Renaming, file_name, past_name, read_plan, response_of, version_name
from moorage.agents.archive_shapes import ARCHIVED_VERSION
from moorage.agents.exports import response_name
from moorage.agents.session_store import ArtifactRecord, SessionRecord, TurnRecord
from moorage.agents.session_vaults import chosen
from moorage.agents.settings import as_request
from moorage.agents.store import AgentRecord
from moorage.agents.turns import budget_scope, delete, in_environment
from moorage.containers.containers import PlacedFile, StreamedContent
from moorage.dataclass import dataclass
from moorage.environments.opening import container_path, open_environment
from moorage.errors import ApiError, passing_over_what_is_gone
from moorage.errors.agents import broken_archive
from moorage.files.store import StoredFile
from moorage.loop.create import echo
from moorage.loop.finish import final_events, object_of, opening_events
from moorage.loop.prepare import conceal
from moorage.parallel import as_json, beside, side_by_side
from moorage.runtime import Runtime
from moorage.store.event_log import EventBatch, LogWriterId
from moorage.store.item_contents import PURPOSE
from moorage.store.responses import ROOT_AGENT, Ancestor, StoredResponse
from moorage.vaults.choice import credentials_in
from moorage.vaults.store import CredentialRecord
from moorage.wire import events
from moorage.wire.parameters import Parameters
from moorage.wire.requests import CreateRequest, parse_create
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Event, Item
from moorage.wire.validation import Fields

_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class ImportedAgent:
    agent: AgentRecord
    imported_from: str
    sessions: Sequence[tuple[SessionRecord, Fields]]
    """With what the archive says of each (``archive_shapes.py: ArchivedSession``)."""


async def import_agent(
    runtime: Runtime, file: StoredFile, *, vault_ids: tuple[str, ...], keeps_network: bool, key_id: str
) -> ImportedAgent:
    """Raises :class:`~moorage.errors.ApiError`; nothing is left behind then."""
    plan = await read_plan(runtime, file)
    credentials = await credentials_in(runtime.stores, file.tenant_id, vault_ids)
    work = _Import(runtime, file, plan, vault_ids, credentials, keeps_network, key_id, runtime.stores.agents.new_id())
    try:
        return await work.run()
    except BaseException:
        await work.undo()
        raise


@dataclass(slots=True)
class _Import:
    runtime: Runtime
    file: StoredFile
    plan: ArchivePlan
    vault_ids: tuple[str, ...]
    credentials: Sequence[CredentialRecord]
    keeps_network: bool
    key_id: str
    agent_id: str
    made: list[SessionRecord] = field(default_factory=list)

    @property
    def tenant_id(self) -> str:
        return self.file.tenant_id

    async def run(self) -> ImportedAgent:
        sessions = [(await self._session(folder, said), said) for folder, said in self.plan.sessions]
        agent = await self.runtime.stores.agents.restore(self.tenant_id, self.agent_id, self._versions())
        for session, _ in sessions:
            await self.runtime.stores.agent_sessions.reveal(session)
        return ImportedAgent(agent, self.plan.agent["id"], sessions)

    async def undo(self) -> None:
        """The agent first: where it is not there, the reaper goes on deleting."""
        with passing_over_what_is_gone():
            await self.runtime.stores.agents.delete(self.tenant_id, self.agent_id)
        await self.runtime.stores.agents.forget_versions(self.tenant_id, self.agent_id)
        await side_by_side(partial(_delete, self.runtime), self.made, at_once=limits.SWEEP_AT_ONCE)

    async def _versions(self) -> AsyncIterator[tuple[int, Mapping[str, Any]]]:
        for number in range(1, self.plan.agent["versions"] + 1):
            text = await self._text(version_name(number))
            said = await beside(len(text), partial(ARCHIVED_VERSION.body, text))
            yield said["updated_at"], _without_credentials(said["settings"])

    # --- A session ------------------------------------------------------------------------------------------------------

    async def _session(self, folder: str, said: Fields) -> SessionRecord:
        """Stored, with all that hangs below it, and seen by nobody yet."""
        sessions, settings = self.runtime.stores.agent_sessions, _without_credentials(said["settings"])
        chosen(settings, self.credentials)
        renaming = Renaming()
        new_ids = {old: ids.new_response_id(self.runtime.clock()) for old in _responses_of(said)}
        for old, new in new_ids.items():
            renaming.add(old, new)
        session = sessions.new(
            self.tenant_id,
            settings,
            self.agent_id if said["agent_version"] else None,
            agent_version=said["agent_version"],
            vault_ids=self.vault_ids,
            metadata=said["metadata"],
            budget=said.get("budget"),
            begins_with=new_ids.get(said.get("begins_with", ""), ""),
        )
        if "environment" in said:
            session = await self._with_environment(session, folder, said, renaming)
        await self._restore(session, said, new_ids)
        if session.budget is not None:
            await self.runtime.stores.budgets.put(self.tenant_id, budget_scope(session), session.budget)
        await self._responses(session, folder, said, renaming)
        await self._artifacts(session, folder, said)
        return session

    async def _with_environment(self, session: SessionRecord, folder: str, said: Fields, renaming: Renaming) -> SessionRecord:
        spec = {"type": "openai_hosted", **{name: value for name, value in said["environment"].items() if name != "container_id"}}
        if not self.keeps_network:
            spec["network"] = {"access": "disabled"}
        try:
            container = await open_environment(
                self.runtime, self.tenant_id, spec, param="environment", kind="session", credentials=self.credentials
            )
        except ApiError as error:
            if error.status != _BAD_REQUEST:
                raise
            raise broken_archive(f"an environment of it cannot be here. {error.message}") from error
        assert container is not None
        renaming.container = (said["environment"]["container_id"].encode(), container.id.encode())
        try:
            places = ((container_path(file["path"]), file_name(folder, "files", place)) for place, file in enumerate(said["files"], 1))
            placed = [PlacedFile(path, StreamedContent(self._size(name), partial(self._content, name))) for path, name in places]
            await self.runtime.computers.containers.place(container, placed)
            text = (await as_json(spec)).decode()
            sealed = await beside(len(text), lambda: self.runtime.stores.sealer.seal(self.tenant_id, text))
            session = replace(session, container_id=container.id, owns_container=True)
            return await self.runtime.stores.agent_sessions.with_environment(session, sealed)
        except BaseException:
            await self.runtime.computers.containers.delete(self.tenant_id, container.id)
            raise

    async def _restore(self, session: SessionRecord, said: Fields, new_ids: Mapping[str, str]) -> None:
        now = int(self.runtime.clock())
        expires_at = self.runtime.stores.responses.expiry(is_stored=True)
        turns = [
            TurnRecord(
                turn["number"],
                turn["id"],
                turn["created_at"],
                tuple(new_ids[old] for old in turn["responses"]),
                used=TokenUsage(**turn["used"]),
                earlier=TokenUsage(**turn["earlier"]),
                cancelled_at=turn["cancelled_at"],
                count=len(turn["responses"]),
                cost=turn["cost"],
                rooted_at=now,
                expires_at=expires_at,
            )
            for turn in said["turns"]
        ]
        self.made.append(session)
        await self.runtime.stores.agent_sessions.restore(session, turns)

    async def _responses(self, session: SessionRecord, folder: str, said: Fields, renaming: Renaming) -> None:
        request = await self._request(session)
        names = [past_name(folder)] if session.begins_with else []
        names += [
            response_name(folder, number, place)
            for number, turn in enumerate(said["turns"], 1)
            for place in range(1, len(turn["responses"]) + 1)
        ]
        seal = partial(self.runtime.stores.sealer.seal, self.tenant_id)
        ancestors: tuple[Ancestor, ...] = ()
        for name in names:
            read = await response_of(await self._text(name), renaming, seal)
            if read.head["status"] == "deleted":
                continue
            ancestors = () if read.past else ancestors
            if len(ancestors) > limits.AGENT_SESSION_CHAIN_MAX:
                raise broken_archive(f"the chain before '{name}' is too long.")
            stored = self._stored(session, request, read, ancestors)
            log = tuple(event | {"sequence_number": number} for number, event in enumerate(_log(stored, read)))
            await self.runtime.stores.responses.create(stored, EventBatch(0, log, LogWriterId(0, 1), at_ms=read.head["ended_at_ms"]))
            ancestors = (*ancestors, Ancestor(stored.response_id, 0))

    async def _request(self, session: SessionRecord) -> CreateRequest:
        """What each of its responses was asked with, but for its input."""
        asked = as_request(session.settings) | {"input": "", "background": True}
        asked["tools"] = in_environment(session, asked["tools"])
        request = parse_create(asked, web_search=self.runtime.models.web_search)
        tools, _ = conceal(self.runtime, self.tenant_id, request.tools)
        return replace(request, tools=tools)

    def _stored(
        self, session: SessionRecord, request: CreateRequest, read: ArchivedItems, ancestors: tuple[Ancestor, ...]
    ) -> StoredResponse:
        request = replace(request, previous_response_id=ancestors[-1].response_id if ancestors else None)
        return StoredResponse(
            response_id=read.head["id"],
            tenant_id=self.tenant_id,
            created_at=int(self.runtime.clock()),
            parameters=Parameters.of(request),
            echo=echo(request, session.container_id),
            input_items=[*read.past, *read.input],
            recent_items=len(read.past),
            ancestors=ancestors,
            container_id=session.container_id,
            is_background=True,
            expires_at=self.runtime.stores.responses.expiry(is_stored=True),
            execution=read.head["id"],
            key_id=self.key_id,
            files_at_ms=0 if session.container_id is None else self.runtime.now_ms(),
            session_id=session.id,
            agent=None if request.multi_agent is None else ROOT_AGENT,
        )

    async def _artifacts(self, session: SessionRecord, folder: str, said: Fields) -> None:
        turns = {turn["number"]: turn["id"] for turn in said["turns"]}
        for place, artifact in enumerate(said["artifacts"], 1):
            path, name = container_path(artifact["path"]), file_name(folder, "artifacts", place)
            file = await self.runtime.stores.files.create(
                self.tenant_id, filename=path.rpartition("/")[2], purpose=PURPOSE, chunks=self._content(name)
            )
            turn, created_at = artifact["turn"], artifact["created_at"]
            record = ArtifactRecord(turn, turns[turn], path, file.bytes, created_at, file.id, session.container_id or "")
            try:
                added = await self.runtime.stores.agent_sessions.add_artifact(session, record)
            except BaseException:
                await self.runtime.stores.files.delete(self.tenant_id, file.id)
                raise
            if not added:
                await self.runtime.stores.files.delete(self.tenant_id, file.id)
                raise broken_archive("two artifacts of a turn have the same path.")

    # --- The archive ----------------------------------------------------------------------------------------------------

    def _size(self, name: str) -> int:
        return self.plan.entries[name].bytes

    async def _content(self, name: str) -> AsyncIterator[bytes]:
        entry = self.plan.entries[name]
        if entry.bytes:
            async for chunk in self.runtime.stores.files.content(self.file, start=entry.start, end=entry.start + entry.bytes - 1):
                yield chunk

    async def _text(self, name: str) -> bytes:
        return b"".join([chunk async for chunk in self._content(name)])


async def settle_imports(runtime: Runtime) -> int:
    """End the imports whose process died; answers how many sessions of theirs there were. The agent comes last: if it is there, its
    sessions are seen from now on, and otherwise they are deleted. Harmless to run twice, or twice at once."""
    sessions = await runtime.stores.agent_sessions.unrevealed()

    async def one(session: SessionRecord) -> None:
        if await runtime.stores.agents.is_there(session.tenant_id, session.agent_id):
            with passing_over_what_is_gone():
                await runtime.stores.agent_sessions.reveal(session)
        else:
            await _delete(runtime, session)
            await runtime.stores.agents.forget_versions(session.tenant_id, session.agent_id)

    await side_by_side(one, sessions, at_once=limits.SWEEP_AT_ONCE)
    return len(sessions)


async def _delete(runtime: Runtime, session: SessionRecord) -> None:
    with passing_over_what_is_gone():
        await delete(runtime, session, force=True)


def _responses_of(session: Fields) -> list[str]:
    before = [session["begins_with"]] if "begins_with" in session else []
    return [*before, *(response_id for turn in session["turns"] for response_id in turn["responses"])]


def _without_credentials(settings: Fields) -> Fields:
    """A credential is known where its vault is. Without a name it is chosen by the address of its server."""
    if "tools" not in settings:
        return settings
    tools = [{name: value for name, value in tool.items() if name != "credential_id"} for tool in settings["tools"]]
    return {**settings, "tools": tools}


# --- The log of a response that has ended -------------------------------------------------------------------------------


def _log(stored: StoredResponse, read: ArchivedItems) -> Iterator[Event]:
    """Its events, each piece of text whole: readers of a session find its items in their order."""
    yield from opening_events(stored)
    yield {"type": events.IN_PROGRESS, "response": object_of(stored, status="in_progress", now=stored.created_at)}
    for index, item in enumerate(read.output):
        agent = {"agent": item["agent"]} if "agent" in item else {}
        yield from (event | agent for event in _events_of(item, index))
    response = object_of(
        stored,
        status=read.head["status"],
        now=stored.created_at,
        output=read.output,
        usage=TokenUsage(),
        error=read.head.get("error"),
        incomplete_reason=read.head.get("incomplete_reason"),
    )
    response["usage"] |= {"cost": {"usd": 0.0, "source": "import"}}  # What it has cost stands on its turn.
    yield from final_events(response)


def _events_of(item: Item, index: int) -> Iterator[Event]:
    if item["type"] != "message":
        yield {"type": events.OUTPUT_ITEM_ADDED, "output_index": index, "item": item}
    else:
        opened = {**item, "content": [], "status": "in_progress"}
        yield {"type": events.OUTPUT_ITEM_ADDED, "output_index": index, "item": opened}
        for place, part in enumerate(item["content"]):
            about = {"item_id": item["id"], "output_index": index, "content_index": place}
            yield from _events_of_part(part, about)
    yield {"type": events.OUTPUT_ITEM_DONE, "output_index": index, "item": item}


def _events_of_part(part: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[Event]:
    yield {"type": events.CONTENT_PART_ADDED, **about, "part": _emptied(part)}
    if part["type"] == "output_text":
        yield {"type": events.OUTPUT_TEXT_DELTA, **about, "delta": part["text"], "logprobs": []}
        yield {"type": events.OUTPUT_TEXT_DONE, **about, "text": part["text"], "logprobs": []}
    elif part["type"] == "refusal":
        yield {"type": events.REFUSAL_DELTA, **about, "delta": part["refusal"]}
        yield {"type": events.REFUSAL_DONE, **about, "refusal": part["refusal"]}
    yield {"type": events.CONTENT_PART_DONE, **about, "part": dict(part)}


def _emptied(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: [] if isinstance(value, list) else "" if name in ("text", "refusal") else value for name, value in part.items()}
