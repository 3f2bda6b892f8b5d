from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from typing import Any, Dict, List, Optional, Tuple

READ_BYTES = 64 * 1024
PROXY_PORT = 3128
PREFACE = "MOORAGE-PLACE"
CONNECT_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 1.0
PROXY_SECONDS = 60.0
"""The proxy may just be starting, with this sandbox."""
ADDRESSES_MAX = 64

Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Forwarder:
    """From 127.0.0.1 to the proxy: its Unix socket, or the address that it has in one of its networks.

    In networks the proxy is looked for: it moves when it is started anew, and no name leads to it where there is no resolver. It is the
    only one that listens there.
    """

    def __init__(self, egress: Dict[str, Any]) -> None:
        self._socket: str = egress.get("socket", "")
        self._addresses = addresses(egress.get("networks", []))
        self._place: str = egress.get("place", "")
        """Said first, where sandboxes share an address."""
        self._looking = asyncio.Lock()

    @property
    def has_way(self) -> bool:
        return bool(self._socket or self._addresses)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.close()
            return
        try:
            if self._place:
                far_writer.write(("%s %s\n" % (PREFACE, self._place)).encode())
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    async def _connect(self) -> Streams:
        if self._socket:
            return await asyncio.open_unix_connection(self._socket)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PROXY_SECONDS
        while True:
            found = await self._known() or await self._found()
            if found is not None:
                return found
            if loop.time() > deadline:
                raise ConnectionRefusedError("no proxy listens")
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _known(self) -> Optional[Streams]:
        """Where it was the last time."""
        return await opened(self._addresses[0])

    async def _found(self) -> Optional[Streams]:
        """Look at all addresses at once, one connection of this sandbox after the other."""
        async with self._looking:
            first = await self._known()
            if first is not None:
                return first
            streams = await asyncio.gather(*(opened(address) for address in self._addresses))
            there = [(address, each) for address, each in zip(self._addresses, streams) if each is not None]
            for _, (_, spare) in there[1:]:
                spare.close()
            if not there:
                return None
            address, found = there[0]
            self._addresses.remove(address)
            self._addresses.insert(0, address)
            return found


def addresses(networks: List[str]) -> List[str]:
    """Those that a machine can have."""
    hosts = [str(host) for network in networks for host in ipaddress.IPv4Network(network).hosts()]
    return hosts[:ADDRESSES_MAX]


async def opened(address: str) -> Optional[Streams]:
    try:
        return await asyncio.wait_for(asyncio.open_connection(address, PROXY_PORT), CONNECT_SECONDS)
    except (OSError, asyncio.TimeoutError):
        return None


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = await reader.read(READ_BYTES)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()
