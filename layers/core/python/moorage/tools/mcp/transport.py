"""HTTP to one MCP server, guarded: what the SDK sends goes through here and nowhere else.

Its name is looked up once and judged, and every connection goes to a judged address, with the name as SNI and ``Host``. Nothing leaves
the server's origin, whatever it redirects to or names as its endpoint. What it sends is counted, and never comes compressed.

An answer bears the id of its request ("The Response object MUST contain [...] the same as the value of the id member in the Request
Object", JSON-RPC 2.0, section 5). The SDK takes an event with any id for the answer, and waits for ever behind a body with another one.
"""

from collections.abc import AsyncIterator, Container
from typing import Any, Final

import httpx2
import orjson

from moorage import limits
from moorage.egress.fetch import ADDRESSES_TRIED_MAX, Fetcher, FetchError
from moorage.net.sse import SseParser
from moorage.tools.mcp.servers import McpServer

_PORTS: Final = {"http": 80, "https": 443}
_FREE: Final = frozenset({"structuredContent", "inputSchema", "outputSchema"})
"""Fields of any JSON. The SDK takes it as it is, and makes objects of all others."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, server: McpServer, fetcher: Fetcher) -> None:
        self._server, self._fetcher = server, fetcher
        self._origin = _origin(httpx2.URL(server.url))
        self._addresses: list[str] | None = None
        self._left = limits.MCP_CONNECTION_BYTES_MAX
        # The context loads every certificate of the system: only where it is needed.
        verify = fetcher.tls() if self._origin[0] == "https" else False
        self._inner = httpx2.AsyncHTTPTransport(verify=verify, trust_env=False)
        self.status: int | None = None
        """Of the latest answer."""
        self.has_lost_session = False
        """The server answered a request of a session with 404: it has forgotten the session, and the request was not run."""
        self.refusal: str | None = None
        """Why something was not sent or not taken; the SDK keeps such reasons to itself."""
        self._asked: set[str] = set()
        """Ids of all requests so far: an older server answers them on a stream of their own."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._answer(request)
        except FetchError as error:
            raise self._refused(str(error)) from error

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        scheme, host, port = _origin(request.url)
        if (scheme, host, port) != self._origin:
            raise FetchError("it leads to another origin")
        if self._addresses is None:
            self._addresses = await self._fetcher.admitted(host, port, is_operators=self._server.is_operators)
        asked = self._ids_of(request)
        response = await self._sent(request, host, self._addresses)
        self.status = response.status_code
        if self.status == 404 and request.method == "POST" and "mcp-session-id" in request.headers:
            # An answer to the server's own question may come too late for its session, beside a call that runs: it has no method.
            self.has_lost_session = self.has_lost_session or {"id", "method"} <= orjson.loads(request.content).keys()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise FetchError("the server sent it compressed without being asked")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Counted(self, response.stream, _Ids(asked, response) if asked is not None else None),
            extensions=response.extensions,
        )

    def _ids_of(self, request: httpx2.Request) -> Container[str] | None:
        """The allowed ids of an answer; None for a message that is no request of the protocol, and has no answer."""
        if request.method != "POST":
            return self._asked
        message = _parsed(request.content)
        if not isinstance(message, dict) or not {"id", "method"} <= message.keys():
            return None
        self._asked.add(str(message["id"]))
        return {str(message["id"])}

    async def _sent(self, request: httpx2.Request, host: str, addresses: list[str]) -> httpx2.Response:
        """The answer of the first address that takes the connection."""
        problem: httpx2.HTTPError | None = None
        for address in addresses[:ADDRESSES_TRIED_MAX]:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = error
        raise FetchError("the server cannot be reached") from problem

    def count(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        if self._left < 0:
            raise self._refused(f"the server sent more than {limits.MCP_CONNECTION_BYTES_MAX} bytes")

    def check(self, ids: "_Ids", text: bytes | str) -> None:
        """Raises for an answer to another request, and for a message of too many values."""
        message = _parsed(text)
        if ids.is_of_another(message):
            raise self._refused("the server's answer does not have the id of the request")
        if _has_too_many_values(message):
            raise self._refused(f"the server sent a message of more than {limits.MCP_MESSAGE_VALUES_MAX} values")

    def _refused(self, reason: str) -> httpx2.TransportError:
        self.refusal = reason
        return httpx2.TransportError(reason)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Ids:
    """The allowed ids of the messages of one HTTP answer."""

    def __init__(self, allowed: Container[str], response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._allowed = allowed
        # With an error's status the SDK says what the server says, whose id may be null.
        self.is_body = kind == "application/json" and response.status_code < httpx2.codes.BAD_REQUEST
        self.is_events = kind == "text/event-stream"

    def is_of_another(self, message: Any) -> bool:
        is_answer = isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message)
        return is_answer and str(message.get("id")) not in self._allowed


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, transport: GuardedTransport, stream: httpx2.AsyncByteStream, ids: _Ids | None) -> None:
        self._transport, self._stream, self._ids = transport, stream, ids

    async def __aiter__(self) -> AsyncIterator[bytes]:
        ids = self._ids
        if ids is not None and ids.is_body:
            body = b"".join([chunk async for chunk in self._chunks()])
            self._transport.check(ids, body)
            yield body
            return
        events = SseParser(limits.MCP_CONNECTION_BYTES_MAX)
        async for chunk in self._chunks():
            if ids is not None and ids.is_events:
                for event in events.feed(chunk):
                    self._transport.check(ids, event.data)
            yield chunk

    async def _chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._transport.count(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _has_too_many_values(message: Any) -> bool:
    count, rest = 0, [message]
    while rest and count <= limits.MCP_MESSAGE_VALUES_MAX:
        value = rest.pop()
        if not isinstance(value, dict | list):
            continue
        count += len(value)
        if count <= limits.MCP_MESSAGE_VALUES_MAX:
            rest += value if isinstance(value, list) else [each for name, each in value.items() if name not in _FREE]
    return count > limits.MCP_MESSAGE_VALUES_MAX


def _parsed(text: bytes | str) -> Any:
    """None for text that is no JSON: the SDK reports it."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]
