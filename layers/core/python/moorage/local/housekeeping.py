"""What ends by itself on one machine: records by their time, and objects that belong to none. On AWS the services do it.

A response's records go when their retention ends, and its large parts with them, by the same commit. What a process has put into the
bucket before it died over the record is found by looking through the names, a few at a time.
"""

import asyncio
import fcntl
import logging
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from moorage import limits
from moorage.errors import StorageFull
from moorage.store import keys, object_keys
from moorage.store.file_blobs import drop_object, settle
from moorage.store.journal import Journal

HOLD: Final = "objects.lock"
"""Whoever copies the files holds it; meanwhile none is unlinked."""
_SECONDS: Final = 5.0
_LOOKED_AT_ONCE: Final = 500
_EXPIRED_AT_ONCE: Final = 500
_UNLINKED_AT_ONCE: Final = 1000
_HIGHEST: Final = "\U0010ffff\U0010ffff"
_log: Final = logging.getLogger("moorage.local")


def tidy(journal: Journal) -> None:
    """Files that a process left between their flush and their name go, those with a name to their place. For a start, before another
    process has the journal."""
    for path in sorted((journal.folder / "incoming").glob("*")):
        found = journal.reader.execute("SELECT 1 FROM objects WHERE files LIKE ? LIMIT 1", (f'%"{path.name}"%',)).fetchone()
        if found is None:
            path.unlink()
        else:
            settle(journal.folder, path.name)


class Housekeeping:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._after = ""
        """The object that was looked at last."""

    async def keep(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(_SECONDS)
            try:
                await self.expire(time.time())
                await self.sweep(time.time())
                await self.unlink()
            except StorageFull:
                continue
            except Exception:
                _log.exception("the store stumbled over its housekeeping")

    async def expire(self, now: float) -> int:
        """Drop records whose time is over, a bounded number at once, and objects that belonged to them; answers how many records."""
        if self._journal.reader.execute("SELECT 1 FROM records WHERE ttl <= ? LIMIT 1", (now,)).fetchone() is None:
            return 0
        return await self._journal.write(lambda connection: _expire(connection, now))

    async def sweep(self, now: float) -> int:
        """Drop responses' objects without a record, among the next few names; answers how many."""
        rows = self._journal.reader.execute(
            "SELECT key, modified FROM objects WHERE key > ? ORDER BY key LIMIT ?", (self._after, _LOOKED_AT_ONCE)
        ).fetchall()
        self._after = rows[-1][0] if len(rows) == _LOOKED_AT_ONCE else ""
        lost = [key for key, at in rows if at < now - limits.CONTAINER_OBJECT_SECONDS_MIN and self._is_lost(key)]
        if not lost:
            return 0

        def drop(connection: sqlite3.Connection) -> int:
            for key in lost:
                drop_object(connection, key)
            return len(lost)

        return await self._journal.write(drop)

    async def unlink(self) -> int:
        """Unlink files that nobody names any more, unless a backup holds them; answers how many."""
        files = [row[0] for row in self._journal.reader.execute("SELECT file FROM garbage LIMIT ?", (_UNLINKED_AT_ONCE,)).fetchall()]
        if not files:
            return 0
        with (self._journal.folder / HOLD).open("a") as hold:
            if not _taken(hold):
                return 0
            await asyncio.get_running_loop().run_in_executor(None, _unlink, self._journal.folder, files)
            await self._journal.write(
                lambda connection: connection.executemany("DELETE FROM garbage WHERE file = ?", [(file,) for file in files])
            )
        return len(files)

    def _is_lost(self, key: str) -> bool:
        owner = object_keys.owner_of_blob(key)
        if owner is None:
            return False
        found = self._journal.reader.execute("SELECT 1 FROM records WHERE pk = ? LIMIT 1", (keys.response(*owner),))
        return found.fetchone() is None


def _expire(connection: sqlite3.Connection, now: float) -> int:
    due = connection.execute("SELECT rowid, pk FROM records WHERE ttl <= ? LIMIT ?", (now, _EXPIRED_AT_ONCE)).fetchall()
    connection.executemany("DELETE FROM records WHERE rowid = ?", [(rowid,) for rowid, _ in due])
    for pk in {pk for _, pk in due if keys.is_response(pk)}:
        if connection.execute("SELECT 1 FROM records WHERE pk = ? LIMIT 1", (pk,)).fetchone() is None:
            prefix = object_keys.response_blobs(*keys.response.read(pk))
            found = connection.execute("SELECT key FROM objects WHERE key >= ? AND key < ?", (prefix, prefix + _HIGHEST)).fetchall()
            for (key,) in found:
                drop_object(connection, key)
    return len(due)


def _unlink(folder: Path, files: Sequence[str]) -> None:
    for file in files:
        for path in (folder / "objects" / file[:2] / file, folder / "incoming" / file):
            path.unlink(missing_ok=True)


def _taken(file: IO[str]) -> bool:
    """False while a backup holds the files."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
