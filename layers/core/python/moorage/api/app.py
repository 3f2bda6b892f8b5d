"""The HTTP surface: one ASGI application for every way of running (uvicorn, Lambda Web Adapter, Mangum)."""

import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Router as Mounted
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage import __version__, large_bodies, limits, tracing
from moorage.agents.listener import attend
from moorage.api.answers import JsonResponse
from moorage.api.console import Console
from moorage.api.cors import CrossOriginPages
from moorage.api.credentials import ConnectionCounts, check_scope, secret_of
from moorage.api.foreground import failure
from moorage.api.idempotency import IdempotentRequests
from moorage.api.openapi import document
from moorage.api.rate_limits import RateLimiter, RateLimits
from moorage.api.routing import Routed
from moorage.approvals.page_routes import PAGE as APPROVAL_PAGE
from moorage.approvals.page_routes import add_approval_page
from moorage.command_hints import as_typed
from moorage.errors import (
    ApiError,
    UpstreamError,
    bad_request,
    foreign_api_key,
    invalid_api_key,
    method_not_allowed,
    missing_api_key,
    server_error,
    unknown_url,
)
from moorage.identity.ended_sessions import CALLER, looks_like_token
from moorage.ids import KEY_PREFIX
from moorage.large_bodies import BodiesInWork
from moorage.parallel import working_for
from moorage.runtime import Runtime
from moorage.store.api_keys import ApiKey, hash_of, key_id_of
from moorage.store.audit import Actor, acting
from moorage.store.rates import Rates
from moorage.telemetry import Metric, tell, tell_error
from moorage.tracing import Trace

if TYPE_CHECKING:
    from moorage.identity.sign_in import SignIn

_STARTS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_API_VERSION: Final = (b"openai-version", b"2020-10-01")
"""What OpenAI has sent as ``openai-version`` ever since."""

_CLIENT_GONE: Final = 499

_PREFIX: Final = "/v1"
_OPEN_PATHS: Final = frozenset({"/", "/healthz", "/openapi.json"})
_PATH_CHARS_MAX: Final = 200
_WELCOME: Final = """\
moorage is up. It answers programs, under /v1, and wants a key:

    curl .../v1/models -H "Authorization: Bearer $OPENAI_API_KEY"

SDKs take this address with /v1 as base_url. /openapi.json describes what there is.
People look at /console/; 'moorage console' opens it.
"""


def create_app(runtime: Runtime, routers: Iterable[Routed]) -> FastAPI:
    """The application with these routers under ``/v1``. The caller owns the runtime and closes it."""
    # A redirection to the address without its last slash would name the scheme of the last hop, which may not be the client's.
    app = FastAPI(title="moorage", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.runtime = attend(runtime)
    app.state.late_silence_seconds = _never
    # Mounted as they are: FastAPI makes each route of a router that it includes anew, at an application's first request.
    routes = [route for router in routers for route in router.routes]
    app.mount(_PREFIX, Mounted(routes, redirect_slashes=False))
    app.state.routes = [route for route in routes if isinstance(route, APIRoute)]
    app.add_api_route("/healthz", _healthz, methods=["GET"])
    app.add_api_route("/", _welcome, methods=["GET"])
    app.add_api_route("/openapi.json", _openapi, methods=["GET"])
    console = Console.beside_the_package(runtime.command, has_sign_in=runtime.settings.oidc_client_id is not None)
    app.state.sign_in = _sign_in(runtime)
    if app.state.sign_in is not None:
        from moorage.api.sign_in import add_sign_in

        add_sign_in(app, app.state.sign_in, console)
    console.add_to(app)
    add_approval_page(app)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(UpstreamError, _on_upstream_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    settings = runtime.settings
    app.state.websockets = ConnectionCounts()
    app.state.rate_limits = RateLimits(
        settings.requests_per_minute, settings.tokens_per_minute, Rates(runtime.stores.table), runtime.clock
    )
    if app.state.rate_limits.per_minute:
        app.add_middleware(RateLimiter, rate_limits=app.state.rate_limits)
    app.add_middleware(IdempotentRequests, runtime=runtime)
    app.add_middleware(AuthenticationMiddleware, runtime=runtime)
    if settings.cors_origins:
        app.add_middleware(CrossOriginPages, origins=settings.cors_origins)
    return app


def _sign_in(runtime: Runtime) -> "SignIn | None":
    if runtime.identity.tokens is None or runtime.settings.oidc_client_id is None:
        return None
    from moorage.identity.sign_in import SignIn  # With a library that others have no use for.

    return SignIn(runtime.settings, runtime.identity.tokens, runtime.stores.table, runtime.keys.content, runtime.clock)


async def _welcome(request: Request) -> Response:
    """For people who open the address in a browser."""
    return PlainTextResponse(as_typed(_WELCOME, request.app.state.runtime.command))


async def _healthz(request: Request) -> dict[str, Any]:
    """``loop_silent_seconds`` only if the event loop did not turn for so long, a short while ago."""
    silent = request.app.state.late_silence_seconds()
    return {"status": "ok"} if silent is None else {"status": "ok", "loop_silent_seconds": silent}


def _never() -> float | None:
    """For platforms that watch the process, such as Lambda."""
    return None


async def _openapi() -> Response:
    return JsonResponse(document(__version__))


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _refusal(error, request.app.state.runtime.command)


def _refusal(error: ApiError, command: str) -> JsonResponse:
    envelope = error.envelope()
    envelope["error"]["message"] = as_typed(error.message, command)
    return JsonResponse(envelope, status_code=error.status, headers=error.headers)


async def _on_upstream_error(request: Request, error: Exception) -> Response:
    """Of an embedding model, or of another upstream of a request."""
    assert isinstance(error, UpstreamError)
    return await _on_api_error(request, failure(error.code, error.message, error.param, error.retry_after_seconds))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """The router's own refusals, in OpenAI's envelope."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        refusal = unknown_url(request.method, request.url.path, _served(request.app))
    elif error.status_code == 405:
        refusal = method_not_allowed(request.method, request.url.path, _methods(request))
    else:
        refusal = bad_request(str(error.detail))
    return JsonResponse(refusal.envelope(), status_code=error.status_code, headers=refusal.headers or error.headers)


def _served(app: FastAPI) -> list[str]:
    """The first words of all addresses: ``/v1/responses`` and so on."""
    return sorted({f"{_PREFIX}/{route.path.split('/')[1]}" for route in app.state.routes})


def _methods(request: Request) -> list[str]:
    """The methods of the address, over all of its routes."""
    path = request.url.path.removeprefix(_PREFIX)
    routes = [route for route in request.app.state.routes if route.path_regex.match(path)]
    return sorted({method for route in routes for method in route.methods}) or ["GET"]  # what is outside of /v1 can only be read


def _said_by_authorizer(scope: Scope) -> Any:
    """From an event of API Gateway's, put into the scope by Mangum; a client cannot write it."""
    return (scope.get("aws.event", {}).get("requestContext", {}).get("authorizer") or {}).get(CALLER)


class AuthenticationMiddleware:
    """No key, no request: authenticates, names the request (``x-request-id``) and its trace, and answers for what nobody foresaw.

    A plain ASGI middleware, because Starlette's ``BaseHTTPMiddleware`` puts a queue between a stream and its client.
    """

    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._bodies = BodiesInWork()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        with tracing.within(Trace.of_headers(scope["headers"])):
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = f"req_{secrets.token_hex(16)}"
        scope.setdefault("state", {})["request_id"] = request_id
        has_started = False
        status = 0
        began = time.perf_counter()

        async def send_named(message: Message) -> None:
            nonlocal has_started, status
            if message["type"] in _STARTS:
                has_started = True
                large_bodies.left()
                status = message.get("status", 101)
                milliseconds = b"%d" % round((time.perf_counter() - began) * 1000)
                named = ((b"x-request-id", request_id.encode()), (b"openai-processing-ms", milliseconds), _API_VERSION)
                message["headers"] = [*message.get("headers", ()), *named]
            if message["type"] == "http.response.body" and not message.get("more_body"):
                # Before the last byte: after it Lambda may stop the process.
                _tell(scope, status, began)
                await self._send_traces()
            await send(message)

        try:
            actor = Actor(request_id=request_id)
            if not _is_open(scope["path"]):
                secret = secret_of(Headers(scope=scope))
                key = await self._key(secret, scope)
                check_scope(key, scope)
                scope["state"]["tenant_id"] = key.tenant_id
                scope["state"]["key_digest"] = key.parent or hash_of(secret)
                scope["state"]["budgets"] = key.budgets
                scope["state"]["subject"] = key.subject
                actor = Actor(key_id_of(scope["state"]["key_digest"]), key.tenant_id, request_id, key.subject)
            tenant_id = actor.tenant_id
            with acting(actor), working_for(tenant_id), self._bodies.of(tenant_id):
                await self._app(scope, receive, send_named)
        except ApiError as error:
            await self._refuse(scope, receive, send_named, error)
        except ClientDisconnect:
            _tell(scope, _CLIENT_GONE, began)  # While it sent its body: nobody reads an answer, and nothing is wrong here.
        except Exception as error:
            path = APPROVAL_PAGE if scope["path"].startswith(APPROVAL_PAGE) else scope["path"]
            tell_error(error, "unhandled error", request_id=request_id, path=path)
            if has_started:
                raise
            await self._refuse(scope, receive, send_named, server_error())

    async def _send_traces(self) -> None:
        settings = self._runtime.settings
        if settings.otlp_endpoint and settings.stream_seconds_max:
            await self._runtime.process.rest(limits.OTLP_REST_SECONDS_MAX)

    async def _key(self, secret: str, scope: Scope) -> ApiKey:
        if not secret:
            raise missing_api_key()
        runtime = self._runtime
        if runtime.settings.oidc_at_gateway and runtime.identity.tokens is not None and looks_like_token(secret):
            return await runtime.identity.tokens.vouched(secret, _said_by_authorizer(scope))
        key = await runtime.identity.caller_of(secret)
        if key is None:
            raise invalid_api_key() if secret.startswith(KEY_PREFIX) else foreign_api_key(KEY_PREFIX)
        return key

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: ApiError) -> None:
        if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": error.message[:120]})
            return
        answer: Any = _refusal(error, self._runtime.command)
        await answer(scope, receive, send)


def _is_open(path: str) -> bool:
    """Addresses without a key: they say nothing of anybody, or the address itself is a key."""
    return path in _OPEN_PATHS or path == "/console" or path.startswith(("/console/", APPROVAL_PAGE))


def _tell(scope: Scope, status: int, began: float) -> None:
    """The line of a request. A path holds ids, a query may hold more and is left out."""
    if _is_open(scope["path"]):
        return
    state = scope["state"]
    tell(
        "request",
        {
            "request_id": state["request_id"],
            "tenant_id": state.get("tenant_id"),
            "response_id": state.get("response_id"),
            "method": scope["method"],
            "route": getattr(scope.get("route"), "path", None),
            "path": None if scope.get("route") else scope["path"][:_PATH_CHARS_MAX],
            "status": status,
            "duration_ms": round((time.perf_counter() - began) * 1000),
        },
        {Metric.ERRORS: 1} if status >= 500 else None,
    )
