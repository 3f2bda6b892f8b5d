"""MCP servers for tests, over real HTTP in the test's own process: one made with the protocol's SDK, and one that does what it is told
to do wrong."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import uvicorn
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.utilities.types import Image
from mcp_types import ToolAnnotations

from tests.asgi import body_of, live

LOOPBACK = ("127.0.0.0/8", "::1/128")

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c636060606000000005"
    "0001a5f645400000000049454e44ae426082"
)


@dataclass
class Depot:
    """What a server of spare parts has been told: effects can be counted."""

    orders: list[tuple[str, int]] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    before_order: Callable[[], Awaitable[None]] | None = None
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of each request."""

    def server(self, *, with_resources: bool = False) -> MCPServer:
        made = MCPServer("depot")

        @made.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
        async def find_part(sku: str) -> str:
            """Look a part up."""
            self.lookups.append(sku)
            return f"14 of {sku} in stock"

        @made.tool(structured_output=False)
        async def order_part(sku: str, count: int) -> str:
            """Order a part."""
            self.orders.append((sku, count))
            if self.before_order is not None:
                await self.before_order()
            return f"ordered {count} of {sku}"

        @made.tool(structured_output=False)
        async def broken() -> str:
            """Always fails."""
            raise ValueError("the depot burnt down")

        @made.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
        async def picture() -> Image:
            """A picture of the depot."""
            return Image(data=PIXEL, format="png")

        if with_resources:

            @made.resource("depot://manual", description="How to run a depot")
            async def manual() -> str:
                return "Keep it dry."

        return made


@dataclass(frozen=True)
class Running:
    port: int

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"


def _recording(app: Any, depot: Depot) -> Any:
    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            depot.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    return recorded


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[Running]:
    """An ASGI application on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listening])  # ``serve`` would take signals too, and see its end at the next tick of its clock.
        try:
            yield Running(listening.getsockname()[1])
        finally:
            await server.shutdown(sockets=[listening])


@asynccontextmanager
async def depot_server(depot: Depot, *, kind: str = "streamable", with_resources: bool = False) -> AsyncIterator[Running]:
    made = depot.server(with_resources=with_resources)
    is_stateless, is_json = kind == "stateless", kind == "json"
    app = made.sse_app() if kind == "sse" else made.streamable_http_app(stateless_http=is_stateless, json_response=is_json)
    async with serving(_recording(app, depot)) as running:
        yield running


@asynccontextmanager
async def behind_http(command: str, *arguments: str) -> AsyncIterator[Running]:
    """A program that speaks the protocol by its standard streams, behind streamable HTTP: the SDK's client and server, back to back."""
    async with Client(StdioServerParameters(command=command, args=list(arguments)), cache=None) as client:

        async def listed(_: Any, asked: types.PaginatedRequestParams | None) -> types.ListToolsResult:
            return await client.list_tools(cursor=None if asked is None else asked.cursor)

        async def called(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
            return await client.session.send_request(types.CallToolRequest(params=asked), types.CallToolResult)

        async with serving(Server("proxy", on_list_tools=listed, on_call_tool=called).streamable_http_app()) as running:
            yield running


def depot_beside(depot: Depot) -> AbstractContextManager[Running]:
    """The same for a test that has no event loop of its own."""
    return beside(lambda: depot_server(depot))


@contextmanager
def beside(opened: Callable[[], AbstractAsyncContextManager[Running]]) -> Iterator[Running]:
    """What is opened, in an event loop of its own."""
    loop, ready, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[Running] = []

    async def serve() -> None:
        async with opened() as running:
            found.append(running)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(60)
        loop.close()


@dataclass
class Odd:
    """A server by hand: ``answers`` says what becomes of each method of the protocol."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    result: Any = None
    """Of ``tools/call``."""
    status: dict[str, int] = field(default_factory=dict)
    """Of a method's answer, which has no body then."""
    statuses: dict[str, int] = field(default_factory=dict)
    """The same with the body as ever."""
    redirect: str | None = None
    hangs_at: str | None = None
    cuts_at: str | None = None
    """The connection breaks instead of an answer."""
    flood_at: str | None = None
    raw: dict[str, bytes] = field(default_factory=dict)
    """A body in place of an answer, by method."""
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What an answer has in place of its request's ``id``, by method."""
    next_cursor: str | None = None
    encoding: str | None = None
    session: str | None = None
    """Its id: the client is to end it."""
    forgets: int = 0
    """How many calls meet no session any more."""
    says_changed: bool = False
    """With the result of a call it says that its list is not true any more."""
    before_call: Callable[[], Awaitable[None]] | None = None
    called: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        if scope["method"] != "POST":
            if scope["method"] == self.hangs_at:
                await self.released.wait()
            await _respond(send, 405, b"")
            return
        message = json.loads(await body_of(receive))
        method = message["method"]
        self.asked.append(method)
        if method == "tools/call" and self.forgets:
            self.forgets -= 1
            await _respond(send, 404, b"")
            return
        if method == "tools/call":
            self.called.append(message["params"]["arguments"])
            if self.before_call is not None:
                await self.before_call()
        if self.redirect is not None:
            await _respond(send, 307, b"", location=self.redirect)
        elif method in self.status:
            await _respond(send, self.status[method], b"")
        elif method == self.hangs_at:
            await self.released.wait()
        elif method == self.cuts_at:
            await _begin(send, 200, {"content-length": "99"})
            await send({"type": "http.response.body", "body": b"{", "more_body": True})
            raise ConnectionResetError
        elif method == self.flood_at:
            await _begin(send, 200, {})
            for _ in range(100):
                await send({"type": "http.response.body", "body": b" " * 1_000_000, "more_body": True})
                await asyncio.sleep(0)
        elif method in self.raw:
            await _respond(send, 200, self.raw[method])
        elif method == "tools/call" and self.says_changed:
            changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).encode()
            stream = b"".join(b"event: message\ndata: %b\n\n" % data for data in (changed, self._answered(message)))
            await _respond(send, 200, stream, **{"content-type": "text/event-stream"})
        elif self.encoding is not None:
            await _respond(send, 200, self._answered(message), **{"content-encoding": self.encoding})
        else:
            session = {} if self.session is None else {"mcp-session-id": self.session}
            status = self.statuses.get(method, 202 if "id" not in message else 200)
            await _respond(send, status, self._answered(message), **session)

    def _answered(self, message: dict[str, Any]) -> bytes:
        if "id" not in message:
            return b""
        answers: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "1"},
            },
            "tools/list": {"tools": self.tools} | ({} if self.next_cursor is None else {"nextCursor": self.next_cursor}),
            "tools/call": self.result or {"content": [{"type": "text", "text": "done"}]},
        }
        answer, error = answers.get(message["method"]), self.errors.get(message["method"])
        if answer is None and error is None:
            error = {"code": -32601, "message": "no such method"}
        said: dict[str, Any] = {"result": answer} if error is None else {"error": error}
        return json.dumps({"jsonrpc": "2.0", **self.ids.get(message["method"], {"id": message["id"]}), **said}).encode()


async def _respond(send: Any, status: int, body: bytes, **headers: str) -> None:
    await _begin(send, status, headers)
    await send({"type": "http.response.body", "body": body})


async def _begin(send: Any, status: int, headers: dict[str, str]) -> None:
    named = [(name.encode(), value.encode()) for name, value in {"content-type": "application/json", **headers}.items()]
    await send({"type": "http.response.start", "status": status, "headers": named})
