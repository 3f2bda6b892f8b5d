"""Files: a record in the table, its bytes in the bucket.

The bytes are written before the record and deleted before it, so that a file that can be found can be read, and a deletion that
breaks off can be repeated.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Container
from typing import Final

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ApiError, file_not_found, file_too_large, storage_busy
from moorage.ids import new_file_id
from moorage.store import keys, object_keys, schema
from moorage.store.blobs import BlobNotFound, Blobs, BlobTooLarge
from moorage.store.listing import Page, gone_record, listing_attributes, read_page
from moorage.store.stored_bytes import Holder, StoredBytes
from moorage.store.table import Record, Table
from moorage.wire.answers import File
from moorage.wire.queries import PageQuery

Clock = Callable[[], float]
"""Unix seconds."""

KIND: Final = "files"


@dataclass(frozen=True, slots=True)
class StoredFile:
    tenant_id: str
    id: str
    filename: str
    bytes: int
    purpose: str
    created_at: int
    sha256: str
    expires_at: int | None = None

    @property
    def key(self) -> str:
        """The key of its bytes in the bucket."""
        return object_keys.file_object(self.tenant_id, self.id)

    @property
    def holder(self) -> Holder:
        return Holder(self.tenant_id, "file", self.id)


@dataclass(frozen=True, slots=True)
class StoredContent:
    """Bytes that are stored under a file's id but are no file yet."""

    tenant_id: str
    file_id: str
    bytes: int
    sha256: str
    began_at: int
    """When the first of them were awaited (Unix seconds)."""


class FileStore:
    def __init__(self, table: Table, blobs: Blobs, *, clock: Clock, stored: StoredBytes | None = None) -> None:
        self._table = table
        self._blobs = blobs
        self._clock = clock
        self.stored = stored or StoredBytes(table, clock=clock)
        self.before_erasure: Callable[[str, str], Awaitable[None]] | None = None
        """Told tenant and id of a file that is about to be erased: who holds what was made of it lets go of that first, so that an
        erasure which breaks off can be repeated."""

    async def create(
        self,
        tenant_id: str,
        *,
        filename: str,
        purpose: str,
        chunks: AsyncIterator[bytes],
        expires_after_seconds: int | None = None,
    ) -> StoredFile:
        """Store a file from a stream; raises ``file_too_large`` past ``limits.FILE_BYTES_MAX``, and ``storage_limit_reached``."""
        content = await self.receive(tenant_id, chunks)
        return await self.add(content, filename=filename, purpose=purpose, expires_after_seconds=expires_after_seconds)

    async def receive(self, tenant_id: str, chunks: AsyncIterator[bytes], *, file_id: str | None = None) -> StoredContent:
        """Store a file's bytes before the rest is known; :meth:`add` makes a file of them, :meth:`drop` undoes it. More than the tenant
        has room for is not taken in. ``file_id`` is for what may be received again."""
        now = self._clock()
        file_id = file_id or new_file_id(now)
        room = await self.stored.room(tenant_id)
        try:
            blob = await self._blobs.put_stream(
                object_keys.file_object(tenant_id, file_id), chunks, bytes_max=min(limits.FILE_BYTES_MAX, room)
            )
        except BlobTooLarge as error:
            if room < limits.FILE_BYTES_MAX:
                await self.stored.check(tenant_id, room + 1)
            raise file_too_large(limits.FILE_BYTES_MAX) from error
        return StoredContent(tenant_id, file_id, blob.bytes, blob.sha256, int(now))

    async def drop(self, content: StoredContent) -> None:
        await self._blobs.delete(object_keys.file_object(content.tenant_id, content.file_id))

    async def add(self, content: StoredContent, *, filename: str, purpose: str, expires_after_seconds: int | None = None) -> StoredFile:
        """Make a file of received bytes. They are gone if there is no room for the file by now. An earlier file stays."""
        created_at = content.began_at
        lifetime = expires_after_seconds or (limits.FILE_EXPIRES_SECONDS_MAX if purpose == "batch" else None)
        file = StoredFile(
            tenant_id=content.tenant_id,
            id=content.file_id,
            filename=file_name(filename),
            bytes=content.bytes,
            purpose=purpose,
            created_at=created_at,
            sha256=content.sha256,
            expires_at=None if lifetime is None else created_at + lifetime,
        )
        try:
            return await self._put(file)
        except ApiError:
            await self.drop(content)
            raise

    async def _put(self, file: StoredFile) -> StoredFile:
        """The records and their counted bytes, at once."""
        records = _records(file)
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            refused = await self._table.write_together(records, self.stored.changes(file.holder, file.bytes, is_bounded=True))
            if not refused:
                return file
            if refused[0] < len(records):
                return await self.get(file.tenant_id, file.id)
            await self.stored.check(file.tenant_id, file.bytes)
        raise storage_busy()

    async def get(self, tenant_id: str, file_id: str, *, param: str | None = None) -> StoredFile:
        """The file; unknown, foreign, deleted and expired ones are all 404."""
        record = await self._table.get(keys.file(tenant_id, file_id), keys.META)
        if record is None:
            raise file_not_found(file_id, param=param)
        file = _FILE.unpack(record)
        if self._is_expired(file):
            await self._erase(file)
            raise file_not_found(file_id, param=param)
        return file

    async def page(self, tenant_id: str, page: PageQuery, *, purpose: str | None = None) -> Page[StoredFile]:
        found = await read_page(
            self._table,
            tenant_id,
            KIND,
            page,
            pk_of=keys.file,
            keep=lambda record: purpose in (None, record["purpose"]) and not self._is_expired(_FILE.unpack(record)),
        )
        return found.read(_FILE.unpack)

    async def delete(self, tenant_id: str, file_id: str) -> None:
        await self._erase(await self.get(tenant_id, file_id))

    async def content(self, file: StoredFile, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The file's bytes; a file deleted in between is 404."""
        try:
            async for chunk in self._blobs.get_stream(file.key, start=start, end=end):
                yield chunk
        except BlobNotFound as error:
            raise file_not_found(file.id) from error

    async def purge_due(self, now: float) -> int:
        """Erase every file that has expired; answers how many. Harmless to run twice, or twice at once."""
        entries = await self._table.query(keys.due_list(KIND), up_to=keys.due(int(now), "~"), index=schema.INDEX)
        records = await self._table.get_many((entry["PK"], keys.META) for entry in entries)
        for record in records:
            await self._erase(_FILE.unpack(record))
        found = {record["PK"] for record in records}
        await self._table.write_many(deletes=[(entry["PK"], entry["SK"]) for entry in entries if entry["PK"] not in found])
        return len(records)

    def _is_expired(self, file: StoredFile) -> bool:
        return file.expires_at is not None and file.expires_at <= self._clock()

    async def _erase(self, file: StoredFile) -> None:
        if self.before_erasure is not None:
            await self.before_erasure(file.tenant_id, file.id)
        await self._blobs.delete(file.key)
        await self.stored.forget(file.holder)
        pk = keys.file(file.tenant_id, file.id)
        await self._table.write_many(
            puts=[gone_record(pk, keys.GONE, file.created_at, file.id, self._clock())],
            deletes=[(pk, keys.PURGE), (pk, keys.META)],
        )


def as_object(file: StoredFile) -> File:
    """The wire's File object."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
        "expires_at": file.expires_at,
    }


def file_name(raw: str) -> str:
    """A client's file name made fit to name a file: no directories, no control characters, at most 255 bytes (``NAME_MAX``)."""
    base = raw.replace("\\", "/").rsplit("/", 1)[-1]
    printable = "".join(character for character in base if character.isprintable()).strip()
    if printable in ("", ".", ".."):
        return "file"
    return printable.encode("utf-8", "ignore")[: limits.FILE_NAME_BYTES_MAX].decode("utf-8", "ignore")


def free_name(name: str, taken: Container[str]) -> str:
    """``report.csv``, or ``report-2.csv`` if that name is taken."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = numbered_name(name, number)
    return candidate


def numbered_name(name: str, number: int) -> str:
    """``report.csv`` and 2 make ``report-2.csv``."""
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}-{number}{dot}{suffix}" if stem else f"{name}-{number}"


_FILE: Final = Codec(StoredFile)


def _records(file: StoredFile) -> list[Record]:
    pk = keys.file(file.tenant_id, file.id)
    listed = listing_attributes(file.tenant_id, KIND, file.created_at, file.id)
    record: Record = {"PK": pk, "SK": keys.META, **listed, **_FILE.pack(file)}
    if file.expires_at is None:
        return [record]
    return [record, {"PK": pk, "SK": keys.PURGE, "GSI1PK": keys.due_list(KIND), "GSI1SK": keys.due(file.expires_at, file.id)}]
