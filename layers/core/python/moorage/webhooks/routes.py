"""``/v1/webhook_endpoints``: addresses that hear of background responses and of sessions of agents, and what was sent to them."""

from typing import Annotated, Literal, cast

from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.queries import AnyPage
from moorage.api.routing import Router
from moorage.egress.fetch import Fetcher, FetchError
from moorage.errors import webhook_not_answered, webhook_url_refused
from moorage.ids import is_webhook_endpoint_id
from moorage.store.audit import AuditKind
from moorage.store.listing import Page, unknown_after
from moorage.stores import Stores
from moorage.webhooks.delivery import new_secret, send_sample
from moorage.webhooks.event_types import EVENT_TYPES, EventType
from moorage.webhooks.shapes import (
    CreateWebhookEndpoint,
    RotateWebhookSecret,
    SendTestEvent,
    UpdateWebhookEndpoint,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEndpointWithSecret,
    WebhookEventTypes,
    WebhookTest,
)
from moorage.webhooks.store import Delivery, Endpoint
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.queries import PageQuery
from moorage.wire.responses import deleted

router = Router()


@router.get("/webhook_event_types", "listWebhookEventTypes", "What endpoints can ask for")
async def event_types(caller: Caller) -> WebhookEventTypes:
    return {"object": "list", "data": list(EVENT_TYPES)}


@router.post(
    "/webhook_endpoints", "createWebhookEndpoint", "Have events sent to an address; the answer holds the secret that signs them"
)
async def create(caller: Caller, wanted: Annotated[CreateWebhookEndpoint, body_of(CreateWebhookEndpoint)]) -> WebhookEndpointWithSecret:
    _check(caller.runtime.fetcher, wanted.url)
    secret = new_secret()
    made = await caller.runtime.stores.webhooks.create(
        caller.tenant_id, name=wanted.name, url=wanted.url, event_types=wanted.event_types, secret=secret
    )
    await _noted(caller.runtime.stores, made.id, "made")
    return {**as_object(made), "signing_secret": secret}


@router.get("/webhook_endpoints", "listWebhookEndpoints", "All webhook endpoints, newest first")
async def list_endpoints(caller: Caller, page: AnyPage) -> ListOf[WebhookEndpoint]:
    found = _beyond(await caller.runtime.stores.webhooks.endpoints(caller.tenant_id), page)
    return Page.of(found, page.limit).shown(as_object)


def _beyond(endpoints: list[Endpoint], page: PageQuery) -> list[Endpoint]:
    """Ids begin with the time, so that one that was deleted meanwhile still marks its place. Raises an
    :class:`~moorage.errors.ApiError` for what is no id of an endpoint."""
    if page.after is not None and not is_webhook_endpoint_id(page.after):
        raise unknown_after(page.after)
    if page.order == "asc":
        return [each for each in reversed(endpoints) if page.after is None or each.id > page.after]
    return [each for each in endpoints if page.after is None or each.id < page.after]


@router.get("/webhook_endpoints/{webhook_endpoint_id}", "retrieveWebhookEndpoint", "A webhook endpoint")
async def retrieve(caller: Caller, webhook_endpoint_id: str) -> WebhookEndpoint:
    return as_object(await caller.runtime.stores.webhooks.get(caller.tenant_id, webhook_endpoint_id))


@router.post("/webhook_endpoints/{webhook_endpoint_id}", "updateWebhookEndpoint", "Change a webhook endpoint")
async def update(
    caller: Caller, webhook_endpoint_id: str, wanted: Annotated[UpdateWebhookEndpoint, body_of(UpdateWebhookEndpoint)]
) -> WebhookEndpoint:
    endpoint = await caller.runtime.stores.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    if wanted.url is not None:
        _check(caller.runtime.fetcher, wanted.url)
    types = None if wanted.event_types is None else tuple(dict.fromkeys(wanted.event_types))
    changes = {"name": wanted.name, "url": wanted.url, "event_types": types}
    said = {name: value for name, value in changes.items() if value is not None}
    changed = await caller.runtime.stores.webhooks.update(endpoint, said)
    await _noted(caller.runtime.stores, endpoint.id, "changed")
    return as_object(changed)


@router.delete("/webhook_endpoints/{webhook_endpoint_id}", "deleteWebhookEndpoint", "Send it nothing more")
async def delete(caller: Caller, webhook_endpoint_id: str) -> Deleted[Literal["webhook_endpoint.deleted"]]:
    await caller.runtime.stores.webhooks.delete(await caller.runtime.stores.webhooks.get(caller.tenant_id, webhook_endpoint_id))
    await _noted(caller.runtime.stores, webhook_endpoint_id, "deleted")
    return deleted(webhook_endpoint_id, "webhook_endpoint.deleted")


@router.post("/webhook_endpoints/{webhook_endpoint_id}/rotate_secret", "rotateWebhookSecret", "Another signing secret")
async def rotate_secret(
    caller: Caller, webhook_endpoint_id: str, wanted: Annotated[RotateWebhookSecret, body_of(RotateWebhookSecret)]
) -> WebhookEndpointWithSecret:
    endpoint = await caller.runtime.stores.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    secret = new_secret()
    rotated = await caller.runtime.stores.webhooks.rotate(endpoint, secret, is_old_kept=wanted.keep_old_secret_active_for_24_hours)
    await _noted(caller.runtime.stores, endpoint.id, "given another secret")
    return {**as_object(rotated), "signing_secret": secret}


@router.post("/webhook_endpoints/{webhook_endpoint_id}/test", "testWebhookEndpoint", "Send it a sample event now")
async def test(caller: Caller, webhook_endpoint_id: str, wanted: Annotated[SendTestEvent, body_of(SendTestEvent)]) -> WebhookTest:
    """Whatever status the endpoint answers is an answer; none at all is an error."""
    endpoint = await caller.runtime.stores.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    attempt = await send_sample(caller.runtime, endpoint, wanted.event_type)
    if attempt.status_code is None:
        raise webhook_not_answered(attempt.error or "it did not answer")
    return {
        "object": "webhook_endpoint.test",
        "webhook_endpoint_id": endpoint.id,
        "event_type": wanted.event_type,
        "status_code": attempt.status_code,
        "success": True,
    }


@router.get(
    "/webhook_endpoints/{webhook_endpoint_id}/deliveries",
    "listWebhookDeliveries",
    "What was sent to it, with each attempt, newest first",
)
async def deliveries(caller: Caller, webhook_endpoint_id: str, page: AnyPage) -> ListOf[WebhookDelivery]:
    endpoint = await caller.runtime.stores.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    return (await caller.runtime.stores.webhooks.page(endpoint, page)).shown(delivery_as_object)


@router.post(
    "/webhook_endpoints/{webhook_endpoint_id}/deliveries/{event_id}/redeliver", "redeliverWebhookEvent", "Send it an event again"
)
async def redeliver(caller: Caller, webhook_endpoint_id: str, event_id: str) -> WebhookDelivery:
    """It is due at once: within seconds on one machine, within a minute on AWS."""
    endpoint = await caller.runtime.stores.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    return delivery_as_object(await caller.runtime.stores.webhooks.redeliver(endpoint, event_id))


async def _noted(stores: Stores, endpoint_id: str, done: str) -> None:
    """Without its address, which may hold a secret."""
    await stores.audit.note(AuditKind.SETTING_CHANGED, {"setting": "webhook_endpoint", "id": endpoint_id, "done": done})


def _check(fetcher: Fetcher, url: str) -> None:
    try:
        fetcher.check(url)
    except FetchError as error:
        raise webhook_url_refused(str(error)) from error


def as_object(endpoint: Endpoint) -> WebhookEndpoint:
    """OpenAI's WebhookEndpoint, and how it does."""
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": cast("list[EventType]", list(endpoint.event_types)),
        "created_at": endpoint.created_at_ms // 1000,
        "updated_at": endpoint.updated_at,
        "signing_secret_hint": endpoint.hint,
        "status": "disabled" if endpoint.is_disabled else "failing" if endpoint.failing_since else "active",
        "failing_since": endpoint.failing_since or None,
    }


def delivery_as_object(delivery: Delivery) -> WebhookDelivery:
    return {
        "id": delivery.id,
        "object": "webhook_endpoint.delivery",
        "webhook_endpoint_id": delivery.endpoint_id,
        "event_type": cast("EventType", delivery.event_type),
        "response_id": delivery.response_id or None,
        "session_id": delivery.session_id or None,
        "created_at": delivery.created_at,
        "status": delivery.status,
        "next_attempt_at": delivery.next_at if delivery.status == "pending" else None,
        "attempt_count": delivery.count,
        "attempts": [
            {"at": each.at_ms, "duration_ms": each.duration_ms, "status_code": each.status_code, "error": each.error}
            for each in delivery.attempts
        ],
    }
