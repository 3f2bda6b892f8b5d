"""What was acknowledged is on disk: one SQLite file, and a commit before each answer.

Writes that come together are committed together. While a commit waits for the disk, further writes wait for its end and share the
next one, so that a slow disk costs each of them at most two flushes, however many there are. Reads see what is committed, over a
connection of their own, and wait for nothing. All work on the connections is done by the event loop's thread, but for the commit.

A start reads nothing but the file's header, and a stop has nothing to store.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TypeVar

T = TypeVar("T")

_NO_ROOM: Final = ("disk is full", "disk I/O error")
_CACHE_KIB: Final = 32 * 1024
"""Of each of the two connections: what the emulator's memory may grow by, however much is stored."""
_WAL_BYTES_MAX: Final = 64 * 1024 * 1024
_FORMAT: Final = 1

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, description TEXT NOT NULL, ttl_attribute TEXT);
CREATE TABLE IF NOT EXISTS rows (
  place TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL, index_pk TEXT, index_sk TEXT, ttl REAL, item TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS rows_key ON rows (place, pk, sk);
CREATE INDEX IF NOT EXISTS rows_index ON rows (place, index_pk, index_sk, pk, sk) WHERE index_pk IS NOT NULL;
CREATE INDEX IF NOT EXISTS rows_ttl ON rows (place, ttl) WHERE ttl IS NOT NULL;
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, digest TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS objects (
  bucket TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL, modified REAL NOT NULL, content_type TEXT,
  files TEXT NOT NULL, PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (id TEXT PRIMARY KEY, bucket TEXT NOT NULL, key TEXT NOT NULL, content_type TEXT, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS parts (
  upload TEXT NOT NULL, number INTEGER NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL, file TEXT NOT NULL,
  PRIMARY KEY (upload, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS garbage (file TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class NoRoom(Exception):
    """The disk is full, or refuses to write. Nothing of the write was kept; reads go on."""


@dataclass(slots=True)
class _Batch:
    """Writes that are committed together."""

    done: "asyncio.Future[None]"
    changes: int = 0
    """What the connection had counted before."""


@dataclass(slots=True)
class Journal:
    path: Path
    is_refusing: bool = False
    """The last write found no room."""
    _writer: sqlite3.Connection = field(init=False)
    _reader: sqlite3.Connection = field(init=False)
    _committer: ThreadPoolExecutor = field(init=False)
    _batch: _Batch | None = None
    """The one that is being filled."""
    _committing: "asyncio.Future[None] | None" = None

    def __post_init__(self) -> None:
        self._writer = connect(self.path)
        self._writer.executescript(_SCHEMA)
        self._writer.execute(f"PRAGMA user_version = {_FORMAT}")
        self._reader = connect(self.path)
        self._reader.execute("PRAGMA query_only = ON")
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="journal")

    @property
    def reader(self) -> sqlite3.Connection:
        """What is committed. For the event loop's thread, and not over an ``await``."""
        return self._reader

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work and return when it is on disk. What it raises is raised, undone, and after the commit of what it may have seen.

        Raises :class:`NoRoom`.
        """
        while self._committing is not None:
            await asyncio.wait({self._committing})
        batch = self._batch or self._begin()
        outcome = self._apply(batch, work)
        await asyncio.shield(batch.done)
        return outcome()

    async def drain(self) -> None:
        """Returns when nothing waits for the disk."""
        if self._batch is not None:
            await asyncio.wait({self._batch.done})
        if self._committing is not None:
            await asyncio.wait({self._committing})

    def close(self) -> None:
        self._committer.shutdown()
        self._reader.close()
        self._writer.close()

    def _begin(self) -> _Batch:
        loop = asyncio.get_running_loop()
        self._writer.execute("BEGIN IMMEDIATE")
        self._batch = _Batch(loop.create_future(), self._writer.total_changes)
        self._batch.done.add_done_callback(_seen)
        loop.call_soon(self._commit)
        return self._batch

    def _apply(self, batch: _Batch, work: Callable[[sqlite3.Connection], T]) -> Callable[[], T]:
        """The work's outcome, to be asked for after the commit."""
        if not self._writer.in_transaction:
            return _raising(NoRoom())  # SQLite has given the whole batch up.
        try:
            self._writer.execute("SAVEPOINT work")
            result = work(self._writer)
            self._writer.execute("RELEASE work")
        except Exception as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK TO work")
                self._writer.execute("RELEASE work")
            return _raising(_translated(error))
        return lambda: result

    def _commit(self) -> None:
        """Commit what has come so far, in a thread: nobody touches the connection meanwhile."""
        batch, self._batch = self._batch, None
        assert batch is not None
        self._committing = batch.done
        finished = asyncio.get_running_loop().run_in_executor(self._committer, self._commit_now)
        finished.add_done_callback(lambda outcome: self._committed(batch, outcome))

    def _commit_now(self) -> None:
        if not self._writer.in_transaction:
            raise NoRoom
        self._writer.execute("COMMIT")

    def _committed(self, batch: _Batch, outcome: "asyncio.Future[None]") -> None:
        error = outcome.exception()
        self._committing = None
        if error is None:
            if self._writer.total_changes != batch.changes:
                self.is_refusing = False
            batch.done.set_result(None)
            return
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        translated = _translated(error)
        self.is_refusing = isinstance(translated, NoRoom)
        batch.done.set_exception(translated)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that flushes at each commit."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
    return connection


def _translated(error: BaseException) -> BaseException:
    if isinstance(error, sqlite3.OperationalError) and any(words in str(error) for words in _NO_ROOM):
        return NoRoom()
    return error


def _raising(error: BaseException) -> Callable[[], NoReturn]:
    def outcome() -> NoReturn:
        raise error

    return outcome


def _seen(done: "asyncio.Future[None]") -> None:
    """Whoever waited for a commit may have gone; its error is no news then."""
    if not done.cancelled():
        done.exception()
