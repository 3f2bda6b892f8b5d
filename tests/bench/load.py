"""A small HTTP/1.1 client over plain sockets: it must cost less than what it measures, which httpx does not."""

import asyncio
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from the first byte that was sent."""

    first: float
    """To the first delta, or to the end where there is none."""
    total: float
    status: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a request goes, and how its first delta is known."""

    name: str
    url: str
    body: dict[str, object]
    key: str = "none"
    delta: bytes = b"word0 "

    def streaming(self, is_streaming: bool) -> "Endpoint":
        return Endpoint(self.name, self.url, self.body | {"stream": is_streaming}, self.key, self.delta)

    def request(self) -> bytes:
        parts = urlsplit(self.url)
        body = orjson.dumps(self.body)
        head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Connection:
    """Keeps one connection and sends one request after the other."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._payload = endpoint.request()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self) -> Timing:
        if self._writer is None or self._writer.is_closing():
            parts = urlsplit(self._endpoint.url)
            self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**22)
        assert self._reader is not None
        began = time.perf_counter()
        self._writer.write(self._payload)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        first = await self._body(head, began)
        total = time.perf_counter() - began
        if b"connection: close" in head:
            await self.close()
        return Timing(first or total, total, status)

    async def _body(self, head: bytes, began: float) -> float:
        """Reads to the end; the answer is the time of the first delta, 0 if none came."""
        assert self._reader is not None
        if b"content-length:" in head:  # LiteLLM sends both headers, and then a plain body.
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await self._reader.readexactly(length)
            return 0.0
        first = 0.0
        while size := int(await self._reader.readline(), 16):
            chunk = await self._reader.readexactly(size + 2)
            if not first and self._endpoint.delta in chunk:
                first = time.perf_counter() - began
        await self._reader.readexactly(2)
        return first

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@dataclass(frozen=True, slots=True)
class Load:
    """What so many clients saw."""

    clients: int
    rate: float
    """Requests a second."""
    totals: list[float]
    errors: int

    def percentile(self, share: float) -> float:
        return self.totals[min(len(self.totals) - 1, int(len(self.totals) * share))]


async def load(endpoint: Endpoint, clients: int, requests: int) -> Load:
    """So many requests by so many clients, each of which asks again as soon as it has its answer."""
    left = requests
    timings: list[Timing] = []

    async def client() -> None:
        nonlocal left
        connection = Connection(endpoint)
        while left > 0:
            left -= 1
            try:
                timings.append(await connection.ask())
            except (OSError, EOFError, ValueError):
                timings.append(Timing(0, 0, 0))
                await connection.close()
        await connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - began
    good = [timing for timing in timings if timing.status == 200]
    return Load(clients, len(good) / seconds, sorted(timing.total for timing in good), len(timings) - len(good))


async def alone(endpoint: Endpoint, requests: int) -> list[Timing]:
    """One request after the other, on one connection that is warm."""
    connection = Connection(endpoint)
    for _ in range(5):
        await connection.ask()
    timings = [await connection.ask() for _ in range(requests)]
    await connection.close()
    assert all(timing.status == 200 for timing in timings), f"{endpoint.name} answered {timings[0].status}"
    return timings
