"""Webhook endpoints: their bodies and answers, and what is sent to them."""

from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.webhooks.event_types import (
    APPROVAL_REQUESTED,
    ENVIRONMENT_TYPES,
    EVENT_TYPES,
    SESSION_ACTION_REQUIRED,
    SESSION_TYPES,
    EventType,
)
from moorage.wire.answers import Count, Milliseconds, Seconds
from moorage.wire.schema import JSON, SECONDS, STRING, JsonSchema, record
from moorage.wire.validation import Body, Length

_Name = Annotated[str, Field(min_length=1, max_length=limits.WEBHOOK_NAME_CHARS_MAX)]
_Url = Annotated[str, Field(min_length=1, max_length=limits.WEBHOOK_URL_CHARS_MAX)]
_EventTypes = Annotated[list[EventType], Length(len(EVENT_TYPES), minimum=1)]


class CreateWebhookEndpoint(Body):
    """``POST /v1/webhook_endpoints``."""

    name: _Name
    url: _Url
    event_types: _EventTypes


class UpdateWebhookEndpoint(Body):
    """``POST /v1/webhook_endpoints/{webhook_endpoint_id}``; what is left out stays as it is."""

    name: _Name | None = None
    url: _Url | None = None
    event_types: _EventTypes | None = None


class RotateWebhookSecret(Body):
    """``POST /v1/webhook_endpoints/{webhook_endpoint_id}/rotate_secret``."""

    keep_old_secret_active_for_24_hours: bool = False


class SendTestEvent(Body):
    """``POST /v1/webhook_endpoints/{webhook_endpoint_id}/test``."""

    event_type: EventType


class WebhookEventTypes(TypedDict):
    object: Literal["list"]
    data: list[EventType]


class WebhookEndpoint(TypedDict):
    """OpenAI's, and how it does."""

    id: str
    object: Literal["webhook_endpoint"]
    name: str
    url: str
    event_types: list[EventType]
    created_at: Seconds
    updated_at: Seconds
    signing_secret_hint: str
    status: Literal["active", "failing", "disabled"]
    failing_since: Seconds | None


class WebhookEndpointWithSecret(WebhookEndpoint):
    signing_secret: str


class WebhookAttempt(TypedDict):
    at: Milliseconds
    duration_ms: Count
    status_code: Count | None
    error: str | None


class WebhookDelivery(TypedDict):
    """An extension of ours."""

    id: str
    object: Literal["webhook_endpoint.delivery"]
    webhook_endpoint_id: str
    event_type: EventType
    response_id: str | None
    session_id: str | None
    """Of an agent, where the event tells of one."""
    created_at: Seconds
    status: Literal["pending", "delivered", "failed"]
    next_attempt_at: Seconds | None
    attempt_count: Count
    attempts: list[WebhookAttempt]


class WebhookTest(TypedDict):
    object: Literal["webhook_endpoint.test"]
    webhook_endpoint_id: str
    event_type: EventType
    status_code: Count
    success: Literal[True]


def _of(what: str) -> JsonSchema:
    return {"type": "string", "description": f"Of the {what}"}


def _told(event_type: str) -> tuple[str, JsonSchema]:
    """What an event says, in a line, and its data."""
    if event_type == APPROVAL_REQUESTED:
        return "A person's word is wanted", record(id=_of("approval"), response_id=STRING)
    if event_type == SESSION_ACTION_REQUIRED:
        return "A session waits for its client, or for a person", record(id=_of("session"), required_action=record(type=STRING))
    if event_type in SESSION_TYPES:
        data = record(id=_of("session"), environment_type=STRING)
        data["properties"]["environment_id"] = STRING  # None of a session without one.
        return f"A session is {event_type.rpartition('.')[2].replace('_', ' ')}", data
    if event_type in ENVIRONMENT_TYPES:
        return f"An environment is {event_type.rpartition('.')[2]}", record(id=_of("environment"))
    return "A background response has ended", record(id=_of("response"))


def _received(event_type: str) -> JsonSchema:
    """What an endpoint is sent, as OpenAPI tells of requests that go the other way."""
    summary, data = _told(event_type)
    event = record(id=STRING, object={"const": "event"}, created_at=SECONDS, type={"const": event_type}, data=data)
    headers = ("webhook-id", "webhook-timestamp", "webhook-signature")
    return {
        "post": {
            "summary": summary,
            "parameters": [{"name": name, "in": "header", "required": True, "schema": STRING} for name in headers],
            "requestBody": {"required": True, "content": {JSON: {"schema": event}}},
            "responses": {"2XX": {"description": "Taken. After anything else it is sent again."}},
        }
    }


RECEIVED: Final = {event_type.replace(".", "_"): _received(event_type) for event_type in EVENT_TYPES}
