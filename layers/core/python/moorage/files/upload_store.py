"""Uploads: a file that comes in parts, in any order, and is put together at the end.

The file's id is chosen when the upload is created, so that completing it twice, or twice at once, makes one file.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ApiError, ConditionFailed, bad_request, file_too_large, invalid_value, storage_busy, upload_not_found
from moorage.files import store as file_store
from moorage.files.store import Clock, FileStore, StoredFile
from moorage.ids import new_file_id, new_id
from moorage.store import keys, object_keys, schema
from moorage.store.blobs import BlobNotFound, Blobs, BlobTooLarge
from moorage.store.stored_bytes import Holder
from moorage.store.table import TABLE_ERRORS, Record, Table, Write
from moorage.wire.answers import Upload, UploadPart

KIND: Final = "uploads"
_PREFIX: Final = "upload"
Status = Literal["pending", "completed", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class UploadRecord:
    tenant_id: str
    id: str
    file_id: str
    filename: str
    bytes: int
    """The size that the client has announced."""
    purpose: str
    mime_type: str
    created_at: int
    expires_after_seconds: int | None
    """Lifetime of the file that comes of it."""
    status: Status = "pending"
    part_ids: tuple[str, ...] = ()
    """Of a completed upload: what it was put together from."""
    received: int = 0
    """Bytes of all parts that have come in."""

    @property
    def holder(self) -> Holder:
        return Holder.upload(self.tenant_id, self.id)

    @property
    def expires_at(self) -> int:
        return self.created_at + limits.UPLOAD_SECONDS


@dataclass(frozen=True, slots=True)
class UploadPartRecord:
    upload_id: str
    id: str
    created_at: int


class Uploads:
    def __init__(self, table: Table, blobs: Blobs, files: FileStore, *, clock: Clock) -> None:
        self._table = table
        self._blobs = blobs
        self._files = files
        self._clock = clock

    async def create(
        self,
        tenant_id: str,
        *,
        filename: str,
        size: int,
        purpose: str,
        mime_type: str,
        expires_after_seconds: int | None = None,
    ) -> UploadRecord:
        """Raises ``storage_limit_reached`` for a file beyond its tenant's storage; the rest is looked at again at its end."""
        await self._files.stored.check(tenant_id, size)
        now = self._clock()
        upload = UploadRecord(
            tenant_id=tenant_id,
            id=new_id(_PREFIX),
            file_id=new_file_id(now),
            filename=filename,
            bytes=size,
            purpose=purpose,
            mime_type=mime_type,
            created_at=int(now),
            expires_after_seconds=expires_after_seconds,
        )
        await self._table.write_many(puts=_records(upload))
        return upload

    async def get(self, tenant_id: str, upload_id: str) -> UploadRecord:
        record = await self._table.get(keys.upload(tenant_id, upload_id), keys.META)
        if record is None:
            raise upload_not_found(upload_id)
        return self._seen_now(_UPLOAD.unpack(record))

    async def add_part(self, tenant_id: str, upload_id: str, chunks: AsyncIterator[bytes]) -> UploadPartRecord:
        """Store one part of up to ``limits.UPLOAD_PART_BYTES_MAX``."""
        upload = await self.get(tenant_id, upload_id)
        _refuse_unless_pending(upload)
        part = UploadPartRecord(upload_id, new_id("part"), int(self._clock()))
        key = object_keys.upload_objects(tenant_id, upload_id, part.id)
        try:
            blob = await self._blobs.put_stream(key, chunks, bytes_max=limits.UPLOAD_PART_BYTES_MAX)
        except BlobTooLarge as error:
            raise file_too_large(limits.UPLOAD_PART_BYTES_MAX) from error
        try:
            await self._note(upload, part, blob.bytes)
        except ApiError:
            await self._blobs.delete(key)
            raise
        return part

    async def _note(self, upload: UploadRecord, part: UploadPartRecord, size: int) -> None:
        """A part that has come in, and its bytes among those that the tenant stores, at once; unless the upload has ended meanwhile."""
        # Parts that are sent again because their answer was lost count too, so the sum may exceed the size, within reason.
        if upload.received + size > 2 * upload.bytes + limits.UPLOAD_PART_BYTES_MAX:
            raise bad_request(f"The parts of upload '{upload.id}' are larger than the {upload.bytes} bytes announced.")
        pk, stored = keys.upload(upload.tenant_id, upload.id), self._files.stored
        row = {"PK": pk, "SK": keys.part(part.id), "bytes": size, schema.TTL_ATTRIBUTE: _kept_until(upload)}
        received = Write(pk, keys.META, set={}, condition={"status": "pending"}, add={"received": size})
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            counted = stored.changes(upload.holder, size, is_bounded=True)
            if not await self._table.write_together([row], [received, *counted]):
                return
            _refuse_unless_pending(await self.get(upload.tenant_id, upload.id))
            await stored.check(upload.tenant_id, size)
        raise storage_busy()

    async def complete(
        self, tenant_id: str, upload_id: str, part_ids: Sequence[str], *, md5: str | None = None
    ) -> tuple[UploadRecord, StoredFile]:
        """Put the parts together in this order. The bytes must be as many as announced and have the MD5, if one is given (hex)."""
        upload = await self.get(tenant_id, upload_id)
        if upload.status == "completed" and upload.part_ids == tuple(part_ids):
            return upload, await self._files.get(tenant_id, upload.file_id)
        _refuse_unless_pending(upload)
        await self._check_parts(upload, part_ids)
        # What is put together takes the room of its parts.
        await self._files.stored.forget(upload.holder)
        try:
            file = await self._put_together(upload, part_ids, md5)
        except BaseException:
            with suppress(*TABLE_ERRORS):  # What has happened matters more; the reaper counts it again.
                await asyncio.shield(self._files.stored.settle(upload.holder, lambda: parts_bytes(self._table, upload.holder)))
            raise
        ended = await self._end(upload, "completed", part_ids)
        return ended, file

    async def _put_together(self, upload: UploadRecord, part_ids: Sequence[str], md5: str | None) -> StoredFile:
        digest = hashlib.md5(usedforsecurity=False)
        content = await self._files.receive(upload.tenant_id, self._joined(upload, part_ids, digest), file_id=upload.file_id)
        if md5 is not None and digest.hexdigest() != md5.lower():
            await self._files.drop(content)
            raise invalid_value("md5", f"the parts' checksum is {digest.hexdigest()}, not {md5}.")
        return await self._files.add(
            content,
            filename=upload.filename,
            purpose=upload.purpose,
            expires_after_seconds=upload.expires_after_seconds,
        )

    async def cancel(self, tenant_id: str, upload_id: str) -> UploadRecord:
        upload = await self.get(tenant_id, upload_id)
        if upload.status == "cancelled":
            return upload
        _refuse_unless_pending(upload)
        return await self._end(upload, "cancelled", ())

    async def purge_due(self, now: float) -> int:
        """Delete the parts of uploads that have expired; answers how many uploads. Harmless to repeat."""
        entries = await self._table.query(keys.due_list(KIND), up_to=keys.due(int(now), "~"), index=schema.INDEX)
        records = await self._table.get_many((entry["PK"], keys.META) for entry in entries)
        for record in records:
            upload = _UPLOAD.unpack(record)
            if upload.status == "pending":
                await self._end(upload, "expired", ())
            else:
                await self._drop_parts(upload)
        found = {record["PK"] for record in records}
        await self._table.write_many(deletes=[(entry["PK"], entry["SK"]) for entry in entries if entry["PK"] not in found])
        return len(records)

    async def _check_parts(self, upload: UploadRecord, part_ids: Sequence[str]) -> None:
        pk = keys.upload(upload.tenant_id, upload.id)
        sizes: dict[str, int] = {}
        for record in await self._table.query(pk, prefix=keys.part.prefix):
            sizes[keys.part.read(record["SK"])] = record["bytes"]
        for index, part_id in enumerate(part_ids):
            if part_id not in sizes:
                raise invalid_value(f"part_ids[{index}]", f"'{part_id[:80]}' is no part of this upload.")
        size = sum(sizes[part_id] for part_id in part_ids)
        if size != upload.bytes:
            raise bad_request(f"The parts have {size} bytes, but the upload was announced with {upload.bytes} bytes.", param="part_ids")

    async def _joined(self, upload: UploadRecord, part_ids: Sequence[str], digest: Any) -> AsyncIterator[bytes]:
        for part_id in part_ids:
            try:
                async for chunk in self._blobs.get_stream(object_keys.upload_objects(upload.tenant_id, upload.id, part_id)):
                    await asyncio.to_thread(digest.update, chunk)
                    yield chunk
            except BlobNotFound as error:
                raise bad_request(f"Upload '{upload.id}' has been ended by another request.") from error

    async def _end(self, upload: UploadRecord, status: Status, part_ids: Sequence[str]) -> UploadRecord:
        try:
            record = await self._table.update(
                keys.upload(upload.tenant_id, upload.id),
                keys.META,
                set={"status": status, "part_ids": list(part_ids)},
                condition={"status": "pending"},
            )
        except ConditionFailed:
            return await self.get(upload.tenant_id, upload.id)
        await self._drop_parts(upload)
        return _UPLOAD.unpack(record)

    async def _drop_parts(self, upload: UploadRecord) -> None:
        await self._blobs.delete_prefix(object_keys.upload_objects(upload.tenant_id, upload.id))
        await self._files.stored.forget(upload.holder)
        pk = keys.upload(upload.tenant_id, upload.id)
        parts = await self._table.query(pk, prefix=keys.part.prefix)
        await self._table.write_many(deletes=[(pk, record["SK"]) for record in parts] + [(pk, keys.PURGE)])

    def _seen_now(self, upload: UploadRecord) -> UploadRecord:
        """An upload is expired after its hour, even before the sweep has come."""
        if upload.status == "pending" and upload.expires_at <= self._clock():
            return UploadRecord(**{**_UPLOAD.pack(upload), "status": "expired"})
        return upload


def is_upload(resource_id: str) -> bool:
    return resource_id.startswith(f"{_PREFIX}_")


async def parts_bytes(table: Table, holder: Holder) -> int:
    """How many bytes the parts of an upload hold: none, once it has ended."""
    record = await table.get(keys.upload(holder.tenant_id, holder.id), keys.META)
    return record["received"] if record is not None and record["status"] == "pending" else 0


def as_object(upload: UploadRecord, file: StoredFile | None = None) -> Upload:
    """The wire's Upload object."""
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.bytes,
        "created_at": upload.created_at,
        "filename": upload.filename,
        "purpose": upload.purpose,
        "status": upload.status,
        "expires_at": upload.expires_at,
        "file": None if file is None else file_store.as_object(file),
    }


def part_as_object(part: UploadPartRecord) -> UploadPart:
    """The wire's UploadPart object."""
    return {"id": part.id, "object": "upload.part", "created_at": part.created_at, "upload_id": part.upload_id}


def _refuse_unless_pending(upload: UploadRecord) -> None:
    if upload.status != "pending":
        raise bad_request(f"Upload '{upload.id}' is {upload.status}.")


def _kept_until(upload: UploadRecord) -> int:
    return upload.expires_at + limits.UPLOAD_KEPT_SECONDS


_UPLOAD: Final = Codec(UploadRecord)


def _records(upload: UploadRecord) -> list[Record]:
    pk = keys.upload(upload.tenant_id, upload.id)
    return [
        {"PK": pk, "SK": keys.META, schema.TTL_ATTRIBUTE: _kept_until(upload), **_UPLOAD.pack(upload)},
        {"PK": pk, "SK": keys.PURGE, "GSI1PK": keys.due_list(KIND), "GSI1SK": keys.due(upload.expires_at, upload.id)},
    ]
