"""Executions on one machine: rows of a SQLite file. A few worker processes take and play them (``local/step_worker.py``).

A row says the state of its execution and its worker. A worker has a number, and holds the lock of that number for as long as
it lives: the lease is the lock, so no clock can end it early or late. A worker that starts takes the lock, and frees what its
predecessor has left; any worker may take what is free.

A commit here does not wait for the disk. A process may die at any moment and loses nothing; after a power cut the last positions may
be lost. Then a step runs twice, which steps are made for, and an execution without a row is started again by ``loop/recover.py``.
"""

import asyncio
import random
import socket
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.tracing import Trace

T = TypeVar("T")

RUNNING: Final = "RUNNING"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS executions (
  name TEXT PRIMARY KEY, status TEXT NOT NULL, state TEXT, data TEXT NOT NULL, retries TEXT NOT NULL DEFAULT '[]',
  worker INTEGER, deaths INTEGER NOT NULL DEFAULT 0, began_at REAL NOT NULL, ended_at REAL
);
CREATE INDEX IF NOT EXISTS executions_free ON executions (began_at) WHERE status = 'RUNNING' AND worker IS NULL;
CREATE INDEX IF NOT EXISTS executions_ended ON executions (ended_at) WHERE ended_at IS NOT NULL;
"""
_IS_ANY_FREE: Final = "SELECT 1 FROM executions WHERE status = 'RUNNING' AND worker IS NULL LIMIT 1"
_TAKE: Final = """
WITH held AS (
  SELECT json_extract(data, '$.tenant_id') AS tenant, count(*) AS held FROM executions
  WHERE status = 'RUNNING' AND worker = :worker GROUP BY tenant
), free AS (
  SELECT rowid AS id, began_at, json_extract(data, '$.tenant_id') AS tenant,
    row_number() OVER (PARTITION BY json_extract(data, '$.tenant_id') ORDER BY began_at, rowid) AS turn
  FROM executions WHERE status = 'RUNNING' AND worker IS NULL
)
UPDATE executions SET worker = :worker WHERE rowid IN (
  SELECT id FROM free LEFT JOIN held USING (tenant) WHERE coalesce(held, 0) + turn <= :share
  ORDER BY coalesce(held, 0) + turn, began_at LIMIT :most
) RETURNING name, state, data, retries, deaths
"""
"""Whose tenant has the fewest goes first, and then the oldest."""
_KEEP: Final = """
UPDATE executions SET state = ?, data = ?, retries = ?, deaths = 0 WHERE name = ? AND worker = ? AND status = 'RUNNING'
"""
_BUSY_SECONDS: Final = 30
_CACHE_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class TakenExecution:
    """A worker's execution."""

    name: str
    state: str | None
    """None at the start."""
    data: dict[str, Any]
    retries: tuple[int, ...]
    deaths: int
    """Of workers that had it where it stands."""


class ExecutionRows:
    """The port, and the part of the workers. Nothing is opened before it is first used."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="executions")
        self._opened: sqlite3.Connection | None = None
        self._quick: sqlite3.Connection | None = None
        """Of the event loop's thread."""

    async def start(self, name: str, state: dict[str, Any], trace: Trace | None) -> None:
        """The trace is on the response's record: its steps find it there."""
        await self._on_thread(lambda: self._start(name, orjson.dumps(state).decode()))

    async def start_soon(self, name: str, state: dict[str, Any], trace: Trace | None) -> bool:
        try:
            await self.start(name, state, trace)
        except sqlite3.OperationalError:  # The disk is full, or refuses to write.
            return False
        return True

    async def stop(self, name: str) -> None:
        await self._on_thread(lambda: self._end(name, "ABORTED"))

    async def status(self, name: str) -> str | None:
        found = await self._on_thread(
            lambda: self._connection().execute("SELECT status FROM executions WHERE name = ?", (name,)).fetchone()
        )
        return None if found is None else str(found[0])

    async def free(self, worker: int, workers: int, *, has_died: bool) -> None:
        """Let go of what a worker has, and of what numbers have that are not given any more (from ``workers`` on). Those that had
        died with it are counted."""
        await self._on_thread(
            lambda: self._connection().execute(
                "UPDATE executions SET worker = NULL, deaths = deaths + ? WHERE status = 'RUNNING' AND (worker = ? OR worker >= ?)",
                (int(has_died), worker, workers),
            )
        )

    async def take(self, worker: int, most: int, *, share: int) -> list[TakenExecution]:
        """Some that nobody has, in turns of their tenants. ``share`` is how many of one tenant this worker may have."""
        return await self._on_thread(lambda: self._take(worker, most, share))

    async def keep(self, name: str, worker: int, state: str, data: dict[str, Any], retries: tuple[int, ...]) -> bool:
        """Write the position of an execution; False if it was stopped, or another worker has it.

        It is two writes into the page cache, and takes less time than to ask a thread for it. If another process writes just now, or
        the disk refuses, the thread waits for that.
        """
        row = (state, orjson.dumps(data).decode(), orjson.dumps(retries).decode(), name, worker)
        with suppress(sqlite3.OperationalError):
            return self._quick_connection().execute(_KEEP, row).rowcount == 1
        return await self._on_thread(lambda: self._connection().execute(_KEEP, row).rowcount == 1)

    async def end(self, name: str, status: str) -> None:
        """The first end stands."""
        await self._on_thread(lambda: self._end(name, status))

    async def forget_ended(self) -> None:
        """Keep a bounded number of those that have ended; one that is not there counts as ended."""
        await self._on_thread(
            lambda: self._connection().execute(
                "DELETE FROM executions WHERE rowid IN "
                "(SELECT rowid FROM executions WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT -1 OFFSET ?)",
                (limits.EXECUTIONS_KEPT_MAX,),
            )
        )

    def _start(self, name: str, data: str) -> None:
        self._connection().execute(
            "INSERT OR IGNORE INTO executions (name, status, data, began_at) VALUES (?, ?, ?, ?)", (name, RUNNING, data, self._clock())
        )
        wake(self._path.parent)

    def _end(self, name: str, status: str) -> None:
        self._connection().execute(
            "UPDATE executions SET status = ?, ended_at = ? WHERE name = ? AND status = 'RUNNING'", (status, self._clock(), name)
        )

    def _take(self, worker: int, most: int, share: int) -> list[TakenExecution]:
        connection = self._connection()
        if connection.execute(_IS_ANY_FREE).fetchone() is None:
            return []  # The common answer needs no lock.
        rows = connection.execute(_TAKE, {"worker": worker, "most": most, "share": share}).fetchall()
        return [
            TakenExecution(name, state, orjson.loads(data), tuple(orjson.loads(retries)), deaths)
            for name, state, data, retries, deaths in rows
        ]

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            opened = _connected(self._path, _BUSY_SECONDS)
            opened.executescript(_SCHEMA)
            self._opened = opened
        return self._opened

    def _quick_connection(self) -> sqlite3.Connection:
        """It waits for nobody, and flushes at most the head of a new log: the thread's writes move the log into the file."""
        if self._quick is None:
            opened = _connected(self._path, 0)
            opened.execute("PRAGMA wal_autocheckpoint = 0")
            self._quick = opened
        return self._quick

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _connected(path: Path, busy_seconds: float) -> sqlite3.Connection:
    opened = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=busy_seconds)
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("PRAGMA synchronous = NORMAL")
    opened.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return opened


def worker_socket(folder: Path, number: int) -> Path:
    """The socket of a worker: a connection there wakes it without a word."""
    return folder / f"worker-{number}.sock"


def wake(folder: Path) -> None:
    """Wake one of the workers. If that fails they look by themselves, a little later."""
    sockets = list(folder.glob("worker-*.sock"))
    random.shuffle(sockets)
    for path in sockets:
        with socket.socket(socket.AF_UNIX) as calling, suppress(OSError):
            calling.setblocking(False)
            calling.connect(str(path))
            return
