"""A response that an earlier request has begun, given to a repeat of that request."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

from moorage import limits
from moorage.api.foreground import final_of
from moorage.api.idempotency import IdempotentCreate
from moorage.store.event_log import FINAL_TYPES
from moorage.store.responses import StoredResponse
from moorage.wire.types import Event


class AttachedStream:
    """As :class:`Foreground` to its readers. It reads the log, from its beginning."""

    is_handed_over: Final = True
    retry_after_seconds: Final = None
    is_worth_repeating: Final = True

    def __init__(self, attempt: IdempotentCreate, stored: StoredResponse, *, until: float | None = None) -> None:
        """``until`` in the event loop's time."""
        self._attempt = attempt
        self._stored = stored
        self._until = until

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """All events; an empty list after each silence. Without a final one its time was over."""
        loop = asyncio.get_running_loop()
        quiet_since, has_ended = loop.time(), False
        self._attempt.entered()
        try:
            async for events in self._attempt.runtime.stores.responses.log_of(self._stored).tail(-1):
                if events is not None:
                    quiet_since, has_ended = loop.time(), events[-1]["type"] in FINAL_TYPES
                    yield events
                elif loop.time() - quiet_since > limits.KEEP_ALIVE_SECONDS:
                    quiet_since = loop.time()
                    yield []
                if self._until is not None and loop.time() >= self._until:
                    return
        finally:
            left = self._attempt.left(self._stored, has_ended=has_ended, is_handed_over=_surely())
            self._attempt.runtime.process.keep(asyncio.create_task(left))

    async def final(self) -> dict[str, Any] | None:
        """The response object when the response has ended; None when its time is over before."""
        return await final_of(self.batches())


async def _surely() -> bool:
    return True
