"""The texts of a store's files: from plain text at once, from documents by a program in a sandbox. They lie in the bucket, in UTF-8,
until they are in the index, and afterwards for whoever asks for a file's content.

The sandbox is a container of the store's tenant, without a network, which one execution has for all documents of the store: what one of
them does to it is done to files of the same owner, and never to anybody else's. The tenant does not see it, and cannot reach into it.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Final

from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.errors import ApiError, StorageFull
from moorage.files.store import FileStore, StoredFile
from moorage.store import object_keys
from moorage.store.blobs import Blobs, BlobTooLarge
from moorage.vector_stores.documents import (
    HEAD_BYTES,
    DocumentProbe,
    Kind,
    NotPlainText,
    UnreadableDocument,
    look,
    plain_text,
    too_long,
)
from moorage.vector_stores.parsing import Parsing, whole
from moorage.vector_stores.records import StoreFile, VectorStoreRecord

_LOST: Final = "The file was deleted before it was read."


class Reading:
    def __init__(self, files: FileStore, blobs: Blobs, containers: Containers) -> None:
        self._files = files
        self._blobs = blobs
        self._containers = containers

    async def text(self, file: StoreFile) -> str:
        """Its text. Raises ``BlobNotFound`` if that is not there."""
        return (await self._blobs.get_bytes(file.text_key)).decode("utf-8", "replace")

    async def drop(self, store: VectorStoreRecord, file_id: str) -> None:
        """With the rest of earlier additions of the file."""
        await self._blobs.delete_prefix(f"{object_keys.vector_objects(store.tenant_id, store.id)}{file_id}/")

    async def read_here(self, file: StoreFile) -> Kind | None:
        """Read it, if it is text; else the kind of document that a sandbox has to read. Raises :class:`UnreadableDocument`."""
        source, looked = await self._look(file)
        if looked.encoding is None:
            return looked.kind
        try:
            text = await plain_text(self._files.content(source), looked.encoding)
        except NotPlainText:
            return "text"
        await self._blobs.put_stream(file.text_key, _pieces(text), bytes_max=limits.DOCUMENT_TEXT_BYTES_MAX)
        return None

    async def _look(self, file: StoreFile) -> tuple[StoredFile, DocumentProbe]:
        try:
            source = await self._files.get(file.tenant_id, file.id)
            if not source.bytes:
                raise UnreadableDocument("invalid_file", "The file is empty.")
            content = self._files.content(source, start=0, end=min(HEAD_BYTES, source.bytes) - 1)
            head = b"".join([chunk async for chunk in content])
        except ApiError as error:
            raise UnreadableDocument("invalid_file", _LOST) from error
        return source, look(source.filename, head)

    # --- In a sandbox --------------------------------------------------------------------------------------------------------------

    async def reserve(self, store: VectorStoreRecord) -> str:
        """A container for the documents of a store."""
        return (await self._containers.reserve(store.tenant_id, name=f"documents of {store.id}", is_internal=True)).id

    async def place(self, tenant_id: str, container_id: str) -> None:
        await self._containers.sandboxes.place(tenant_id, container_id)

    async def release(self, tenant_id: str, container_id: str) -> None:
        await self._containers.release(tenant_id, container_id)

    async def sandbox(self, tenant_id: str, container_id: str) -> LiveContainer:
        """The running sandbox, waited for. Raises :class:`SandboxElsewhere` if another place has to go first."""
        return await self._containers.waiting.sandbox(tenant_id, container_id)

    async def read_there(self, live: LiveContainer, file: StoreFile) -> None:
        """Read it in the sandbox. Raises :class:`UnreadableDocument`, and ``SandboxError`` if the sandbox fails."""
        source, looked = await self._look(file)
        parsing = Parsing(live, file.token, f"{file.token}_{file.attempts}")
        try:
            await whole(parsing, looked.kind, self._files.content(source))
            await self._blobs.put_stream(file.text_key, parsing.text(), bytes_max=limits.DOCUMENT_TEXT_BYTES_MAX)
        except BlobTooLarge as error:
            raise too_long() from error
        except StorageFull:
            raise  # There will be room again, and no file is to blame.
        except ApiError as error:
            raise UnreadableDocument("invalid_file", _LOST) from error
        finally:
            await parsing.clear()


async def _pieces(text: str) -> AsyncIterator[bytes]:
    for piece in _cut(text):
        yield piece.encode("utf-8", "replace")


def _cut(text: str) -> Iterator[str]:
    for start in range(0, len(text), limits.DOCUMENT_PIECE_CHARS):
        yield text[start : start + limits.DOCUMENT_PIECE_CHARS]
