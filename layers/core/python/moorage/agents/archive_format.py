"""The archive of an agent as bytes: a tar of JSON lines and files that is not compressed.

So nothing in it grows when it is read, and names of entries are numbers that lead nowhere: no entry can lie outside of its archive. The
last entry tells how many there are before it, and their SHA-256. An archive that was cut or changed is told by that.
"""

import hashlib
import tarfile
from collections.abc import AsyncIterator
from dataclasses import field
from typing import Any, Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors.agents import broken_archive

_BLOCK: Final = tarfile.BLOCKSIZE
END: Final = "end.json"


def is_text(name: str) -> bool:
    return name.endswith((".json", ".jsonl"))


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    name: str
    start: int
    """Of its content, in the archive."""
    bytes: int


@dataclass(slots=True)
class ArchiveWriter:
    """Makes the bytes of an archive, entry by entry."""

    _hash: Any = field(default_factory=hashlib.sha256)
    _entries: int = 0

    async def text(self, name: str, content: bytes) -> AsyncIterator[bytes]:
        async def once() -> AsyncIterator[bytes]:
            yield content

        async for piece in self.file(name, len(content), once()):
            yield piece

    async def file(self, name: str, size: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """``chunks`` must have ``size`` bytes; one that has others, because it was replaced meanwhile, breaks the archive off."""
        yield self._counted(_header(name, size))
        left = size
        async for chunk in chunks:
            left -= len(chunk)
            yield self._counted(chunk)
        if left:
            raise broken_archive(f"'{name}' has changed while it was written.")
        yield self._counted(_padding(size))
        self._entries += 1

    def end(self) -> bytes:
        said = orjson.dumps({"entries": self._entries, "sha256": self._hash.hexdigest()})
        return _header(END, len(said)) + said + _padding(len(said)) + bytes(2 * _BLOCK)

    def _counted(self, piece: bytes) -> bytes:
        self._hash.update(piece)
        return piece


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


class ArchiveReader:
    """Reads an archive from its beginning to its end. Every fault is a 400 that says what is wrong with it."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""
        self._at = 0
        self._hash = hashlib.sha256()

    async def entries(self) -> AsyncIterator[tuple[ArchiveEntry, bytes]]:
        """Each entry before the last, with its content if it is text. The archive is whole if this ends."""
        count = 0
        while True:
            before = self._hash.hexdigest()
            entry = await self._entry()
            if entry.name == END:
                said = await self._take(entry.bytes)
                if said != orjson.dumps({"entries": count, "sha256": before}):
                    raise broken_archive("it was changed since it was written, or is not whole.")
                await self._read_out(entry.bytes)
                return
            count += 1
            if count > limits.AGENT_ARCHIVE_ENTRIES_MAX:
                raise broken_archive(f"it has more than {limits.AGENT_ARCHIVE_ENTRIES_MAX} entries.")
            if is_text(entry.name):
                yield entry, await self._take(entry.bytes)
            else:
                await self._pass(entry.bytes)
                yield entry, b""
            await self._pass(-entry.bytes % _BLOCK)

    async def _entry(self) -> ArchiveEntry:
        block = await self._take(_BLOCK)
        if block == bytes(_BLOCK):
            raise broken_archive("it ends before its last entry.")
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise broken_archive("it is no archive that 'export' has made.") from error
        if info.type != tarfile.REGTYPE:
            raise broken_archive("it has an entry that is no file.")
        if not 0 <= info.size <= (limits.AGENT_ARCHIVE_TEXT_BYTES_MAX if is_text(info.name) else limits.FILE_BYTES_MAX):
            raise broken_archive("it has an entry that is too long.")
        return ArchiveEntry(info.name, self._at, info.size)

    async def _read_out(self, size: int) -> None:
        """What stands behind the last entry: zeros to its block's end, and two blocks of them."""
        rest = -size % _BLOCK + 2 * _BLOCK
        if await self._take(rest) != bytes(rest) or await self._more():
            raise broken_archive("something stands behind its last entry.")

    async def _take(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size:
            pieces.append(await self._piece(size))
            size -= len(pieces[-1])
        return b"".join(pieces)

    async def _pass(self, size: int) -> None:
        while size:
            size -= len(await self._piece(size))

    async def _piece(self, most: int) -> bytes:
        if not self._held and not await self._more():
            raise broken_archive("it ends before its last entry.")
        piece, self._held = self._held[:most], self._held[most:]
        self._hash.update(piece)
        self._at += len(piece)
        return piece

    async def _more(self) -> bool:
        while not self._held:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                return False
            self._held = chunk
        return True
