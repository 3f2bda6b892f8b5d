import asyncio
from typing import cast

from moorage.net.http_server import GatheringTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Transport:
    """What a connection was given, call by call."""

    def __init__(self) -> None:
        self.calls: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")


def gathering() -> tuple[GatheringTransport, Transport]:
    below = Transport()
    return GatheringTransport(cast("asyncio.Transport", below), asyncio.get_running_loop()), below


async def test_a_head_leaves_with_the_first_part_of_its_body() -> None:
    transport, below = gathering()
    transport.write(HEAD)
    transport.write(b"ok")
    transport.write(b"more")
    await asyncio.sleep(0)
    assert below.calls == [HEAD + b"ok", b"more"]


async def test_a_head_without_a_body_leaves_at_the_end_of_the_turn() -> None:
    transport, below = gathering()
    transport.write(HEAD)
    assert below.calls == []
    await asyncio.sleep(0)
    transport.write(b"ok")
    assert below.calls == [HEAD, b"ok"]


async def test_the_heads_of_two_answers_without_bodies_both_leave() -> None:
    transport, below = gathering()
    transport.write(HEAD)
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert below.calls == [HEAD + HEAD]


async def test_a_close_comes_after_the_head() -> None:
    transport, below = gathering()
    transport.write(HEAD)
    transport.close()
    await asyncio.sleep(0)
    assert below.calls == [HEAD, "close"]
