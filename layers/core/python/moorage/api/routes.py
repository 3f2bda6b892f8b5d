"""Addresses and what answers them."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from moorage.api.answers import JsonResponse

PREFIX: Final = "/v1"

Answers = Callable[..., Awaitable[Response | dict[str, Any]]]
_Answers = TypeVar("_Answers", bound=Answers)


class Routes:
    """The addresses of one resource, in order of match. What answers gets the request and the address's ``{names}``; an object that it
    returns is sent as JSON."""

    def __init__(self) -> None:
        self.http: list[Route] = []
        self.websocket: list[WebSocketRoute] = []

    def get(self, path: str) -> Callable[[_Answers], _Answers]:
        return self._add("GET", path)

    def post(self, path: str) -> Callable[[_Answers], _Answers]:
        return self._add("POST", path)

    def delete(self, path: str) -> Callable[[_Answers], _Answers]:
        return self._add("DELETE", path)

    def connect(self, path: str) -> Callable[[Callable[[WebSocket], Awaitable[None]]], None]:
        """A WebSocket's address."""

        def add(answers: Callable[[WebSocket], Awaitable[None]]) -> None:
            self.websocket.append(WebSocketRoute(PREFIX + path, answers))

        return add

    def _add(self, method: str, path: str) -> Callable[[_Answers], _Answers]:
        def add(answers: _Answers) -> _Answers:
            self.http.append(route(method, PREFIX + path, answers))
            return answers

        return add


def route(method: str, path: str, answers: Answers) -> Route:
    made = Route(path, _Endpoint(path, answers), methods=[method])
    made.methods = {method}  # Starlette adds HEAD to GET.
    return made


class _Endpoint:
    """An ASGI application: Starlette leaves those as they are, and wraps functions once more."""

    def __init__(self, path: str, answers: Answers) -> None:
        self._path = path
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        request.state.route = self._path
        answer = await self._answers(request, **request.path_params)
        if not isinstance(answer, Response):
            answer = JsonResponse(answer)
        await answer(scope, receive, send)
