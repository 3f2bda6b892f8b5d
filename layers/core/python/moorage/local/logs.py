"""Log files that do not grow for ever: at a size one is put aside, in the place of the one before it.

The API writes its lines of JSON into ``api.log``, the workers that run the loop's steps write theirs into ``steps.log``.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from io import TextIOBase
from pathlib import Path
from typing import Any, Final

import orjson

from moorage import limits

Line = dict[str, Any]

API: Final = "api.log"
STEPS: Final = "steps.log"


class RotatingFile(TextIOBase):
    """A text file to append to. A disk that is full costs words, never the process that says them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        self._file = self._path.open("ab", buffering=0)
        self._bytes = os.fstat(self._file.fileno()).st_size

    def write(self, text: str) -> int:
        with suppress(OSError):
            if self._bytes > limits.LOCAL_LOG_BYTES_MAX:
                self._file.close()
                os.replace(self._path, aside(self._path))
                self._open()
            self._bytes += self._file.write(text.encode())
        return len(text)

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
        super().close()


def cut(path: Path) -> None:
    """The same for a file that another process appends to: it goes on at the start of the emptied file."""
    with suppress(OSError):
        if path.stat().st_size > limits.LOCAL_LOG_BYTES_MAX:
            shutil.copyfile(path, aside(path))
            os.truncate(path, 0)


def aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


class LogLines:
    """The lines of a log from a place on; one that is half written waits for its rest."""

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._file: Any = None
        self._start = start
        self._rest = b""

    def read(self) -> Iterator[Line]:
        if self._file is None:
            if not self._path.exists():
                return
            self._file = self._path.open("rb")
            self._file.seek(self._start)
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # it was emptied
        was_moved = not self._path.exists() or self._path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        whole, _, self._rest = (self._rest + self._file.read()).rpartition(b"\n")
        yield from parsed(whole)
        if was_moved:
            self.close()

    def close(self) -> None:
        """A new file of that name is read from its beginning."""
        if self._file is not None:
            self._file.close()
            self._file, self._start = None, 0


def parsed(text: bytes) -> Iterator[Line]:
    for line in text.splitlines():
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(found, dict):
            yield found


def lines_of(state_dir: Path) -> list[Path]:
    """The files of lines, rotated ones first."""
    present = [state_dir / name for name in (API, STEPS)]
    return [path for path in (*map(aside, present), *present) if path.exists()]
