"""Calls that need a person's approval before they run: the question, the person, and the decision.

An approval is a record beside those of its response's steps, written once when the call is made and changed once, by the decision. Both
are conditional, so that of two deciders one wins, and the other reads the decision. A decision also counts on the response
(``decisions``), in the same write. A response that is about to pause compares that number, and so cannot miss a decision that came
meanwhile (``responses.py: park_for``).

Open approvals are listed by tenant. A decision takes it off the list, and so does the end of its response. Leftovers of a response that
died in the middle are not shown.
"""

from collections.abc import Sequence
from typing import Final, Literal

from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import approval_not_found
from moorage.ids import response_of
from moorage.store import keys, schema
from moorage.store.listing import Page, listing_attributes, unknown_after, walk
from moorage.store.responses import StoredResponse
from moorage.store.table import Record, Table, Write
from moorage.wire.queries import PageQuery

KIND: Final = "approvals"
Status = Literal["waiting", "approved", "denied"]
OnTimeout = Literal["deny", "cancel"]


@dataclass(frozen=True, slots=True)
class Approval:
    id: str
    response_id: str
    tenant_id: str
    created_at: int
    step: int
    """The model step that made the call."""
    call_id: str
    call_index: int
    """Output index of the call's item."""
    call_type: str
    due_at: int = 0
    """When nobody is waited for any more (Unix seconds); 0 for never."""
    on_timeout: OnTimeout = "deny"
    status: Status = "waiting"
    decided_at: int = 0
    decided_by: str = ""
    """The id of a key, or how else it was decided."""
    reason: str = ""
    opens: str = ""
    """What of the network it is about, if it is about no call (``egress/policy.py: Opening.key``)."""

    @property
    def is_waiting(self) -> bool:
        return self.status == "waiting"


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    approve: bool
    by: str
    reason: str = ""

    @property
    def status(self) -> Status:
        return "approved" if self.approve else "denied"


_RECORD: Final = Codec(
    Approval,
    sparse=("due_at", "on_timeout", "decided_at", "decided_by", "reason", "opens"),
    beside=("id", "response_id", "tenant_id"),
)


class ApprovalStore:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def ask(self, stored: StoredResponse, approvals: Sequence[Approval]) -> None:
        """Ask for these, all of one step. Harmless to run twice; a response that has ended asks for nothing any more."""
        pk = keys.response(stored.tenant_id, stored.response_id)
        records: list[Record] = [
            {
                "PK": pk,
                "SK": keys.approval(approval.id),
                **_RECORD.pack(approval),
                **listing_attributes(stored.tenant_id, KIND, approval.created_at, approval.id),
                schema.TTL_ATTRIBUTE: stored.expires_at,
            }
            for approval in approvals
        ]
        running = Write(pk, keys.META, set={"has_approvals": True}, condition={"GSI1PK": keys.INFLIGHT})
        await self._table.write_together(records, [running])

    async def of(self, tenant_id: str, response_id: str) -> list[Approval]:
        """All of a response, in the order of its calls."""
        pk = keys.response(tenant_id, response_id)
        return [_approval(record) for record in await self._table.query(pk, prefix=keys.approval.prefix)]

    async def those(self, stored: StoredResponse, approval_ids: Sequence[str]) -> dict[str, Approval]:
        """Those of a response that were asked for, by their ids."""
        pk = keys.response(stored.tenant_id, stored.response_id)
        records = await self._table.get_many([(pk, keys.approval(each)) for each in approval_ids], consistent=True)
        return {approval.id: approval for approval in map(_approval, records)}

    async def get(self, tenant_id: str, response_id: str, approval_id: str) -> Approval | None:
        record = await self._table.get(keys.response(tenant_id, response_id), keys.approval(approval_id))
        return None if record is None else _approval(record)

    async def decide(self, approval: Approval, decision: ApprovalDecision, now: int) -> Approval:
        """Decide it, unless that has been done, or its response has ended.

        Returns the stored state: the caller checks whether this decision won.
        """
        pk = keys.response(approval.tenant_id, approval.response_id)
        said = {"reason": decision.reason} if decision.reason else {}
        decided = Write(
            pk,
            keys.approval(approval.id),
            set={"status": decision.status, "decided_at": now, "decided_by": decision.by, **said},
            condition={"status": "waiting"},
            remove=("GSI1PK", "GSI1SK"),
        )
        counted = Write(pk, keys.META, set={}, condition={"GSI1PK": keys.INFLIGHT}, add={"decisions": 1})
        await self._table.write_together((), [decided, counted])
        standing = await self.get(approval.tenant_id, approval.response_id, approval.id)
        if standing is None:  # Deleted meanwhile.
            raise approval_not_found(approval.id)
        return standing

    async def waiting(self, tenant_id: str, page: PageQuery, now: float) -> Page[Approval]:
        """A page of open approvals, over all responses of the tenant that have not ended."""

        async def place_of(approval_id: str, param: str) -> str:
            """Its place in the list, now or before its decision."""
            response_id = response_of(approval_id)
            found = None if response_id is None else await self.get(tenant_id, response_id, approval_id)
            if found is None:
                raise unknown_after(approval_id, param)
            return keys.listed(found.created_at, approval_id)

        async def kept(entries: Sequence[Record]) -> list[Approval]:
            return await self._alive(entries, now)

        return await walk(self._table, keys.listing(tenant_id, KIND), page, place_of=place_of, kept=kept)

    async def _alive(self, entries: Sequence[Record], now: float) -> list[Approval]:
        """Those that a response waits for, in the order of the index."""
        wanted = [(entry["PK"], sk) for entry in entries for sk in (entry["SK"], keys.META)]
        there = {(record["PK"], record["SK"]): record for record in await self._table.get_many(wanted, consistent=True)}
        found: list[Approval] = []
        for entry in entries:
            record, response = there.get((entry["PK"], entry["SK"])), there.get((entry["PK"], keys.META), {})
            is_running = response.get("GSI1PK") == keys.INFLIGHT and response[schema.TTL_ATTRIBUTE] > now
            if record is not None and record["status"] == "waiting" and is_running:
                found.append(_approval(record))
        return found


def _approval(record: Record) -> Approval:
    tenant_id, response_id = keys.response.read(record["PK"])
    approval_id = keys.approval.read(record["SK"])
    return _RECORD.unpack(record, id=approval_id, response_id=response_id, tenant_id=tenant_id)
