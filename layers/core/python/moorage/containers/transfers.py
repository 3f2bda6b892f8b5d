"""Moving the bytes of a container's files: a few files at a time, and no content that the container has stored already."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

from moorage import limits
from moorage.containers.store import ContainerFileRecord, ContainerRecord
from moorage.errors import SandboxError, SandboxFileMissing, SandboxGone, SandboxUnreachable, file_too_large
from moorage.sandbox.exec_client import ExecClient, SignedPlace
from moorage.store import object_keys
from moorage.store.blobs import Blob, Blobs, BlobTooLarge
from moorage.telemetry import tell_error

_A = TypeVar("_A")
_T = TypeVar("_T")


def stored_content(rows: Sequence[ContainerFileRecord]) -> dict[str, str]:
    """The place of content that is stored already, by its SHA-256."""
    return {row.sha256: row.key for row in rows}


async def bytes_of(blobs: Blobs, tenant_id: str, container_id: str) -> int:
    """A container's objects in the bucket."""
    return await blobs.bytes_under(object_keys.container_objects(tenant_id, container_id))


def new_bytes(rows: Sequence[ContainerFileRecord], there: Sequence[ContainerFileRecord]) -> int:
    """The content of rows beyond the earlier rows: content of several rows counts once."""
    before = {row.key for row in there}
    return sum({row.key: row.bytes for row in rows if row.key not in before}.values())


async def store_content(
    blobs: Blobs, record: ContainerRecord, chunks: AsyncIterator[bytes], *, known: Mapping[str, str], bytes_max: int
) -> Blob:
    """Store content under its hash, unless it is ``known`` (SHA-256 to key) to be there; an ``ApiError`` if it is too large."""
    prefix = object_keys.container_objects(record.tenant_id, record.id)
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


def goes_by_bucket(client: ExecClient, size: int) -> bool:
    """Whether the sandbox moves a file of so many bytes by itself, past its narrow endpoint."""
    return client.reaches_bucket and size > limits.BATCH_FILE_BYTES_MAX


async def fetch_by_bucket(blobs: Blobs, client: ExecClient, path: str, key: str) -> bool:
    """Have the sandbox get a large file; False if the bucket is not to be had from there, so that the file goes through the
    endpoint."""
    url = blobs.signed_get_url(key, seconds=limits.PRESIGNED_SECONDS)
    return await _unless_refused(client.fetch_file(path, await _placed(url))) is not None


async def store_by_bucket(
    blobs: Blobs, record: ContainerRecord, client: ExecClient, path: str, size: int, *, known: Mapping[str, str]
) -> Blob | None:
    """Have the sandbox store the first ``size`` bytes of a large file under their hash, unless they are ``known``; None as above.

    A sandbox is trusted with nothing: the URL is signed for one key of the container's, and for the bytes of this hash alone.
    """

    async def stored() -> Blob:
        sha256 = await client.file_digest(path, size)
        key = known.get(sha256, f"{object_keys.container_objects(record.tenant_id, record.id)}{sha256}")
        if sha256 not in known:
            url = blobs.signed_put_url(key, size=size, sha256=sha256, seconds=limits.PRESIGNED_SECONDS)
            await client.store_file(path, await _placed(url), size=size, sha256=sha256)
        return Blob(key, size, sha256)

    return await _unless_refused(stored())


async def _unless_refused(work: Awaitable[_T]) -> _T | None:
    """None for an error of the bucket's. A sandbox that is gone, and a file that is, are told."""
    try:
        return await work
    except (SandboxGone, SandboxUnreachable, SandboxFileMissing):
        raise
    except SandboxError as error:
        tell_error(error, "a sandbox does not reach the bucket")
        return None


async def _placed(url: str) -> SignedPlace:
    """With the address of the bucket's host."""
    parts = urlsplit(url)
    found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or 443, family=socket.AF_INET)
    return SignedPlace(url, str(found[0][4][0]))


async def one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content
