"""What is said to a server, by the protocol's own SDK over guarded HTTP. One connection for each list and each call: nothing is kept.

The SDK finds out which era of the protocol a server speaks; one that takes no messages where it stands is tried as an older one, which
sends events (HTTP+SSE). What goes wrong comes out as :class:`ServerFailure`, with the phase, and never as anything else: the SDK and
what it is built on have many ways to fail, some of them in groups.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeGuard, TypeVar

import anyio._backends._asyncio  # noqa: F401  # This one and the next two are what a first connection imports, on the event loop.
import httpcore2._backends.anyio  # noqa: F401
import httpx2
import mcp_types as types
import truststore  # noqa: F401
from mcp.client import Client, IncomingMessage, Transport
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from moorage import __version__, limits
from moorage.dataclass import dataclass
from moorage.egress.fetch import Fetcher
from moorage.errors import MoorageError
from moorage.parallel import outweighs, worked
from moorage.tools.function_items import compact_json
from moorage.tools.mcp import listing
from moorage.tools.mcp.servers import McpServer
from moorage.tools.mcp.transport import GuardedTransport

T = TypeVar("T")

_TALKATIVE: Final = ("mcp", "client", "httpx2", "httpcore2")
"""Loggers that are told what servers say, and addresses, which may hold keys."""

_OLDER: Final = frozenset({400, 404, 405, 406, 415})
"""What a server of the older transport answers where a message is posted to its stream's address."""

_STANDS_FOR_STATUS: Final = frozenset({types.INTERNAL_ERROR, types.METHOD_NOT_FOUND, types.INVALID_REQUEST})
"""Codes that the SDK makes of a status without an answer in the protocol."""

_MADE_OF_STATUS: Final = frozenset({"Not Found", "Session terminated", "Server returned an error response"})
"""What the SDK says then; any other words with such a code are the server's own."""

_RESULT: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_ASKS_BACK: Final = "the server wants to ask something back during the call, and nobody is there to answer"

LIST_RESOURCES: Final = "list_mcp_resources"
LIST_TEMPLATES: Final = "list_mcp_resource_templates"
READ_RESOURCE: Final = "read_mcp_resource"
_CURSOR: Final = {"type": "object", "properties": {"cursor": {"type": "string", "description": "Where the page before ended."}}}
_RESOURCE_TOOLS: Final = {
    LIST_RESOURCES: ("List what this server has to read: addresses (URIs), names and descriptions.", _CURSOR),
    LIST_TEMPLATES: ("List the patterns of addresses (URIs) that this server can read.", _CURSOR),
    READ_RESOURCE: (
        "Read one resource of this server by its address (URI).",
        {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]},
    ),
}


class ServerFailure(MoorageError):
    """A server could not be asked, or its answer is no result; ``error`` is typed as a call's item has it."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error.get("message", ""))
        self.error = error

    @property
    def sentence(self) -> str:
        code = self.error["code"]
        return f"{self} (HTTP status {code})" if self.error["type"] == "http_error" else f"{self} (code {code})"


@dataclass(frozen=True, slots=True)
class McpCallOutcome:
    """The result of a call."""

    output: str | None = None
    error: dict[str, Any] | None = None
    tools_changed: bool = False
    """The server said meanwhile that its list is not true any more."""


@dataclass(slots=True)
class _McpConnection:
    """One connection, and how far it has come."""

    server: McpServer
    transport: GuardedTransport
    phase: str = "connect"
    tools_changed: bool = False
    connected: bool = False

    async def hear(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.tools_changed = True


async def list_tools(server: McpServer, fetcher: Fetcher) -> list[dict[str, Any]]:
    """All tools of a server, by name, with those that read its resources if it has any. Raises :class:`ServerFailure`."""

    async def work(client: Client, talk: _McpConnection) -> list[dict[str, Any]]:
        talk.phase = "tools/list"
        tools = await _all_tools(client)
        talk.phase = "resources/list"
        return listing.ordered([*tools, *await _resource_tools(client)])

    listed, _ = await _with(server, fetcher, limits.MCP_LIST_SECONDS_MAX, work)
    return listed


async def call_tool(
    server: McpServer, fetcher: Fetcher, name: str, arguments: dict[str, Any], *, seconds: float = limits.MCP_CALL_SECONDS_MAX
) -> McpCallOutcome:
    """Call a tool once. Raises :class:`ServerFailure` if there is no result of the tool."""

    async def work(client: Client, talk: _McpConnection) -> types.CallToolResult | str:
        if name in _RESOURCE_TOOLS and not any(tool["name"] == name for tool in await _all_tools(client)):
            talk.phase = "resources/read" if name == READ_RESOURCE else "resources/list"
            return await _of_resources(client, name, arguments)
        talk.phase = "tools/call"
        return await _called(client, name, arguments)

    result, talk = await _with(server, fetcher, seconds, work)
    if isinstance(result, str):
        return McpCallOutcome(result, tools_changed=talk.tools_changed)
    return await outcome_of(result, tools_changed=talk.tools_changed)


async def outcome_of(result: types.CallToolResult, *, tools_changed: bool) -> McpCallOutcome:
    """A tool's own result or failure; a long one is written on a thread."""
    content = [part.model_dump(by_alias=True, mode="json", exclude_none=True) for part in result.content]

    def outcome() -> McpCallOutcome:
        told = listing.plain(content)
        if result.is_error:
            return McpCallOutcome(error={"type": "mcp_tool_execution_error", "content": told}, tools_changed=tools_changed)
        return McpCallOutcome(listing.output_of(told, listing.plain(result.structured_content)), tools_changed=tools_changed)

    is_long = outweighs([content, result.structured_content], limits.LOWERED_HERE_MAX)
    return await worked(outcome) if is_long else outcome()


async def _called(client: Client, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """The SDK's own call checks results against schemas that nobody here is shown, and asks for the list to do so."""
    request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
    try:
        result = await client.session.send_request(request, _RESULT)
    except MCPError as error:
        if error.code != types.HEADER_MISMATCH:
            raise
        # It was not run: some arguments are wanted as headers too, which the tool's schema says.
        await _all_tools(client)
        result = await client.session.send_request(request, _RESULT)
    if isinstance(result, types.InputRequiredResult):
        raise ServerFailure(_protocol_error(types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"tools/call: {_ASKS_BACK}"))
    return result


# --- lists ----------------------------------------------------------------------------------------------------------------------


async def _all_tools(client: Client) -> list[dict[str, Any]]:
    if client.server_capabilities.tools is None and client.server_capabilities.resources is not None:
        return []  # It has something to read, and no tools.
    entries: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(limits.MCP_PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        is_long = outweighs([tool.input_schema for tool in page.tools], limits.LOWERED_HERE_MAX)
        entries += await worked(partial(_entries, page.tools)) if is_long else _entries(page.tools)
        cursor = page.next_cursor
        if cursor is None or len(entries) > limits.MCP_TOOLS_MAX:
            break
    if cursor is not None or len(entries) > limits.MCP_TOOLS_MAX:
        raise ServerFailure(_protocol_error(types.INTERNAL_ERROR, f"tools/list: it lists more than {limits.MCP_TOOLS_MAX} tools"))
    return entries


def _entries(tools: Iterable[types.Tool]) -> list[dict[str, Any]]:
    return [
        listing.entry(
            tool.name, tool.description, tool.input_schema, tool.annotations.model_dump() if tool.annotations is not None else {}
        )
        for tool in tools
    ]


async def _resource_tools(client: Client) -> list[dict[str, Any]]:
    """Tools of our own, if the server has something to read. That it says so and cannot is no failure of its tools, and many know
    no templates."""
    if client.server_capabilities.resources is None:
        return []
    has_any = has_templates = False
    with suppress(MCPError, ValidationError):
        has_any = bool((await client.list_resources()).resources)
    with suppress(MCPError, ValidationError):
        has_templates = bool((await client.list_resource_templates()).resource_templates)
    named = [LIST_RESOURCES] * has_any + [LIST_TEMPLATES] * has_templates + [READ_RESOURCE] * (has_any or has_templates)
    return [listing.entry(name, *_RESOURCE_TOOLS[name], {"read_only_hint": True}) for name in named]


async def _of_resources(client: Client, name: str, arguments: dict[str, Any]) -> str:
    given = arguments.get("uri" if name == READ_RESOURCE else "cursor")
    if name == READ_RESOURCE:
        read = await client.session.read_resource(str(given or ""), allow_input_required=True)
        if isinstance(read, types.InputRequiredResult):
            raise ServerFailure(_protocol_error(types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"resources/read: {_ASKS_BACK}"))
        return listing.output_of([_of_resource(part) for part in read.contents], None)
    cursor = given if isinstance(given, str) else None
    page: Any = (
        await client.list_resources(cursor=cursor) if name == LIST_RESOURCES else await client.list_resource_templates(cursor=cursor)
    )
    shown = listing.plain(page.model_dump(by_alias=True, mode="json", exclude_none=True))
    return compact_json({key: shown[key] for key in ("resources", "resourceTemplates", "nextCursor") if key in shown})


def _of_resource(part: types.TextResourceContents | types.BlobResourceContents) -> dict[str, Any]:
    if isinstance(part, types.TextResourceContents):
        return {"type": "text", "text": part.text}
    if (part.mime_type or "").startswith("image/"):
        return {"type": "image", "mimeType": part.mime_type, "data": part.blob}
    return {"type": "text", "text": f"[{part.mime_type or 'bytes'}, {len(part.blob) * 3 // 4} bytes]"}


# --- the connection -------------------------------------------------------------------------------------------------------------


async def _with(
    server: McpServer, fetcher: Fetcher, seconds: float, work: Callable[[Client, _McpConnection], Awaitable[T]]
) -> tuple[T, _McpConnection]:
    """Do it over the one transport or the other. Raises :class:`ServerFailure`."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    talk = _McpConnection(server, GuardedTransport(server, fetcher))
    try:
        async with asyncio.timeout(seconds):
            try:
                return await _over(_streamable(talk), talk, work), talk
            except Exception:  # Whatever it was: if the server is an older one, it says so by its status.
                if talk.transport.has_lost_session:  # "The client MUST start a new session" (Streamable HTTP, Session Management).
                    talk = _McpConnection(server, GuardedTransport(server, fetcher))
                    return await _over(_streamable(talk), talk, work), talk
                if talk.connected or talk.transport.status not in _OLDER or talk.transport.refusal is not None:
                    raise
            talk = _McpConnection(server, GuardedTransport(server, fetcher))
            return await _over(_events(talk), talk, work), talk
    except TimeoutError as error:
        raise ServerFailure(_protocol_error(types.REQUEST_TIMEOUT, f"{talk.phase}: it took longer than {seconds:g} seconds")) from error
    except Exception as error:  # The rim of the SDK: it fails in its own ways, in those of HTTP, and in groups of them.
        raise _failure(talk, error) from error


async def _over(transport: Transport, talk: _McpConnection, work: Callable[[Client, _McpConnection], Awaitable[T]]) -> T:
    client = Client(
        transport,
        cache=None,
        message_handler=talk.hear,
        client_info=types.Implementation(name="moorage", version=__version__),
    )
    came: list[T] = []
    problem: Exception | None = None
    try:
        async with asyncio.timeout(limits.MCP_LIST_SECONDS_MAX) as bound:
            async with client:
                bound.reschedule(None)
                talk.connected = True
                try:
                    came.append(await work(client, talk))
                except Exception as error:  # Told below: the session is ended first.
                    problem = error
                bound.reschedule(asyncio.get_running_loop().time() + limits.MCP_GOODBYE_SECONDS_MAX)
    except Exception:  # In its ways or by the bound: how a server takes the end of its session changes nothing of what came before.
        if not came and problem is None:
            raise
    if problem is not None:
        raise problem
    return came[0]


def _http(talk: _McpConnection) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=talk.transport,
        # A compressed answer could grow without bound after it was counted.
        headers={**talk.server.headers, "user-agent": "moorage", "accept-encoding": "identity"},
        timeout=httpx2.Timeout(limits.MCP_CALL_SECONDS_MAX, connect=limits.FETCH_CONNECT_SECONDS),
        trust_env=False,
        max_redirects=limits.FETCH_REDIRECTS_MAX,
    )


@asynccontextmanager
async def _streamable(talk: _McpConnection) -> AsyncIterator[Any]:
    async with (
        _http(talk) as http,
        streamable_http_client(talk.server.url, http_client=http, max_sse_event_size=limits.MCP_MESSAGE_BYTES_MAX) as streams,
    ):
        yield streams


def _events(talk: _McpConnection) -> Any:
    def factory(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        return _http(talk)

    return sse_client(talk.server.url, httpx_client_factory=factory)


# --- what went wrong ------------------------------------------------------------------------------------------------------------


def _failure(talk: _McpConnection, error: Exception) -> ServerFailure:
    leaf = _leaf(error)
    if isinstance(leaf, ServerFailure):
        return leaf
    status = talk.transport.status
    if talk.transport.refusal is not None:
        return ServerFailure(_protocol_error(types.CONNECTION_CLOSED, f"{talk.phase}: {talk.transport.refusal}"))
    is_the_servers = isinstance(leaf, MCPError) and leaf.code not in _STANDS_FOR_STATUS
    if status is not None and status >= httpx2.codes.BAD_REQUEST and not is_the_servers:
        words = f": {leaf.message[: limits.MCP_ERROR_CHARS_MAX]}" if _are_its_words(leaf) else ""
        return ServerFailure({"type": "http_error", "code": status, "message": f"{talk.phase}: the server answered {status}{words}"})
    match leaf:
        case MCPError() if leaf.code != types.PARSE_ERROR:
            return ServerFailure(_protocol_error(leaf.code, f"{talk.phase}: {leaf.message[: limits.MCP_ERROR_CHARS_MAX]}"))
        case MCPError() | ValidationError():
            message = f"{talk.phase}: what the server sent does not have the form of the protocol"
            return ServerFailure(_protocol_error(types.PARSE_ERROR, message))
        case _:
            return ServerFailure(_protocol_error(types.CONNECTION_CLOSED, f"{talk.phase}: the connection broke"))


def _are_its_words(leaf: BaseException) -> TypeGuard[MCPError]:
    return isinstance(leaf, MCPError) and leaf.message not in _MADE_OF_STATUS


def _protocol_error(code: int, message: str) -> dict[str, Any]:
    is_readable = isinstance(listing.plain(code), int)  # An item with another code could not be sent back.
    return {"type": "mcp_protocol_error", "code": code if is_readable else types.INTERNAL_ERROR, "message": message}


def _leaf(error: BaseException) -> BaseException:
    """The first cause in a group that says something of its own."""
    while isinstance(error, BaseExceptionGroup):
        error = next((inner for inner in error.exceptions if not isinstance(inner, asyncio.CancelledError)), error.exceptions[0])
    return error
