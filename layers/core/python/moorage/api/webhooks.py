"""``/v1/webhook_endpoints``: addresses that hear of the ends of background responses, and what was sent to them."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter

from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.listings import AnyPage
from moorage.egress.fetch import FetchError
from moorage.errors import webhook_not_answered, webhook_url_refused
from moorage.loop.webhooks import new_secret, send_sample
from moorage.runtime import Runtime
from moorage.store.webhooks import Delivery, Endpoint
from moorage.wire.queries import PageQuery
from moorage.wire.responses import deleted, list_object
from moorage.wire.webhooks import (
    EVENT_TYPES,
    CreateWebhookEndpoint,
    RotateWebhookSecret,
    SendTestEvent,
    UpdateWebhookEndpoint,
)

router = APIRouter()


@router.get("/webhook_event_types")
async def event_types(caller: Caller) -> dict[str, Any]:
    return {"object": "list", "data": list(EVENT_TYPES)}


@router.post("/webhook_endpoints")
async def create(caller: Caller, wanted: Annotated[CreateWebhookEndpoint, body_of(CreateWebhookEndpoint)]) -> dict[str, Any]:
    _check(caller.runtime, wanted.url)
    secret = new_secret()
    made = await caller.runtime.webhooks.create(
        caller.tenant_id, name=wanted.name, url=wanted.url, event_types=wanted.event_types, secret=secret
    )
    return as_object(made) | {"signing_secret": secret}


@router.get("/webhook_endpoints")
async def list_endpoints(caller: Caller, page: AnyPage) -> dict[str, Any]:
    found = _beyond(await caller.runtime.webhooks.endpoints(caller.tenant_id), page)
    return list_object([as_object(endpoint) for endpoint in found[: page.limit]], has_more=len(found) > page.limit)


def _beyond(endpoints: list[Endpoint], page: PageQuery) -> list[Endpoint]:
    """Ids begin with the time, so that one that was deleted meanwhile still marks its place."""
    if page.order == "asc":
        return [each for each in reversed(endpoints) if page.after is None or each.id > page.after]
    return [each for each in endpoints if page.after is None or each.id < page.after]


@router.get("/webhook_endpoints/{webhook_endpoint_id}")
async def retrieve(caller: Caller, webhook_endpoint_id: str) -> dict[str, Any]:
    return as_object(await caller.runtime.webhooks.get(caller.tenant_id, webhook_endpoint_id))


@router.post("/webhook_endpoints/{webhook_endpoint_id}")
async def update(
    caller: Caller, webhook_endpoint_id: str, wanted: Annotated[UpdateWebhookEndpoint, body_of(UpdateWebhookEndpoint)]
) -> dict[str, Any]:
    endpoint = await caller.runtime.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    if wanted.url is not None:
        _check(caller.runtime, wanted.url)
    types = None if wanted.event_types is None else tuple(dict.fromkeys(wanted.event_types))
    changes = {"name": wanted.name, "url": wanted.url, "event_types": types}
    said = {name: value for name, value in changes.items() if value is not None}
    return as_object(await caller.runtime.webhooks.update(endpoint, said))


@router.delete("/webhook_endpoints/{webhook_endpoint_id}")
async def delete(caller: Caller, webhook_endpoint_id: str) -> dict[str, Any]:
    await caller.runtime.webhooks.delete(await caller.runtime.webhooks.get(caller.tenant_id, webhook_endpoint_id))
    return deleted(webhook_endpoint_id, "webhook_endpoint.deleted")


@router.post("/webhook_endpoints/{webhook_endpoint_id}/rotate_secret")
async def rotate_secret(
    caller: Caller, webhook_endpoint_id: str, wanted: Annotated[RotateWebhookSecret, body_of(RotateWebhookSecret)]
) -> dict[str, Any]:
    endpoint = await caller.runtime.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    secret = new_secret()
    rotated = await caller.runtime.webhooks.rotate(endpoint, secret, is_old_kept=wanted.keep_old_secret_active_for_24_hours)
    return as_object(rotated) | {"signing_secret": secret}


@router.post("/webhook_endpoints/{webhook_endpoint_id}/test")
async def test(caller: Caller, webhook_endpoint_id: str, wanted: Annotated[SendTestEvent, body_of(SendTestEvent)]) -> dict[str, Any]:
    """Whatever status the endpoint answers is an answer; none at all is an error."""
    endpoint = await caller.runtime.webhooks.get(caller.tenant_id, webhook_endpoint_id)
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


@router.get("/webhook_endpoints/{webhook_endpoint_id}/deliveries")
async def deliveries(caller: Caller, webhook_endpoint_id: str, page: AnyPage) -> dict[str, Any]:
    endpoint = await caller.runtime.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    found, has_more = await caller.runtime.webhooks.page(endpoint, page)
    return list_object([delivery_as_object(delivery) for delivery in found], has_more=has_more)


@router.post("/webhook_endpoints/{webhook_endpoint_id}/deliveries/{event_id}/redeliver")
async def redeliver(caller: Caller, webhook_endpoint_id: str, event_id: str) -> dict[str, Any]:
    """It is due at once: within seconds on one machine, within a minute on AWS."""
    endpoint = await caller.runtime.webhooks.get(caller.tenant_id, webhook_endpoint_id)
    return delivery_as_object(await caller.runtime.webhooks.redeliver(endpoint, event_id))


def _check(runtime: Runtime, url: str) -> None:
    try:
        runtime.fetcher.check(url)
    except FetchError as error:
        raise webhook_url_refused(str(error)) from error


def as_object(endpoint: Endpoint) -> dict[str, Any]:
    """OpenAI's WebhookEndpoint, and how it does."""
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": list(endpoint.event_types),
        "created_at": endpoint.created_at_ms // 1000,
        "updated_at": endpoint.updated_at,
        "signing_secret_hint": endpoint.hint,
        "status": "disabled" if endpoint.is_disabled else "failing" if endpoint.failing_since else "active",
        "failing_since": endpoint.failing_since or None,
    }


def delivery_as_object(delivery: Delivery) -> dict[str, Any]:
    attempts = [asdict(attempt) for attempt in delivery.attempts]
    return {
        "id": delivery.id,
        "object": "webhook_endpoint.delivery",
        "webhook_endpoint_id": delivery.endpoint_id,
        "event_type": delivery.event_type,
        "response_id": delivery.response_id,
        "created_at": delivery.created_at,
        "status": delivery.status,
        "next_attempt_at": delivery.next_at if delivery.status == "pending" else None,
        "attempt_count": delivery.count,
        "attempts": [{"at": attempt.pop("at_ms"), **attempt} for attempt in attempts],
    }
