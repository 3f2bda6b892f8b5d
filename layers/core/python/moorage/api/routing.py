"""The router of all resources: a route says what the OpenAPI document tells of it, if it is declared.

``@router.get("/files/{file_id}", "retrieveFile", "A file")`` above a handler that returns a type of the wire is all of it: path
parameters, the body (:func:`~moorage.api.bodies.body_of`), the query (:func:`~moorage.api.queries.query_of`) and the answer are
read from the handler's signature.
"""

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar, get_type_hints

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute

from moorage.api.answers import rendered
from moorage.dataclass import dataclass
from moorage.wire.query_strings import QueryReader
from moorage.wire.schema import JsonSchema
from moorage.wire.validation import JsonValidator

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Any]])

EVENTS: Final = "text/event-stream"
BINARY: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Operation:
    """The OpenAPI document's facts of a route beside its path, its handler's body and its summary."""

    answers: Any
    """The type of an answer of JSON, or the name of its schema; None where success is something else."""
    sends: str | None
    """A media type that a success may have instead."""
    body: tuple[str, JsonValidator[Any]] | str | None
    """Of a handler that reads its body by itself: the schema's name, and what checks it."""
    form: JsonSchema | None
    """A body of ``multipart/form-data``."""
    statuses: tuple[int, ...]
    """Beside 200 and those that every route of its kind has."""


class Routed(Protocol):
    @property
    def routes(self) -> list[BaseRoute]: ...


class Router:
    """FastAPI's router for handlers that return JSON values, or a response of their own."""

    def __init__(self, *, prefix: str = "", route_class: type[APIRoute] = APIRoute) -> None:
        self._router = APIRouter(prefix=prefix, route_class=route_class)
        self.operations: dict[str, Operation] = {}
        """By operation id."""

    def websocket(self, path: str) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self._router.add_api_websocket_route(path, handler)
            return handler

        return add

    @property
    def routes(self) -> list[BaseRoute]:
        return self._router.routes

    def get(
        self,
        path: str,
        operation_id: str,
        summary: str,
        *,
        answers: Any = None,
        sends: str | None = None,
        statuses: tuple[int, ...] = (),
    ) -> Callable[[Handler], Handler]:
        return self._add("GET", path, operation_id, summary, Operation(answers, sends, None, None, statuses))

    def post(
        self,
        path: str,
        operation_id: str,
        summary: str,
        *,
        answers: Any = None,
        sends: str | None = None,
        body: tuple[str, JsonValidator[Any]] | str | None = None,
        form: JsonSchema | None = None,
        statuses: tuple[int, ...] = (),
    ) -> Callable[[Handler], Handler]:
        return self._add("POST", path, operation_id, summary, Operation(answers, sends, body, form, statuses))

    def delete(
        self,
        path: str,
        operation_id: str,
        summary: str,
        *,
        answers: Any = None,
        statuses: tuple[int, ...] = (),
    ) -> Callable[[Handler], Handler]:
        return self._add("DELETE", path, operation_id, summary, Operation(answers, None, None, None, statuses))

    def _add(self, method: str, path: str, operation_id: str, summary: str, operation: Operation) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            returned = get_type_hints(handler, include_extras=True)["return"]
            is_named = operation.answers is None and operation.sends is None
            self.operations[operation_id] = _with_answer(operation, returned) if is_named else operation
            self._router.add_api_route(
                path, _rendered(handler), methods=[method], operation_id=operation_id, summary=summary, response_model=None
            )
            return handler

        return add


def _with_answer(operation: Operation, returned: Any) -> Operation:
    assert not (inspect.isclass(returned) and issubclass(returned, Response)), "a handler that makes its response says what it answers"
    return replace(operation, answers=returned)


def _rendered(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Response]]:
    """With its answer as JSON. FastAPI's own way goes through pydantic, and through each value once more."""

    @functools.wraps(handler)
    async def render(*args: Any, **kwargs: Any) -> Response:
        answer = await handler(*args, **kwargs)
        return answer if isinstance(answer, Response) else await rendered(answer)

    return render


def body_model(route: APIRoute) -> Any:
    """The validator of the handler's body (``body_of``); None if it takes none, or reads it by itself."""
    return _said_of_dependencies(route, "model")


def query_reader(route: APIRoute) -> QueryReader[Any] | None:
    """What reads the handler's query (``query_of``); None if it takes none."""
    reader: QueryReader[Any] | None = _said_of_dependencies(route, "query")
    return reader


def method_of(route: APIRoute) -> str:
    (method,) = route.methods or {""}
    return method


def _said_of_dependencies(route: APIRoute, name: str) -> Any:
    said = (getattr(dependency.call, name, None) for dependency in route.dependant.dependencies)
    return next((each for each in said if each is not None), None)


def path_of(route: APIRoute) -> str:
    return "/v1" + re.sub(r":\w+}", "}", route.path)


def operations_of(routers: Iterable[Router]) -> Mapping[str, tuple[APIRoute, Operation]]:
    """Every route of HTTP by its operation id, in order of match."""
    return {
        route.operation_id: (route, router.operations[route.operation_id])
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute) and route.operation_id is not None
    }
