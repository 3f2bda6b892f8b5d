"""The audit trail: the maker of a key, its revocation and use, changes of settings at run time, approvals, signing in and out.

One line of JSON for each. A line names its parties by ids and never holds a secret, a text or an address. It is written after what it
tells of was done. If it cannot be written, the process's own log says so and what was done stands: a full disk must not keep an
operator from revoking a key.
"""

import errno
import fcntl
import os
from asyncio import to_thread
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.telemetry import tell_error

AUDIT_FILE: Final = "audit.log"
"""Of a stack on one machine, in its state folder."""


class AuditKind(StrEnum):
    KEY_MADE = "key.made"
    KEY_REVOKED = "key.revoked"
    KEY_USED = "key.used"
    """By an administrator, from the command line, to make a session of it."""
    SETTING_CHANGED = "setting.changed"
    APPROVAL_ANSWERED = "approval.answered"
    SIGNED_IN = "session.begun"
    SIGNED_OUT = "session.ended"


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor of this task."""

    who: str = ""
    """Id of a key; or ``operator`` and the name of one, at the command line."""
    tenant_id: str = ""
    request_id: str = ""
    subject: str = ""
    """Of a token: who it was issued for, in the issuer's words."""


_NOBODY: Final = Actor()
_actor: Final[ContextVar[Actor]] = ContextVar("actor", default=_NOBODY)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Whatever is noted inside was done by this one."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


class AuditLog(Protocol):
    """The file of the lines. It never raises for the failures of an ordinary day."""

    async def write(self, line: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Audit:
    log: AuditLog | None
    """None: this deployment keeps no trail."""
    clock: Callable[[], float]

    async def note(self, kind: AuditKind, what: Mapping[str, Any], *, who: str = "", tenant_id: str = "") -> None:
        """``what`` holds ids, names and numbers. ``who`` and ``tenant_id`` are the acting ones' unless they are given."""
        if self.log is None:
            return
        actor = _actor.get()
        said = {
            "at": datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "kind": kind,
            "who": who or actor.who,
            "subject": actor.subject,
            "tenant": tenant_id or actor.tenant_id,
            "what": what,
            "request_id": actor.request_id,
        }
        await self.log.write(orjson.dumps({name: value for name, value in said.items() if value}))


class AuditFile:
    """A file that any process of this user's appends to, closed to others. What is full is put aside, and the oldest is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def write(self, line: bytes) -> None:
        try:
            await to_thread(append, self._path, line + b"\n")
        except OSError as error:
            tell_error(error, "a line of the audit trail could not be written")


def append(path: Path, line: bytes) -> None:
    """Add a whole line and see it on the disk. Raises :class:`OSError`; nothing was added then."""
    for _ in range(limits.AUDIT_OPENINGS_MAX):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            if not _is_at(path, file):
                continue  # Another process has put it aside meanwhile.
            if size and size + len(line) > limits.AUDIT_FILE_BYTES_MAX:
                _put_aside(path)
                continue
            if os.write(file, line) != len(line):
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
            return
        finally:
            os.close(file)
    raise OSError(errno.EBUSY, "it is put aside faster than it is opened")


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _put_aside(path: Path) -> None:
    """Under the lock of the file. The lock stays with the renamed file."""
    for number in range(limits.AUDIT_FILES_MAX - 1, 0, -1):
        before = _aside(path, number - 1)
        if before.exists():
            os.replace(before, _aside(path, number))


def _aside(path: Path, number: int) -> Path:
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def audit_files(path: Path) -> list[Path]:
    """Those that are there, the oldest first."""
    every = [_aside(path, number) for number in range(limits.AUDIT_FILES_MAX - 1, -1, -1)]
    return [each for each in every if each.exists()]
