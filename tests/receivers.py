"""A receiver of webhooks on this machine, that answers as it is told and writes down what it was sent."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from openai import OpenAI

Answer = int | str
"""A status, ``hang up``, or the place to which it redirects."""
HANG_UP = "hang up"


@dataclass(frozen=True)
class Sent:
    path: str
    headers: dict[str, str]
    """By their names in small letters."""
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = orjson.loads(self.body)
        return event

    def unwrapped(self, secret: str) -> Any:
        """As the SDK gives it to whoever knows the secret. It raises for a signature that is wrong or old."""
        return OpenAI(api_key="-").webhooks.unwrap(self.body, self.headers, secret=secret)


@dataclass
class Receiver:
    answers: list[Answer] = field(default_factory=list)
    """The next ones; after them it takes everything."""
    sent: list[Sent] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    """Events to which it has said yes."""
    before_answer: Callable[[], Any] | None = None
    """Awaited when an event has come and before it is answered."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/hook"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [each.event for each in self.sent]


@asynccontextmanager
async def receiving(*answers: Answer) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(answers))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            sent = await _read(reader)
            receiver.sent.append(sent)
            if receiver.before_answer is not None:
                await receiver.before_answer()
            answer = receiver.answers.pop(0) if receiver.answers else 200
            if answer == 200:
                receiver.taken.append(sent.event)
            writer.write(_written(answer))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver


@contextmanager
def receiver_beside(*answers: Answer) -> Iterator[Receiver]:
    """The same on a thread of its own, beside a test that waits."""
    made: list[Receiver] = []
    has_begun, loop, is_over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with receiving(*answers) as receiver:
            made.append(receiver)
            has_begun.set()
            await is_over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert has_begun.wait(60)
        yield made[0]
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()


async def _read(reader: asyncio.StreamReader) -> Sent:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    return Sent(first.split(" ")[1], headers, await reader.readexactly(int(headers["content-length"])))


def _written(answer: Answer) -> bytes:
    if answer == HANG_UP:
        return b""
    head = f"HTTP/1.1 {answer} X" if isinstance(answer, int) else f"HTTP/1.1 307 X\r\nlocation: {answer}"
    return f"{head}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
