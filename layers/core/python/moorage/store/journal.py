"""The store of one machine: one SQLite file, opened by several processes, and a commit before each answer.

Each process has a thread that writes. Writes that come while it waits for the disk are committed together, so a slow disk costs each of
them at most two flushes. The processes take turns: a lock on a file beside the journal queues them, where SQLite's own would have them
sleep and try again. Reads see the committed state. They have a connection of their own, and wait for nothing.

SQLite's log ahead of writes (WAL) survives a process that dies at any moment. ``synchronous=FULL`` makes it survive the power.
"""

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Final, TypeVar

from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict, StorageFull
from moorage.store.reserve import Reserve

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

JOURNAL: Final = "journal.sqlite"
FORMAT: Final = 2
"""Of the file, as its ``user_version``. ``local/takeover.py`` makes it of older ones."""
_LOCK: Final = "journal.lock"
_NO_ROOM: Final = ("disk is full", "disk I/O error")
_CACHE_KIB: Final = 8 * 1024
"""Of each connection: what a process may grow by, however much is stored."""
_WAL_BYTES_MAX: Final = 64 * 1024 * 1024
_BUSY_SECONDS: Final = 30

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS records (
  pk TEXT NOT NULL, sk TEXT NOT NULL, index_pk TEXT, index_sk TEXT, ttl REAL, item BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS records_key ON records (pk, sk);
CREATE INDEX IF NOT EXISTS records_index ON records (index_pk, index_sk, pk, sk) WHERE index_pk IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_ttl ON records (ttl) WHERE ttl IS NOT NULL;
CREATE TABLE IF NOT EXISTS objects (
  key TEXT PRIMARY KEY, size INTEGER NOT NULL, modified REAL NOT NULL, files TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS garbage (file TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class _QueuedWrite:
    work: Work[Any]
    answer: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class _Outcome:
    asked: _QueuedWrite
    result: Any = None
    error: BaseException | None = None


class Journal:
    """Nothing is opened before it is first used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_refusing = False
        """The last write found no room."""
        self.reserve = Reserve(folder)
        self._queue: SimpleQueue[_QueuedWrite | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._reader: sqlite3.Connection | None = None
        self._turn: IO[str] | None = None
        self._opening = threading.Lock()

    @property
    def path(self) -> Path:
        return self.folder / JOURNAL

    @property
    def reader(self) -> sqlite3.Connection:
        """The committed state. For one thread, and its results must not stay open over an ``await``.

        Raises :class:`SettingsConflict` for a file of another format.
        """
        if self._reader is None:
            self._prepare()
            reader = connect(self.path)
            reader.execute("PRAGMA query_only = ON")
            self._reader = reader
        return self._reader

    async def write(self, work: Work[T]) -> T:
        """Do the work in a savepoint, in the thread that writes, and return when it is on disk. What it raises is raised, and undone.

        Raises :class:`StorageFull` if nothing could be kept.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._prepare()
            self._thread = threading.Thread(target=self._write_all, args=(connect(self.path),), name="journal", daemon=True)
            self._thread.start()
        self._queue.put(_QueuedWrite(work, answer, loop))
        return await answer

    def close(self) -> None:
        """The earlier writes are done."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def _prepare(self) -> None:
        """Make the file, unless it is there."""
        with self._opening:
            if self._turn is not None:
                return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as stack:
                turn = stack.enter_context((self.folder / _LOCK).open("a"))
                with _WriteTurn(turn):
                    self._make()
                    self.reserve.hold()
                stack.pop_all()
            self._turn = turn

    def _make(self) -> None:
        with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as found:
            (version,) = found.execute("PRAGMA user_version").fetchone()
        if version not in (0, FORMAT):
            raise SettingsConflict(f"{self.path} has the format {version} of another version of moorage; this is {FORMAT}.")
        if version == 0:
            with closing(connect(self.path)) as made:
                made.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")

    # --- the thread that writes ---

    def _write_all(self, connection: sqlite3.Connection) -> None:
        is_over = False
        while not is_over:
            batch: list[_QueuedWrite] = []
            first = self._queue.get()
            while first is not None:
                batch.append(first)
                if self._queue.empty():
                    break
                first = self._queue.get()
            is_over = first is None
            if batch:
                outcomes = self._commit(connection, batch)
                refused = [outcome.asked for outcome in outcomes if isinstance(outcome.error, StorageFull)]
                if refused and self.reserve.give_up():
                    kept = [outcome for outcome in outcomes if not isinstance(outcome.error, StorageFull)]
                    outcomes = kept + self._commit(connection, refused)
                _answer(outcomes)
        connection.close()

    def _commit(self, connection: sqlite3.Connection, batch: list[_QueuedWrite]) -> list[_Outcome]:
        changes = connection.total_changes
        try:
            assert self._turn is not None
            with _WriteTurn(self._turn):
                connection.execute("BEGIN IMMEDIATE")
                outcomes = [_do(connection, asked) for asked in batch]
                if not connection.in_transaction:
                    raise StorageFull  # SQLite has given the whole batch up.
                connection.execute("COMMIT")
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            translated = _translated(error)
            self.is_refusing = isinstance(translated, StorageFull)
            return [_Outcome(asked, error=translated) for asked in batch]
        if connection.total_changes != changes:
            self.is_refusing = False
        return outcomes


class _WriteTurn:
    """The turn to write. The kernel lets waiters go on in order of their arrival."""

    def __init__(self, file: IO[str]) -> None:
        self._descriptor = file.fileno()

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that flushes at each commit."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
    return connection


def _do(connection: sqlite3.Connection, asked: _QueuedWrite) -> _Outcome:
    if not connection.in_transaction:
        return _Outcome(asked, error=StorageFull())
    try:
        connection.execute("SAVEPOINT work")
        result = asked.work(connection)
        connection.execute("RELEASE work")
    except Exception as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO work")
            connection.execute("RELEASE work")
        return _Outcome(asked, error=_translated(error))
    return _Outcome(asked, result)


def _answer(outcomes: list[_Outcome]) -> None:
    """Each in its own loop: it may have ended meanwhile."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.asked.loop, []).append(outcome)
    for loop, its in by_loop.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, its)


def _settle(outcomes: list[_Outcome]) -> None:
    for outcome in outcomes:
        answer = outcome.asked.answer
        if answer.done():
            continue  # Whoever waited has gone.
        if outcome.error is None:
            answer.set_result(outcome.result)
        else:
            answer.set_exception(outcome.error)


def _translated(error: Exception) -> Exception:
    if isinstance(error, sqlite3.OperationalError) and any(words in str(error) for words in _NO_ROOM):
        return StorageFull()
    return error
