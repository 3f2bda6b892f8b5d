"""What a start of the launcher finds out about this machine, kept for later starts.

Compiling the exec server and asking two dozen programs for their versions takes half a second of a processor. Each answer is kept with
a key of all that it depends on. After a change on the machine, a start so finds it out again. A file of another user, or one that
others may write, is no answer.
"""

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from moorage.dataclass import dataclass

_OF_PACKAGES: Final = (
    "/etc/ld.so.cache",
    "/lib/apk/db/installed",
    "/usr/local",
    "/usr/local/lib",
    "/usr/local/lib/node_modules",
    "/var/lib/dpkg/status",
    "/var/lib/pacman/local",
    "/var/lib/rpm/Packages",
    "/var/lib/rpm/Packages.db",
    "/var/lib/rpm/rpmdb.sqlite",
)
"""They change with every package. A program may be a script that starts another one."""


@dataclass(frozen=True, slots=True)
class StartCache:
    folder: Path | None
    """Nothing is kept without one."""

    def find(self, name: str, key: str) -> bytes | None:
        """What was kept under this name, if its key is the same."""
        if self.folder is None:
            return None
        try:
            with open(self.folder / name, "rb", opener=_opened_itself) as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    return None
                content = file.read()
        except OSError:
            return None
        head, _, answer = content.partition(b"\n")
        return answer if head == _head(key, answer) else None

    def keep(self, name: str, key: str, content: bytes) -> None:
        """Replace what was kept. Where nothing can be written, the next start finds it out again."""
        if self.folder is None:
            return
        new = self.folder / f"{name}.{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                    file.write(_head(key, content) + b"\n" + content)
                new.replace(self.folder / name)
            finally:
                new.unlink(missing_ok=True)


def _head(key: str, content: bytes) -> bytes:
    """The first line: a power cut may leave a file with half of its content."""
    return f"{key} {hashlib.sha256(content).hexdigest()}".encode()


def _opened_itself(path: str, flags: int) -> int:
    """And not what it links to, or what waits for a writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def key_of(*parts: object) -> str:
    """Of the form that :class:`StartCache` takes, for whatever an answer depends on."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def programs_on_disk(names: Iterable[str], folders: Iterable[str]) -> list[tuple[object, ...]]:
    """What these programs are in these folders, and what is installed beside them."""
    paths = [*(f"{folder}/{name}" for folder in folders for name in names), *_OF_PACKAGES]
    return [(path, *identity_of(path)) for path in paths]


def identity_of(path: str) -> tuple[object, ...]:
    """Of the file behind all links: another file, or another content, has another one. Empty if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return os.path.realpath(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
