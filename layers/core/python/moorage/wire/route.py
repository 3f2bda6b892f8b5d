"""One route as the OpenAPI document tells of it, and what such descriptions are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from moorage import limits
from moorage.wire.schema import COMPONENTS, JsonSchema
from moorage.wire.types import INCLUDABLE

Method = Literal["get", "post", "delete"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
BINARY: Final = "application/octet-stream"
FORM: Final = "multipart/form-data"


def ref(name: str) -> JsonSchema:
    return {"$ref": COMPONENTS + name}


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: what it takes and what it answers when all goes well."""

    method: Method
    path: str
    operation_id: str
    summary: str
    answers: Mapping[str, JsonSchema]
    """Schema by media type; none where success is not an HTTP answer."""
    body: Mapping[str, JsonSchema] = field(default_factory=dict)
    """Schema by media type; none for a request without a body."""
    query: tuple[tuple[str, JsonSchema], ...] = ()
    also: tuple[int, ...] = ()
    """Statuses beside 200 and those that every route of its kind has."""

    def to_json(self) -> JsonSchema:
        operation: JsonSchema = {
            "operationId": self.operation_id,
            "summary": self.summary,
            "tags": [self.path.split("/")[2]],
            "parameters": [*self._path_parameters(), *self._query_parameters()],
            "responses": {str(status): self._answer(status) for status in self._statuses()},
        }
        if self.body:
            content = {media_type: {"schema": schema} for media_type, schema in self.body.items()}
            operation["requestBody"] = {"required": True, "content": content}
        return operation

    def _names(self) -> list[str]:
        return [part.strip("{}") for part in self.path.split("/") if part.startswith("{")]

    def _path_parameters(self) -> list[JsonSchema]:
        return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in self._names()]

    def _query_parameters(self) -> list[JsonSchema]:
        return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in self.query]

    def _statuses(self) -> list[int]:
        statuses = {400, 401, 429, 500, *self.also}
        if self.method == "post":
            statuses.add(409)  # Of idempotency keys.
        if self.answers:
            statuses.add(200)
        if self._names():
            statuses.add(404)
        if self.body:
            statuses |= {413, 415}
        return sorted(statuses)

    def _answer(self, status: int) -> JsonSchema:
        if status in (200, 206):
            content = {media_type: {"schema": schema} for media_type, schema in self.answers.items()}
            return {"description": "OK", "content": content}
        if status == 101:
            return {"description": "A WebSocket: frames are `response.create` requests and the events of their responses."}
        if status == 302:
            return {"description": "The content lies behind this address.", "headers": {"location": {"schema": {"type": "string"}}}}
        return {"$ref": "#/components/responses/Error"}


# --- Pieces ------------------------------------------------------------------------------------------------------------

STRING: Final[JsonSchema] = {"type": "string"}
BOOLEAN: Final[JsonSchema] = {"type": "boolean"}


def nullable(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, {"type": "null"}]}


def record(**properties: JsonSchema) -> JsonSchema:
    """An answer: every field is always there, and more may come with a new version."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def envelope(schema: JsonSchema) -> JsonSchema:
    return record(
        object={"const": "list"},
        data={"type": "array", "items": schema},
        first_id=nullable(STRING),
        last_id=nullable(STRING),
        has_more=BOOLEAN,
    )


def list_of(name: str) -> JsonSchema:
    return envelope(ref(name))


def deleted(kind: str) -> JsonSchema:
    return record(id=STRING, object={"const": kind}, deleted={"const": True})


ORDER: Final = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"})
AFTER: Final = ("after", STRING)
INCLUDE: Final = ("include[]", {"type": "array", "items": {"type": "string", "enum": list(INCLUDABLE)}})


def limit(maximum: int = limits.PAGE_ITEMS_MAX, default: int = limits.PAGE_ITEMS_DEFAULT) -> tuple[str, JsonSchema]:
    return ("limit", {"type": "integer", "minimum": 1, "maximum": maximum, "default": default})


PAGE: Final = (limit(), ORDER, AFTER)
