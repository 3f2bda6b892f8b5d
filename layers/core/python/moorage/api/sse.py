"""Server-sent events: how a response's events become bytes.

Events that are there together leave in one chunk, but never a part of one: parsers in the field lose an event that is cut by a chunk.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from moorage import limits
from moorage.api.answers import BodyPiece, StreamedResponse
from moorage.api.view import ResponseView
from moorage.parallel import Breath
from moorage.store.event_log import FINAL_TYPES, EventLog
from moorage.store.item_contents import Contents
from moorage.wire.events import sse
from moorage.wire.types import Event

_KEEP_ALIVE: Final = BodyPiece(b": keep-alive\n\n")
_HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def stream(
    pieces: AsyncGenerator[BodyPiece, None], headers: dict[str, str] | None = None, *, begins_at_once: bool = False
) -> StreamedResponse:
    all_headers = _HEADERS | (headers or {})
    return StreamedResponse(pieces, media_type="text/event-stream", headers=all_headers, begins_at_once=begins_at_once)


async def encode(events: list[Event], view: ResponseView, contents: Contents) -> BodyPiece:
    """Whole events as one piece; a comment that keeps the connection awake if there are none."""
    if not events:
        return _KEEP_ALIVE
    pieces, breath = list[bytes](), Breath()
    for event in await contents.events(events):  # A client that comes late reads thousands at once.
        pieces.append(sse(view.event(event)))
        await breath.taken()
    return BodyPiece(b"".join(pieces), events[-1]["type"] in FINAL_TYPES)


async def tail(
    log: EventLog, after: int, view: ResponseView, contents: Contents, *, until: float | None = None
) -> AsyncGenerator[BodyPiece, None]:
    """The events after this number to the end of the log, with comments that keep the connection awake.

    ``until`` (event loop time) breaks it off after a whole event; clients go on with ``starting_after``.
    """
    loop = asyncio.get_running_loop()
    quiet_since = loop.time()
    async for events in log.tail(after):
        if events is not None:
            quiet_since = loop.time()
            yield await encode(events, view, contents)
        elif loop.time() - quiet_since > limits.KEEP_ALIVE_SECONDS:
            quiet_since = loop.time()
            yield _KEEP_ALIVE
        if until is not None and loop.time() >= until:
            return
