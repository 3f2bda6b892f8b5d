"""The bucket on one machine: names in the journal, bytes in files that are written once.

A file is written into ``incoming/`` and flushed, folder and all. Then its name is committed, and only then it moves to where it stays.
So a file in ``incoming/`` either has a name by now, or nobody was told of it. What a delete or an overwrite leaves is noted in the same
commit, and unlinked later (``local/housekeeping.py``).
"""

import asyncio
import errno
import hashlib
import os
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from moorage.disk import NO_ROOM, flush_folder
from moorage.errors import StorageFull
from moorage.limits import BLOB_PART_BYTES, BLOB_READ_BYTES
from moorage.store.blobs import Blob, BlobNotFound, Blobs, check_size, first_two, parts_of
from moorage.store.journal import Journal

T = TypeVar("T")

_PAGE: Final = 1000
_HIGHEST: Final = "\U0010ffff\U0010ffff"
"""Behind a prefix it is after every name that begins with it."""
_TRIES: Final = 3


class _Stored(NamedTuple):
    """An object: its bytes, and its files in order with the bytes of each. Older versions made more than one."""

    size: int
    files: list[tuple[str, int]]


class FileBlobs(Blobs):
    def __init__(self, journal: Journal, executor: Executor) -> None:
        self._journal = journal
        self._executor = executor
        self._incoming = journal.folder / "incoming"

    async def put_bytes(self, key: str, data: bytes) -> Blob:
        return await _whole(self._put(key, data))

    async def _put(self, key: str, data: bytes) -> Blob:
        file, sha256 = await self._on_disk(self._kept, data)
        await self._name(key, [(file, len(data))])
        return Blob(key, len(data), sha256)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, bytes_max: int) -> Blob:
        parts = parts_of(chunks)
        held = await first_two(parts)
        if len(held) > 1:
            file, size, sha256 = await self._kept_stream(held, parts, bytes_max)
            await _whole(self._name(key, [(file, size)]))
            return Blob(key, size, sha256)
        check_size(len(held[0]), bytes_max)
        return await self.put_bytes(key, held[0])

    async def put_addressed(self, prefix: str, chunks: AsyncIterator[bytes], *, known: Mapping[str, str], bytes_max: int) -> Blob:
        """Content that fits into one part is hashed before it is written."""
        parts = parts_of(chunks)
        held = await first_two(parts)
        if len(held) == 1:
            size = len(held[0])
            check_size(size, bytes_max)
            sha256 = hashlib.sha256(held[0]).hexdigest()
            return Blob(known[sha256], size, sha256) if sha256 in known else await self.put_bytes(prefix + sha256, held[0])
        file, size, sha256 = await self._kept_stream(held, parts, bytes_max)
        if sha256 in known:
            await self._on_disk(self._drop, [file])
            return Blob(known[sha256], size, sha256)
        key = f"{prefix}large-{secrets.token_hex(16)}"
        await _whole(self._name(key, [(file, size)]))
        return Blob(key, size, sha256)

    async def get_stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """An object that is deleted meanwhile is read to its end."""
        with ExitStack() as stack:
            stored, opened = self._open(key, stack)
            end, position = stored.size if end is None else min(end + 1, stored.size), 0
            for descriptor, (name, length) in zip(opened, stored.files, strict=True):
                at, until = max(start, position), min(end, position + length)
                while at < until:
                    piece = await self._on_disk(os.pread, descriptor, min(until - at, BLOB_READ_BYTES), at - position)
                    if not piece:
                        raise OSError(errno.EIO, "a file of the store is shorter than its name says", name)
                    at += len(piece)
                    yield piece
                position += length

    async def copy(self, source: str, target: str) -> None:
        for _ in range(_TRIES):
            stored = self._find(source)
            with suppress(FileNotFoundError):
                await _whole(self._link(stored.files, target))
                return
        raise _missing(source)

    async def _link(self, files: Sequence[tuple[str, int]], target: str) -> None:
        await self._name(target, await self._on_disk(self._linked, files))

    async def delete(self, key: str) -> None:
        await self._journal.write(lambda connection: drop_object(connection, key))

    async def delete_prefix(self, prefix: str) -> int:
        deleted = 0
        while names := [row[0] for row in self._page("key", prefix, "")]:
            await self._journal.write(partial(_drop_objects, keys=names))
            deleted += len(names)
        return deleted

    async def list_prefix(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        after = ""
        while rows := self._page("key, modified", prefix, after):
            for key, modified in rows:
                yield key, modified
            after = rows[-1][0]

    async def list_sizes(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        after = ""
        while rows := self._page("key, size", prefix, after):
            for key, size in rows:
                yield key, size
            after = rows[-1][0]

    def presign_get(self, key: str, *, seconds: int, disposition: str, content_type: str) -> str:
        """Nobody asks: ``MOORAGE_PRESIGNED_DOWNLOADS`` is refused if files are the bucket (``runtime.py``)."""
        raise NotImplementedError("files have no address")

    def signed_get_url(self, key: str, *, seconds: int) -> str:
        """Nobody asks: sandboxes that reach a bucket by themselves are on AWS (``sandbox/lambda_microvm.py``)."""
        raise NotImplementedError("files have no address")

    def signed_put_url(self, key: str, *, size: int, sha256: str, seconds: int) -> str:
        raise NotImplementedError("files have no address")

    # --- names ---

    def _page(self, columns: str, prefix: str, after: str) -> list[tuple[Any, ...]]:
        sql = f"SELECT {columns} FROM objects WHERE key >= ? AND key < ? AND key > ? ORDER BY key LIMIT ?"  # noqa: S608
        return self._journal.reader.execute(sql, (prefix, prefix + _HIGHEST, after, _PAGE)).fetchall()

    def _find(self, key: str) -> _Stored:
        row = self._journal.reader.execute("SELECT size, files FROM objects WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise BlobNotFound(f"No object under '{key}'.")
        return _Stored(row[0], [(file, length) for file, length in orjson.loads(row[1])])

    async def _name(self, key: str, files: list[tuple[str, int]]) -> None:
        """Give files that were kept a name."""
        row = (key, sum(length for _, length in files), time.time(), orjson.dumps(files).decode())
        names = [file for file, _ in files]

        def name(connection: sqlite3.Connection) -> None:
            drop_object(connection, key)
            connection.execute("INSERT INTO objects VALUES (?, ?, ?, ?)", row)

        try:
            await self._journal.write(name)
        except Exception:
            await self._on_disk(self._drop, names)
            raise
        for file in names:
            settle(self._journal.folder, file)

    # --- files ---

    def has_room(self) -> bool:
        return self._journal.reserve.hold()

    async def _on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        """Raises :class:`StorageFull`."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._journal.is_refusing = True
                raise StorageFull from error
            raise

    def _open(self, key: str, stack: ExitStack) -> tuple[_Stored, list[int]]:
        """All of an object's files. One that has gone was replaced, with another file under the name."""
        for _ in range(_TRIES):
            stored = self._find(key)
            with suppress(FileNotFoundError):
                opened = []
                for name, _length in stored.files:
                    opened.append(os.open(path_of(self._journal.folder, name), os.O_RDONLY | os.O_CLOEXEC))
                    stack.callback(os.close, opened[-1])
                return stored, opened
        raise _missing(key)

    def _kept(self, data: bytes) -> tuple[str, str]:
        """A new file on disk: its name, and the SHA-256 of its content."""
        file = self._new()
        path = self._incoming / file
        try:
            with path.open("xb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            flush_folder(self._incoming)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return file, hashlib.sha256(data).hexdigest()

    async def _kept_stream(self, held: list[bytes], rest: AsyncIterator[bytes], bytes_max: int) -> tuple[str, int, str]:
        """The same for a stream whose first parts are held already: name, bytes, and SHA-256. Memory holds a part or two."""
        file, size, digest = self._new(), 0, hashlib.sha256()
        path = self._incoming / file
        opened = path.open("xb")

        def append(part: bytes) -> None:
            digest.update(part)
            opened.write(part)

        def end() -> None:
            opened.flush()
            os.fsync(opened.fileno())
            opened.close()
            flush_folder(self._incoming)

        try:
            while part := held.pop(0) if held else await anext(rest, None):
                size += len(part)
                check_size(size, bytes_max)
                await self._on_disk(append, part)
            await self._on_disk(end)
        except BaseException:
            with suppress(OSError):
                opened.close()
            path.unlink(missing_ok=True)
            raise
        return file, size, digest.hexdigest()

    def _linked(self, files: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        linked: list[tuple[str, int]] = []
        for name, length in files:
            file = self._new()
            os.link(path_of(self._journal.folder, name), self._incoming / file)
            linked.append((file, length))
        flush_folder(self._incoming)
        return linked

    def _new(self) -> str:
        """The name of a file to be written. Raises :class:`StorageFull` while the reserve is given up."""
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.has_room():
            raise StorageFull
        return secrets.token_hex(16)

    def _drop(self, files: Sequence[str]) -> None:
        for file in files:
            (self._incoming / file).unlink(missing_ok=True)


def settle(folder: Path, file: str) -> None:
    """Move a file with a name to its final place. A lost move is harmless: readers look in both places."""
    place = folder / "objects" / file[:2]
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        (folder / "incoming" / file).rename(place / file)


def path_of(folder: Path, file: str) -> Path:
    """The place of a file. It may move from the first place to the second meanwhile, so the second is looked at last."""
    settled = folder / "objects" / file[:2] / file
    incoming = folder / "incoming" / file
    return incoming if not settled.exists() and incoming.exists() else settled


def drop_object(connection: sqlite3.Connection, key: str) -> None:
    """Its files are unlinked later."""
    row = connection.execute("SELECT files FROM objects WHERE key = ?", (key,)).fetchone()
    if row is not None:
        connection.executemany("INSERT OR IGNORE INTO garbage VALUES (?)", [(file,) for file, _ in orjson.loads(row[0])])
        connection.execute("DELETE FROM objects WHERE key = ?", (key,))


async def _whole(work: Coroutine[Any, Any, T]) -> T:
    """Waiters may go; files are not left between two states."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)


def _drop_objects(connection: sqlite3.Connection, keys: Sequence[str]) -> None:
    for key in keys:
        drop_object(connection, key)


def _missing(key: str) -> OSError:
    return OSError(errno.EIO, "a file of the store is missing", key)


assert BLOB_READ_BYTES <= BLOB_PART_BYTES
