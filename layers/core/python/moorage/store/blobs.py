"""The bucket as a port: bytes in and out under keys that begin with the tenant (``store/keys.py``), nothing else.

``store/s3.py`` keeps it on AWS. Streams are moved in parts, so that memory stays flat whatever their length.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from moorage.dataclass import dataclass
from moorage.errors import MoorageError
from moorage.limits import BLOB_PART_BYTES


class BlobNotFound(MoorageError):
    """No object stands under this key."""


class BlobTooLarge(MoorageError):
    """A stream exceeded the size that its caller allows; nothing of it was kept."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored object: ``sha256`` as hex, ``bytes`` the length."""

    key: str
    bytes: int
    sha256: str


class Blobs(Protocol):
    def has_room(self) -> bool:
        """Whether there is room for what begins now. If there is none, what runs may still end, and what is stored be deleted."""
        return True

    async def put_bytes(self, key: str, data: bytes) -> Blob: ...

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, bytes_max: int) -> Blob:
        """Store a stream of any length up to ``bytes_max``; raises :class:`BlobTooLarge` beyond it."""
        ...

    async def put_addressed(self, prefix: str, chunks: AsyncIterator[bytes], *, known: Mapping[str, str], bytes_max: int) -> Blob:
        """Store a stream under ``prefix``, unless its content is already there: ``known`` maps SHA-256 (hex) to key.

        Content of one part bears its hash as name, larger content a random one.
        """
        ...

    def get_stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The object's bytes from ``start`` up to and with ``end``, in pieces; raises :class:`BlobNotFound` at the first."""
        ...

    async def copy(self, source: str, target: str) -> None:
        """Copy inside the bucket (up to 5 GB); raises :class:`BlobNotFound`."""
        ...

    async def delete(self, key: str) -> None:
        """Deleting a missing object is no error."""
        ...

    async def delete_prefix(self, prefix: str) -> int:
        """Delete everything under a prefix; answers how many objects that were. Raises if any was kept."""
        ...

    def list_prefix(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        """Keys under a prefix with the Unix time of their last change."""
        ...

    def list_sizes(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Keys under a prefix with the bytes of each."""
        ...

    def presign_get(self, key: str, *, seconds: int, disposition: str, content_type: str) -> str:
        """A URL that gives the object for ``seconds`` with these two headers."""
        ...

    def signed_get_url(self, key: str, *, seconds: int) -> str:
        """A URL by which whoever has it gets this object for ``seconds``."""
        ...

    def signed_put_url(self, key: str, *, size: int, sha256: str, seconds: int) -> str:
        """A URL by which whoever has it makes this object for ``seconds``, of these bytes alone. Their number and their SHA-256 have
        to be sent as ``content-length`` and, in base64, as ``x-amz-checksum-sha256``."""
        ...

    async def get_bytes(self, key: str) -> bytes:
        """The whole object; raises :class:`BlobNotFound`."""
        return b"".join([chunk async for chunk in self.get_stream(key)])

    async def inlined(self, records: Sequence[Mapping[str, object]], name: str) -> list[bytes]:
        """What each record has under ``name``, or keeps here (``blob``), because it was too long for a record. Only the latter take
        time, and are fetched side by side."""
        away = [str(record["blob"]) for record in records if name not in record]
        fetched = iter(await asyncio.gather(*map(self.get_bytes, away)) if away else ())
        return [record[name] if name in record else next(fetched) for record in records]  # type: ignore[misc]

    async def bytes_under(self, prefix: str) -> int:
        """The bytes of all objects under a prefix."""
        return sum([size async for _, size in self.list_sizes(prefix)])


async def parts_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The stream cut into parts of exactly ``BLOB_PART_BYTES``, but for the last; an empty stream is one empty part."""
    held: list[bytes] = []
    missing = BLOB_PART_BYTES
    is_first = True
    async for chunk in chunks:
        while len(chunk) >= missing:
            held.append(chunk[:missing])
            chunk = chunk[missing:]
            part = b"".join(held)
            held.clear()
            yield part
            del part
            missing, is_first = BLOB_PART_BYTES, False
        if chunk:
            held.append(chunk)
            missing -= len(chunk)
    if held or is_first:
        yield b"".join(held)


async def first_two(parts: AsyncIterator[bytes]) -> list[bytes]:
    """The first part and, if there is one, the second: only then is it known whether it is the only one."""
    held = [await anext(parts)]
    second = await anext(parts, None)
    return held if second is None else [*held, second]


def check_size(size: int, bytes_max: int) -> None:
    """Raises :class:`BlobTooLarge`."""
    if size > bytes_max:
        raise BlobTooLarge(f"The stream is longer than {bytes_max} bytes.")
