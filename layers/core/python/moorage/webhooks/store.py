"""Webhook endpoints of a tenant, with their sent and pending deliveries.

An endpoint stands in a numbered slot of its tenant's one partition: the numbers bound how many there are, and all of them are one
query. A delivery is one record for an event and an endpoint. A pending delivery stands in the index by its due time. A process that
takes it up moves that time behind the end of its attempt, by compare-and-set. Other processes leave it alone meanwhile, and it is due
again if the process dies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

import orjson

from moorage import limits
from moorage.codec import Codec, FieldCodec
from moorage.dataclass import dataclass
from moorage.errors import (
    ConditionFailed,
    too_many_webhook_endpoints,
    webhook_delivery_not_found,
    webhook_endpoint_not_found,
)
from moorage.ids import new_webhook_endpoint_id
from moorage.store import keys, schema
from moorage.store.listing import Page, unknown_after
from moorage.store.sealed import Sealer
from moorage.store.table import Record, Table
from moorage.wire.queries import PageQuery

KIND: Final = "webhooks"
Status = Literal["pending", "delivered", "failed"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    tenant_id: str
    id: str
    slot: int
    name: str
    url: str
    event_types: tuple[str, ...]
    created_at_ms: int
    updated_at: int
    sealed: str
    """The secret that signs, sealed."""
    hint: str
    old_sealed: str = ""
    """The one before, which signs too until ``old_until`` (Unix seconds)."""
    old_until: int = 0
    failing_since: int = 0
    """Unix seconds of the first attempt that failed since one has not; 0 if the latest has not."""
    is_disabled: bool = False
    """It has failed for so long that it gets no more events, until an attempt does not fail."""


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    at_ms: int
    duration_ms: int
    status_code: int | None = None
    error: str | None = None
    """Why there is no answer."""

    @property
    def has_succeeded(self) -> bool:
        """A redirect is a failure: its target was never checked."""
        return self.status_code is not None and 200 <= self.status_code < 300


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event for an endpoint."""

    tenant_id: str
    endpoint_id: str
    id: str
    """The event's."""
    event_type: str
    response_id: str
    """Empty for what is of no response."""
    created_at: int
    body: bytes
    """What is sent, the same at every attempt."""
    began_at: int
    """Unix seconds, from which its time to be tried counts."""
    next_at: int
    """When it is due, as long as it is pending."""
    status: Status = "pending"
    count: int = 0
    """Attempts so far, of which the latest are kept."""
    attempts: tuple[DeliveryAttempt, ...] = ()
    session_id: str = ""
    """Of an agent, which it tells of."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """An event for endpoints."""

    id: str
    type: str
    response_id: str
    created_at: int
    data: Mapping[str, Any]
    """Ids, and what kind of thing they are of: whoever receives it asks for the rest with a key."""
    session_id: str = ""


def delivery_of(event: WebhookEvent, endpoint: Endpoint, now: float) -> Delivery:
    """One that is due now."""
    return Delivery(
        tenant_id=endpoint.tenant_id,
        endpoint_id=endpoint.id,
        id=event.id,
        event_type=event.type,
        response_id=event.response_id,
        session_id=event.session_id,
        created_at=event.created_at,
        body=body_of(event.id, event.type, event.data, event.created_at),
        began_at=int(now),
        next_at=int(now),
    )


def body_of(identity: str, event_type: str, data: Mapping[str, Any], created_at: int) -> bytes:
    event: dict[str, Any] = {
        "id": identity,
        "object": "event",
        "created_at": created_at,
        "type": event_type,
        "data": dict(data),
    }
    return orjson.dumps(event)


_ENDPOINT: Final = Codec(Endpoint, sparse=("old_sealed", "old_until", "failing_since", "is_disabled"))
_ATTEMPT: Final = Codec(DeliveryAttempt, sparse=("status_code", "error"))
_DELIVERY: Final = Codec(
    Delivery, nested={"attempts": FieldCodec(_ATTEMPT.pack, _ATTEMPT.unpack)}, sparse=("count", "attempts", "session_id")
)


class Webhooks:
    def __init__(self, table: Table, sealer: Sealer, *, clock: Callable[[], float]) -> None:
        self._table = table
        self._sealer = sealer
        self._clock = clock

    # --- Endpoints ---

    async def create(self, tenant_id: str, *, name: str, url: str, event_types: Sequence[str], secret: str) -> Endpoint:
        taken = {endpoint.slot for endpoint in await self.endpoints(tenant_id)}
        now = self._clock()
        for slot in range(limits.WEBHOOK_ENDPOINTS_MAX):
            if slot in taken:
                continue
            made = Endpoint(
                tenant_id=tenant_id,
                id=new_webhook_endpoint_id(int(now * 1000)),
                slot=slot,
                name=name,
                url=url,
                event_types=tuple(dict.fromkeys(event_types)),
                created_at_ms=int(now * 1000),
                updated_at=int(now),
                sealed=self._sealer.seal(tenant_id, secret),
                hint=hint_of(secret),
            )
            try:
                await self._table.put(_endpoint_record(made), if_absent=True)
            except ConditionFailed:  # Another request has taken it in this moment, or this one's answer was lost.
                if await self._stands(made):
                    return made
                continue
            return made
        raise too_many_webhook_endpoints(limits.WEBHOOK_ENDPOINTS_MAX)

    async def _stands(self, endpoint: Endpoint) -> bool:
        record = await self._table.get(keys.webhook_endpoints(endpoint.tenant_id), keys.webhook_slot(endpoint.slot))
        return record is not None and record["id"] == endpoint.id

    async def endpoints(self, tenant_id: str) -> list[Endpoint]:
        """All of a tenant's, newest first."""
        found = map(_ENDPOINT.unpack, await self._table.query(keys.webhook_endpoints(tenant_id)))
        return sorted(found, key=lambda endpoint: endpoint.id, reverse=True)

    async def find(self, tenant_id: str, endpoint_id: str) -> Endpoint | None:
        return next((each for each in await self.endpoints(tenant_id) if each.id == endpoint_id), None)

    async def get(self, tenant_id: str, endpoint_id: str) -> Endpoint:
        """Raises 404 for unknown, deleted and foreign ids."""
        found = await self.find(tenant_id, endpoint_id)
        if found is None:
            raise webhook_endpoint_not_found(endpoint_id)
        return found

    async def update(self, endpoint: Endpoint, changes: dict[str, Any]) -> Endpoint:
        """``changes`` by field; those that change nothing are none. Failures at an earlier address are forgotten."""
        changed = {name: value for name, value in changes.items() if getattr(endpoint, name) != value}
        if not changed:
            return endpoint
        forgotten = ("failing_since", "is_disabled") if "url" in changed else ()
        return await self._change(endpoint, {**changed, "updated_at": int(self._clock())}, remove=forgotten)

    async def rotate(self, endpoint: Endpoint, secret: str, *, is_old_kept: bool) -> Endpoint:
        now = int(self._clock())
        changes = {"sealed": self._sealer.seal(endpoint.tenant_id, secret), "hint": hint_of(secret), "updated_at": now}
        if not is_old_kept:
            return await self._change(endpoint, changes, remove=("old_sealed", "old_until"))
        kept = {"old_sealed": endpoint.sealed, "old_until": now + limits.WEBHOOK_OLD_SECRET_SECONDS}
        return await self._change(endpoint, {**changes, **kept})

    async def note_failure(self, endpoint: Endpoint) -> None:
        """Since when it fails; after three days of nothing else it is switched off."""
        now = int(self._clock())
        if not endpoint.failing_since:
            await self._note(endpoint, {"failing_since": now})
        elif now - endpoint.failing_since >= limits.WEBHOOK_RETRY_SECONDS and not endpoint.is_disabled:
            await self._note(endpoint, {"is_disabled": True})

    async def note_success(self, endpoint: Endpoint) -> None:
        if endpoint.failing_since or endpoint.is_disabled:
            await self._note(endpoint, {}, remove=("failing_since", "is_disabled"))

    async def _note(self, endpoint: Endpoint, changes: dict[str, Any], *, remove: Iterable[str] = ()) -> None:
        try:
            await self._write(endpoint, changes, remove)
        except ConditionFailed:
            return  # Deleted meanwhile.

    async def _change(self, endpoint: Endpoint, changes: dict[str, Any], *, remove: Iterable[str] = ()) -> Endpoint:
        try:
            return _ENDPOINT.unpack(await self._write(endpoint, changes, remove))
        except ConditionFailed as error:
            raise webhook_endpoint_not_found(endpoint.id) from error

    async def _write(self, endpoint: Endpoint, changes: dict[str, Any], remove: Iterable[str]) -> Record:
        return await self._table.update(
            keys.webhook_endpoints(endpoint.tenant_id),
            keys.webhook_slot(endpoint.slot),
            set={name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()},
            remove=remove,
            condition={"id": endpoint.id},
        )

    async def delete(self, endpoint: Endpoint) -> None:
        """Its pending deliveries are dropped when they are due. The rest of the log is dropped at its age."""
        try:
            await self._table.delete(
                keys.webhook_endpoints(endpoint.tenant_id), keys.webhook_slot(endpoint.slot), condition={"id": endpoint.id}
            )
        except ConditionFailed as error:
            raise webhook_endpoint_not_found(endpoint.id) from error

    def secrets(self, endpoint: Endpoint) -> list[str]:
        """Those that sign now, the newest first; none if another deployment has sealed them."""
        sealed = [endpoint.sealed]
        if endpoint.old_sealed and endpoint.old_until > self._clock():
            sealed.append(endpoint.old_sealed)
        opened = [self._sealer.open(endpoint.tenant_id, each) for each in sealed]
        return [secret for secret in opened if secret is not None]

    # --- Deliveries ---

    async def add(self, delivery: Delivery) -> bool:
        """False if it is known already: an end may be announced twice."""
        try:
            await self._table.put(_delivery_record(delivery), if_absent=True)
        except ConditionFailed:
            return False
        return True

    async def due(self, now: float) -> list[Delivery]:
        """Due deliveries, longest due first, up to a number.

        If the clock was set back since a delivery was put off, its time has come, too: it must not wait for the old clock.
        """
        entries = await self._due_entries(up_to=keys.due(int(now), "\uffff"))
        ahead = await self._due_entries(after=keys.due(int(now), "\uffff"))
        entries += [entry for entry in ahead if _DueKey.read(entry["GSI1SK"]).since > now + limits.CLOCK_SKEW_SECONDS_MAX]
        times = {(entry["PK"], entry["SK"]): _DueKey.read(entry["GSI1SK"]).at for entry in entries}
        records = await self._table.get_many(times, consistent=True)
        pending = [delivery for delivery in map(_DELIVERY.unpack, records) if delivery.status == "pending"]
        found = [delivery for delivery in pending if delivery.next_at <= now or delivery.next_at == times[_place(delivery)]]
        return sorted(found, key=lambda delivery: (delivery.next_at, delivery.id))

    async def _due_entries(self, *, up_to: str | None = None, after: str | None = None) -> list[Record]:
        return await self._table.query(keys.due_list(KIND), up_to=up_to, after=after, limit=limits.WEBHOOK_DUE_READ, index=schema.INDEX)

    async def pending(self) -> int:
        """How many deliveries of all tenants have not ended, up to a number."""
        return len(await self._table.query(keys.due_list(KIND), limit=limits.WEBHOOK_PENDING_COUNTED_MAX, index=schema.INDEX))

    async def postpone(self, delivery: Delivery, seconds: int) -> Delivery | None:
        """Make it due so many seconds from now; None if somebody else has taken it up."""
        now = int(self._clock())
        try:
            record = await self._table.update(
                *_place(delivery),
                set={"next_at": now + seconds, "GSI1SK": str(_DueKey(now + seconds, now, delivery.id))},
                condition={"status": "pending", "next_at": delivery.next_at},
            )
        except ConditionFailed:
            return None
        return _DELIVERY.unpack(record)

    async def note_attempt(self, delivery: Delivery, attempt: DeliveryAttempt, seconds: int | None) -> None:
        """``seconds``: it is due again after so many; None if it has ended.

        A success counts, even if another process has taken the delivery up meanwhile. A failure is not noted then.
        """
        now = int(self._clock())
        told: dict[str, Any] = {
            "count": delivery.count + 1,
            "attempts": [_ATTEMPT.pack(each) for each in (*delivery.attempts, attempt)[-limits.WEBHOOK_ATTEMPTS_SHOWN :]],
        }
        condition: dict[str, Any] = {"status": "pending"}
        if not attempt.has_succeeded:
            condition["next_at"] = delivery.next_at
        try:
            if seconds is None:
                told["status"] = "delivered" if attempt.has_succeeded else "failed"
                await self._table.update(*_place(delivery), set=told, remove=("GSI1PK", "GSI1SK"), condition=condition)
            else:
                told |= {"next_at": now + seconds, "GSI1SK": str(_DueKey(now + seconds, now, delivery.id))}
                await self._table.update(*_place(delivery), set=told, condition=condition)
        except ConditionFailed:
            return

    async def drop(self, delivery: Delivery) -> None:
        await self._table.delete(*_place(delivery))

    async def redeliver(self, endpoint: Endpoint, event_id: str) -> Delivery:
        """Make it due now, whatever its state, with as much time as a new one. Raises 404 for one that is not known."""
        now = int(self._clock())
        try:
            record = await self._table.update(
                keys.webhook_deliveries(endpoint.tenant_id, endpoint.id),
                keys.webhook_delivery(event_id),
                set={
                    "status": "pending",
                    "began_at": now,
                    "next_at": now,
                    schema.TTL_ATTRIBUTE: now + limits.WEBHOOK_LOG_SECONDS,
                    **_due_attributes(_DueKey(now, now, event_id)),
                },
            )
        except ConditionFailed as error:
            raise webhook_delivery_not_found(event_id) from error
        return _DELIVERY.unpack(record)

    async def page(self, endpoint: Endpoint, page: PageQuery) -> Page[Delivery]:
        """A page of the log. Raises an :class:`~moorage.errors.ApiError` for an ``after`` that is not in it."""
        pk, place = keys.webhook_deliveries(endpoint.tenant_id, endpoint.id), page.after and keys.webhook_delivery(page.after)
        if place and await self._table.get(pk, place) is None:
            raise unknown_after(page.after or "")
        records = await self._table.query_beyond(
            pk, place, prefix=keys.webhook_delivery.prefix, descending=page.order == "desc", limit=page.limit + 1
        )
        return Page.of(records, page.limit).read(_DELIVERY.unpack)


def hint_of(secret: str) -> str:
    """Enough to tell two secrets apart."""
    return f"whsec_...{secret[-4:]}"


def claimed(delivery: Delivery, now: float) -> Delivery:
    """As the process writes it that sends it at once."""
    return replace(delivery, next_at=int(now) + limits.WEBHOOK_LEASE_SECONDS)


def _place(delivery: Delivery) -> tuple[str, str]:
    return keys.webhook_deliveries(delivery.tenant_id, delivery.endpoint_id), keys.webhook_delivery(delivery.id)


class _DueKey(NamedTuple):
    """The sort key of a pending delivery in the index."""

    at: int
    """When it is due."""
    since: int
    """When that was said. If it lies in the future, the clock has been set back since."""
    event_id: str

    def __str__(self) -> str:
        return keys.due(self.at, f"{self.since:012d}#{self.event_id}")

    @classmethod
    def read(cls, key: str) -> "_DueKey":
        """Reads the key of an older version too. That one lacked its start: it was at most the longest pause before."""
        at, *since, event_id = key.split("#")
        return cls(int(at), int(since[0]) if since else int(at) - limits.WEBHOOK_PAUSE_SECONDS_MAX, event_id)


def _due_attributes(key: _DueKey) -> Record:
    return {"GSI1PK": keys.due_list(KIND), "GSI1SK": str(key)}


def _endpoint_record(endpoint: Endpoint) -> Record:
    return {
        "PK": keys.webhook_endpoints(endpoint.tenant_id),
        "SK": keys.webhook_slot(endpoint.slot),
        **_ENDPOINT.pack(endpoint),
    }


def _delivery_record(delivery: Delivery) -> Record:
    pk, sk = _place(delivery)
    return {
        "PK": pk,
        "SK": sk,
        **_DELIVERY.pack(delivery),
        **_due_attributes(_DueKey(delivery.next_at, delivery.began_at, delivery.id)),
        schema.TTL_ATTRIBUTE: delivery.created_at + limits.WEBHOOK_LOG_SECONDS,
    }
