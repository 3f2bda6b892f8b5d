"""The line between clients and the API, which can be cut: a proxy at an address that stays while the stack's own changes."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

_PIECE_BYTES: Final = 65536


class Wire:
    """Forwards to where ``target`` says, on a thread of its own."""

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        port = self._server.sockets[0].getsockname()[1]
        self.url: Final = f"http://127.0.0.1:{port}/v1"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def cut(self) -> int:
        """Reset every connection that is open; answers how many there were."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(60)

    def close(self) -> None:
        self.cut()
        self._server.close()
        asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _cut(self) -> int:
        open_now = list(self._open)
        for writer in open_now:
            writer.transport.abort()
        return len(open_now)

    async def _settle(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = urlsplit(self._target())
        with contextlib.suppress(OSError), self._held(writer):
            there, back = await asyncio.open_connection(where.hostname, where.port)
            with self._held(back):
                ways = [asyncio.ensure_future(_pump(reader, back)), asyncio.ensure_future(_pump(there, writer))]
                _, pending = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in pending:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    @contextlib.contextmanager
    def _held(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._open.add(writer)
        try:
            yield
        finally:
            self._open.discard(writer)
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
