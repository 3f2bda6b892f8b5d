"""This service's own OpenAPI 3.1 document, served at ``/openapi.json``.

Everything in it comes from the routes: their paths, their handlers' bodies and answers, and what :class:`~moorage.api.routing.Router`
was told of them. Bodies and answers are the types that check and describe them, so the document cannot promise what is refused.
"""

from functools import cache
from typing import Any, Final, get_args, get_origin

from fastapi.routing import APIRoute

from moorage.api.routers import ROUTERS
from moorage.api.routing import EVENTS, Operation, body_model, method_of, operations_of, path_of, query_reader
from moorage.webhooks import shapes as webhooks
from moorage.wire import chat_schemas, tool_shapes
from moorage.wire.answers import Deleted, Error, Event, Item, ListOf
from moorage.wire.schema import BOOLEAN, JSON, STRING, JsonSchema, components, record, ref
from moorage.wire.validation import JsonValidator

FORM: Final = "multipart/form-data"


@cache
def document(version: str) -> JsonSchema:
    """The OpenAPI document; ``version`` is the package's. Made once: anybody may ask for it, without a key."""
    assert tool_shapes.TOOLS, "no room has declared its tool yet: import moorage.tools.registry first"
    paths: dict[str, JsonSchema] = {}
    types: dict[str, JsonValidator[Any]] = {kind.__name__: JsonValidator(kind) for kind in (Error, Event, Item)}
    for route, operation in operations_of(ROUTERS).values():
        paths.setdefault(path_of(route), {})[method_of(route).lower()] = _Description(route, operation, types).to_json()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "moorage",
            "version": version,
            "description": "A self-hosted Responses API with a computer.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": paths,
        "webhooks": webhooks.RECEIVED,
        "components": {
            "schemas": components(types) | chat_schemas.SCHEMAS,
            "responses": {
                "Error": {
                    "description": "Refused or failed; the error names the field where there is one.",
                    "headers": {"x-request-id": {"schema": {"type": "string"}}},
                    "content": {JSON: {"schema": ref("Error")}},
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Description:
    """One operation: its body and its answer on success. ``types`` gets the types of both."""

    def __init__(self, route: APIRoute, operation: Operation, types: dict[str, JsonValidator[Any]]) -> None:
        self._route = route
        self._operation = operation
        self._types = types
        self._path = path_of(route)
        self._method = method_of(route)

    def to_json(self) -> JsonSchema:
        body, answers = self._body(), self._answers()
        description: JsonSchema = {
            "operationId": self._route.operation_id,
            "summary": self._route.summary,
            "tags": [self._path.split("/")[2]],
            "parameters": [*self._path_parameters(), *self._query_parameters()],
            "responses": {str(status): _answer(status, answers) for status in self._statuses(has_body=bool(body), answers=answers)},
        }
        if body:
            description["requestBody"] = {"required": True, "content": _content(body)}
        return description

    def _names(self) -> list[str]:
        return [part.strip("{}") for part in self._path.split("/") if part.startswith("{")]

    def _path_parameters(self) -> list[JsonSchema]:
        return [{"name": name, "in": "path", "required": True, "schema": STRING} for name in self._names()]

    def _query_parameters(self) -> list[JsonSchema]:
        reader = query_reader(self._route)
        schemas = () if reader is None else reader.schemas
        return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in schemas]

    def _body(self) -> dict[str, JsonSchema]:
        """Schemas by media type; none of a request without a body."""
        content = {} if self._operation.form is None else {FORM: self._operation.form}
        match self._operation.body:
            case str(name):
                content[JSON] = ref(name)
            case (name, parser):
                self._types[name] = parser
                content[JSON] = ref(name)
            case None if (model := body_model(self._route)) is not None:
                content[JSON] = self._named(model)
        return content

    def _answers(self) -> dict[str, JsonSchema]:
        """Schemas by media type; none if success is not an HTTP answer."""
        answers = {} if self._operation.answers is None else {JSON: self._schema(self._operation.answers)}
        if self._operation.sends is not None:
            answers[self._operation.sends] = self._of_stream() if self._operation.sends == EVENTS else {}
        return answers

    def _of_stream(self) -> JsonSchema:
        return {"type": "object"} if isinstance(self._operation.answers, str) else ref("Event")

    def _schema(self, answer: Any) -> JsonSchema:
        if isinstance(answer, str):
            return ref(answer)
        if get_origin(answer) is ListOf:
            (one,) = get_args(answer)
            text = {"anyOf": [STRING, {"type": "null"}]}
            data = {"type": "array", "items": self._named(one)}
            return record(object={"const": "list"}, data=data, first_id=text, last_id=text, has_more=BOOLEAN)
        if get_origin(answer) is Deleted:
            (kind,) = get_args(get_args(answer)[0])
            return record(id=STRING, object={"const": kind}, deleted={"const": True})
        return self._named(answer)

    def _named(self, kind: Any) -> JsonSchema:
        self._types[kind.__name__] = JsonValidator(kind)
        return ref(kind.__name__)

    def _statuses(self, *, has_body: bool, answers: dict[str, JsonSchema]) -> list[int]:
        statuses = {400, 401, 429, 500, *self._operation.statuses}
        if self._method == "POST":
            statuses.add(409)  # Of idempotency keys.
        if answers:
            statuses.add(200)
        if self._names():
            statuses.add(404)
        if has_body:
            statuses |= {413, 415}
        return sorted(statuses)


def _content(schemas: dict[str, JsonSchema]) -> JsonSchema:
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}


def _answer(status: int, answers: dict[str, JsonSchema]) -> JsonSchema:
    if status in (200, 206):
        return {"description": "OK", "content": _content(answers)}
    if status == 101:
        return {"description": "A WebSocket: frames are `response.create` requests and the events of their responses."}
    if status == 302:
        return {"description": "The content lies behind this address.", "headers": {"location": {"schema": STRING}}}
    return {"$ref": "#/components/responses/Error"}
