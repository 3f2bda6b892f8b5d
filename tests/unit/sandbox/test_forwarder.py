"""The way from a sandbox to a proxy that has an address and no name, and moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import forwarder
import pytest
from forwarder import ADDRESSES_MAX, Forwarder, addresses

NETWORK = "127.77.3.0/29"
PLACE = "cntr_1.word"


@asynccontextmanager
async def proxy(address: str, name: str) -> AsyncIterator[list[bytes]]:
    """Answers its name and what it was told, and hangs up."""
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if said := await reader.readline():  # One that only looked says nothing.
            lines.append(said)
            writer.write(f"{name}: ".encode() + await reader.readline())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, address, forwarder.PROXY_PORT)
    try:
        yield lines
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Where commands find the forwarder."""
    way = Forwarder({"networks": [NETWORK], "place": PLACE})
    assert way.has_way
    server = await asyncio.start_server(way.forward, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def asks(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def test_a_connection_reaches_the_proxy_and_says_first_whose_it_is(port: int) -> None:
    async with proxy("127.77.3.4", "here") as lines:
        assert [await asks(port), await asks(port)] == [b"here: hello\n"] * 2
        assert lines == [f"MOORAGE-PLACE {PLACE}\n".encode()] * 2


async def test_a_proxy_that_has_moved_is_found_at_the_next_connection(port: int) -> None:
    async with proxy("127.77.3.4", "here"):
        assert await asks(port) == b"here: hello\n"
    async with proxy("127.77.3.6", "there"):
        assert await asks(port) == b"there: hello\n"


async def test_a_proxy_that_only_starts_is_waited_for(port: int) -> None:
    asking = asyncio.create_task(asks(port))
    await asyncio.sleep(0)
    async with proxy("127.77.3.2", "late"):
        assert await asking == b"late: hello\n"


async def test_connections_at_once_look_for_it_together(port: int) -> None:
    async with proxy("127.77.3.5", "here"):
        assert await asyncio.gather(*(asks(port) for _ in range(20))) == [b"here: hello\n"] * 20


def test_the_addresses_of_networks_are_those_that_a_machine_can_have() -> None:
    assert addresses(["10.43.0.0/30", "10.43.0.16/30"]) == ["10.43.0.1", "10.43.0.2", "10.43.0.17", "10.43.0.18"]
    assert len(addresses(["10.43.0.0/24"])) == ADDRESSES_MAX
    assert not Forwarder({"ca_pem": "x"}).has_way
