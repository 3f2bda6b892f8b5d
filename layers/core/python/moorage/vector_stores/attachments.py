"""Documents of the input, for models whose servers take none: read in a sandbox of their tenant's, as those of vector stores are.

A document is somebody's, so it is read in a container of its request alone, without a network. A tenant has a few such containers at
once, so that slow documents delay further ones of the same tenant, and nobody else's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from moorage import ids, limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.errors import ApiError, SandboxError
from moorage.vector_stores.documents import Kind
from moorage.vector_stores.parsing import Parsing

_MEMORY: Final = "1g"


@dataclass(slots=True)
class FairTurns:
    """Who may read now. One for the process."""

    _of: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    _waiting: dict[str, int] = field(default_factory=dict)

    @asynccontextmanager
    async def of(self, tenant_id: str) -> AsyncIterator[None]:
        turn = self._of.setdefault(tenant_id, asyncio.Semaphore(limits.ATTACHMENTS_READ_AT_ONCE))
        self._waiting[tenant_id] = self._waiting.get(tenant_id, 0) + 1
        try:
            async with turn:
                yield
        finally:
            self._waiting[tenant_id] -= 1
            if not self._waiting[tenant_id]:
                del self._waiting[tenant_id], self._of[tenant_id]


class AttachmentReader:
    """What one request's documents are read by: its container is there when the first one needs it, and goes with the request."""

    def __init__(self, containers: Containers, turns: FairTurns, tenant_id: str, *, takes: frozenset[str], chars_max: int) -> None:
        """``takes``: kinds that the model's server takes itself. ``chars_max``: of one document's text, for the model."""
        self._containers = containers
        self._turns = turns
        self._tenant_id = tenant_id
        self._stack = AsyncExitStack()
        self._live: LiveContainer | None = None
        self.takes = takes
        self.chars_max = chars_max

    @property
    def can_read(self) -> bool:
        """Whether sandboxes can be reached from here."""
        return self._containers.sandboxes.can_connect

    async def read(self, kind: Kind, content: Callable[[], AsyncIterator[bytes]]) -> bytes:
        """In UTF-8; of a long text the beginning. Raises :class:`UnreadableDocument`, or :class:`ApiError` without a sandbox."""
        try:
            return await self._read(kind, content())
        except SandboxError as error:
            message = f"The files of the input could not be read: {error.message} Please retry."
            raise ApiError(503, message, type="server_error", code="container_unavailable", headers={"retry-after": "5"}) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def _read(self, kind: Kind, content: AsyncIterator[bytes]) -> bytes:
        if self._live is None:
            self._live = await self._opened()
        name = ids.new_id("document")
        parsing = Parsing(self._live, name, name, bytes_max=limits.ATTACHMENT_TEXT_BYTES_MAX)
        await parsing.read(kind, content)
        return b"".join([piece async for piece in parsing.text()])

    async def _opened(self) -> LiveContainer:
        await self._stack.enter_async_context(self._turns.of(self._tenant_id))
        record = await self._containers.reserve(self._tenant_id, name="files of an input", memory_limit=_MEMORY, is_internal=True)
        self._stack.push_async_callback(self._containers.release, self._tenant_id, record.id)
        return await self._stack.enter_async_context(await self._containers.waiting.sandbox(self._tenant_id, record.id))
