"""How answers of the exec server go out: what is ready together in one piece."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from messages import READ_BYTES, HttpResponse, parse_head

HEAD = b"HTTP/1.1 200 -\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class FakeWriter:
    written: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    async def drain(self) -> None:
        """It is never full."""


def response_to(writer: Any) -> HttpResponse:
    return HttpResponse(writer, parse_head(b"GET / HTTP/1.1\r\n\r\n", asyncio.StreamReader()))


async def test_what_is_ready_in_one_turn_of_the_loop_goes_out_in_one_piece() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        yield b"one"
        yield b"two"
        await asyncio.sleep(0)
        yield b"three"

    writer = FakeWriter()
    await response_to(writer).stream("text/plain", pieces())
    assert writer.written == [HEAD + b"3\r\none\r\n3\r\ntwo\r\n", b"5\r\nthree\r\n0\r\n\r\n"]


async def test_large_pieces_go_out_one_by_one() -> None:
    large = bytes(READ_BYTES)

    async def pieces() -> AsyncIterator[bytes]:
        yield large
        yield large

    writer = FakeWriter()
    await response_to(writer).stream("text/plain", pieces())
    chunk = b"10000\r\n" + large + b"\r\n"
    assert writer.written == [HEAD + chunk, chunk, b"0\r\n\r\n"]


async def test_what_was_ready_before_an_error_goes_out() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        raise OSError("the disk is gone")

    writer = FakeWriter()
    with pytest.raises(OSError, match="the disk is gone"):
        await response_to(writer).stream("text/plain", pieces())
    assert writer.written == [HEAD + b"3\r\none\r\n"]
