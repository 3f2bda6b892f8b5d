"""A container's files as one zip, written as it is read: no more than a piece of a file is held, whatever there is.

Nothing is compressed: what takes the time of a process would take it from all others. Names are such as no program that unpacks them
takes for a place outside of its folder, or for one another.
"""

import io
import re
import time
import zipfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final

from moorage import limits
from moorage.containers.store import WORKSPACE, ContainerFileRecord
from moorage.errors import archive_too_large
from moorage.files.store import numbered_name

_UNSAFE: Final = re.compile(r'[\\:*?"<>|]')
"""Windows takes the first two for parts of a path; no file there may have the others in its name."""
_EARLIEST: Final = 315_532_800
"""1980: zip knows no time before."""


class _Pipe(io.RawIOBase):
    """The written bytes of ``zipfile`` that no reader has taken yet. It cannot seek: sizes stand behind the content then."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._held.append(piece)
        return len(piece)

    def take(self) -> bytes:
        held, self._held = b"".join(self._held), []
        return held


async def archive(
    files: Sequence[ContainerFileRecord], content: Callable[[ContainerFileRecord], AsyncIterator[bytes]]
) -> AsyncIterator[bytes]:
    """Raises 400 before the first piece if the files are too many or too large."""
    if sum(file.bytes for file in files) > limits.ARCHIVE_BYTES_MAX:
        raise archive_too_large(limits.ARCHIVE_BYTES_MAX)
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w") as zipped:
        for name, file in named(files):
            entry = zipfile.ZipInfo(name, time.gmtime(max(file.created_at, _EARLIEST))[:6])
            entry.external_attr = 0o644 << 16
            entry.file_size = file.bytes
            with zipped.open(entry, "w") as writing:
                if file.bytes:
                    async for chunk in content(file):
                        writing.write(chunk)
                        yield pipe.take()
    yield pipe.take()


def named(files: Iterable[ContainerFileRecord]) -> Iterator[tuple[str, ContainerFileRecord]]:
    """The files by the names that they have in the zip. Two names that some file systems take for one are told apart."""
    taken: set[str] = set()
    numbers: dict[str, int] = defaultdict(lambda: 1)
    """The last one of each name: to count from 1 again for each of many would take the square of their number."""
    for file in sorted(files, key=lambda each: each.path):
        folder, _, last = "/".join(_safe(part) for part in file.path.removeprefix(WORKSPACE).split("/")).rpartition("/")
        base = f"{folder}/" if folder else ""
        name, alike = base + last, (base + last).casefold()
        while name.casefold() in taken:
            numbers[alike] += 1
            name = base + numbered_name(last, numbers[alike])
        taken.add(name.casefold())
        yield name, file


def _safe(part: str) -> str:
    """One part of a path. Letters that show nothing or turn the reading direction go too."""
    kept = "".join(letter if letter.isprintable() else "_" for letter in _UNSAFE.sub("_", part))
    return kept if kept.strip(". ") else "_" * max(1, len(kept))
