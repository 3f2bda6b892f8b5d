"""The bucket on S3. While one part of a stream is on its way, the next one fills.

boto3 is synchronous; each call runs on the thread pool that the runtime gave.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from moorage.limits import BLOB_READ_BYTES
from moorage.store.blobs import Blob, BlobNotFound, Blobs, check_size, first_two, parts_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_DELETE_MAX: Final = 1000
"""DeleteObjects takes 1,000 keys (S3 API reference)."""
_DELETE_TRIES: Final = 3
_DELETE_PAUSE_SECONDS: Final = 0.1
"""Longer before each further try."""


class S3Blobs(Blobs):
    def __init__(self, client: "S3Client", bucket: str, executor: Executor) -> None:
        self.client = client
        self.bucket = bucket
        self._executor = executor

    async def put_bytes(self, key: str, data: bytes) -> Blob:
        await self._call(self.client.put_object, Key=key, Body=data)
        return Blob(key, len(data), hashlib.sha256(data).hexdigest())

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, bytes_max: int) -> Blob:
        """Store a stream of any length up to ``bytes_max``; raises :class:`BlobTooLarge` beyond it."""
        parts = parts_of(chunks)
        held = await first_two(parts)
        if len(held) > 1:
            return await self._put_multipart(key, held, parts, bytes_max)
        check_size(len(held[0]), bytes_max)
        return await self.put_bytes(key, held[0])

    async def put_addressed(self, prefix: str, chunks: AsyncIterator[bytes], *, known: Mapping[str, str], bytes_max: int) -> Blob:
        """Store a stream under ``prefix``, unless its content is already there: ``known`` maps SHA-256 (hex) to key.

        Content of one part is hashed before anything is sent and bears its hash as name. Larger content is sent while it is
        hashed, under a random name, and dropped again if it turns out to be known.
        """
        parts = parts_of(chunks)
        held = await first_two(parts)
        if len(held) == 1:
            size = len(held[0])
            check_size(size, bytes_max)
            sha256 = hashlib.sha256(held[0]).hexdigest()
            if sha256 in known:
                return Blob(known[sha256], size, sha256)
            return await self.put_bytes(prefix + sha256, held[0])
        blob = await self._put_multipart(f"{prefix}large-{secrets.token_hex(16)}", held, parts, bytes_max)
        if blob.sha256 in known:
            await self.delete(blob.key)
            return replace(blob, key=known[blob.sha256])
        return blob

    async def _put_multipart(self, key: str, held: list[bytes], rest: AsyncIterator[bytes], bytes_max: int) -> Blob:
        """Send the parts that are held already (taken out of the list, so that they are freed) and the rest."""
        upload_id = (await self._call(self.client.create_multipart_upload, Key=key))["UploadId"]
        loop = asyncio.get_running_loop()
        digest = hashlib.sha256()
        sent: list[dict[str, Any]] = []
        size = 0
        sending: asyncio.Future[None] | None = None

        async def send(data: bytes) -> None:
            number = len(sent) + 1
            answer = await self._call(self.client.upload_part, Key=key, UploadId=upload_id, PartNumber=number, Body=data)
            sent.append({"PartNumber": number, "ETag": answer["ETag"]})

        try:
            while part := held.pop(0) if held else await anext(rest, None):
                size += len(part)
                check_size(size, bytes_max)
                await loop.run_in_executor(self._executor, digest.update, part)
                if sending is not None:
                    await sending
                sending = asyncio.ensure_future(send(part))
                del part
            if sending is not None:
                await sending
            await self._call(self.client.complete_multipart_upload, Key=key, UploadId=upload_id, MultipartUpload={"Parts": sent})
        except BaseException:
            # Whatever broke the stream, S3 bills for the parts of an upload that nobody ends.
            if sending is not None:
                await asyncio.gather(sending, return_exceptions=True)
            await asyncio.shield(self._call(self.client.abort_multipart_upload, Key=key, UploadId=upload_id))
            raise
        return Blob(key, size, digest.hexdigest())

    async def get_stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The object's bytes from ``start`` up to and with ``end``, in pieces; raises :class:`BlobNotFound` at the first."""
        request: dict[str, Any] = {"Key": key}
        if start or end is not None:
            request["Range"] = f"bytes={start}-{'' if end is None else end}"
        try:
            body = (await self._call(self.client.get_object, **request))["Body"]
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING:
                raise BlobNotFound(f"No object under '{key}'.") from error
            if error.response["Error"]["Code"] == "InvalidRange":
                return  # It begins after the last byte.
            raise
        loop = asyncio.get_running_loop()
        try:
            while chunk := await loop.run_in_executor(self._executor, body.read, BLOB_READ_BYTES):
                yield chunk
        finally:
            body.close()

    async def copy(self, source: str, target: str) -> None:
        """Copy inside the bucket, on S3's side (up to 5 GB)."""
        try:
            await self._call(self.client.copy_object, Key=target, CopySource={"Bucket": self.bucket, "Key": source})
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING:
                raise BlobNotFound(f"No object under '{source}'.") from error
            raise

    async def delete(self, key: str) -> None:
        """Deleting a missing object is no error."""
        await self._call(self.client.delete_object, Key=key)

    async def delete_prefix(self, prefix: str) -> int:
        """Delete everything under a prefix; answers how many objects that were. Raises if S3 has kept any."""
        deleted = 0
        async for page in self._pages(prefix):
            await self._delete_all([entry["Key"] for entry in page])
            deleted += len(page)
        return deleted

    async def _delete_all(self, keys: Sequence[str]) -> None:
        """S3 says 200 also if it has kept some, mostly for a moment (API reference, DeleteObjects: ``Errors``)."""
        kept: list[Any] = []
        for tried in range(_DELETE_TRIES):
            await asyncio.sleep(_DELETE_PAUSE_SECONDS * tried)
            request = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            kept = (await self._call(self.client.delete_objects, Delete=request)).get("Errors", [])
            if not kept:
                return
            keys = [error["Key"] for error in kept]
        raise ClientError({"Error": {"Code": kept[0].get("Code", ""), "Message": kept[0].get("Message", "")}}, "DeleteObjects")

    async def list_prefix(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        """Keys under a prefix with the Unix time of their last change."""
        async for page in self._pages(prefix):
            for entry in page:
                yield entry["Key"], entry["LastModified"].timestamp()

    async def list_sizes(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Keys under a prefix with the bytes of each."""
        async for page in self._pages(prefix):
            for entry in page:
                yield entry["Key"], entry["Size"]

    async def _pages(self, prefix: str) -> AsyncIterator[list[Any]]:
        token: dict[str, str] = {}
        while True:
            page = await self._call(self.client.list_objects_v2, Prefix=prefix, MaxKeys=_DELETE_MAX, **token)
            if page.get("Contents"):
                yield page["Contents"]
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def presign_get(self, key: str, *, seconds: int, disposition: str, content_type: str) -> str:
        """A URL that gives the object for ``seconds`` with these two headers. Signing needs no request."""
        return self.client.generate_presigned_url(
            "get_object",
            Params={
                "Bucket": self.bucket,
                "Key": key,
                "ResponseContentDisposition": disposition,
                "ResponseContentType": content_type,
            },
            ExpiresIn=seconds,
        )

    def signed_get_url(self, key: str, *, seconds: int) -> str:
        return self.client.generate_presigned_url("get_object", Params={"Bucket": self.bucket, "Key": key}, ExpiresIn=seconds)

    def signed_put_url(self, key: str, *, size: int, sha256: str, seconds: int) -> str:
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        parameters = {"Bucket": self.bucket, "Key": key, "ContentLength": size, "ChecksumSHA256": checksum}
        return self.client.generate_presigned_url("put_object", Params=parameters, ExpiresIn=seconds)

    async def _call(self, method: Callable[..., Any], **request: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: method(Bucket=self.bucket, **request))
