"""Log files that do not grow for ever: at a size one is put aside, in the place of the one before it.

The API writes its lines of JSON into ``api.log``, the workers that run the loop's steps write theirs into ``steps.log``.
"""

import os
import shutil
from contextlib import suppress
from io import TextIOBase
from pathlib import Path
from typing import Final

from moorage import limits

API: Final = "api.log"
STEPS: Final = "steps.log"


class RotatingFile(TextIOBase):
    """A text file to append to. A disk that is full costs words, never the process that says them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a")

    def write(self, text: str) -> int:
        with suppress(OSError):
            if self._file.tell() > limits.LOCAL_LOG_BYTES_MAX:
                self._file.close()
                os.replace(self._path, aside(self._path))
                self._file = self._path.open("a")
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()

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


def lines_of(state_dir: Path) -> list[Path]:
    """The files of lines that are there, what was put aside first."""
    present = [state_dir / name for name in (API, STEPS)]
    return [path for path in (*map(aside, present), *present) if path.exists()]
