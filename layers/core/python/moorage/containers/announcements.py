"""What webhook endpoints are told of the environments of agents: that one is ready, could not be set up, is suspended, or has expired.

A delivery is written here, due at once, and sent by the reaper (``webhooks/delivery.py``): many of the processes that start and end
sandboxes reach no address of a user. It is written before what it tells of is over and forgotten, so that the sweep writes it after a
death. Its id follows from what it tells of: twice is once.
"""

import hashlib

from moorage.containers.store import ContainerRecord, ContainerStore, End
from moorage.files.store import Clock
from moorage.webhooks.event_types import (
    ENVIRONMENT_EXPIRED,
    ENVIRONMENT_FAILED,
    ENVIRONMENT_READY,
    ENVIRONMENT_SUSPENDED,
    EventType,
)
from moorage.webhooks.store import WebhookEvent, Webhooks, delivery_of


class Announcements:
    def __init__(self, store: ContainerStore, webhooks: Webhooks | None, clock: Clock, *, strict_expiry: bool) -> None:
        """``webhooks`` None: nobody listens."""
        self._store = store
        self._webhooks = webhooks
        self._clock = clock
        self._strict_expiry = strict_expiry

    async def of_start(self, record: ContainerRecord) -> ContainerRecord:
        """Its sandbox is there. The first one of a prewarmed environment is told."""
        if record.environment != "prewarmed" or record.is_ready_told:
            return record
        await self._tell(record, ENVIRONMENT_READY, about="", at_ms=record.running_at_ms)
        return await self._store.change(record, set={"is_ready_told": True}, condition={"incarnation": record.incarnation})

    async def of_end(self, record: ContainerRecord, end: End) -> None:
        """Its sandbox is stopped. One that was lost while it is used comes back at once, and is not told."""
        if not record.environment:
            return
        was_there = record.sandbox is not None and record.sandbox.state != "starting"
        if record.setup_error and record.environment == "prewarmed":
            await self._tell(record, ENVIRONMENT_FAILED, about="", at_ms=record.created_at * 1000)
        elif end == "idle" and was_there:
            if record.environment == "prewarmed" and not record.is_ready_told:  # Its starter has died over it.
                await self._tell(record, ENVIRONMENT_READY, about="", at_ms=record.running_at_ms)
            if self._strict_expiry and record.expires_at <= self._clock():
                await self.of_expiry(record)
            else:
                about = str(record.incarnation)
                await self._tell(record, ENVIRONMENT_SUSPENDED, about=about, at_ms=record.expires_at * 1000)

    async def of_expiry(self, record: ContainerRecord) -> None:
        """It does not come back any more."""
        if record.environment:
            await self._tell(record, ENVIRONMENT_EXPIRED, about="", at_ms=record.expires_at * 1000 + 1)

    async def _tell(self, record: ContainerRecord, event_type: EventType, *, about: str, at_ms: int) -> None:
        """``about`` and ``at_ms`` are the same for every teller of one event. Deliveries are listed in the order of ``at_ms``."""
        if self._webhooks is None:
            return
        now = self._clock()
        mark = hashlib.sha256(f"{record.id} {event_type} {about}".encode()).hexdigest()
        event = WebhookEvent(f"evt_{at_ms:012x}{mark[:36]}", event_type, "", int(now), {"id": record.id})
        for endpoint in await self._webhooks.endpoints(record.tenant_id):
            if event_type in endpoint.event_types and not endpoint.is_disabled:
                await self._webhooks.add(delivery_of(event, endpoint, now))
