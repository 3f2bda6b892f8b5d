"""Moving the bytes of a container's files: a few files at a time, and no content that the container has stored already."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from moorage import limits
from moorage.containers.store import ContainerFileRecord, ContainerRecord
from moorage.errors import file_too_large
from moorage.store import keys
from moorage.store.blobs import Blob, Blobs, BlobTooLarge

_A = TypeVar("_A")
_T = TypeVar("_T")


def stored_content(rows: Sequence[ContainerFileRecord]) -> dict[str, str]:
    """The place of content that is stored already, by its SHA-256."""
    return {row.sha256: row.key for row in rows}


async def bytes_of(blobs: Blobs, tenant_id: str, container_id: str) -> int:
    """A container's objects in the bucket."""
    return await blobs.bytes_under(keys.container_objects(tenant_id, container_id))


def new_bytes(rows: Sequence[ContainerFileRecord], there: Sequence[ContainerFileRecord]) -> int:
    """The content of rows beyond the earlier rows: content of several rows counts once."""
    before = {row.key for row in there}
    return sum({row.key: row.bytes for row in rows if row.key not in before}.values())


async def store_content(
    blobs: Blobs, record: ContainerRecord, chunks: AsyncIterator[bytes], *, known: Mapping[str, str], bytes_max: int
) -> Blob:
    """Store content under its hash, unless it is ``known`` (SHA-256 to key) to be there; an ``ApiError`` if it is too large."""
    prefix = keys.container_objects(record.tenant_id, record.id)
    try:
        return await blobs.put_addressed(prefix, chunks, known=known, bytes_max=bytes_max)
    except BlobTooLarge as error:
        raise file_too_large(bytes_max) from error


async def bounded(work: Callable[[_A], Awaitable[_T]], things: Iterable[_A], at_once: int = limits.CONTAINER_TRANSFERS_MAX) -> list[_T]:
    """Results in order; the first failure cancels the rest and is raised as it is."""
    gate = asyncio.Semaphore(at_once)

    async def one(thing: _A) -> _T:
        async with gate:
            return await work(thing)

    tasks = [asyncio.ensure_future(one(thing)) for thing in things]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content
