"""Room that is kept back on the disk of one machine: deletes, ends of responses and logs still work when it is full.

It is a file beside the journal that holds nothing. Once a write finds no room, it is given up. Until there is room to take it back, no
object is stored and no response begins, so that what it leaves is there for those who make room.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from moorage.disk import NO_ROOM

RESERVED_BYTES: Final = 16 * 1024 * 1024
_NAME: Final = "reserve"


class Reserve:
    """One for all processes that share the folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME

    @property
    def is_held(self) -> bool:
        with suppress(FileNotFoundError):
            return self._path.stat().st_size == RESERVED_BYTES  # shorter: whoever made it was killed
        return False

    def hold(self) -> bool:
        """Keep the room back, or say that there is none: False if it was given up and the disk is still full."""
        if self.is_held:
            return True
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < 2 * RESERVED_BYTES:
            return False
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, RESERVED_BYTES)  # threads and processes may do it at once
        except OSError as error:
            self._path.unlink(missing_ok=True)
            if error.errno in NO_ROOM:
                return False
            raise
        finally:
            os.close(descriptor)
        return True

    def give_up(self) -> bool:
        """Make room; False if it was given up before."""
        with suppress(FileNotFoundError):
            self._path.unlink()
            return True
        return False
