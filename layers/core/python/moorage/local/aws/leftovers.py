"""Objects whose rows have gone: on AWS the bucket's lifecycle rules end them, here this does.

A response's rows go when their retention ends, and its large parts with them, by the same commit. And what a process has put into the
bucket before it died over the row is found by looking through the names, a few at a time.
"""

import sqlite3
from typing import Final

from moorage import limits
from moorage.local.aws.bucket import drop_object
from moorage.local.aws.journal import Journal
from moorage.store import keys

_LOOKED_AT_ONCE: Final = 500
_EXPIRED_AT_ONCE: Final = 500
_HIGHEST: Final = "\U0010ffff\U0010ffff"
_TOKEN_SECONDS: Final = 600
"""A transaction's token is remembered for ten minutes (API reference: ClientRequestToken)."""


class Leftovers:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._after = ("", "")
        """The object that was looked at last."""

    async def expire(self, now: float) -> int:
        """Drop rows whose time is over, a bounded number at once, and objects that belonged to them; answers how many rows."""
        return await self._journal.write(lambda connection: _expire(connection, now))

    async def sweep(self, now: float) -> int:
        """Drop responses' objects without a row, among the next few names; answers how many."""
        rows = self._journal.reader.execute(
            "SELECT bucket, key, modified FROM objects WHERE (bucket, key) > (?, ?) ORDER BY bucket, key LIMIT ?",
            (*self._after, _LOOKED_AT_ONCE),
        ).fetchall()
        self._after = (rows[-1][0], rows[-1][1]) if len(rows) == _LOOKED_AT_ONCE else ("", "")
        old = [(bucket, key) for bucket, key, at in rows if at < now - limits.CONTAINER_OBJECT_SECONDS_MIN]
        lost = [(bucket, key) for bucket, key in old if self._is_lost(key)]
        if not lost:
            return 0

        def drop(connection: sqlite3.Connection) -> int:
            for bucket, key in lost:
                drop_object(connection, bucket, key)
            return len(lost)

        return await self._journal.write(drop)

    def _is_lost(self, key: str) -> bool:
        owner = keys.owner_of_blob(key)
        if owner is None:
            return False
        found = self._journal.reader.execute(
            "SELECT 1 FROM rows WHERE place IN (SELECT name FROM tables) AND pk = ? LIMIT 1", (keys.response(*owner),)
        )
        return found.fetchone() is None


def _expire(connection: sqlite3.Connection, now: float) -> int:
    due = connection.execute(
        "SELECT rowid, pk FROM rows WHERE ttl IS NOT NULL AND place IN (SELECT name FROM tables) AND ttl <= ? LIMIT ?",
        (now, _EXPIRED_AT_ONCE),
    ).fetchall()
    connection.executemany("DELETE FROM rows WHERE rowid = ?", [(rowid,) for rowid, _ in due])
    for pk in {pk for _, pk in due}:
        _drop_objects_of(connection, pk)
    connection.execute("DELETE FROM tokens WHERE at < ?", (now - _TOKEN_SECONDS,))
    return len(due)


def _drop_objects_of(connection: sqlite3.Connection, pk: str) -> None:
    """Of a response whose last row has gone."""
    left = connection.execute("SELECT 1 FROM rows WHERE place IN (SELECT name FROM tables) AND pk = ? LIMIT 1", (pk,))
    if not keys.is_response(pk) or left.fetchone() is not None:
        return
    prefix = keys.response_blobs(*keys.response_of(pk))
    found = connection.execute(
        "SELECT buckets.name, key FROM buckets JOIN objects ON bucket = name WHERE key >= ? AND key < ?", (prefix, prefix + _HIGHEST)
    ).fetchall()
    for bucket, key in found:
        drop_object(connection, bucket, key)
