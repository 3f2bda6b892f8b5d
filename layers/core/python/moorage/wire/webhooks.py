"""Webhook endpoints: their bodies, and their routes as the OpenAPI document tells of them."""

from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from moorage import limits
from moorage.wire.route import AFTER, JSON, PAGE, STRING, Route, deleted, envelope, limit, nullable, record, ref
from moorage.wire.schema import JsonSchema
from moorage.wire.validation import Body, Length

EventType = Literal["response.completed", "response.failed", "response.cancelled", "response.incomplete", "moorage.approval.requested"]
EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)
"""Those of OpenAI's that anything here can come to, and one of ours: an endpoint gets it that names it."""
APPROVAL_REQUESTED: Final[EventType] = "moorage.approval.requested"

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


_TIME: Final[JsonSchema] = {"type": "integer", "description": "Unix seconds"}
_MILLISECONDS: Final[JsonSchema] = {"type": "integer", "description": "Unix milliseconds"}
_COUNT: Final[JsonSchema] = {"type": "integer", "minimum": 0}
_TYPE: Final[JsonSchema] = {"type": "string", "enum": list(EVENT_TYPES)}

_FIELDS: Final[dict[str, JsonSchema]] = {
    "id": STRING,
    "object": {"const": "webhook_endpoint"},
    "name": STRING,
    "url": STRING,
    "event_types": {"type": "array", "items": _TYPE},
    "created_at": _TIME,
    "updated_at": _TIME,
    "signing_secret_hint": STRING,
    "status": {"type": "string", "enum": ["active", "failing", "disabled"]},
    "failing_since": nullable(_TIME),
}
_ENDPOINT: Final = record(**_FIELDS)
_WITH_SECRET: Final = record(**_FIELDS, signing_secret=STRING)

_ATTEMPT: Final = record(at=_MILLISECONDS, duration_ms=_COUNT, status_code=nullable(_COUNT), error=nullable(STRING))

_DELIVERY: Final = record(
    id=STRING,
    object={"const": "webhook_endpoint.delivery"},
    webhook_endpoint_id=STRING,
    event_type=_TYPE,
    response_id=STRING,
    created_at=_TIME,
    status={"type": "string", "enum": ["pending", "delivered", "failed"]},
    next_attempt_at=nullable(_TIME),
    attempt_count=_COUNT,
    attempts={"type": "array", "items": _ATTEMPT},
)

_TESTED: Final = record(
    object={"const": "webhook_endpoint.test"},
    webhook_endpoint_id=STRING,
    event_type=_TYPE,
    status_code=_COUNT,
    success={"const": True},
)

_ONE: Final = "/v1/webhook_endpoints/{webhook_endpoint_id}"

WEBHOOK_ROUTES: Final = (
    Route(
        "get",
        "/v1/webhook_event_types",
        "listWebhookEventTypes",
        "What endpoints can ask for",
        {JSON: record(object={"const": "list"}, data={"type": "array", "items": _TYPE})},
    ),
    Route(
        "post",
        "/v1/webhook_endpoints",
        "createWebhookEndpoint",
        "Have events sent to an address; the answer holds the secret that signs them",
        {JSON: _WITH_SECRET},
        {JSON: ref("CreateWebhookEndpoint")},
    ),
    Route(
        "get",
        "/v1/webhook_endpoints",
        "listWebhookEndpoints",
        "All webhook endpoints, newest first",
        {JSON: envelope(_ENDPOINT)},
        query=(limit(), AFTER),
    ),
    Route("get", _ONE, "retrieveWebhookEndpoint", "A webhook endpoint", {JSON: _ENDPOINT}),
    Route("post", _ONE, "updateWebhookEndpoint", "Change a webhook endpoint", {JSON: _ENDPOINT}, {JSON: ref("UpdateWebhookEndpoint")}),
    Route("delete", _ONE, "deleteWebhookEndpoint", "Send it nothing more", {JSON: deleted("webhook_endpoint.deleted")}),
    Route(
        "post",
        f"{_ONE}/rotate_secret",
        "rotateWebhookSecret",
        "Another signing secret",
        {JSON: _WITH_SECRET},
        {JSON: ref("RotateWebhookSecret")},
    ),
    Route(
        "post",
        f"{_ONE}/test",
        "testWebhookEndpoint",
        "Send it a sample event now",
        {JSON: _TESTED},
        {JSON: ref("SendTestEvent")},
    ),
    Route(
        "get",
        f"{_ONE}/deliveries",
        "listWebhookDeliveries",
        "What was sent to it, with each attempt, newest first",
        {JSON: envelope(_DELIVERY)},
        query=PAGE,
    ),
    Route(
        "post",
        f"{_ONE}/deliveries/{{event_id}}/redeliver",
        "redeliverWebhookEvent",
        "Send it an event again",
        {JSON: _DELIVERY},
    ),
)
"""OpenAI's, and the deliveries, which are an extension of ours."""


_APPROVAL: Final = record(id={"type": "string", "description": "Of the approval"}, response_id=STRING)


def _received(event_type: str) -> JsonSchema:
    """What an endpoint is sent, as OpenAPI tells of requests that go the other way."""
    event = record(
        id=STRING,
        object={"const": "event"},
        created_at=_TIME,
        type={"const": event_type},
        data=_APPROVAL if event_type == APPROVAL_REQUESTED else record(id={"type": "string", "description": "Of the response"}),
    )
    headers = ("webhook-id", "webhook-timestamp", "webhook-signature")
    return {
        "post": {
            "summary": "A person's word is wanted" if event_type == APPROVAL_REQUESTED else "A background response has ended",
            "parameters": [{"name": name, "in": "header", "required": True, "schema": STRING} for name in headers],
            "requestBody": {"required": True, "content": {JSON: {"schema": event}}},
            "responses": {"2XX": {"description": "Taken. After anything else it is sent again."}},
        }
    }


RECEIVED: Final = {event_type.replace(".", "_"): _received(event_type) for event_type in EVENT_TYPES}
