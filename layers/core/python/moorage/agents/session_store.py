"""Sessions of agents: a copy of an agent, a container, and turns.

A turn is a record that names its responses, oldest first; what was said stands in their logs alone. The next response of a session is
decided by one conditional write: a new turn by a record that must not be there, another response of a turn by the number of those
before it. So of two who want to go on one does, and whoever repeats it finds that it was done.

Input that arrives while a response runs waits as records of its own, in the order of its time. The write that lets a response take it
removes it.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Final

from moorage import limits
from moorage.codec import Codec, FieldCodec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed
from moorage.errors.agents import agent_session_not_found, artifact_not_found
from moorage.files.store import Clock
from moorage.ids import new_listed_id, new_turn_id
from moorage.store import keys, object_keys, schema
from moorage.store.bell import Bell
from moorage.store.blobs import Blobs
from moorage.store.listing import Page, gone_record, listing_attributes, read_page, unknown_after
from moorage.store.packing import packed, unpacked, unpacked_with_size
from moorage.store.table import Record, Table, Write
from moorage.wire.queries import PageQuery
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item

KIND: Final = "agent-sessions"
_TIME_DIGITS: Final = 12
"""Hex digits of the milliseconds in the key of input that waits."""
_DELETED: Final = "deleted"
"""Stands in the record of a session whose deletion has begun."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    tenant_id: str
    id: str
    created_at: int
    settings: Mapping[str, Any]
    """The agent's, as it was when the session began, with what was changed since (``settings.py``)."""
    agent_id: str
    agent_version: int = 0
    """0 for an agent of the session's own."""
    container_id: str | None = None
    """Its environment; None for none."""
    owns_container: bool = False
    """It was made for the session, and goes with it."""
    environment: str = ""
    """What the session asked for, sealed: its container can be made anew. Empty where it is an object, and where there is none."""
    environment_blob: str = ""
    """The key of that object."""
    resets: int = 0
    """How often its container was made anew."""
    vault_ids: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    budget: Mapping[str, Any] | None = None
    """What its responses may use together (``session_shapes.py: SessionBudget``); None if it never had one. Empty where it was removed:
    they are counted on."""
    changes: int = 0
    """How often its settings, metadata and budget were changed."""
    error: str = ""
    """Why its next response could not begin."""
    error_of: str = ""
    """After which response that was: once there is another, nothing is wrong. Empty for the first one."""
    begins_with: str = ""
    """The response that its first turn goes on from: it holds what was said before, in the session that this one is a fork of."""
    forked_from: Mapping[str, Any] | None = None
    """Of which session and turn it is a fork, as it is shown."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    number: int
    """From 1."""
    id: str
    created_at: int
    responses: tuple[str, ...]
    """Their ids, oldest first; the last one is the current one."""
    used: TokenUsage = TokenUsage()
    """By those before the current one."""
    earlier: TokenUsage = TokenUsage()
    """By all turns before this one."""
    cancelled_at: int = 0
    """When it was told to end while it waited for its client; 0 if it was not."""
    count: int = 1
    """Of its responses."""
    resets: Mapping[str, int] = field(default_factory=dict)
    """Before which of its responses, from 0, the environment was made anew, and how often that had been by then."""
    cost: int = 0
    """Of those before the current one, in billionths of a dollar; -1 where the price of a model is not known."""
    rooted_at: int = 0
    """When the oldest response began that its current one goes on from; 0 for the session's first."""
    expires_at: int = 0
    """When its current response does, and it with it; 0 in records of older versions."""

    @property
    def current(self) -> str:
        return self.responses[-1]


@dataclass(frozen=True, slots=True)
class BegunResponse:
    """One that becomes a turn's."""

    id: str
    rooted_at: int = 0
    expires_at: int = 0


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A file that a turn has left."""

    turn_number: int
    turn_id: str
    path: str
    """In the container."""
    bytes: int
    created_at: int
    file_id: str
    """Of the Files API; empty for one that was deleted, which is not published again."""
    container_id: str

    @property
    def id(self) -> str:
        return self.id_of(self.turn_number, self.path)

    @staticmethod
    def id_of(turn_number: int, path: str) -> str:
        return f"artifact_{turn_number:08x}{hashlib.sha256(path.encode()).hexdigest()[:40]}"


@dataclass(frozen=True, slots=True)
class WaitingInput:
    """What one request has brought."""

    sort_key: str
    messages: Sequence[Item]
    results: Mapping[str, Item]
    """Outputs of functions by ``call_id``."""

    @property
    def at_ms(self) -> int:
        """When it came, by its place."""
        return int(self.sort_key.removeprefix(keys.INPUT_PREFIX)[:_TIME_DIGITS], 16)


_SESSION: Final = Codec(
    SessionRecord,
    sparse=(
        "agent_version",
        "container_id",
        "owns_container",
        "environment",
        "environment_blob",
        "resets",
        "vault_ids",
        "budget",
        "changes",
        "error",
        "error_of",
        "begins_with",
        "forked_from",
    ),
    beside=("tenant_id", "settings"),
)
_TURN: Final = Codec(
    TurnRecord,
    names={"expires_at": schema.TTL_ATTRIBUTE},
    nested={name: FieldCodec(lambda used: used.to_json(), TokenUsage.from_json) for name in ("used", "earlier")},
    sparse=("used", "earlier", "cancelled_at", "resets", "cost", "rooted_at", "expires_at"),
    beside=("number",),
)


_OF_ITS_RESPONSES: Final = ("responses", "used", "count", "resets", "cost", "rooted_at", schema.TTL_ATTRIBUTE)
"""What of a turn's record another response changes."""
_ARTIFACT: Final = Codec(ArtifactRecord)


class AgentSessions:
    def __init__(self, table: Table, blobs: Blobs, *, clock: Clock, bell: Bell | None = None) -> None:
        """``bell`` wakes those who follow a session."""
        self._table = table
        self._blobs = blobs
        self._clock = clock
        self.bell = bell

    def new(
        self, tenant_id: str, settings: Mapping[str, Any], agent_id: str | None, *, session_id: str | None = None, **others: Any
    ) -> SessionRecord:
        """One that is not stored yet. An agent of its own has an id too, which leads nowhere."""
        now = self._clock()
        return SessionRecord(
            tenant_id,
            session_id or new_listed_id("session", now),
            int(now),
            dict(settings),
            agent_id or new_listed_id("agent", now),
            **others,
        )

    async def with_environment(self, session: SessionRecord, sealed: str) -> SessionRecord:
        """One that is not stored yet, with what it asked for."""
        if len(sealed) <= limits.AGENT_SESSION_ENVIRONMENT_CHARS_MAX:
            return replace(session, environment=sealed)
        key = f"{object_keys.agent_session_objects(session.tenant_id, session.id)}environment"
        await self._blobs.put_bytes(key, sealed.encode())
        return replace(session, environment_blob=key)

    async def environment_of(self, session: SessionRecord) -> str:
        """What it asked for, sealed; empty if that is not known."""
        return (await self._blobs.get_bytes(session.environment_blob)).decode() if session.environment_blob else session.environment

    async def move(self, session: SessionRecord, container_id: str) -> SessionRecord | None:
        """To a container that was made anew for it. None if somebody else has moved it, or it is being deleted."""
        try:
            record = await self._table.update(
                keys.agent_session(session.tenant_id, session.id),
                keys.META,
                set={"container_id": container_id, "owns_container": True, "resets": session.resets + 1},
                condition={"container_id": session.container_id},
                absent=(_DELETED,),
            )
        except ConditionFailed:
            return None
        return await self._opened(session.tenant_id, record)

    async def create(self, session: SessionRecord) -> None:
        await self._table.write(await self.beginning(session))

    async def restore(self, session: SessionRecord, turns: Sequence[TurnRecord]) -> None:
        """Store it with turns that have been, as if its deletion had begun: it is seen once it is :meth:`reveal`-ed. :meth:`unrevealed`
        tells of one that is not within ``AGENT_IMPORT_SECONDS_MAX``."""
        beginning = await self.beginning(session)
        pk, due_at = keys.agent_session(session.tenant_id, session.id), int(self._clock()) + limits.AGENT_IMPORT_SECONDS_MAX
        place = {"GSI1PK": keys.due_list(KIND), "GSI1SK": keys.due(due_at, session.id)}
        await self._table.put({"PK": pk, "SK": keys.PURGE, "tenant_id": session.tenant_id, **place})
        await self._table.put({**(beginning.record or {}), _DELETED: True}, if_absent=True)
        await self._table.write_many([{"PK": pk, "SK": keys.turn(turn.number), **_TURN.pack(turn)} for turn in turns])

    async def reveal(self, session: SessionRecord) -> None:
        """Raises 404 if it was deleted meanwhile."""
        pk = keys.agent_session(session.tenant_id, session.id)
        shown = Write(pk, keys.META, remove=(_DELETED,), is_there=True)
        if await self._table.write_all([shown, Write(pk, keys.PURGE, is_there=True, is_end=True)]):
            raise agent_session_not_found(session.id)

    async def unrevealed(self) -> list[SessionRecord]:
        """Of the sessions that were restored long ago and are still hidden, the oldest."""
        up_to = keys.due(int(self._clock()), "~")
        entries = await self._table.query(keys.due_list(KIND), up_to=up_to, limit=limits.AGENT_UNREVEALED_READ, index=schema.INDEX)
        found = await self._table.get_many((entry["PK"], name) for entry in entries for name in (keys.META, keys.PURGE))
        sessions = {record["PK"]: record for record in found if record["SK"] == keys.META and _DELETED in record}
        due = [record for record in found if record["SK"] == keys.PURGE]
        await self._table.write_many(deletes=[(record["PK"], keys.PURGE) for record in due if record["PK"] not in sessions])
        return [await self._opened(record["tenant_id"], sessions[record["PK"]]) for record in due if record["PK"] in sessions]

    async def beginning(self, session: SessionRecord) -> Write:
        """What stores it, if it is not there yet."""
        record = {
            "PK": keys.agent_session(session.tenant_id, session.id),
            "SK": keys.META,
            **_SESSION.pack(session),
            **await self._body(session, dict(session.settings)),
            **listing_attributes(session.tenant_id, KIND, session.created_at, session.id),
        }
        return Write.put(record, if_absent=True)

    def notice(self, session: SessionRecord) -> Write:
        """What is refused once it is deleted, or its deletion has begun."""
        pk = keys.agent_session(session.tenant_id, session.id)
        return Write(pk, keys.META, set={"noticed_at": int(self._clock())}, is_there=True, absent=(_DELETED,))

    async def get(self, tenant_id: str, session_id: str, *, even_deleted: bool = False, param: str | None = None) -> SessionRecord:
        """Raises 404 for what is unknown, deleted or foreign. ``even_deleted``: not for one whose deletion has only begun."""
        record = await self._table.get(keys.agent_session(tenant_id, session_id), keys.META)
        if record is None or (_DELETED in record and not even_deleted):
            raise agent_session_not_found(session_id, param=param)
        return await self._opened(tenant_id, record)

    async def page(self, tenant_id: str, page: PageQuery, keep: Callable[[Record], bool]) -> Page[SessionRecord]:
        found = await read_page(
            self._table,
            tenant_id,
            KIND,
            page,
            pk_of=keys.agent_session,
            keep=lambda record: _DELETED not in record and keep(record),
        )
        opened, size = list[SessionRecord](), 0
        for record in found.entries:
            (body,) = await self._blobs.inlined([record], "body")
            settings, more = await unpacked_with_size(body)
            size += more
            if opened and size > limits.PAGE_BYTES_MAX:
                break
            opened.append(_SESSION.unpack(record, tenant_id=tenant_id, settings=settings))
        return Page(opened, found.has_more or len(opened) < len(found.entries))

    async def update(
        self,
        session: SessionRecord,
        *,
        settings: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> SessionRecord | None:
        """Change it as it was read; None if somebody else has changed it since. Raises 404 if it was deleted meanwhile."""
        pk = keys.agent_session(session.tenant_id, session.id)
        given = {"metadata": metadata, "budget": budget}
        change: Record = {"changes": session.changes + 1} | {name: dict(each) for name, each in given.items() if each is not None}
        body = {} if settings is None else await self._body(session, dict(settings))
        remove = () if settings is None else tuple({"body", "blob"} - body.keys())
        try:
            record = await self._table.update(
                pk,
                keys.META,
                set=change | body,
                remove=remove,
                condition={"changes": session.changes} if session.changes else {},
                absent=() if session.changes else ("changes",),
            )
        except ConditionFailed as error:
            if "blob" in body:
                await self._blobs.delete(body["blob"])
            if await self._table.get(pk, keys.META) is None:
                raise agent_session_not_found(session.id) from error
            return None
        return await self._opened(session.tenant_id, record)

    async def note_error(self, session: SessionRecord, message: str, response_id: str) -> None:
        """Why no response can begin after this one."""
        change = {"error": message, "error_of": response_id}
        with suppress(ConditionFailed):  # Deleted meanwhile.
            await self._table.update(keys.agent_session(session.tenant_id, session.id), keys.META, set=change)

    async def mark_deleted(self, session: SessionRecord) -> None:
        """Nobody finds it from now on. Who was about to write below it finds that out, and takes it back."""
        try:
            await self._table.update(keys.agent_session(session.tenant_id, session.id), keys.META, set={_DELETED: True})
        except ConditionFailed as error:
            raise agent_session_not_found(session.id) from error

    async def _check_there(self, session: SessionRecord, sort_key: str | None, blob: str | None = None) -> None:
        """After a write below it: raises 404 if it was deleted meanwhile, and takes back what was written."""
        pk = keys.agent_session(session.tenant_id, session.id)
        record = await self._table.get(pk, keys.META)
        if record is not None and _DELETED not in record:
            return
        if sort_key is not None:
            await self._table.delete(pk, sort_key)
        if blob is not None:
            await self._blobs.delete(blob)
        raise agent_session_not_found(session.id)

    async def delete(self, session: SessionRecord) -> None:
        """What hangs below goes first, so that a deletion that breaks off can be repeated."""
        pk = keys.agent_session(session.tenant_id, session.id)
        await self._blobs.delete_prefix(object_keys.agent_session_objects(session.tenant_id, session.id))
        sort_keys = [record["SK"] for record in await self._table.query(pk, without=("body",)) if record["SK"] != keys.GONE]
        last = [sort_key for sort_key in sort_keys if sort_key in (keys.META, keys.PURGE)]
        await self._table.write_many(deletes=[(pk, sort_key) for sort_key in sort_keys if sort_key not in last])
        gone = gone_record(pk, keys.GONE, session.created_at, session.id, self._clock())
        await self._table.write_many(puts=[gone], deletes=[(pk, sort_key) for sort_key in last])

    # --- Turns ----------------------------------------------------------------------------------------------------------

    async def last_turn(self, session: SessionRecord) -> TurnRecord | None:
        """Also one that has expired: the next one has the next number."""
        pk = keys.agent_session(session.tenant_id, session.id)
        records = await self._table.query(pk, prefix=keys.turn.prefix, descending=True, limit=1)
        return _turn(records[0]) if records else None

    async def turn(self, session: SessionRecord, number: int) -> TurnRecord | None:
        """None for one that is not there, or has expired."""
        record = await self._table.get(keys.agent_session(session.tenant_id, session.id), keys.turn(number))
        turn = None if record is None else _turn(record)
        return turn if turn is not None and self._is_kept(turn) else None

    async def first_turn(self, session: SessionRecord, *, beyond: int) -> TurnRecord | None:
        """The first one behind a number that is kept."""
        found = await self.turns(session, beyond=beyond, limit=1)
        return found[0] if found else None

    async def turns(
        self, session: SessionRecord, *, beyond: int | None = None, descending: bool = False, limit: int | None = None
    ) -> list[TurnRecord]:
        """Up to ``limit`` turns that are kept and stand behind one, in their order or against it."""
        pk = keys.agent_session(session.tenant_id, session.id)
        if not descending:
            kept: list[TurnRecord] = []
            while True:  # The oldest may have expired, and be there still.
                after = None if beyond is None else keys.turn(beyond)
                records = await self._table.query(pk, prefix=keys.turn.prefix, after=after, limit=limit)
                turns = [_turn(record) for record in records]
                kept += filter(self._is_kept, turns)
                if limit is None or len(turns) < limit or len(kept) >= limit:
                    return kept[:limit]
                beyond = turns[-1].number
        if beyond is not None and beyond <= 1:
            return []
        up_to = None if beyond is None else keys.turn(beyond - 1)
        records = await self._table.query(pk, prefix=keys.turn.prefix, up_to=up_to, descending=True, limit=limit)
        return [turn for record in records if self._is_kept(turn := _turn(record))]

    def _is_kept(self, turn: TurnRecord) -> bool:
        return not turn.expires_at or turn.expires_at > self._clock()

    async def begin_turn(
        self,
        session: SessionRecord,
        number: int,
        response: BegunResponse,
        earlier: TokenUsage,
        taken: Sequence[WaitingInput] = (),
        *,
        is_reset: bool = False,
    ) -> TurnRecord | None:
        """A turn after others that have used so much. None if somebody else has begun it, or has taken the input. ``is_reset``: its
        response is the first one in a container that was made anew. Raises 404 if the session was deleted meanwhile."""
        resets = {"0": session.resets} if is_reset else {}
        turn = TurnRecord(
            number,
            new_turn_id(number),
            int(self._clock()),
            (response.id,),
            earlier=earlier,
            resets=resets,
            rooted_at=response.rooted_at,
            expires_at=response.expires_at,
        )
        pk = keys.agent_session(session.tenant_id, session.id)
        record = {"PK": pk, "SK": keys.turn(number), **_TURN.pack(turn)}
        if not await self._written(session, Write.put(record, if_absent=True), taken):
            return None
        await self._check_there(session, keys.turn(number))
        return turn

    async def go_on(
        self,
        session: SessionRecord,
        turn: TurnRecord,
        response: BegunResponse,
        used: TokenUsage,
        taken: Sequence[WaitingInput] = (),
        *,
        cost: int | None = 0,
        is_reset: bool = False,
    ) -> TurnRecord | None:
        """Another response of a turn, after one that has used, and cost, so much. None if somebody else has let it go on, or has taken
        the input. Raises 404 if the session was deleted meanwhile."""
        resets = {**turn.resets, str(turn.count): session.resets} if is_reset else turn.resets
        spent = -1 if cost is None or turn.cost < 0 else turn.cost + cost
        following = replace(
            turn,
            responses=(*turn.responses, response.id),
            used=turn.used + used,
            count=turn.count + 1,
            resets=resets,
            cost=spent,
            rooted_at=response.rooted_at,
            expires_at=response.expires_at,
        )
        pk = keys.agent_session(session.tenant_id, session.id)
        packed_ = _TURN.pack(following)
        change = Write(
            pk,
            keys.turn(turn.number),
            set={name: packed_[name] for name in _OF_ITS_RESPONSES if name in packed_},
            condition={"count": turn.count},
            absent=("cancelled_at",),
        )
        if not await self._written(session, change, taken):
            return None
        await self._check_there(session, None)
        return following

    async def _written(self, session: SessionRecord, write: Write, taken: Sequence[WaitingInput]) -> bool:
        """Make a write and remove the input that it takes, both or none. A write alone is half as dear as one of a transaction."""
        pk = keys.agent_session(session.tenant_id, session.id)
        ends = [Write(pk, each.sort_key, is_there=True, is_end=True) for each in taken]
        try:
            if not ends:
                await self._table.write(write)
            elif await self._table.write_all([write, *ends]):
                return False
        except ConditionFailed:
            return False
        self._ring(session)
        return True

    async def cancel(self, session: SessionRecord, turn: TurnRecord) -> bool:
        """End a turn that waits for its client. False if it went on meanwhile."""
        try:
            await self._table.update(
                keys.agent_session(session.tenant_id, session.id),
                keys.turn(turn.number),
                set={"cancelled_at": int(self._clock())},
                condition={"count": turn.count},
            )
        except ConditionFailed:
            return False
        self._ring(session)
        return True

    # --- Artifacts ------------------------------------------------------------------------------------------------------

    async def add_artifact(self, session: SessionRecord, artifact: ArtifactRecord) -> bool:
        """False if there is, or was, one of the turn with its path."""
        pk = keys.agent_session(session.tenant_id, session.id)
        try:
            await self._table.put({"PK": pk, "SK": keys.artifact(artifact.id), **_ARTIFACT.pack(artifact)}, if_absent=True)
        except ConditionFailed:
            return False
        return True

    async def artifacts_of(self, session: SessionRecord, turn_number: int) -> list[ArtifactRecord]:
        """Those of a turn, the deleted ones too."""
        pk = keys.agent_session(session.tenant_id, session.id)
        records = await self._table.query(pk, prefix=f"{keys.artifact('artifact_')}{turn_number:08x}")
        return [_ARTIFACT.unpack(record) for record in records]

    async def artifacts(self, session: SessionRecord, page: PageQuery, container_id: str | None) -> Page[ArtifactRecord]:
        """A page in the order of turns and of ids, of one container's if one is named. Raises
        :class:`~moorage.errors.ApiError` for an ``after`` that never was an artifact of the session."""
        pk, descending = keys.agent_session(session.tenant_id, session.id), page.order == "desc"
        if page.after is not None and await self._table.get(pk, keys.artifact(page.after)) is None:
            raise unknown_after(page.after)
        found: list[ArtifactRecord] = []
        place = None if page.after is None else keys.artifact(page.after)
        while len(found) <= page.limit:
            records = await self._table.query_beyond(
                pk, place, prefix=keys.artifact.prefix, descending=descending, limit=page.limit + 1
            )
            artifacts = [_ARTIFACT.unpack(record) for record in records]
            found += [each for each in artifacts if each.file_id and container_id in (None, each.container_id)]
            if len(records) <= page.limit:
                break
            place = records[-1]["SK"]
        return Page.of(found, page.limit)

    async def artifact(self, session: SessionRecord, artifact_id: str) -> ArtifactRecord:
        """Raises 404 for what is unknown, deleted, or of another session."""
        pk = keys.agent_session(session.tenant_id, session.id)
        record = await self._table.get(pk, keys.artifact(artifact_id)) if artifact_id else None
        if record is None or not record["file_id"]:
            raise artifact_not_found(artifact_id)
        return _ARTIFACT.unpack(record)

    async def forget_artifact(self, session: SessionRecord, artifact: ArtifactRecord) -> None:
        await self._table.update(keys.agent_session(session.tenant_id, session.id), keys.artifact(artifact.id), set={"file_id": ""})

    # --- Input that waits -----------------------------------------------------------------------------------------------

    async def add_input(
        self, session: SessionRecord, messages: Sequence[Item], results: Mapping[str, Item], *, behind: WaitingInput | None = None
    ) -> str:
        """It waits from now on, ``behind`` what waits already, also where the clock was set back since. Answers its sort key. Raises
        404 if the session was deleted meanwhile."""
        given = await self.input_write(session, messages, results, behind=behind)
        await self._table.write(given)
        await self._check_there(session, given.sk, (given.record or {}).get("blob"))
        return given.sk

    async def input_write(
        self, session: SessionRecord, messages: Sequence[Item], results: Mapping[str, Item], *, behind: WaitingInput | None = None
    ) -> Write:
        """What lets it wait."""
        pk = keys.agent_session(session.tenant_id, session.id)
        at = max(int(self._clock() * 1000), 0 if behind is None else behind.at_ms + 1)
        sort_key = f"{keys.INPUT_PREFIX}{at:0{_TIME_DIGITS}x}{secrets.token_hex(8)}"
        body = await self._body(session, {"messages": list(messages), "results": dict(results)})
        return Write.put({"PK": pk, "SK": sort_key, **body}, if_absent=True)

    async def inputs(self, session: SessionRecord) -> list[WaitingInput]:
        """What waits, oldest first."""
        pk = keys.agent_session(session.tenant_id, session.id)
        records = await self._table.query(pk, prefix=keys.INPUT_PREFIX)
        bodies = await self._blobs.inlined(records, "body")
        opened = [await unpacked(body) for body in bodies]
        return [WaitingInput(record["SK"], body["messages"], body["results"]) for record, body in zip(records, opened, strict=True)]

    async def drop_input(self, session: SessionRecord, sort_key: str) -> bool:
        """Withdraw what waits. False if it was taken meanwhile."""
        return await self._table.delete(keys.agent_session(session.tenant_id, session.id), sort_key) is not None

    def _ring(self, session: SessionRecord) -> None:
        if self.bell is not None:
            self.bell.ring(session.id)

    async def _body(self, session: SessionRecord, value: Mapping[str, Any]) -> Record:
        body = await packed(value)
        if len(body) <= limits.AGENT_INLINE_BYTES_MAX:
            return {"body": body}
        key = f"{object_keys.agent_session_objects(session.tenant_id, session.id)}{secrets.token_hex(16)}"
        await self._blobs.put_bytes(key, body)
        return {"blob": key}

    async def _opened(self, tenant_id: str, record: Record) -> SessionRecord:
        (body,) = await self._blobs.inlined([record], "body")
        return _SESSION.unpack(record, tenant_id=tenant_id, settings=await unpacked(body))


def _turn(record: Record) -> TurnRecord:
    return _TURN.unpack(record, number=keys.turn.read(record["SK"]))
