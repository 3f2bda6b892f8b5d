"""The transport to model upstreams, against servers that say byte for byte what a test wants."""

import asyncio
import contextlib
import gc
import gzip
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from moorage.net.transport import ThroughProxy, UpstreamTransport, upstream_transport

from tests.tls import certificate

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"content-length: 5\r\n\r\nhello"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


@dataclass(slots=True)
class Server:
    """Plays one list of pieces for each request. The last piece may be ``CUT`` (the connection closes) or ``HANG`` (nothing more)."""

    plays: list[Sequence[bytes]]
    url: str = ""
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Head and body."""
    connections: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """A client has closed its connection."""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def gone(self) -> None:
        """Returns when the last connection is closed, and its client has had the time to hear of it."""
        await self.writers[-1].wait_closed()
        await asyncio.sleep(0.05)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                self.requests.append((head, await reader.readexactly(length)))
                for piece in self.plays.pop(0):
                    if piece is CUT:
                        writer.close()
                        return
                    if piece is HANG:
                        await reader.read()
                        break
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        self.lost.set()
        writer.close()


CUT, HANG = b"<cut>", b"<hang>"


@asynccontextmanager
async def server(*plays: Sequence[bytes], tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    playing = Server(list(plays))
    listening = await asyncio.start_server(playing.serve, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    playing.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
    try:
        yield playing
    finally:
        listening.close()
        for writer in playing.writers:
            writer.transport.abort()
        await listening.wait_closed()


@asynccontextmanager
async def transport(**options: float) -> AsyncIterator[UpstreamTransport]:
    made = UpstreamTransport(**options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.aclose()


def request(url: str, content: bytes = b"{}", *, silence: float | None = 5, connect: float | None = 5) -> httpx.Request:
    return httpx.Request("POST", f"{url}/v1/x?a=b", content=content, extensions={"timeout": {"connect": connect, "read": silence}})


async def ask(http: UpstreamTransport, asked: httpx.Request) -> tuple[int, bytes]:
    response = await http.handle_async_request(asked)
    try:
        return response.status_code, await response.aread()
    finally:
        await response.aclose()


# --- what an answer may look like ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    {
        "a length": [HELLO],
        "byte for byte": [HELLO[i : i + 1] for i in range(len(HELLO))],
        "chunks": [CHUNKED, b"2\r\nhe\r\n", b"3\r\nllo\r\n", b"0\r\n\r\n"],
        "chunks with extensions and trailers": [CHUNKED + b'2;name=value\r\nhe\r\n3;q="a b"\r\nllo\r\n0\r\nx-sum: 1\r\n\r\n'],
        "chunks and a length": [OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
        "neither length nor chunks": [OK + b"\r\nhel", b"lo", CUT],
        "HTTP/1.0": [b"HTTP/1.0 200 OK\r\n\r\nhello", CUT],
        "100 and 103 before it": [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", HELLO],
        "gzip": [OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"hello"), CUT],
        "no reason phrase": [b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello"],
    }.items(),
    ids=lambda pair: pair[0],
)
async def test_a_body_is_read_however_it_is_framed(pieces: tuple[str, Sequence[bytes]]) -> None:
    async with server(pieces[1]) as playing, transport() as http:
        assert await ask(http, request(playing.url)) == (200, b"hello")


async def test_a_request_goes_out_as_httpx_made_it() -> None:
    async with server([HELLO]) as playing, transport() as http:
        await ask(http, request(playing.url, b'{"model": "m"}'))
    host = playing.url.removeprefix("http://").encode()
    head = b"POST /v1/x?a=b HTTP/1.1\r\nHost: %b\r\nContent-Length: 14\r\n\r\n" % host
    assert playing.requests == [(head, b'{"model": "m"}')]


async def test_where_there_is_a_unix_socket_every_request_goes_to_it(tmp_path: Path) -> None:
    playing = Server([[HELLO], [HELLO]])
    listening = await asyncio.start_unix_server(playing.serve, tmp_path / "socket")
    async with listening, aclosing(UpstreamTransport(uds=str(tmp_path / "socket"))) as http:
        answers = [await ask(http, request("http://sandbox")), await ask(http, request("http://sandbox"))]
    assert (answers, playing.connections) == ([(200, b"hello")] * 2, 1)


async def test_a_unix_socket_where_nobody_listens_is_a_connect_error(tmp_path: Path) -> None:
    async with aclosing(UpstreamTransport(uds=str(tmp_path / "nobody"))) as http:
        with pytest.raises(httpx.ConnectError):
            await ask(http, request("http://sandbox"))


async def test_headers_are_given_as_they_came() -> None:
    head = OK + b"X-One: 1\r\nset-cookie: a\r\nset-cookie: b\r\ncontent-length: 0\r\n\r\n"
    async with server([head]) as playing, transport() as http:
        response = await http.handle_async_request(request(playing.url))
        await response.aclose()
    assert response.headers.raw == [(b"X-One", b"1"), (b"set-cookie", b"a"), (b"set-cookie", b"b"), (b"content-length", b"0")]


async def test_what_has_come_is_handed_on_before_the_rest_comes() -> None:
    async with server([CHUNKED + b"5\r\nfirst\r\n", HANG]) as playing, transport() as http:
        response = await http.handle_async_request(request(playing.url))
        pieces = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(pieces) == b"first"
        await response.aclose()


async def test_a_large_body_waits_for_its_reader_and_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000
    async with server([OK + b"content-length: %d\r\n\r\n" % len(body), body]) as playing, transport() as http:
        assert await ask(http, request(playing.url)) == (200, body)


async def test_a_large_request_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000
    async with server([HELLO]) as playing, transport() as http:
        await ask(http, request(playing.url, body))
    assert playing.requests[0][1] == body


async def test_a_large_request_arrives_whole_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = bytes(range(256)) * 40_000
    tls = certificate(tmp_path, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    async with server([HELLO], [HELLO], tls=tls) as playing, transport() as http:
        assert [await ask(http, request(playing.url, body)) for _ in range(2)] == [(200, b"hello")] * 2
    assert ([sent for _, sent in playing.requests], playing.connections) == ([body, body], 1)


async def test_a_request_goes_on_while_its_answer_comes() -> None:
    body = bytes(range(256)) * 40_000
    taken: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-length: 5\r\n\r\nhel")
        taken.append(await reader.readexactly(len(body)))
        writer.write(b"lo")
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening, transport() as http:
        assert await ask(http, request(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", body)) == (200, b"hello")
    assert taken == [body]


# --- what goes wrong ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([CUT], httpx.RemoteProtocolError),
        ([OK, CUT], httpx.RemoteProtocolError),
        ([OK + b"content-length: 9\r\n\r\nhello", CUT], httpx.RemoteProtocolError),
        ([CHUNKED + b"5\r\nhello\r\n", CUT], httpx.RemoteProtocolError),
        ([CHUNKED + b"x\r\nhello\r\n", HANG], httpx.RemoteProtocolError),
        ([b"SSH-2.0-OpenSSH\r\n", HANG], httpx.RemoteProtocolError),
        ([b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", HANG], httpx.RemoteProtocolError),
        ([OK + b"x: " + b"y" * 100_000, HANG], httpx.RemoteProtocolError),
        ([CHUNKED + b"1;" + b"y" * 100_000, HANG], httpx.RemoteProtocolError),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000, HANG], httpx.RemoteProtocolError),
    ],
    ids=[
        "nothing",
        "half a head",
        "less than its length",
        "chunks without an end",
        "a size that is no number",
        "another protocol",
        "an upgrade",
        "a head without end",
        "a chunk extension without end",
        "nothing but interim answers",
    ],
)
async def test_an_answer_that_is_none_is_an_error(pieces: Sequence[bytes], error: type[Exception]) -> None:
    async with server(pieces) as playing, transport() as http:
        with pytest.raises(error):
            await ask(http, request(playing.url))


async def test_what_came_before_a_broken_connection_is_read_first() -> None:
    async with server([CHUNKED + b"5\r\nfirst\r\n", CUT]) as playing, transport() as http:
        response = await http.handle_async_request(request(playing.url))
        pieces = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(pieces) == b"first"
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(pieces)
        await response.aclose()


@pytest.mark.parametrize(
    "pieces", [[HANG], [OK, HANG], [CHUNKED + b"5\r\nfirst\r\n", HANG]], ids=["at once", "in the head", "in the body"]
)
async def test_a_server_that_falls_silent_times_out(pieces: Sequence[bytes]) -> None:
    async with server(pieces) as playing, transport() as http:
        with pytest.raises(httpx.ReadTimeout):
            await ask(http, request(playing.url, silence=0.05))
        await playing.lost.wait()


async def test_a_server_that_does_not_take_the_request_times_out() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await gone.wait()
        writer.transport.abort()

    gone = asyncio.Event()
    listening = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
    async with transport() as http:
        with pytest.raises(httpx.WriteTimeout):
            await ask(http, request(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", bytes(32_000_000), silence=0.2))
    gone.set()
    listening.close()
    await listening.wait_closed()


async def test_an_answer_that_is_longer_than_the_silence_it_allows_is_no_silence() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(CHUNKED)
        for _ in range(6):
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(0.1)
        writer.write(b"0\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(slow, "127.0.0.1", 0)
    async with transport() as http:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        assert await ask(http, request(url, silence=0.4)) == (200, b"xxxxxx")
    listening.close()
    await listening.wait_closed()


async def test_a_port_that_nobody_listens_on_is_an_error() -> None:
    async with server() as playing:
        pass
    async with transport() as http:
        with pytest.raises(httpx.ConnectError):
            await ask(http, request(playing.url))


async def test_a_connection_that_is_not_made_in_time_is_an_error() -> None:
    never = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    listening = await asyncio.start_server(mute, "127.0.0.1", 0)
    async with transport() as http:
        # It accepts, but its side of the TLS handshake never comes.
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with pytest.raises(httpx.ConnectTimeout):
            await ask(http, request(url, connect=0.05))
    never.set()
    listening.close()
    await listening.wait_closed()


async def test_only_http_is_spoken() -> None:
    async with transport() as http:
        with pytest.raises(httpx.UnsupportedProtocol):
            await ask(http, request("ftp://127.0.0.1"))


# --- connections ------------------------------------------------------------------------------------------------------------------


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    async with server([HELLO], [CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"], [HELLO]) as playing, transport() as http:
        assert [await ask(http, request(playing.url)) for _ in range(3)] == [(200, b"hello")] * 3
        assert playing.connections == 1


@pytest.mark.parametrize(
    "first",
    {
        "the server said so": OK + b"connection: close\r\ncontent-length: 5\r\n\r\nhello",
        "it speaks HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "its framing was doubtful": OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "more came than was asked for": HELLO + HELLO,
    }.items(),
    ids=lambda pair: pair[0],
)
async def test_a_connection_is_not_used_again_if(first: tuple[str, bytes]) -> None:
    async with server([first[1]], [HELLO]) as playing, transport() as http:
        assert [await ask(http, request(playing.url)) for _ in range(2)] == [(200, b"hello")] * 2
        assert playing.connections == 2


async def test_a_connection_is_not_used_again_if_the_answer_came_before_all_of_the_request() -> None:
    is_left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await is_left.wait()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening, transport() as http:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        assert [await ask(http, request(url, bytes(50_000_000))) for _ in range(2)] == [(200, b"hello")] * 2
        is_left.set()


@pytest.mark.parametrize("size", [2, 1_000_000])
async def test_a_connection_that_waits_keeps_nothing_of_what_it_has_sent(size: int) -> None:
    content = bytes(size)
    async with server([HELLO], [HELLO]) as playing, transport() as http:
        known = sys.getrefcount(content)
        await ask(http, request(playing.url, content))
        gc.collect()
        assert sys.getrefcount(content) == known
        await ask(http, request(playing.url))
    assert playing.connections == 1


async def test_a_connection_that_its_server_closed_meanwhile_is_not_used() -> None:
    async with server([HELLO, CUT], [HELLO]) as playing, transport() as http:
        await ask(http, request(playing.url))
        await playing.gone()
        assert await ask(http, request(playing.url)) == (200, b"hello")
        assert (playing.connections, len(playing.requests)) == (2, 2)


async def test_a_request_that_was_sent_is_never_sent_again() -> None:
    async with server([HELLO], [CUT], [HELLO]) as playing, transport() as http:
        await ask(http, request(playing.url))
        with pytest.raises(httpx.RemoteProtocolError):
            await ask(http, request(playing.url))
        assert len(playing.requests) == 2


async def test_a_connection_that_was_idle_for_too_long_is_not_used() -> None:
    async with server([HELLO], [HELLO]) as playing, transport(idle_seconds=0) as http:
        await ask(http, request(playing.url))
        await ask(http, request(playing.url))
        assert playing.connections == 2


async def test_only_so_many_idle_connections_are_kept() -> None:
    async with server(*[[HELLO]] * 6) as playing, transport(idle_max=1) as http:
        await asyncio.gather(*(ask(http, request(playing.url)) for _ in range(3)))
        assert playing.connections == 3
        await asyncio.gather(*(ask(http, request(playing.url)) for _ in range(3)))
        assert playing.connections == 5


async def test_an_answer_that_nobody_reads_on_closes_its_connection() -> None:
    async with server([CHUNKED + b"5\r\nfirst\r\n", HANG]) as playing, transport() as http:
        response = await http.handle_async_request(request(playing.url))
        await response.aclose()
        await playing.lost.wait()


async def test_a_request_that_is_cancelled_closes_its_connection() -> None:
    async with server([HANG]) as playing, transport() as http:
        asking = asyncio.create_task(ask(http, request(playing.url)))
        while not playing.requests:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await playing.lost.wait()


async def test_closing_the_transport_ends_what_is_under_way() -> None:
    async with server([CHUNKED + b"5\r\nfirst\r\n", HANG]) as playing, transport() as http:
        response = await http.handle_async_request(request(playing.url))
        pieces = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(pieces) == b"first"
        await http.aclose()
        with pytest.raises(httpx.TransportError):
            await anext(pieces)
        await playing.lost.wait()


async def test_many_requests_at_once_have_connections_of_their_own() -> None:
    async with server(*[[HELLO]] * 64) as playing, transport() as http:
        answers = await asyncio.gather(*(ask(http, request(playing.url)) for _ in range(64)))
        assert answers == [(200, b"hello")] * 64


# --- TLS and proxies ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_trusted", "is_accepted"),
    [("127.0.0.1", True, True), ("127.0.0.1", False, False), ("elsewhere", True, False)],
    ids=["a certificate that SSL_CERT_FILE names", "an unknown one", "another host's"],
)
async def test_a_certificate_is_checked(
    name: str, is_trusted: bool, is_accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certificate(tmp_path, name)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    refused = contextlib.nullcontext() if is_accepted else pytest.raises(httpx.ConnectError, match="certificate verify failed")
    async with server([HELLO], [HELLO], tls=tls) as playing, transport() as http:
        with refused:
            assert [await ask(http, request(playing.url)) for _ in range(2)] == [(200, b"hello")] * 2
        assert len(playing.requests) == (2 if is_accepted else 0)


@pytest.mark.parametrize(
    ("environment", "kind"),
    [({}, UpstreamTransport), ({"no_proxy": "example.com"}, UpstreamTransport), ({"https_proxy": "http://127.0.0.1:9"}, ThroughProxy)],
    ids=["nothing", "only exceptions", "a proxy"],
)
async def test_a_proxy_of_the_environment_is_left_to_httpx(
    environment: dict[str, str], kind: Callable[[], httpx.AsyncBaseTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    chosen = upstream_transport()
    assert type(chosen) is kind
    await chosen.aclose()


async def test_a_request_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server([HELLO]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        http = upstream_transport()
        response = await http.handle_async_request(request("http://models.example.com"))
        assert (response.status_code, await response.aread()) == (200, b"hello")
        await response.aclose()
        await http.aclose()
    assert proxy.requests[0][0].startswith(b"POST http://models.example.com/v1/x?a=b HTTP/1.1\r\n")
