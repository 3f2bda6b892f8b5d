"""S3, as far as this system asks for it: names in the journal, bytes in files that are written once.

A body is written into ``incoming/`` and flushed, folder and all; then its name is committed, and only then the file moves to where it
stays. So a start has little to tidy up, however much is stored: a file in ``incoming/`` either has a name by now, or nobody was told of
it. What a delete or an overwrite leaves is noted in the same commit and unlinked later, unless a backup holds the files.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TypeVar
from urllib.parse import parse_qsl, quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import orjson

from moorage import limits
from moorage.disk import flush_folder
from moorage.local.aws.journal import Journal, NoRoom

T = TypeVar("T")

_PIECE_BYTES: Final = 1024 * 1024
_KEYS_MAX: Final = 1000
_UPLOAD_SECONDS_MAX: Final = 24 * 3600
_HIGHEST: Final = "\U0010ffff\U0010ffff"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_XML: Final = {"content-type": "application/xml"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: "bytes | AsyncGenerator[bytes, None]" = b""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """As it stands in the request line."""
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def bucket(self) -> str:
        return unquote(self.path.lstrip("/").partition("/")[0])

    @property
    def key(self) -> str:
        return unquote(self.path.lstrip("/").partition("/")[2])

    @property
    def options(self) -> dict[str, str]:
        return dict(parse_qsl(self.query, keep_blank_values=True))


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    def answer(self) -> Answer:
        body = f"<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message></Error>"
        return Answer(self.status, _XML, body.encode())


@dataclass(frozen=True, slots=True)
class _Stored:
    """An object: its files, in order, with their sizes."""

    size: int
    etag: str
    modified: float
    content_type: str | None
    files: list[tuple[str, int]]


class BucketService:
    def __init__(self, journal: Journal, folder: Path) -> None:
        self._journal = journal
        self._objects, self._incoming = folder / "objects", folder / "incoming"
        for each in (self._objects, self._incoming):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hold = (folder / "objects.lock").open("a")
        self._disk = ThreadPoolExecutor(8, thread_name_prefix="disk")

    def close(self) -> None:
        self._disk.shutdown()
        self._hold.close()

    async def handle(self, request: Request) -> Answer:
        """Returns when what was written is on disk. Raises :class:`NoRoom`."""
        try:
            if not request.bucket:
                raise Refused(501, "NotImplemented", "Buckets are not listed here.")
            if not request.key:
                return await self._bucket(request)
            self._check_bucket(request.bucket)
            return await self._object(request)
        except Refused as refused:
            return refused.answer()
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._journal.is_refusing = True
                raise NoRoom from error
            raise

    async def tidy(self) -> None:
        """What the last process left between its file and its commit; to be called before anything is served."""
        names = {row[0] for row in self._journal.reader.execute("SELECT file FROM parts")}
        for path in self._incoming.iterdir():
            if path.name in names or self._is_named(path.name):
                self._settle(path.name)
            else:
                path.unlink()

    def _is_named(self, file: str) -> bool:
        found = self._journal.reader.execute("SELECT 1 FROM objects WHERE files LIKE ? LIMIT 1", (f'%"{file}"%',)).fetchone()
        return found is not None

    async def sweep(self, now: float) -> None:
        """Unlink what nobody names any more, and forget uploads that nobody ends."""

        def stale(connection: sqlite3.Connection) -> None:
            old = connection.execute("SELECT id FROM uploads WHERE at < ?", (now - _UPLOAD_SECONDS_MAX,)).fetchall()
            for (upload,) in old:
                _drop_upload(connection, upload)

        await self._journal.write(stale)
        files = [row[0] for row in self._journal.reader.execute("SELECT file FROM garbage LIMIT ?", (_KEYS_MAX,))]
        if not files or not _locked(self._hold):
            return
        try:
            await self._on_disk(self._unlink, files)
            await self._journal.write(
                lambda connection: connection.executemany("DELETE FROM garbage WHERE file = ?", [(file,) for file in files])
            )
        finally:
            fcntl.flock(self._hold, fcntl.LOCK_UN)

    # --- buckets ---

    async def _bucket(self, request: Request) -> Answer:
        match request.method:
            case "PUT":
                await self._journal.write(
                    lambda connection: connection.execute("INSERT OR IGNORE INTO buckets VALUES (?)", (request.bucket,))
                )
                return Answer(200, {"location": f"/{request.bucket}"})
            case "HEAD":
                self._check_bucket(request.bucket)
                return Answer(200, {})
            case "GET" if request.options.get("list-type") == "2":
                self._check_bucket(request.bucket)
                return self._list(request)
            case "POST" if "delete" in request.options:
                self._check_bucket(request.bucket)
                return await self._delete_many(request)
            case _:
                raise Refused(501, "NotImplemented", "This is not served here.")

    def _check_bucket(self, name: str) -> None:
        if self._journal.reader.execute("SELECT 1 FROM buckets WHERE name = ?", (name,)).fetchone() is None:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")

    def _list(self, request: Request) -> Answer:
        options = request.options
        if "delimiter" in options:
            raise Refused(501, "NotImplemented", "Listings have no delimiter here.")
        prefix, limit = options.get("prefix", ""), min(int(options.get("max-keys", _KEYS_MAX)), _KEYS_MAX)
        after = max(options.get("continuation-token", ""), options.get("start-after", ""))
        rows = self._journal.reader.execute(
            "SELECT key, size, etag, modified FROM objects WHERE bucket = ? AND key >= ? AND key < ? AND key > ? ORDER BY key LIMIT ?",
            (request.bucket, prefix, prefix + _HIGHEST, after, limit + 1),
        ).fetchall()
        is_url = options.get("encoding-type") == "url"
        shown = rows[:limit]
        parts = [
            f"<Contents><Key>{_text(key, is_url)}</Key><LastModified>{_iso(modified)}</LastModified><ETag>&quot;{etag}&quot;</ETag>"
            f"<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for key, size, etag, modified in shown
        ]
        if is_url:
            parts.append("<EncodingType>url</EncodingType>")
        if len(rows) > limit:
            parts.append(f"<NextContinuationToken>{escape(shown[-1][0])}</NextContinuationToken>")
        is_truncated = "true" if len(rows) > limit else "false"
        body = (
            f"<ListBucketResult><Name>{request.bucket}</Name><Prefix>{_text(prefix, is_url)}</Prefix><KeyCount>{len(shown)}</KeyCount>"
            f"<MaxKeys>{limit}</MaxKeys><IsTruncated>{is_truncated}</IsTruncated>{''.join(parts)}</ListBucketResult>"
        )
        return Answer(200, _XML, body.encode())

    async def _delete_many(self, request: Request) -> Answer:
        keys = [str(each.text) for each in ElementTree.fromstring(request.body).iter() if each.tag.endswith("Key")]

        def drop(connection: sqlite3.Connection) -> None:
            for key in keys:
                drop_object(connection, request.bucket, key)

        await self._journal.write(drop)
        return Answer(200, _XML, b"<DeleteResult></DeleteResult>")

    # --- objects ---

    async def _object(self, request: Request) -> Answer:
        options = request.options
        match request.method:
            case "GET":
                return self._get(request)
            case "HEAD":
                found = self._get(request)
                return Answer(found.status, found.headers)
            case "PUT" if "uploadId" in options:
                return await self._put_part(request, options)
            case "PUT" if "x-amz-copy-source" in request.headers:
                return await self._copy(request)
            case "PUT":
                return await self._put(request)
            case "DELETE" if "uploadId" in options:
                await self._journal.write(lambda connection: _drop_upload(connection, options["uploadId"]))
                return Answer(204, {})
            case "DELETE":
                await self._journal.write(lambda connection: drop_object(connection, request.bucket, request.key))
                return Answer(204, {})
            case "POST" if "uploads" in options:
                return await self._begin_upload(request)
            case "POST" if "uploadId" in options:
                return await self._complete_upload(request, options["uploadId"])
            case _:
                raise Refused(501, "NotImplemented", "This is not served here.")

    def _find(self, bucket: str, key: str) -> _Stored:
        row = self._journal.reader.execute(
            "SELECT size, etag, modified, content_type, files FROM objects WHERE bucket = ? AND key = ?", (bucket, key)
        ).fetchone()
        if row is None:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        size, etag, modified, content_type, files = row
        return _Stored(size, etag, modified, content_type, [(file, length) for file, length in orjson.loads(files)])

    def _get(self, request: Request) -> Answer:
        stored = self._find(request.bucket, request.key)
        headers = {
            "etag": f'"{stored.etag}"',
            "last-modified": formatdate(stored.modified, usegmt=True),
            "accept-ranges": "bytes",
            "content-type": stored.content_type or "binary/octet-stream",
        }
        start, end, status = 0, stored.size, 200
        if wanted := request.headers.get("range"):
            start, end = _range(wanted, stored.size)
            headers["content-range"] = f"bytes {start}-{end - 1}/{stored.size}"
            status = 206
        headers["content-length"] = str(end - start)
        return Answer(status, headers, self._read(stored, start, end))

    async def _read(self, stored: _Stored, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes from ``start`` to before ``end``. An open file stays readable when the object is deleted meanwhile."""
        position = 0
        for name, length in stored.files:
            if position + length > start and position < end:
                with await self._on_disk(self._open, name) as file:
                    file.seek(max(0, start - position))
                    left = min(end, position + length) - max(start, position)
                    while left:
                        piece = await self._on_disk(file.read, min(left, _PIECE_BYTES))
                        if not piece:
                            raise OSError(errno.EIO, "a file of the bucket is shorter than its name says", name)
                        left -= len(piece)
                        yield piece
            position += length

    async def _put(self, request: Request) -> Answer:
        file, etag = await self._on_disk(self._keep, request.body)
        stored = _Stored(len(request.body), etag, time.time(), request.headers.get("content-type"), [(file, len(request.body))])
        await self._commit_object(request, stored)
        return Answer(200, {"etag": f'"{etag}"'})

    async def _copy(self, request: Request) -> Answer:
        bucket, _, key = unquote(request.headers["x-amz-copy-source"]).lstrip("/").partition("/")
        source = self._find(bucket, key)
        files = await self._on_disk(self._link, source.files)
        await self._commit_object(request, _Stored(source.size, source.etag, time.time(), source.content_type, files))
        said = f"<ETag>&quot;{source.etag}&quot;</ETag><LastModified>{_iso(time.time())}</LastModified>"
        body = f"<CopyObjectResult>{said}</CopyObjectResult>"
        return Answer(200, _XML, body.encode())

    async def _commit_object(self, request: Request, stored: _Stored) -> None:
        try:
            await self._journal.write(lambda connection: _name(connection, request.bucket, request.key, stored))
        except BaseException:
            await self._on_disk(self._unlink, [file for file, _ in stored.files])
            raise
        for file, _ in stored.files:
            self._settle(file)

    # --- uploads in parts ---

    async def _begin_upload(self, request: Request) -> Answer:
        upload = secrets.token_hex(16)
        row = (upload, request.bucket, request.key, request.headers.get("content-type"), time.time())
        await self._journal.write(lambda connection: connection.execute("INSERT INTO uploads VALUES (?, ?, ?, ?, ?)", row))
        body = (
            f"<InitiateMultipartUploadResult><Bucket>{request.bucket}</Bucket><Key>{escape(request.key)}</Key>"
            f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        )
        return Answer(200, _XML, body.encode())

    async def _put_part(self, request: Request, options: dict[str, str]) -> Answer:
        upload, number = options["uploadId"], int(options["partNumber"])
        file, etag = await self._on_disk(self._keep, request.body)

        def note(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT 1 FROM uploads WHERE id = ?", (upload,)).fetchone() is None:
                raise Refused(404, "NoSuchUpload", "The specified upload does not exist.")
            connection.execute("INSERT OR IGNORE INTO garbage SELECT file FROM parts WHERE upload = ? AND number = ?", (upload, number))
            connection.execute("REPLACE INTO parts VALUES (?, ?, ?, ?, ?)", (upload, number, len(request.body), etag, file))

        try:
            await self._journal.write(note)
        except BaseException:
            await self._on_disk(self._unlink, [file])
            raise
        self._settle(file)
        return Answer(200, {"etag": f'"{etag}"'})

    async def _complete_upload(self, request: Request, upload: str) -> Answer:
        wanted = [int(str(each.text)) for each in ElementTree.fromstring(request.body).iter() if each.tag.endswith("PartNumber")]

        def complete(connection: sqlite3.Connection) -> str:
            found = connection.execute("SELECT bucket, key, content_type FROM uploads WHERE id = ?", (upload,)).fetchone()
            if found is None or found[:2] != (request.bucket, request.key):
                raise Refused(404, "NoSuchUpload", "The specified upload does not exist.")
            parts = {
                number: (size, etag, file)
                for number, size, etag, file in connection.execute(
                    "SELECT number, size, etag, file FROM parts WHERE upload = ?", (upload,)
                )
            }
            if not wanted or wanted != sorted(set(wanted)) or not set(wanted) <= set(parts):
                raise Refused(400, "InvalidPart", "One or more of the specified parts could not be found.")
            chosen = [parts.pop(number) for number in wanted]
            digest = hashlib.md5(b"".join(bytes.fromhex(etag) for _, etag, _ in chosen), usedforsecurity=False).hexdigest()
            files = [(file, size) for size, _, file in chosen]
            stored = _Stored(sum(size for size, _, _ in chosen), f"{digest}-{len(chosen)}", time.time(), found[2], files)
            _name(connection, request.bucket, request.key, stored)
            connection.executemany("INSERT OR IGNORE INTO garbage VALUES (?)", [(file,) for _, _, file in parts.values()])
            connection.execute("DELETE FROM parts WHERE upload = ?", (upload,))
            connection.execute("DELETE FROM uploads WHERE id = ?", (upload,))
            return stored.etag

        etag = await self._journal.write(complete)
        body = (
            f"<CompleteMultipartUploadResult><Bucket>{request.bucket}</Bucket><Key>{escape(request.key)}</Key>"
            f"<ETag>&quot;{etag}&quot;</ETag></CompleteMultipartUploadResult>"
        )
        return Answer(200, _XML, body.encode())

    # --- files ---

    async def _on_disk(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    def _keep(self, body: bytes) -> tuple[str, str]:
        """Write a new file and flush it and its folder; its name and its MD5."""
        file = secrets.token_hex(16)
        path = self._incoming / file
        try:
            with path.open("xb") as opened:
                opened.write(body)
                opened.flush()
                os.fsync(opened.fileno())
            flush_folder(self._incoming)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return file, hashlib.md5(body, usedforsecurity=False).hexdigest()

    def _link(self, files: list[tuple[str, int]]) -> list[tuple[str, int]]:
        linked = []
        for name, length in files:
            file = secrets.token_hex(16)
            os.link(self._path(name), self._incoming / file)
            linked.append((file, length))
        flush_folder(self._incoming)
        return linked

    def _settle(self, file: str) -> None:
        """Where a file with a name stays. Nobody minds if the move is lost: it is looked for in both places."""
        folder = self._objects / file[:2]
        folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            (self._incoming / file).rename(folder / file)

    def _path(self, file: str) -> Path:
        settled = self._objects / file[:2] / file
        return settled if settled.exists() else self._incoming / file

    def _open(self, file: str) -> BinaryIO:
        try:
            return (self._objects / file[:2] / file).open("rb")
        except FileNotFoundError:
            return (self._incoming / file).open("rb")

    def _unlink(self, files: list[str]) -> None:
        for file in files:
            (self._objects / file[:2] / file).unlink(missing_ok=True)
            (self._incoming / file).unlink(missing_ok=True)


def _locked(file: IO[str]) -> bool:
    """False while a backup holds the files."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name(connection: sqlite3.Connection, bucket: str, key: str, stored: _Stored) -> None:
    """Give files a name; those that had it are garbage."""
    drop_object(connection, bucket, key)
    files = orjson.dumps(stored.files).decode()
    row = (bucket, key, stored.size, stored.etag, stored.modified, stored.content_type, files)
    connection.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def drop_object(connection: sqlite3.Connection, bucket: str, key: str) -> None:
    """Its files are unlinked later."""
    row = connection.execute("SELECT files FROM objects WHERE bucket = ? AND key = ?", (bucket, key)).fetchone()
    if row is not None:
        connection.executemany("INSERT OR IGNORE INTO garbage VALUES (?)", [(file,) for file, _ in orjson.loads(row[0])])
        connection.execute("DELETE FROM objects WHERE bucket = ? AND key = ?", (bucket, key))


def _drop_upload(connection: sqlite3.Connection, upload: str) -> None:
    connection.execute("INSERT OR IGNORE INTO garbage SELECT file FROM parts WHERE upload = ?", (upload,))
    connection.execute("DELETE FROM parts WHERE upload = ?", (upload,))
    connection.execute("DELETE FROM uploads WHERE id = ?", (upload,))


def _range(header: str, size: int) -> tuple[int, int]:
    """The one range of a ``Range`` header, as a start and the position after its end."""
    low, dash, high = header.removeprefix("bytes=").partition("-")
    if not dash or not (low + high).isdigit() or not header.startswith("bytes="):
        return 0, size
    start, end = (int(low), int(high or size - 1) + 1) if low else (size - int(high), size)
    if start >= size:
        raise Refused(416, "InvalidRange", "The requested range is not satisfiable")
    return max(0, start), min(end, size)


def _text(text: str, is_url: bool) -> str:
    return quote(text) if is_url else escape(text)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


assert _PIECE_BYTES <= limits.BLOB_PART_BYTES
