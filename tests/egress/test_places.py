"""Containers that reach the proxy from one address: each is counted for itself, if its forwarder says whose it is."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from moorage import limits
from moorage.egress.places import LINE_BYTES_MAX, PREFACE, place_in, place_word, places_key

from functions.egress_proxy.admission import Admission
from functions.egress_proxy.listening import ClientListener

KEY = places_key(b"k" * 32)
REQUEST = b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n"
ROOM = 8
ADDRESS = "127.0.0.1"


def line(container_id: str, key: bytes = KEY) -> bytes:
    return PREFACE + place_word(key, container_id).encode() + b"\n"


@dataclass
class Proxy:
    """The proxy's door, with room for a few strangers of a place; whoever is let in stays until the test ends."""

    places: Counter[str] = field(default_factory=Counter)
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    clients: list[asyncio.StreamWriter] = field(default_factory=list)
    listener: Any = None

    def has_room(self, place: str, waiting: Counter[str]) -> bool:
        return self.places[place] + waiting[place] < ROOM

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = writer.get_extra_info("peername")[0]
        self.places[place] += 1
        self.heard.append((place, await reader.readuntil(b"\r\n\r\n")))
        writer.write(b"served")
        self.clients.append(writer)

    async def connect(self, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.listener.name.rsplit(":", 1))
        self.clients.append(writer)
        writer.write(said)
        return reader, writer

    async def serves(self, *said: bytes) -> bool:
        """Whether a client that says this, piece by piece, is served."""
        reader, writer = await self.connect()
        for piece in said:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            try:
                return await reader.read(100) == b"served"
            except ConnectionResetError:
                return False


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    admission = Admission(proxy.has_room)
    proxy.listener = ClientListener(f"{ADDRESS}:0", admission, proxy.handle, KEY)
    running = asyncio.create_task(admission.run())
    yield proxy
    proxy.listener.close()
    running.cancel()
    for client in proxy.clients:
        client.close()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_container_that_fills_its_address_leaves_the_others_their_way_out(proxy: Proxy) -> None:
    """All MicroVMs of a connector have one address. Before, its strangers were one count."""
    for _ in range(2 * ROOM):
        await proxy.serves(REQUEST)
    assert proxy.places == {ADDRESS: ROOM}
    assert not await proxy.serves(REQUEST)
    assert await proxy.serves(line("cntr_1"), REQUEST)
    assert proxy.heard[-1] == ("cntr_1", REQUEST)


async def test_one_that_fills_its_own_place_leaves_the_others_theirs(proxy: Proxy) -> None:
    for _ in range(ROOM):
        assert await proxy.serves(line("cntr_1") + REQUEST)
    assert not await proxy.serves(line("cntr_1"), REQUEST)
    assert await proxy.serves(line("cntr_2"), REQUEST)


async def test_silent_connections_take_no_room_from_those_that_speak(proxy: Proxy) -> None:
    silent = [await proxy.connect() for _ in range(limits.EGRESS_SILENT_MAX + 20)]
    assert await proxy.serves(line("cntr_1"), REQUEST)
    assert await proxy.serves(REQUEST), "nor from one that does not say whose it is"
    async with asyncio.timeout(20):
        assert [await reader.read() for reader, _ in silent[:10]] == [b""] * 10, "the oldest have gone"


async def test_the_line_may_come_in_pieces_and_what_follows_it_is_heard_as_a_whole(proxy: Proxy) -> None:
    whole = line("cntr_1") + REQUEST
    assert await proxy.serves(*(whole[at : at + 7] for at in range(0, len(whole), 7)))
    assert proxy.heard == [("cntr_1", REQUEST)]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(line("cntr_1", places_key(b"x" * 32)), id="signed by another"),
        pytest.param(line("cntr_1").replace(b"cntr_1", b"cntr_2"), id="of another container"),
        pytest.param(PREFACE + b"x" * LINE_BYTES_MAX, id="without an end"),
        pytest.param(PREFACE + b"\xff\n", id="not of letters"),
        pytest.param(b"MOOR", id="the beginning of one"),
    ],
)
async def test_a_line_that_the_deployment_did_not_write_is_the_addresss(proxy: Proxy, said: bytes) -> None:
    assert await proxy.serves(said, REQUEST)
    assert proxy.heard == [(ADDRESS, said + REQUEST)]


def test_a_place_is_a_containers_own_word() -> None:
    assert place_in(line("cntr_1").rstrip(), KEY) == "cntr_1"
    assert place_in(b"GET / HTTP/1.1", KEY) is None
