"""What webhook endpoints are told of sessions: that one began, works, waits for its client, rests, or cannot go on.

The id of an event follows from what it tells of, so that to tell it again adds nothing. What follows from the end of a response is told
while the loop still owes that end to others (``webhooks/delivery.py``): at least once, whatever dies. Beginnings are told by whoever
makes them.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from moorage.agents.session_store import SessionRecord
from moorage.runtime import Runtime
from moorage.webhooks import delivery
from moorage.webhooks.event_types import EventType
from moorage.webhooks.store import WebhookEvent


async def tell_endpoints(
    runtime: Runtime,
    session: SessionRecord,
    event_type: EventType,
    *,
    about: str,
    at_ms: int,
    response_id: str = "",
    data: Mapping[str, Any] | None = None,
) -> None:
    """Tell those that ask for it. ``about`` and ``at_ms`` are the same whoever tells of the same. ``data`` stands in the place of what
    events say of a session's environment. Harmless to run twice."""
    endpoints = [each for each in await runtime.stores.webhooks.endpoints(session.tenant_id) if event_type in each.event_types]
    if not endpoints:
        return
    mark = hashlib.sha256(f"{session.id} {event_type} {about}".encode()).hexdigest()
    event = WebhookEvent(
        f"evt_{at_ms:012x}{mark[:36]}",
        event_type,
        response_id,
        at_ms // 1000,
        {"id": session.id, **(_environment(session) if data is None else data)},
        session_id=session.id,
    )
    await delivery.tell_endpoints(runtime, endpoints, event)


def _environment(session: SessionRecord) -> Mapping[str, Any]:
    if session.container_id is None:
        return {"environment_type": "none"}
    return {"environment_type": "openai_hosted", "environment_id": session.container_id}
