"""The answers to requests."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from moorage import large_bodies, limits
from moorage.parallel import Breath, outweighs, worked


class JsonResponse(Response):
    """A body rendered by orjson; FastAPI's own class for it is deprecated, and its default serialises through pydantic."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) <= limits.BLOB_READ_BYTES:  # Among them is each refusal of a WebSocket, which has messages of its own.
            await super().__call__(scope, receive, send)
            return
        large_bodies.answered(len(self.body), may_refuse=scope.get("method") == "GET")
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _send_body(send, bytes(self.body), is_last=True)


async def _send_body(send: Send, body: bytes, *, is_last: bool) -> None:
    """In pieces. A server hands its whole input to the kernel in one turn of the loop, and a body of some MiB takes long."""
    size, breath = limits.BLOB_READ_BYTES, Breath()
    for at in range(0, max(len(body), 1), size):
        await breath.taken()
        goes_on = not is_last or at + size < len(body)
        await send({"type": "http.response.body", "body": body[at : at + size], "more_body": goes_on})


async def rendered(content: Any) -> JsonResponse:
    """An answer, written on a thread if it holds much."""
    is_long = outweighs([content], limits.LOWERED_HERE_MAX)
    return await worked(lambda: JsonResponse(content)) if is_long else JsonResponse(content)


class BodyPiece(NamedTuple):
    """A part of a body that is sent while it comes."""

    body: bytes
    is_last: bool = False


class StreamedResponse(Response):
    """Pieces that are sent as they come. When the client goes away, what makes them is cancelled where it waits, and closed.

    Starlette's own starts a task group for it, whose end takes longer than a piece, and sends the end of the body by itself.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[BodyPiece, None],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
        begins_at_once: bool = False,
    ) -> None:
        """If it ``begins_at_once``, the head leaves with the first piece, else before it."""
        self._pieces = pieces
        self._begins_at_once = begins_at_once
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        watch = asyncio.create_task(_cancel_when_left(receive, task))
        has_begun = False
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        try:
            if not self._begins_at_once:
                has_begun = True
                await send(head)
            async with aclosing(self._pieces) as pieces:
                async for body, is_last in pieces:
                    if not has_begun:
                        has_begun = True
                        await send(head)
                    if is_last:
                        watch.cancel()  # The server says that the client has left also when the answer is complete.
                    await _send_body(send, body, is_last=is_last)
                    if is_last:
                        return
            watch.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not watch.done() or watch.cancelled() or task.uncancel():
                raise
        finally:
            watch.cancel()


async def _cancel_when_left(receive: Receive, task: "asyncio.Task[Any]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
