"""Responses: the record, its items, its log, and the chain of its ancestors.

``META`` holds the request (parameters, input items, the ancestors' ids) and is written once, at the start. The result stands in the
event log: the final batch carries the whole response object. So a plain request costs two records, and reading a response back is one
backward query that returns ``META`` and the last batch together.

``store: false`` responses that need the loop are kept under a short TTL and erased when they have ended.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, TypeVar

from moorage import ids, limits
from moorage.codec import Codec, FieldCodec
from moorage.dataclass import dataclass
from moorage.errors import ApiError, ConditionFailed, previous_response_not_found, response_not_found
from moorage.parallel import Breath, side_by_side, worked
from moorage.store import keys, object_keys, response_list
from moorage.store.bell import Bell
from moorage.store.blobs import Blobs
from moorage.store.chain_parts import ChainPart, KnownParts, part_of
from moorage.store.event_log import EventBatch, EventLog
from moorage.store.packing import packed, unpacked_with_size
from moorage.store.table import Record, Table
from moorage.store.usage_sums import UsageSums
from moorage.tracing import Trace
from moorage.wire.parameters import RECORD, Parameters
from moorage.wire.types import Item

T = TypeVar("T")

ROOT_AGENT: Final = "/root"
"""The agent of a team that the client speaks to."""

UNSTORED_SECONDS = 600
"""How long a ``store: false`` response that needs the loop may outlive its end, should its eraser die."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A link of a chain: enough to read the response without a query."""

    response_id: str
    final_number: int
    """Number of the first event of its final batch."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The content of ``META``."""

    response_id: str
    tenant_id: str
    created_at: int
    parameters: Parameters
    """What the request tells the model; no secrets."""
    echo: dict[str, Any]
    """The request's part of the response object, computed once."""
    input_items: list[Item]
    ancestors: tuple["Ancestor", ...] = ()
    """The chain before this response, oldest first."""
    conversation_id: str | None = None
    container_id: str | None = None
    programs: str = ""
    """What the model is told of the programs there."""
    given: str = ""
    """What the model is told of the files that the request put there."""
    is_background: bool = False
    is_streamed: bool = False
    is_stored: bool = True
    expires_at: int = 0
    is_cancel_requested: bool = False
    heartbeat_at_ms: int = 0
    is_looping: bool = False
    """The state machine owns it; until then the API process does."""
    execution: str = ""
    """Name of the execution that runs it: its id, or that of a successor."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Of its tools, sealed, by the handles that stand in their places; forgotten when it ends."""
    recent_items: int = 0
    """So many of the input's items were there before this request: only its client's connection knew them."""
    waiting_for: str | None = None
    """What it waits for in the state machine, in a sentence; None while it goes on."""
    key_id: str = ""
    """Of the API key that asked for it."""
    is_pause_requested: bool = False
    parked_at: int = 0
    """Since when (Unix seconds) it stands still, without an execution; 0 while it runs."""
    pauses: int = 0
    """How often it was let go on."""
    budget: Mapping[str, Any] | None = None
    """In the place of its request's, once it was raised."""
    paused_seconds: int = 0
    """How long it has stood still, all pauses together that are over."""
    has_approvals: bool = False
    """A person was asked for a call of it (``approvals/store.py``)."""
    decisions: int = 0
    """How many of its approvals have been decided."""
    awaits: tuple[str, ...] = ()
    """Ids of the approvals for which it stands still."""
    decisions_seen: int = 0
    """How many decisions it knew of when it began to stand still for those."""
    approvals_due_at: int = 0
    """When the first of those is not waited for any more; 0 for never."""
    trace: Trace | None = None
    """Of the request that asked for it; None in records of versions that did not keep it."""
    is_owed: bool = True
    """Whether the loop still owes it something: it stands on the loop's list."""
    files_at_ms: int = 0
    """When it began, by the times of its container's files; 0 without a container, and in records of older versions."""
    forked_from: str | None = None
    """The response that it is a fork of."""
    rewinds_to: int | None = None
    """Its items take the place of that append to its conversation, and of all behind it; it begins with what there was before."""
    conversation_items: int = 0
    """So many of its input's items its conversation has already, then."""
    has_gated_network: bool = False
    """Of what its container reaches, something waits for a person's word (``loop/egress_approvals.py``)."""
    draws_on: tuple[str, ...] = ()
    """The budgets that it shares with others (``store/budgets.py: Scope``)."""
    session_id: str | None = None
    """The session of an agent that it belongs to."""
    is_steered: bool = False
    """It ends before its next model step: input of its session waits."""
    takes_outputs: bool = False
    """Outputs for its agents may come while it runs (``loop/team_outputs.py``)."""
    has_all_outputs: bool = False
    """No more of them come."""
    lane: int = 0
    """Of a response with a team: the agent as which it is looked at (``loop/lanes.py``)."""
    agent: str | None = None
    """That agent's name; None without a team."""
    pays_rent: bool = True
    """It pays for its sandbox; the tenant pays for that of an agent's copy of the workspace."""

    @property
    def own_input(self) -> list[Item]:
        """The content of its request."""
        return self.input_items[self.recent_items :]

    def parks(self, by_default: bool) -> bool:
        """Whether calls that need a person's word wait in their place; a client that waits itself is asked at the end of the
        response."""
        return self.is_background and bool((self.parameters.approvals or {}).get("park", by_default))


_META: Final = Codec(
    StoredResponse,
    names={
        "conversation_id": "conversation",
        "container_id": "container",
        "is_background": "background",
        "is_streamed": "stream",
        "is_stored": "store",
        "is_looping": "looping",
        "is_cancel_requested": "cancel_requested",
        "expires_at": "ttl",
        "key_id": "key",
        "is_steered": "steered",
        "is_pause_requested": "pause_requested",
    },
    nested={"trace": FieldCodec(Trace.pack, Trace.unpack)},
    sparse=(
        "conversation_id",
        "container_id",
        "programs",
        "given",
        "is_looping",
        "is_cancel_requested",
        "recent_items",
        "execution",
        "secrets",
        "waiting_for",
        "key_id",
        "trace",
        "is_pause_requested",
        "parked_at",
        "pauses",
        "paused_seconds",
        "budget",
        "files_at_ms",
        "forked_from",
        "has_approvals",
        "decisions",
        "awaits",
        "decisions_seen",
        "approvals_due_at",
        "has_gated_network",
        "draws_on",
        "rewinds_to",
        "conversation_items",
        "session_id",
        "is_steered",
        "takes_outputs",
        "has_all_outputs",
    ),
    beside=("response_id", "tenant_id", "parameters", "echo", "input_items", "ancestors", "is_owed", "lane", "agent", "pays_rent"),
)
"""What the record itself tells; what was said lies packed in its body."""


_PARKED: Final = ("parked_at", "waiting_for", "awaits", "decisions_seen", "approvals_due_at")
"""What stands on the record only while it stands still."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A response as one query sees it."""

    stored: StoredResponse
    last: EventBatch | None
    size_bytes: int = field(default=0, compare=False)
    """Of both as JSON."""

    @property
    def is_final(self) -> bool:
        return self.last is not None and self.last.is_final

    @property
    def final_object(self) -> dict[str, Any]:
        """The response object of the final event."""
        assert self.last is not None
        final: dict[str, Any] = self.last.events[-1]["response"]
        return final

    @property
    def part(self) -> ChainPart:
        """What it adds to a chain that goes on from it."""
        return ChainPart.of(self.stored.input_items, self.final_object) if self.is_final else ChainPart(self.stored.input_items)


@dataclass(frozen=True, slots=True)
class Chain:
    """The responses that a request goes on from."""

    previous: Snapshot
    """The last one of them."""
    parts: list[ChainPart]
    """Of all, oldest first."""


class Responses:
    def __init__(
        self, table: Table, blobs: Blobs, *, now_ms: Callable[[], int], retention_seconds: int, bell: Bell | None = None
    ) -> None:
        """``bell`` wakes the readers of a log; None if they poll."""
        self.bell = bell
        self._table = table
        self._blobs = blobs
        self._now_ms = now_ms
        self._retention_seconds = retention_seconds
        self._known_parts = KnownParts()
        self._lets_go = False
        """A time is set for that."""

    def log_of(self, stored: StoredResponse) -> EventLog:
        return EventLog(
            self._table,
            self._blobs,
            stored.tenant_id,
            stored.response_id,
            expires_at=stored.expires_at,
            now_ms=self._now_ms,
            listed=partial(_listed, stored) if stored.is_stored else None,
            bell=self.bell,
        )

    def expiry(self, *, is_stored: bool) -> int:
        """Unix seconds at the end of the records: DynamoDB removes them by itself."""
        seconds = self._retention_seconds if is_stored else limits.RESPONSE_SECONDS_MAX + UNSTORED_SECONDS
        return self._now_ms() // 1000 + seconds

    async def create(self, stored: StoredResponse, first: EventBatch | None = None) -> None:
        """Write ``META``, and by the same request the first batch of the log if there is one: nobody else knows of the response yet,
        so nothing needs to be compared."""
        record: Record = {
            "PK": keys.response(stored.tenant_id, stored.response_id),
            "SK": keys.META,
            **_META.pack(stored),
            "ancestors": pack_ancestors(stored.ancestors),
            "heartbeat_at_ms": self._now_ms(),
        }
        if stored.is_looping:
            record |= self._inflight(stored)
        body = await packed({"request": RECORD.pack(stored.parameters), "echo": stored.echo, "input": stored.input_items})
        if len(body) > limits.ITEM_INLINE_BYTES_MAX:
            record["blob"] = object_keys.response_blob(stored.tenant_id, stored.response_id, "meta")
            await self._blobs.put_bytes(record["blob"], body)
        else:
            record["body"] = body
        if first is None:
            await self._table.put(record, if_absent=True)
            return
        if first.is_final and stored.is_stored:
            # This record has more room in its unit than the batch, which holds the answer.
            record |= _listed(stored, first.events[-1]["response"])
        await self._table.write_many([record, await self.log_of(stored).record(first, is_listed=False)])

    def _inflight(self, stored: StoredResponse) -> Record:
        return {
            "looping": True,
            "GSI1PK": keys.INFLIGHT,
            "GSI1SK": f"{keys.inflight(stored.tenant_id)}{keys.listed(stored.created_at, stored.response_id)}",
            "execution": stored.response_id,
        }

    async def hand_over(self, stored: StoredResponse) -> StoredResponse:
        """From now on the state machine owns it."""
        await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, set=self._inflight(stored))
        return replace(stored, is_looping=True)

    async def settle(self, stored: StoredResponse) -> None:
        """The loop owes it nothing more. A response that is not stored stays on the list until it is erased."""
        owed = (("GSI1PK", "GSI1SK") if stored.is_looping else ()) + (("secrets",) if stored.secrets else ())
        if not owed or not stored.is_stored:
            return
        pk = keys.response(stored.tenant_id, stored.response_id)
        try:
            record = await self._table.update(pk, keys.META, remove=owed)
        except ConditionFailed:
            return  # Deleted meanwhile.
        if record.get("has_approvals"):
            for approval in await self._table.query(pk, prefix=keys.approval.prefix):
                with suppress(ConditionFailed):
                    await self._table.update(pk, approval["SK"], remove=("GSI1PK", "GSI1SK"))

    async def request_cancel(self, stored: StoredResponse) -> None:
        await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, set={"cancel_requested": True})

    async def request_steering(self, stored: StoredResponse) -> None:
        """It ends before its next model step, so that its session's input is taken."""
        with suppress(ConditionFailed):  # Deleted meanwhile.
            await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, set={"steered": True})

    async def end_outputs(self, stored: StoredResponse) -> None:
        """From now on no outputs for its agents come (``lanes.py: answer``)."""
        with suppress(ConditionFailed):  # Deleted meanwhile.
            await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, set={"has_all_outputs": True})

    async def request_pause(self, stored: StoredResponse) -> None:
        """The loop stands still before its next step."""
        await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, set={"pause_requested": True})

    async def set_budget(self, stored: StoredResponse, budget: Mapping[str, Any]) -> None:
        """From the next step on."""
        await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, set={"budget": dict(budget)})

    async def park(self, stored: StoredResponse, reason: str) -> bool:
        """The loop stands still from now on. False if it may go on meanwhile: then nobody waits for its execution to end."""
        try:
            await self._table.update(
                keys.response(stored.tenant_id, stored.response_id),
                keys.META,
                set={"parked_at": self._now_ms() // 1000, "waiting_for": reason},
                condition={"pause_requested": True},
                absent=("parked_at",),
            )
        except ConditionFailed:  # Parked by an earlier run of the same step, or let go on.
            return bool((await self.load(stored.tenant_id, stored.response_id)).parked_at)
        return True

    async def park_for(self, stored: StoredResponse, approval_ids: Sequence[str], reason: str, *, due_at: int) -> bool:
        """The loop stands still from now on, until one of these is decided. False if any has been decided since ``stored`` was read."""
        seen = {"decisions": stored.decisions} if stored.decisions else {}
        try:
            await self._table.update(
                keys.response(stored.tenant_id, stored.response_id),
                keys.META,
                set={
                    "parked_at": self._now_ms() // 1000,
                    "waiting_for": reason,
                    "awaits": list(approval_ids),
                    "decisions_seen": stored.decisions,
                    "approvals_due_at": due_at,
                },
                condition=seen,
                absent=("parked_at",) if seen else ("parked_at", "decisions"),
            )
        except ConditionFailed:  # Parked by an earlier run of the same step, or there is a decision.
            return bool((await self.load(stored.tenant_id, stored.response_id)).parked_at)
        return True

    async def unpark(self, stored: StoredResponse, *, stays_paused: bool = False) -> StoredResponse:
        """It may go on; one that ``stays_paused`` only to find that it was told to stand still.

        Returns the state before: with ``parked_at`` if it needs an execution again; only one of two callers gets that.
        """
        pk = keys.response(stored.tenant_id, stored.response_id)
        if not stored.parked_at:
            with suppress(ConditionFailed):  # It is parked at this moment.
                await self._table.update(pk, keys.META, remove=("pause_requested",), absent=("parked_at",))
                return replace(stored, is_pause_requested=False)
            stored = await self.load(stored.tenant_id, stored.response_id)
        still = self._now_ms() // 1000 - stored.parked_at
        try:
            await self._table.update(
                pk,
                keys.META,
                remove=(*_PARKED, *(() if stays_paused else ("pause_requested",))),
                add={"pauses": 1, "paused_seconds": max(0, still)},
                condition={"parked_at": stored.parked_at},
            )
        except ConditionFailed:
            return replace(stored, parked_at=0)
        return replace(stored, is_pause_requested=False, pauses=stored.pauses + 1)

    async def note_pause(self, stored: StoredResponse, seconds: int) -> None:
        """So long it has stood still although it was not parked: its agents waited for a person."""
        if seconds <= 0:
            return
        with suppress(ConditionFailed):  # Deleted meanwhile.
            await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, add={"paused_seconds": seconds})

    async def is_cancel_requested(self, tenant_id: str, response_id: str) -> bool:
        """True also when the response is gone: nobody waits for it any more."""
        record = await self._table.get(keys.response(tenant_id, response_id), keys.META)
        return record is None or bool(record.get("cancel_requested"))

    async def is_gone(self, tenant_id: str, response_id: str) -> bool:
        """Whether it has been erased, or never was."""
        return await self._table.get(keys.response(tenant_id, response_id), keys.META) is None

    async def note_wait(self, stored: StoredResponse, reason: str | None) -> None:
        """Note on the record that the response waits, and the reason; None: it goes on. Costs a write only if that changes."""
        if reason == stored.waiting_for:
            return
        change: dict[str, Any] = {"remove": ("waiting_for",)} if reason is None else {"set": {"waiting_for": reason}}
        with suppress(ConditionFailed):  # Deleted meanwhile.
            await self._table.update(keys.response(stored.tenant_id, stored.response_id), keys.META, **change)

    async def heartbeat(self, stored: StoredResponse) -> None:
        """Of a process that runs a response in the foreground. It is listed from now on among those that run."""
        listed = response_list.running_attributes(stored.tenant_id, stored.created_at, stored.response_id)
        with suppress(ConditionFailed):  # Handed over meanwhile, and on the loop's list.
            await self._table.update(
                keys.response(stored.tenant_id, stored.response_id),
                keys.META,
                set={"heartbeat_at_ms": self._now_ms(), **listed},
                absent=("looping",),
            )

    async def set_execution(self, stored: StoredResponse, name: str, *, instead_of: str | None = None) -> bool:
        """Note the execution that runs it now. With ``instead_of`` only if that one still stands there; False otherwise."""
        condition = {} if instead_of is None else {"execution": instead_of}
        try:
            await self._table.update(
                keys.response(stored.tenant_id, stored.response_id), keys.META, set={"execution": name}, condition=condition
            )
        except ConditionFailed:
            return False
        return True

    async def inflight(self) -> list[tuple[str, str]]:
        """``(tenant_id, response_id)`` of the responses that the loop still owes an end, of all tenants."""
        records = await self._table.query(keys.INFLIGHT, index="GSI1")
        return [keys.response.read(record["PK"]) for record in records]

    async def inflight_of(self, tenant_id: str) -> list[str]:
        """Ids of one tenant's, oldest first; those of others cost nothing."""
        return [entry.response_id for entry in await response_list.inflight(self._table, tenant_id)]

    async def snapshot(self, tenant_id: str, response_id: str) -> Snapshot:
        """``META`` and the last batch, in one query. Raises 404 for unknown, deleted, expired and foreign ids."""
        records = await self._table.query(keys.response(tenant_id, response_id), descending=True, limit=2)
        stored, size = await self._of_record(tenant_id, response_id, records[0] if records else None)
        if len(records) < 2 or not records[1]["SK"].startswith(keys.event.prefix):
            return Snapshot(stored, None, size)
        last, more = await self.log_of(stored).batch(records[1])
        return Snapshot(stored, last, size + more)

    async def load(self, tenant_id: str, response_id: str) -> StoredResponse:
        """``META`` alone."""
        return await self.of_record(tenant_id, response_id, await self._table.get(keys.response(tenant_id, response_id), keys.META))

    async def of_record(self, tenant_id: str, response_id: str, record: Record | None) -> StoredResponse:
        """``META`` from the record read for it. Raises 404 for unknown, deleted, expired and foreign ids."""
        return (await self._of_record(tenant_id, response_id, record))[0]

    async def _of_record(self, tenant_id: str, response_id: str, record: Record | None) -> tuple[StoredResponse, int]:
        if record is None or record["SK"] != keys.META or record["ttl"] <= self._now_ms() // 1000:
            raise response_not_found(response_id)
        return await self._stored(tenant_id, response_id, record)

    async def _stored(
        self, tenant_id: str, response_id: str, record: Record, *, with_ancestors: bool = True
    ) -> tuple[StoredResponse, int]:
        """``META``, and how many bytes of JSON its body is."""
        (found,) = await self._blobs.inlined([record], "body")
        body, size = await unpacked_with_size(found)
        parameters = RECORD.unpack(body["request"])
        stored = _META.unpack(
            record,
            response_id=response_id,
            tenant_id=tenant_id,
            parameters=parameters,
            agent=None if parameters.multi_agent is None else ROOT_AGENT,
            echo=body["echo"],
            input_items=body["input"],
            ancestors=unpack_ancestors(record["ancestors"]) if with_ancestors else (),
            execution=response_id,
            is_owed=record.get("GSI1PK") == keys.INFLIGHT,
        )
        return stored, size

    async def chain(self, tenant_id: str, previous_response_id: str) -> Chain:
        """The previous response and all its ancestors.

        Two round trips at any length: the previous response names its ancestors with the keys of their records, and those are read side
        by side, fifty ancestors a request. An ancestor that was deleted is left out, as in OpenAI's API.
        """
        try:
            previous = await self.snapshot(tenant_id, previous_response_id)
        except ApiError as error:
            raise previous_response_not_found(previous_response_id) from error
        return Chain(previous, [*await self.parts(tenant_id, previous.stored.ancestors), previous.part])

    async def parts(self, tenant_id: str, ancestors: Sequence[Ancestor]) -> list[ChainPart]:
        """Of those that still exist, in the order asked for. Short ones are read here, one after the other, long ones on threads."""
        found = await self._records_of(tenant_id, ancestors, without=_NOT_OF_CHAINS)
        parts: list[ChainPart | None] = []
        breath = Breath()
        for _, record, last in found:
            await breath.taken()
            is_short = _is_short(record) and _is_short(last)
            parts.append(self._known_parts.part_of(tenant_id, record["body"], last["body"]) if is_short else None)
        self._let_go_of_parts()
        long = [pair for pair, part in zip(found, parts, strict=True) if part is None]
        others = iter(await side_by_side(self._part, long, at_once=limits.RECORDS_UNPACKED_AT_ONCE))
        return [next(others) if part is None else part for part in parts]

    def _let_go_of_parts(self) -> None:
        """Of those that are too old: now, and in time."""
        seconds = self._known_parts.let_go()
        if seconds is not None and not self._lets_go:
            self._lets_go = True
            asyncio.get_running_loop().call_later(seconds, self._let_go_later)

    def _let_go_later(self) -> None:
        self._lets_go = False
        self._let_go_of_parts()

    async def _part(self, found: "_Found") -> ChainPart:
        bodies = await self._blobs.inlined(found[1:], "body")
        return await worked(lambda: part_of(*bodies))

    async def readers(
        self, tenant_id: str, ancestors: Sequence[Ancestor], told: Callable[[Snapshot], T]
    ) -> dict[str, Callable[[], Awaitable[T]]]:
        """How each of those that still exist is read, by its id, in the order asked for.

        ``told`` makes the caller's part of it. Their records are here then, without their long parts.
        """

        async def read(response_id: str, record: Record, last: Record) -> T:
            stored, size = await self._stored(tenant_id, response_id, record, with_ancestors=False)
            batch, more = await self.log_of(stored).batch(last)
            found = [Snapshot(stored, batch, size + more)]
            del stored, batch
            if _is_short(record):
                return told(found.pop())
            # To free the memory of a large response takes ten milliseconds too: it is let go on the thread.
            return await worked(lambda: told(found.pop()))

        return {found[0]: partial(read, *found) for found in await self._records_of(tenant_id, ancestors)}

    async def _records_of(self, tenant_id: str, ancestors: Sequence[Ancestor], *, without: Collection[str] = ()) -> "list[_Found]":
        """Of those that are whole, in the order asked for."""
        wanted = [(link.response_id, keys.response(tenant_id, link.response_id), keys.event(link.final_number)) for link in ancestors]
        if not wanted:
            return []
        read = await self._table.get_many([key for _, pk, last in wanted for key in ((pk, keys.META), (pk, last))], without=without)
        records = {(record["PK"], record["SK"]): record for record in read}
        return [
            (response_id, records[pk, keys.META], records[pk, last])
            for response_id, pk, last in wanted
            if (pk, keys.META) in records and (pk, last) in records
        ]

    async def delete(self, tenant_id: str, response_id: str) -> None:
        """Remove every record and object of a response. Its usage stays counted, as long as it would have been kept."""
        pk = keys.response(tenant_id, response_id)
        records = await self._table.query(pk, without=("body",))
        remains = response_list.remains(tenant_id, response_id, records)
        await self._table.write_many(
            puts=[] if remains is None else [remains], deletes=[(pk, record["SK"]) for record in records if record["SK"] != keys.GONE]
        )
        if remains is not None:
            sums = UsageSums(self._table, tenant_id, retention_seconds=self._retention_seconds)
            await sums.forget(remains["created_at"])
        await self._blobs.delete_prefix(object_keys.response_blobs(tenant_id, response_id))


def _listed(stored: StoredResponse, response: dict[str, Any]) -> Record:
    """The records that put an ended response into the list of its tenant's."""
    row = response_list.ResponseRow.of(
        response,
        key_id=stored.key_id,
        conversation_id=stored.conversation_id,
        container_id=stored.container_id,
        tags=response_list.tags_of(stored.tenant_id, stored.echo.get("metadata") or {}),
    )
    return response_list.ended_attributes(stored.tenant_id, stored.created_at, stored.response_id, row)


_LINK: Final = struct.Struct(">20sI")
"""A link of a chain in the table: the random part of the id, and the number. Every record of a chain holds all its ancestors, so
their size counts twice over."""


def pack_ancestors(ancestors: Sequence[Ancestor]) -> bytes:
    return b"".join(_LINK.pack(ids.response_digits(link.response_id), link.final_number) for link in ancestors)


def unpack_ancestors(packed: bytes) -> tuple[Ancestor, ...]:
    return tuple(Ancestor(ids.response_of_digits(digits), number) for digits, number in _LINK.iter_unpack(packed))


_NOT_OF_CHAINS: Final = ("ancestors", "times", "trace")
"""Bytes in the records of responses that those behind them do not need."""

_Found = tuple[str, Record, Record]
"""A response's id, its record, and that of its last batch."""


def _is_short(record: Record) -> bool:
    return "body" in record and len(record["body"]) <= limits.UNPACKED_HERE_BYTES_MAX
