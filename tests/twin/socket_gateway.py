"""API Gateway's WebSocket API as far as this deployment uses it, built from the synthesised template, on ports of this machine.

What AWS does, by the API Gateway developer guide: a client connects to the stage, and to no path below it; the authorizer is asked at
``$connect`` alone and its answer is not kept; a handshake that is refused has a status and no body of ours; each message is an
invocation, which may take 29 seconds; a message of more than 128 KB, or a frame of more than 32 KB, ends the connection with code
1009; functions send and close by the management API, signed, and are told 410 of a connection that has gone, and 413 of what is too
long; an idle connection ends after 10 minutes, any after 2 hours.

Beside it stands what the door asks of Lambda: the worker's invocation without waiting.
"""

import asyncio
import base64
import http
import json
import re
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.twin.gateway import FunctionError, is_allowed
from tests.twin.runtime_api import Function
from tests.twin.template import ACCOUNT, REGION, Template

MESSAGE_BYTES_MAX: Final = 128 * 1024
FRAME_BYTES_MAX: Final = 32 * 1024
SECONDS_MAX: Final = 2 * 60 * 60
IDLE_SECONDS_MAX: Final = 10 * 60
API_ID: Final = "socket-twin"
Invoke = Callable[[str, dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True)
class Routes:
    """The template's: the function of each route, and who is asked at ``$connect``."""

    stage: str
    functions: Mapping[str, str]
    authorizer: str | None
    identity: tuple[str, ...]
    """Headers without which the authorizer is not asked."""

    @classmethod
    def of(cls, template: Template) -> "Routes":
        aliases = {f"<{name}>": each["FunctionName"].strip("<>") for name, each in template.of_type("AWS::Lambda::Alias")}
        integrations = {f"integrations/<{n}>": each for n, each in template.of_type("AWS::ApiGatewayV2::Integration")}
        functions, authorizer, identity = {}, None, ()
        for _, route in template.of_type("AWS::ApiGatewayV2::Route"):
            integration = integrations[route["Target"]]
            assert integration["IntegrationType"] == "AWS_PROXY"
            (reference,) = re.findall(r"functions/(<\w+>)/invocations", integration["IntegrationUri"])
            functions[route["RouteKey"]] = aliases[reference]
            if route["AuthorizationType"] == "CUSTOM":
                assert route["RouteKey"] == "$connect", "API Gateway takes an authorizer at $connect alone"
                found = dict(template.of_type("AWS::ApiGatewayV2::Authorizer"))[route["AuthorizerId"].strip("<>")]
                assert found["AuthorizerType"] == "REQUEST"
                (authorizer,) = re.findall(r"function:<(\w+)>", found["AuthorizerUri"])
                identity = tuple(source.removeprefix("route.request.header.") for source in found["IdentitySource"])
        return cls(template.one("AWS::ApiGatewayV2::Stage")[1]["StageName"], functions, authorizer, identity)


@dataclass
class Open:
    """A connection as the gateway knows it."""

    socket: ServerConnection
    id: str
    at: float
    last: float
    sent: list[str] = field(default_factory=list)


class SocketGateway:
    """Answers at :attr:`url` from :meth:`start` to :meth:`stop`, in a thread of its own."""

    def __init__(self, template: Template, invoke: Invoke, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._routes, self._invoke, self._clock = Routes.of(template), invoke, clock
        self.open: dict[str, Open] = {}
        self.url = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._is_up, self._stopping = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(60)

    def stop(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"max_size": None, "ping_interval": None, "compression": None, "close_timeout": 1}
        async with serve(self._serve, "127.0.0.1", 0, process_request=self._handshake, **options) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            self.url = f"ws://127.0.0.1:{port}"
            self._is_up.set()
            await self._stopping.wait()

    # --- $connect ---

    async def _handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path.partition("?")[0] != f"/{self._routes.stage}":
            return _refused(403, "Forbidden")
        connection_id = base64.b64encode(secrets.token_bytes(11)).decode()
        headers = dict(request.headers.raw_items())
        context = self._context(connection_id, "$connect", "CONNECT")
        event = {"headers": headers, "multiValueHeaders": {name: [value] for name, value in headers.items()}, "requestContext": context}
        if (refused := await self._refused(event)) is not None:
            return refused
        try:
            answer = await self._invoke(self._routes.functions["$connect"], event | {"isBase64Encoded": False})
        except FunctionError:
            return _refused(500, "Internal server error")
        if not 200 <= int(answer["statusCode"]) < 300:
            return _refused(int(answer["statusCode"]), http.HTTPStatus(int(answer["statusCode"])).phrase)
        connection.twin_id = connection_id  # type: ignore[attr-defined]
        return None

    async def _refused(self, event: dict[str, Any]) -> Response | None:
        """What the authorizer says; None if it lets the client in."""
        if self._routes.authorizer is None:
            return None
        given = {name.lower(): value for name, value in event["headers"].items()}
        if not all(given.get(name.lower()) for name in self._routes.identity):
            return _refused(401, "Unauthorized")
        arn = f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{API_ID}/{self._routes.stage}/$connect"
        try:
            answer = await self._invoke(self._routes.authorizer, event | {"type": "REQUEST", "methodArn": arn})
        except FunctionError as error:
            return _refused(401, "Unauthorized") if str(error) == "Unauthorized" else _refused(500, "Internal server error")
        if not is_allowed(answer["policyDocument"], arn):
            return _refused(403, "Forbidden")
        event["requestContext"]["authorizer"] = {**answer.get("context", {}), "principalId": answer["principalId"]}
        return None

    # --- frames ---

    async def _serve(self, socket: ServerConnection) -> None:
        connection_id: str = socket.twin_id  # type: ignore[attr-defined]
        now = self._clock()
        self.open[connection_id] = Open(socket, connection_id, now, now)
        try:
            while (message := await self._message(socket)) is not None:
                self.open[connection_id].last = self._clock()
                await self._take(connection_id, message)
        except ConnectionClosed:
            pass
        finally:
            self.open.pop(connection_id, None)
            gone = {"requestContext": self._context(connection_id, "$disconnect", "DISCONNECT"), "isBase64Encoded": False}
            await self._invoke(self._routes.functions["$disconnect"], gone)

    async def _message(self, socket: ServerConnection) -> str | None:
        """None once it has been too long for the gateway."""
        size, parts = 0, []
        async for frame in socket.recv_streaming():
            text = frame if isinstance(frame, str) else frame.decode(errors="replace")
            size += len(text.encode())
            parts.append(text)
            if len(text.encode()) > FRAME_BYTES_MAX or size > MESSAGE_BYTES_MAX:
                await socket.close(1009, "Message too long")
                return None
        return "".join(parts)

    async def _take(self, connection_id: str, text: str) -> None:
        context = self._context(connection_id, "$default", "MESSAGE") | {"messageId": secrets.token_urlsafe(11)}
        event = {"requestContext": context, "body": text, "isBase64Encoded": False}
        try:
            await asyncio.wait_for(self._invoke(self._routes.functions["$default"], event), 29)
        except (FunctionError, TimeoutError):
            refusal = {"message": "Internal server error", "connectionId": connection_id, "requestId": context["requestId"]}
            await self.open[connection_id].socket.send(json.dumps(refusal))

    def _context(self, connection_id: str, route: str, kind: str) -> dict[str, Any]:
        return {
            "routeKey": route,
            "eventType": kind,
            "connectionId": connection_id,
            "requestId": secrets.token_urlsafe(11),
            "requestTimeEpoch": int(time.time() * 1000),
            "stage": self._routes.stage,
            "apiId": API_ID,
            "domainName": f"{API_ID}.execute-api.{REGION}.amazonaws.com",
            "connectedAt": int(time.time() * 1000),
            "identity": {"sourceIp": "203.0.113.7"},
        }

    def pass_time(self) -> None:
        """What the gateway does as time goes by."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._end_idle(), self._loop).result(60)

    async def _end_idle(self) -> None:
        for each in list(self.open.values()):
            if self._clock() - each.last > IDLE_SECONDS_MAX or self._clock() - each.at > SECONDS_MAX:
                await each.socket.close(1001, "Going away")

    # --- the management API ---

    def post(self, connection_id: str, text: str) -> int:
        """The status that a function is told."""
        there = self.open.get(connection_id)
        if there is None:
            return 410
        if len(text.encode()) > MESSAGE_BYTES_MAX:
            return 413
        assert self._loop is not None
        try:
            asyncio.run_coroutine_threadsafe(there.socket.send(text), self._loop).result(60)
        except ConnectionClosed:
            return 410
        there.last = self._clock()
        there.sent.append(text)
        return 200

    def close(self, connection_id: str) -> int:
        there = self.open.pop(connection_id, None)
        if there is None:
            return 410
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(there.socket.close(1000), self._loop).result(60)
        return 204


class ManagementApi:
    """What functions reach by boto3: the connections of the gateway, and the worker's function."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Management)
        self._server.api = self
        self.gateway: SocketGateway | None = None
        self.worker: Function | None = None
        self.retry_seconds = 0.5
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, body: bytes, signature: str) -> tuple[int, str]:
        """Status, and the name of the error."""
        if "/execute-api/aws4_request" in signature and (found := re.fullmatch(r"/responses/@connections/([^/]+)", path)):
            assert self.gateway is not None
            connection_id = unquote(found[1])
            status = self.gateway.close(connection_id) if method == "DELETE" else self.gateway.post(connection_id, body.decode())
            return status, {410: "GoneException", 413: "PayloadTooLargeException"}.get(status, "")
        if "/lambda/aws4_request" in signature and path.endswith("/invocations"):
            assert self.worker is not None
            if self.worker.is_throttled:
                return 429, "TooManyRequestsException"
            self.worker.call_type(json.loads(body), retries=1, pause_seconds=self.retry_seconds)
            return 202, ""
        return 403, "ForbiddenException"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: ManagementApi


class _Management(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status, error = self.server.api.answer(self.command, self.path, body, self.headers.get("authorization", ""))
        self.send_response(status)
        text = b"" if status == 204 else b"{}"
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        if error:
            self.send_header("x-amzn-errortype", error)
        self.end_headers()
        self.wfile.write(text)

    do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def _refused(status: int, message: str) -> Response:
    headers = Headers({"content-type": "application/json", "connection": "close"})
    body = json.dumps({"message": message}).encode()
    headers["content-length"] = str(len(body))
    return Response(status, http.HTTPStatus(status).phrase, headers, body)
