import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pytest
from moorage import limits
from moorage.api.answers import BodyPiece, JsonResponse, StreamedResponse

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain; charset=utf-8")]}


@dataclass
class Client:
    """What a server does for an application; the client stays until it leaves."""

    sent: list[Any] = field(default_factory=list)
    has_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self) -> dict[str, Any]:
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.has_left.set()  # As uvicorn says it.

    async def get(self, pieces: AsyncGenerator[BodyPiece, None], *, begins_at_once: bool = False) -> None:
        response = StreamedResponse(pieces, media_type="text/plain", begins_at_once=begins_at_once)
        await response({"type": "http"}, self.receive, self.send)


def body(text: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": more}


async def test_the_last_piece_ends_the_body() -> None:
    async def pieces() -> AsyncGenerator[BodyPiece, None]:
        yield BodyPiece(b"a")
        yield BodyPiece(b"b", is_last=True)

    client = Client()
    await client.get(pieces())
    assert client.sent == [START, body(b"a", more=True), body(b"b", more=False)]


async def test_a_body_ends_also_where_no_piece_was_the_last() -> None:
    async def pieces() -> AsyncGenerator[BodyPiece, None]:
        yield BodyPiece(b"a")

    client = Client()
    await client.get(pieces())
    assert client.sent == [START, body(b"a", more=True), body(b"", more=False)]


async def test_the_head_of_a_body_that_begins_at_once_waits_for_its_first_piece() -> None:
    client = Client()

    async def pieces() -> AsyncGenerator[BodyPiece, None]:
        assert client.sent == []
        yield BodyPiece(b"a", is_last=True)

    await client.get(pieces(), begins_at_once=True)
    assert client.sent == [START, body(b"a", more=False)]


async def test_a_body_that_breaks_off_before_its_first_piece_has_no_head() -> None:
    async def pieces() -> AsyncGenerator[BodyPiece, None]:
        for piece in list[BodyPiece]():
            yield piece
        raise ValueError("it broke off")

    client = Client()
    with pytest.raises(ValueError, match="it broke off"):
        await client.get(pieces(), begins_at_once=True)
    assert client.sent == []


SIZE = limits.BLOB_READ_BYTES


async def test_a_large_piece_is_sent_in_parts() -> None:
    async def pieces() -> AsyncGenerator[BodyPiece, None]:
        yield BodyPiece(b"a" * (SIZE + 1))
        yield BodyPiece(b"b" * SIZE, is_last=True)

    client = Client()
    await client.get(pieces())
    assert client.sent == [START, body(b"a" * SIZE, more=True), body(b"a", more=True), body(b"b" * SIZE, more=False)]


@pytest.mark.parametrize(("chars", "sizes"), [(2, [4]), (SIZE - 2, [SIZE]), (2 * SIZE, [SIZE, SIZE, 2])])
async def test_a_large_json_body_is_sent_in_parts(chars: int, sizes: list[int]) -> None:
    client = Client()
    await JsonResponse("a" * chars)({"type": "http"}, client.receive, client.send)
    start, *parts = client.sent
    length = (b"content-length", b"%d" % (chars + 2))
    assert start == {"type": "http.response.start", "status": 200, "headers": [length, (b"content-type", b"application/json")]}
    assert [len(part["body"]) for part in parts] == sizes
    assert [part.get("more_body", False) for part in parts] == [True] * (len(sizes) - 1) + [False]
    assert b"".join(part["body"] for part in parts) == b'"' + b"a" * chars + b'"'


async def test_the_refusal_of_a_websocket_has_messages_of_its_own() -> None:
    client = Client()
    await JsonResponse({}, status_code=429)({"type": "websocket", "extensions": {}}, client.receive, client.send)
    assert [message["type"] for message in client.sent] == ["websocket.http.response.start", "websocket.http.response.body"]


@dataclass
class Source:
    """Pieces that never end, and what became of their source."""

    is_waiting: asyncio.Event = field(default_factory=asyncio.Event)
    is_closed: bool = False

    async def pieces(self) -> AsyncGenerator[BodyPiece, None]:
        try:
            yield BodyPiece(b"a")
            self.is_waiting.set()
            await asyncio.Event().wait()
        finally:
            self.is_closed = True


async def test_a_client_that_leaves_ends_what_makes_the_pieces() -> None:
    client, source = Client(), Source()
    answering = asyncio.create_task(client.get(source.pieces()))
    await source.is_waiting.wait()
    client.has_left.set()
    await answering
    assert (client.sent, source.is_closed) == ([START, body(b"a", more=True)], True)


async def test_a_server_that_stops_is_not_taken_for_a_client_that_leaves() -> None:
    client, source = Client(), Source()
    answering = asyncio.create_task(client.get(source.pieces()))
    await source.is_waiting.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert source.is_closed


async def test_an_error_of_what_makes_the_pieces_reaches_the_server() -> None:
    async def pieces() -> AsyncGenerator[BodyPiece, None]:
        yield BodyPiece(b"a")
        raise ValueError("broken")

    client = Client()
    with pytest.raises(ValueError, match="broken"):
        await client.get(pieces())
    assert client.sent == [START, body(b"a", more=True)]
