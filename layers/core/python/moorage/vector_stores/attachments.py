"""Documents of the input, for models whose servers take none: read in a sandbox of their tenant's, as those of vector stores are.

A document is somebody's, so it is read in a container of its request alone, without a network. A tenant has a few such containers at
once, so that slow documents delay further ones of the same tenant, and nobody else's.

If sandboxes cannot be reached, documents are only noted. The state machine has them read elsewhere (``loop/documents.py``).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from types import TracebackType
from typing import Any, Final, Self

from moorage import ids, limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.vector_stores.documents import Kind
from moorage.vector_stores.parsing import Parsing

_MEMORY: Final = "1g"


@dataclass(slots=True)
class FairTurns:
    """The readers' turns. One for the process."""

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


@dataclass(frozen=True, slots=True)
class UnreadDocument:
    """A document of an input item, and the object of its text."""

    item_id: str
    filename: str
    kind: Kind
    text_key: str
    source_key: str
    """The object that holds it; empty where its item does."""
    content: Callable[[], AsyncIterator[bytes]] = field(compare=False)

    def to_json(self, source_key: str) -> dict[str, Any]:
        """For the readers of that object."""
        named = {"item_id": self.item_id, "filename": self.filename, "kind": self.kind}
        return {**named, "text_key": self.text_key, "source_key": source_key}


class DocumentsUnread(ApiError):
    """Documents have to be read first, if sandboxes can be reached. A response goes there by way of the state machine."""

    def __init__(self, documents: tuple[UnreadDocument, ...]) -> None:
        message = (
            f"'{documents[0].filename}' is a document that this model's server does not take. Its text is read when a response has the "
            "document in its input, and is not there yet. Create the response first, or send the document's text."
        )
        super().__init__(400, message, param="input", code="invalid_prompt")
        self.documents = documents


class AttachmentReader:
    """The reader of one request's documents: its container is there when the first one needs it, and goes with the request."""

    def __init__(
        self,
        containers: Containers,
        turns: FairTurns,
        tenant_id: str,
        *,
        takes: frozenset[str] = frozenset(),
        chars_max: int = limits.ATTACHMENT_CHARS_MAX,
        container_id: str | None = None,
    ) -> None:
        """``takes``: kinds that the model's server takes itself. ``chars_max``: of one document's text, for the model.
        ``container_id``: a container that somebody else has reserved for these documents, and releases."""
        self._containers = containers
        self._turns = turns
        self._tenant_id = tenant_id
        self._container_id = container_id
        self._stack = AsyncExitStack()
        self._live: LiveContainer | None = None
        self.takes = takes
        self.chars_max = chars_max
        self.unread: dict[str, UnreadDocument] = {}
        """What could not be read here, by the place of its text."""

    @property
    def can_read(self) -> bool:
        """Whether sandboxes can be reached from here."""
        return self._containers.sandboxes.reaches_new(_MEMORY)

    async def read(self, kind: Kind, content: AsyncIterator[bytes]) -> bytes:
        """In UTF-8; of a long text the beginning. Raises :class:`UnreadableDocument`, and ``SandboxError`` if the sandbox fails."""
        live = await self.sandbox()
        name = ids.new_id("document")
        parsing = Parsing(live, name, name, bytes_max=limits.ATTACHMENT_TEXT_BYTES_MAX)
        await parsing.read(kind, content)
        return b"".join([piece async for piece in parsing.text()])

    async def sandbox(self) -> LiveContainer:
        """The running sandbox for them, waited for. Raises ``SandboxError``, and :class:`ApiError` if the container is gone."""
        if self._live is None:
            self._live = await self._opened()
        return self._live

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def _opened(self) -> LiveContainer:
        container_id = self._container_id
        if container_id is None:
            await self._stack.enter_async_context(self._turns.of(self._tenant_id))
            container_id = await reserve(self._containers, self._tenant_id)
            self._stack.push_async_callback(self._containers.release, self._tenant_id, container_id)
        return await self._stack.enter_async_context(await self._containers.waiting.sandbox(self._tenant_id, container_id))


async def reserve(containers: Containers, tenant_id: str) -> str:
    """A container for the documents of an input."""
    return (await containers.reserve(tenant_id, name="files of an input", memory_limit=_MEMORY, is_internal=True)).id
