"""Automations, and their invocations.

An automation, the note of when it is due, and its invocations are one partition. One transaction makes the invocation of an occurrence
and moves the automation to the next one. The invocation's id follows from the automation and the time, and must be new. So each
occurrence is invoked once, even if many processes try it often.

An undelivered invocation stands in the index by the time of its next attempt. A process that takes it up moves that time behind the end
of its attempt. Other processes leave it alone meanwhile, and it is due again if the process dies.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import orjson

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed
from moorage.errors.agents import (
    automation_busy,
    automation_not_found,
    invocation_not_found,
    too_many_automations,
    too_many_by_agent,
)
from moorage.files.store import Clock
from moorage.ids import new_listed_id
from moorage.parallel import as_json, beside
from moorage.store import keys, object_keys, schema
from moorage.store.blobs import Blobs
from moorage.store.listing import Page, fitting, gone_record, listing_attributes, read_page, unknown_after
from moorage.store.sealed import Sealer
from moorage.store.table import Record, Table, Write
from moorage.wire.queries import PageQuery

KIND: Final = "automations"
INVOCATIONS: Final = "invocations"


@dataclass(frozen=True, slots=True)
class AutomationRecord:
    tenant_id: str
    id: str
    created_at: int
    type: str
    name: str
    target: Mapping[str, Any]
    """``shapes.py: AutomationTarget``."""
    key_id: str
    """Of the key that made it, which pays for it."""
    expression: str = ""
    timezone: str = ""
    run_at: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    status: str = "active"
    pause_reason: str = ""
    session_id: str = ""
    """Of the target, if that is a session."""
    draws_on: tuple[str, ...] = ()
    """Budgets of a token, which has no key in the table."""
    subject: str = ""
    """Whom that token was issued for."""
    next_at: int = 0
    """When it is due; 0 for never."""
    is_over: bool = False
    """Of ``once``: its invocation is made."""
    made_in: str = ""
    """The session whose agent made it; empty where a client did ..."""
    made_by: str = ""
    """... and by which call."""
    pending: str = ""
    """The invocation that is not delivered yet."""
    generation: int = 1
    blob: str = ""
    """Where its target is an object."""
    size: int = 0
    """Of its target, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class InvocationRecord:
    id: str
    created_at: int
    automation: AutomationRecord
    """As it was then."""
    scheduled_at: int = 0
    """0 for one by hand."""
    status: str = "queued"
    session_id: str = ""
    input_key: str = ""
    """Of the session's input that it became; empty as long as it has not."""
    error: Mapping[str, str] | None = None
    next_at: int = 0
    """When it is tried next, as long as it is queued."""


_AUTOMATION: Final = Codec(
    AutomationRecord,
    sparse=(
        *("expression", "timezone", "run_at", "pause_reason", "session_id", "draws_on", "subject", "is_over", "pending", "blob"),
        *("next_at", "size", "made_in", "made_by"),
    ),
    beside=("tenant_id", "target"),
)
_INVOCATION: Final = Codec(
    InvocationRecord, sparse=("scheduled_at", "session_id", "input_key", "error", "next_at"), beside=("automation",)
)


class Automations:
    def __init__(self, table: Table, blobs: Blobs, sealer: Sealer, *, clock: Clock, most: int = limits.AUTOMATIONS_MAX) -> None:
        """``most``: of one tenant."""
        self._most = most
        self._table = table
        self._blobs = blobs
        self._sealer = sealer
        self._clock = clock

    async def create(
        self, tenant_id: str, target: Mapping[str, Any], *, automation_id: str | None = None, **others: Any
    ) -> AutomationRecord:
        """``automation_id`` is of one that may have been made before: that one is answered then.

        Raises :class:`~moorage.errors.ApiError` if the tenant has its largest number, or if an agent has made its largest number today.
        """
        now = self._clock()
        is_repeatable = automation_id is not None
        automation_id = automation_id or new_listed_id("auto", now)
        body, size = await self._body(tenant_id, automation_id, target)
        made = AutomationRecord(
            tenant_id,
            automation_id,
            int(now),
            target=target,
            session_id=target.get("session_id", ""),
            blob=body.get("blob", ""),
            size=size,
            **others,
        )
        record = {
            "PK": keys.automation(tenant_id, made.id),
            "SK": keys.META,
            **_AUTOMATION.pack(made),
            **body,
            **listing_attributes(tenant_id, KIND, made.created_at, made.id),
        }
        counted = Write(keys.automations(tenant_id), keys.TOTAL, add={"count": 1}, below={"count": self._most})
        gone = [Write(record["PK"], keys.GONE, is_there=False, is_end=True)] if is_repeatable else []
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            today = await self._today(made, now)
            writes = [Write.put(record, if_absent=True), counted, *today, *_due(made), *gone]
            refused = set(await self._table.write_all(writes))
            if not refused:
                return made
            if 0 in refused or (gone and len(writes) - 1 in refused):
                assert is_repeatable, "an id that was just made is there"
                return await self.get(tenant_id, made.id)
            if today and 2 in refused:
                raise too_many_by_agent(limits.AGENT_AUTOMATIONS_PER_DAY)
            await self._check_room(tenant_id)
        raise automation_busy(made.id)

    async def _today(self, made: AutomationRecord, now: float) -> list[Write]:
        """The write that counts an agent's automations of the day."""
        if not made.made_in:
            return []
        day = int(now) // 86_400
        place = keys.automations(made.tenant_id), keys.automations_made(made.made_in, day)
        await self._table.update(*place, set_once={"count": 0, schema.TTL_ATTRIBUTE: (day + 2) * 86_400}, must_exist=False)
        return [Write(*place, add={"count": 1}, below={"count": limits.AGENT_AUTOMATIONS_PER_DAY})]

    async def was_deleted(self, tenant_id: str, automation_id: str) -> bool:
        return await self._table.get(keys.automation(tenant_id, automation_id), keys.GONE) is not None

    async def _check_room(self, tenant_id: str) -> None:
        """A sum that is not there yet passes no bound, and is opened."""
        pk = keys.automations(tenant_id)
        total = await self._table.update(pk, keys.TOTAL, set_once={"count": 0}, must_exist=False)
        if total["count"] >= self._most:
            raise too_many_automations(self._most)

    async def get(self, tenant_id: str, automation_id: str) -> AutomationRecord:
        """Raises 404 for an unknown, deleted or foreign one."""
        record = await self._table.get(keys.automation(tenant_id, automation_id), keys.META)
        if record is None:
            raise automation_not_found(automation_id)
        return await self._opened(tenant_id, record)

    async def is_there(self, automation: AutomationRecord) -> bool:
        return await self._table.get(keys.automation(automation.tenant_id, automation.id), keys.META) is not None

    async def page(self, tenant_id: str, page: PageQuery, session_id: str | None) -> Page[AutomationRecord]:
        """Those that speak to a session, or all."""

        def keep(record: Record) -> bool:
            return session_id is None or record.get("session_id") == session_id

        found = await read_page(self._table, tenant_id, KIND, page, pk_of=keys.automation, keep=keep)
        return await found.fitting(lambda record: record.get("size", 0)).opened(lambda record: self._opened(tenant_id, record))

    async def change(
        self, tenant_id: str, automation_id: str, change: Callable[[AutomationRecord], Mapping[str, Any]]
    ) -> AutomationRecord:
        """``change`` computes the new fields. Raises the errors of ``change``, 404, and 409 if others change it all the time."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            there = await self.get(tenant_id, automation_id)
            changes = change(there)
            if not changes:
                return there
            if await self._changed(there, changes):
                return await self.get(tenant_id, automation_id)
        raise automation_busy(automation_id)

    async def _changed(self, there: AutomationRecord, changes: Mapping[str, Any], others: Iterable[Write] = ()) -> bool:
        """Make these changes and other writes together; False if somebody has changed it since it was read."""
        following = {**_fields(there), **changes}
        body: Record = {}
        if "target" in changes:
            body, size = await self._body(there.tenant_id, there.id, changes["target"])
            following |= {"blob": body.get("blob", ""), "size": size, "session_id": changes["target"].get("session_id", "")}
        changed = AutomationRecord(**{**following, "generation": there.generation + 1})
        attributes = {**_AUTOMATION.pack(changed), **body}
        gone = _AUTOMATION.pack(there).keys() - attributes.keys()
        if body:
            gone |= {"sealed", "blob"} - body.keys()
        write = Write(
            keys.automation(there.tenant_id, there.id),
            keys.META,
            set=attributes,
            remove=tuple(sorted(gone)),
            condition={"generation": there.generation},
        )
        due = _due(changed) if changed.next_at != there.next_at else []
        return not await self._table.write_all([write, *due, *others])

    async def delete(self, tenant_id: str, automation_id: str) -> None:
        """The record goes first: nothing is made of it after that.

        Leftovers of an interrupted deletion are dropped at their age, or when they are due.
        """
        there = await self.get(tenant_id, automation_id)
        pk = keys.automation(tenant_id, automation_id)
        gone = gone_record(pk, keys.GONE, there.created_at, automation_id, self._clock())
        counted = Write(keys.automations(tenant_id), keys.TOTAL, add={"count": -1})
        ended = Write(pk, keys.META, is_end=True, is_there=True)
        if await self._table.write_all([ended, Write.put(gone), Write(pk, keys.DUE, is_end=True), counted]):
            raise automation_not_found(automation_id)
        records = await self._table.query(pk, prefix=keys.invocation.prefix)
        await self._table.write_many(deletes=[(pk, record["SK"]) for record in records])
        await self._blobs.delete_prefix(object_keys.automation_objects(tenant_id, automation_id))

    # --- Invocations ----------------------------------------------------------------------------------------------------

    async def invoke(self, automation: AutomationRecord, following: Mapping[str, Any] | None = None) -> InvocationRecord | None:
        """Make the invocation of its occurrence, or one by hand.

        ``following`` is the next state of the automation's schedule; None for an invocation by hand. None if somebody else has changed
        the automation, or made it, meanwhile.
        """
        now, scheduled_at = self._clock(), 0 if following is None else automation.next_at
        is_skipped = bool(automation.pending)
        made = InvocationRecord(
            _invocation_id(automation.id, now, scheduled_at),
            int(now),
            automation,
            scheduled_at,
            "skipped" if is_skipped else "queued",
            next_at=0 if is_skipped else int(now) + limits.AUTOMATION_LEASE_SECONDS,
        )
        changes = {**(following or {}), **({} if is_skipped else {"pending": made.id})}
        record = await self._invocation_record(made)
        if not await self._changed(automation, changes, [Write.put(record, if_absent=True)]):
            return None
        return made

    async def invocation(self, automation: AutomationRecord, invocation_id: str) -> InvocationRecord:
        """Raises 404."""
        record = None
        if invocation_id:
            pk = keys.automation(automation.tenant_id, automation.id)
            record = await self._table.get(pk, keys.invocation(invocation_id))
        if record is None:
            raise invocation_not_found(invocation_id)
        return await self._opened_invocation(automation.tenant_id, record)

    async def invocations(self, automation: AutomationRecord, page: PageQuery) -> Page[InvocationRecord]:
        """Raises an :class:`~moorage.errors.ApiError` for an ``after`` that is none of them."""
        pk, place = keys.automation(automation.tenant_id, automation.id), page.after and keys.invocation(page.after)
        if place and await self._table.get(pk, place) is None:
            raise unknown_after(page.after or "")
        records = await self._table.query_beyond(
            pk, place, prefix=keys.invocation.prefix, descending=page.order == "desc", limit=page.limit + 1
        )
        found = Page.of(records, page.limit).fitting(lambda record: record["automation"].get("size", 0))
        return await found.opened(lambda record: self._opened_invocation(automation.tenant_id, record))

    async def due(self) -> list[AutomationRecord]:
        """Due automations, longest due first: as many as a process should have in memory."""
        found = [record for record in await self._due_records(KIND, keys.META) if 0 < record.get("next_at", 0) <= self._clock()]
        found.sort(key=lambda record: (record["next_at"], record["id"]))
        taken = fitting([record.get("size", 0) for record in found])
        return [await self._opened(*_tenant_of(record), record) for record in found[:taken]]

    async def claimed(self) -> list[InvocationRecord]:
        """Due invocations, claimed for this process; as many as with :meth:`due`."""
        now = int(self._clock())
        tried = [each for each in await self._due_records(INVOCATIONS) if each["status"] == "queued" and each["next_at"] <= now]
        found = []
        for record in tried[: fitting([each["automation"].get("size", 0) for each in tried])]:
            try:
                until = now + limits.AUTOMATION_LEASE_SECONDS
                found.append(await self._tried_again(record["PK"], record["id"], record["next_at"], until))
            except ConditionFailed:
                continue
        return [await self._opened_invocation(*_tenant_of(record), record) for record in found]

    async def postpone(self, invocation: InvocationRecord) -> None:
        """Try it again in a while."""
        pk = keys.automation(invocation.automation.tenant_id, invocation.automation.id)
        try:
            await self._tried_again(pk, invocation.id, invocation.next_at, int(self._clock()) + limits.AUTOMATION_PAUSE_SECONDS)
        except ConditionFailed:
            return  # Deleted, or taken up by somebody else.

    async def deliver(self, invocation: InvocationRecord, session_id: str, input_key: str, writes: Sequence[Write]) -> bool:
        """Turn it into input of a session in one transaction with these writes. False if somebody else has, or they are refused."""
        pk = keys.automation(invocation.automation.tenant_id, invocation.automation.id)
        delivered = Write(
            pk,
            keys.invocation(invocation.id),
            set={"session_id": session_id, "input_key": input_key},
            condition={"status": "queued"},
            absent=("input_key",),
        )
        return not await self._table.write_all([delivered, *writes])

    async def drop(self, invocation: InvocationRecord) -> None:
        """Nobody asks for it any more."""
        automation = invocation.automation
        await self._table.delete(keys.automation(automation.tenant_id, automation.id), keys.invocation(invocation.id))

    async def end(
        self,
        invocation: InvocationRecord,
        *,
        error: Mapping[str, str] | None = None,
        session_id: str | None = None,
        pauses: bool = False,
    ) -> None:
        """It is delivered, or never will be. ``pauses``: the automation stands still from now on, since its session is of no use."""
        automation = invocation.automation
        status: Record = {"status": "completed"} if error is None else {"status": "failed", "error": dict(error)}
        status |= {} if session_id is None else {"session_id": session_id}
        pk = keys.automation(automation.tenant_id, automation.id)
        ended = Write(
            pk,
            keys.invocation(invocation.id),
            set=status,
            remove=("GSI1PK", "GSI1SK", "next_at"),
            condition={"status": "queued"},
        )
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            record = await self._table.get(pk, keys.META)
            if record is None:
                return
            there = await self._opened(automation.tenant_id, record)
            changes: dict[str, Any] = {"pending": ""} if there.pending == invocation.id else {}
            if pauses and there.status == "active":
                changes |= {"status": "paused", "pause_reason": "target_session_failed", "next_at": 0}
            if await self._changed(there, changes, [ended]):
                return
            current = await self._table.get(pk, keys.invocation(invocation.id))
            if current is None or current["status"] != "queued":
                return  # Somebody else has ended it.

    async def _tried_again(self, pk: str, invocation_id: str, instead_of: int, at: int) -> Record:
        return await self._table.update(
            pk,
            keys.invocation(invocation_id),
            set={"next_at": at, "GSI1SK": keys.due(at, invocation_id)},
            condition={"status": "queued", "next_at": instead_of},
        )

    async def _due_records(self, kind: str, sort_key: str | None = None) -> list[Record]:
        up_to = keys.due(int(self._clock()), "\uffff")
        entries = await self._table.query(keys.due_list(kind), up_to=up_to, limit=limits.AUTOMATION_DUE_READ, index=schema.INDEX)
        places = {(entry["PK"], sort_key or entry["SK"]) for entry in entries}
        return await self._table.get_many(sorted(places), consistent=True)

    async def _body(self, tenant_id: str, automation_id: str, target: Mapping[str, Any]) -> tuple[Record, int]:
        """Sealed, for it may hold variables and files; and how long it is. Objects never change, and go with the automation: its
        invocations name them too."""
        text = (await as_json(dict(target))).decode()
        sealed = await beside(len(text), lambda: self._sealer.seal(tenant_id, text))
        if len(sealed) <= limits.AUTOMATION_INLINE_BYTES_MAX:
            return {"sealed": sealed}, len(text)
        key = f"{object_keys.automation_objects(tenant_id, automation_id)}{secrets.token_hex(16)}"
        await self._blobs.put_bytes(key, sealed.encode())
        return {"blob": key}, len(text)

    async def _opened(self, tenant_id: str, record: Record) -> AutomationRecord:
        sealed = record["sealed"] if "sealed" in record else (await self._blobs.get_bytes(record["blob"])).decode()
        text = await beside(len(sealed), lambda: self._sealer.open(tenant_id, sealed))
        assert text is not None, f"{record['id']} was sealed by another deployment"
        return _AUTOMATION.unpack(record, tenant_id=tenant_id, target=await beside(len(text), lambda: orjson.loads(text)))

    async def _invocation_record(self, made: InvocationRecord) -> Record:
        automation = made.automation
        body: Record = {"blob": automation.blob}
        if not automation.blob:
            body, _ = await self._body(automation.tenant_id, automation.id, automation.target)
        due = {"GSI1PK": keys.due_list(INVOCATIONS), "GSI1SK": keys.due(made.next_at, made.id)} if made.next_at else {}
        return {
            "PK": keys.automation(automation.tenant_id, automation.id),
            "SK": keys.invocation(made.id),
            **_INVOCATION.pack(made),
            "automation": {**_AUTOMATION.pack(automation), **body},
            **due,
            schema.TTL_ATTRIBUTE: made.created_at + limits.AUTOMATION_LOG_SECONDS,
        }

    async def _opened_invocation(self, tenant_id: str, record: Record) -> InvocationRecord:
        return _INVOCATION.unpack(record, automation=await self._opened(tenant_id, record["automation"]))


def _fields(automation: AutomationRecord) -> dict[str, Any]:
    return {name: getattr(automation, name) for name in AutomationRecord.__dataclass_fields__}


def _due(automation: AutomationRecord) -> list[Write]:
    """The row with its due time."""
    pk = keys.automation(automation.tenant_id, automation.id)
    if not automation.next_at:
        return [Write(pk, keys.DUE, is_end=True)]
    place = {"GSI1PK": keys.due_list(KIND), "GSI1SK": keys.due(automation.next_at, automation.id)}
    return [Write.put({"PK": pk, "SK": keys.DUE, **place})]


def _invocation_id(automation_id: str, now: float, scheduled_at: int) -> str:
    """In the order of their ids invocations stand as they were meant."""
    if not scheduled_at:
        return f"invoc_{int(now * 1000):012x}{secrets.token_hex(18)}"
    digest = hashlib.sha256(f"{automation_id} {scheduled_at}".encode()).hexdigest()
    return f"invoc_{scheduled_at * 1000:012x}{digest[:36]}"


def _tenant_of(record: Record) -> tuple[str]:
    return (keys.automation.read(record["PK"])[0],)
