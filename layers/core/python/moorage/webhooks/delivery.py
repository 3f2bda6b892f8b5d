"""Telling endpoints of the ends of background responses, at least once each; and of a person's word that one waits for, likewise,
before it stands still (``approvals.py: announce``).

The loop owes a response its end until the record says that nothing is owed (``store/responses.py: settle``), and before that is said
the end is announced: each endpoint that asks for it gets a delivery, under an id that follows from the response and its final event, so
that announcing twice adds nothing. A process that dies in between leaves the response on the loop's list, and the reaper announces it.
From then on the delivery itself is on a list, by its due time. The announcing process makes the first attempt at once, beside its own
work. The reaper calls :func:`deliver_due` for all later ones, until one succeeds or three days are over.

Bodies are signed as Standard Webhooks has it, by each attempt anew: receivers refuse a signature that is five minutes old.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final

from moorage import __version__, limits
from moorage.dataclass import dataclass
from moorage.egress.fetch import FetchError
from moorage.errors import passing_over_what_is_gone
from moorage.ids import event_id, new_id
from moorage.parallel import side_by_side
from moorage.runtime import Runtime
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores
from moorage.telemetry import tell, tell_error
from moorage.webhooks.event_types import APPROVAL_REQUESTED, ENVIRONMENT_TYPES, SESSION_ACTION_REQUIRED, SESSION_TYPES
from moorage.webhooks.store import Delivery, DeliveryAttempt, Endpoint, WebhookEvent, body_of, claimed, delivery_of

SECRET_PREFIX: Final = "whsec_"  # noqa: S105
_USER_AGENT: Final = f"moorage/{__version__}"


@dataclass(frozen=True, slots=True)
class ResponseEnd:
    """How a response ended, as its final batch says."""

    status: str
    at_ms: int
    """The batch's time in the log."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "ResponseEnd":
        assert snapshot.last is not None
        assert snapshot.is_final, f"{snapshot.stored.response_id} is announced before its end"
        return cls(snapshot.final_object["status"], snapshot.last.at_ms)


async def settle(runtime: Runtime, stored: StoredResponse, end: ResponseEnd | None = None) -> None:
    """The response has ended: announce it to its endpoints, then the loop owes it nothing more. Harmless to run twice."""
    await announce(runtime, stored, end)
    if stored.session_id is not None:
        assert runtime.sessions is not None, "this process ends responses, and hears of no session"
        await runtime.sessions.end(stored)
    await runtime.stores.responses.settle(stored)


async def announce(runtime: Runtime, stored: StoredResponse, end: ResponseEnd | None = None) -> None:
    """Without ``end`` the response is read for it. One query if there is no endpoint, and nothing at all of a response in the
    foreground, or one that was announced before."""
    if not (stored.is_background and stored.is_owed):
        return
    endpoints = await runtime.stores.webhooks.endpoints(stored.tenant_id)
    if not any(not endpoint.is_disabled for endpoint in endpoints):
        return
    with passing_over_what_is_gone():  # Deleted meanwhile: whoever deletes a response announces it first.
        if end is None:
            end = ResponseEnd.of(await runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id))
        await _announce(runtime, stored.response_id, end, endpoints)


async def _announce(runtime: Runtime, response_id: str, end: ResponseEnd, endpoints: Sequence[Endpoint]) -> None:
    event_name, ended_at = event_id(response_id, end.at_ms), end.at_ms // 1000
    event = WebhookEvent(event_name, f"response.{end.status}", response_id, ended_at, {"id": response_id})
    await tell_endpoints(runtime, endpoints, event)


async def tell_endpoints(runtime: Runtime, endpoints: Sequence[Endpoint], event: WebhookEvent) -> None:
    """A delivery for each that asks for events of the type. Harmless to run twice."""
    now = runtime.clock()
    for endpoint in endpoints:
        if event.type not in endpoint.event_types or endpoint.is_disabled:
            continue
        delivery = claimed(delivery_of(event, endpoint, now), now)
        if await runtime.stores.webhooks.add(delivery):
            runtime.process.keep(asyncio.create_task(_first(runtime, endpoint, delivery)))


async def _first(runtime: Runtime, endpoint: Endpoint, delivery: Delivery) -> None:
    """It runs beside its caller, and no failure here may hinder that: the delivery is due again when its lease is over."""
    try:
        await _deliver(runtime, endpoint, delivery)
    except Exception as error:
        tell_error(error, "a webhook was left for later", tenant_id=endpoint.tenant_id, endpoint_id=endpoint.id)


async def deliver_due(runtime: Runtime) -> int:
    """Make the due attempts; returns their number. Harmless to run twice at once: one of the two makes each."""
    work = _Round(runtime, until=time.monotonic() + limits.WEBHOOK_ROUND_SECONDS_MAX)
    while await work.go_on():
        pass
    return work.attempts


@dataclass(slots=True)
class _Round:
    runtime: Runtime
    until: float
    attempts: int = 0
    moved: int = 0
    """Deliveries that are not due any more."""
    resting: dict[str, int] = field(default_factory=dict)
    """Endpoints that did not answer, and after how many seconds what is due at them is due again."""

    async def go_on(self) -> bool:
        """The longest due deliveries; False if there is no more to do, or no more time for it."""
        queues: dict[tuple[str, str], list[Delivery]] = {}
        for delivery in await self.runtime.stores.webhooks.due(self.runtime.clock()):
            queues.setdefault((delivery.tenant_id, delivery.endpoint_id), []).append(delivery)
        before = self.moved
        await side_by_side(self._drain, queues.values(), at_once=limits.WEBHOOK_ENDPOINTS_AT_ONCE)
        return self.moved > before and not self._is_over

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self.until

    async def _drain(self, due: list[Delivery]) -> None:
        """The due deliveries of one endpoint.

        If time runs out or the endpoint does not answer, the others are put off: they would wait as long, and keep other endpoints
        waiting.
        """
        endpoint = await self.runtime.stores.webhooks.find(due[0].tenant_id, due[0].endpoint_id)
        if endpoint is None:  # It was deleted, and nobody asks for these any more.
            await self._each(self.runtime.stores.webhooks.drop, due)
            return
        wanted, rest = due[: limits.WEBHOOK_ATTEMPTS_MAX], due[limits.WEBHOOK_ATTEMPTS_MAX :]
        while wanted and endpoint.id not in self.resting and not self._is_over:
            group, wanted = wanted[: limits.WEBHOOK_ATTEMPTS_AT_ONCE], wanted[limits.WEBHOOK_ATTEMPTS_AT_ONCE :]
            made = await asyncio.gather(*(self._take(endpoint, each) for each in group))
            self.moved += len(group)
            if any(attempt is not None and attempt.status_code is None for attempt in made):
                self.resting[endpoint.id] = pause(max(each.count for each in group) + 1)
        later = self.resting.get(endpoint.id, limits.WEBHOOK_PAUSE_SECONDS_MIN)
        await self._each(partial(self.runtime.stores.webhooks.postpone, seconds=later), [*wanted, *rest])

    async def _each(self, work: Callable[[Delivery], Awaitable[object]], deliveries: Sequence[Delivery]) -> None:
        await side_by_side(work, deliveries, at_once=limits.WEBHOOK_ATTEMPTS_AT_ONCE)
        self.moved += len(deliveries)

    async def _take(self, endpoint: Endpoint, delivery: Delivery) -> DeliveryAttempt | None:
        """None if somebody else has taken it up."""
        mine = await self.runtime.stores.webhooks.postpone(delivery, limits.WEBHOOK_LEASE_SECONDS)
        if mine is None:
            return None
        self.attempts += 1
        return await _deliver(self.runtime, endpoint, mine)


async def _deliver(runtime: Runtime, endpoint: Endpoint, delivery: Delivery) -> DeliveryAttempt:
    """One attempt, and its result."""
    attempt = await _attempt(runtime, endpoint, delivery.id, delivery.body)
    now, count = int(runtime.clock()), delivery.count + 1
    seconds: int | None = pause(count)
    if attempt.has_succeeded or now + pause(count) > delivery.began_at + limits.WEBHOOK_RETRY_SECONDS:
        seconds = None
    await runtime.stores.webhooks.note_attempt(delivery, attempt, seconds)
    await note_health(runtime.stores, endpoint, attempt)
    tell(
        "webhook",
        {
            "tenant_id": endpoint.tenant_id,
            "response_id": delivery.response_id or None,
            "session_id": delivery.session_id or None,
            "endpoint_id": endpoint.id,
            "event_id": delivery.id,
            "attempt": count,
            "status": attempt.status_code,
            "duration_ms": attempt.duration_ms,
            "delivered": attempt.has_succeeded,
            "gave_up": True if seconds is None and not attempt.has_succeeded else None,
        },
    )
    return attempt


async def note_health(stores: Stores, endpoint: Endpoint, attempt: DeliveryAttempt) -> None:
    if attempt.has_succeeded:
        await stores.webhooks.note_success(endpoint)
    else:
        await stores.webhooks.note_failure(endpoint)


async def send_sample(runtime: Runtime, endpoint: Endpoint, event_type: str) -> DeliveryAttempt:
    """An event that tells of nothing, sent once, now."""
    identity = new_id("evt")
    nobody = "0" * 48
    data: dict[str, Any] = {"id": f"resp_{nobody}"}
    if event_type == APPROVAL_REQUESTED:
        data = {"id": f"apr_{nobody}", "response_id": f"resp_{nobody}"}
    elif event_type == SESSION_ACTION_REQUIRED:
        data = {"id": f"session_{nobody}", "required_action": {"type": "function_call"}}
    elif event_type in SESSION_TYPES:
        data = {"id": f"session_{nobody}", "environment_type": "none"}
    elif event_type in ENVIRONMENT_TYPES:
        data = {"id": f"cntr_{nobody}"}
    body = body_of(identity, event_type, data, int(runtime.clock()))
    attempt = await _attempt(runtime, endpoint, identity, body)
    if attempt.has_succeeded:
        await runtime.stores.webhooks.note_success(endpoint)
    return attempt


async def _attempt(runtime: Runtime, endpoint: Endpoint, identity: str, body: bytes) -> DeliveryAttempt:
    at, began = runtime.clock(), time.perf_counter()
    status_code: int | None = None
    error: str | None = None
    try:
        if not (keys := runtime.stores.webhooks.secrets(endpoint)):
            raise FetchError("its secret cannot be read any more: rotate it")
        headers = signed_headers(identity, int(at), body, keys)
        status_code = await runtime.fetcher.post(endpoint.url, body, headers, seconds=limits.WEBHOOK_SECONDS_MAX)
    except FetchError as refusal:
        error = str(refusal)
    return DeliveryAttempt(int(at * 1000), round((time.perf_counter() - began) * 1000), status_code, error)


def pause(count: int) -> int:
    """Seconds after so many attempts."""
    grown: int = limits.WEBHOOK_PAUSE_SECONDS_MIN * limits.WEBHOOK_PAUSE_GROWTH ** min(count - 1, 10)
    return min(grown, limits.WEBHOOK_PAUSE_SECONDS_MAX)


# --- What is sent ---------------------------------------------------------------------------------------------------------------


def new_secret() -> str:
    """256 random bits, as Standard Webhooks writes them."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signed_headers(identity: str, at: int, body: bytes, keys: Sequence[str]) -> Mapping[str, str]:
    """``keys``: a signature by each; any of them is enough."""
    signatures = " ".join(signature(key, identity, at, body) for key in keys)
    return {
        "content-type": "application/json",
        "user-agent": _USER_AGENT,
        "webhook-id": identity,
        "webhook-timestamp": str(at),
        "webhook-signature": signatures,
    }


def signature(key: str, identity: str, at: int, body: bytes) -> str:
    """https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md, "Signature scheme"."""
    told = f"{identity}.{at}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(base64.b64decode(key.removeprefix(SECRET_PREFIX)), told, hashlib.sha256)).decode()
