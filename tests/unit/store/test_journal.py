"""What was acknowledged is there, whoever dies; and processes take turns."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
from moorage.errors import SettingsConflict, StorageFull
from moorage.store.journal import FORMAT, JOURNAL, Journal
from moorage.store.reserve import RESERVED_BYTES, Reserve


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "store")
    assert journal.reader
    with closing(sqlite3.connect(journal.path)) as connection:
        connection.execute("CREATE TABLE documents (name TEXT PRIMARY KEY, body TEXT NOT NULL)")
    yield journal
    journal.close()


def note(name: str, body: str = "x") -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute("INSERT INTO documents VALUES (?, ?)", (name, body))


def names(journal: Journal) -> list[str]:
    return [name for (name,) in journal.reader.execute("SELECT name FROM documents ORDER BY rowid")]


async def limit_pages(journal: Journal, more: int) -> None:
    """As a disk with room for so many more pages would."""

    def limit(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + more}")

    await journal.write(limit)


async def test_a_write_is_seen_when_it_is_answered(journal: Journal) -> None:
    assert await journal.write(lambda connection: connection.execute("INSERT INTO documents VALUES ('a', 'x')").rowcount) == 1
    assert names(journal) == ["a"]


async def test_what_a_write_raises_is_raised_and_undone_alone(journal: Journal) -> None:
    def wrong(connection: sqlite3.Connection) -> None:
        note("wrong")(connection)
        raise LookupError("no")

    outcomes = await asyncio.gather(
        journal.write(note("before")), journal.write(wrong), journal.write(note("after")), return_exceptions=True
    )
    assert isinstance(outcomes[1], LookupError)
    assert names(journal) == ["before", "after"]


async def test_a_write_without_room_is_refused_and_room_heals(journal: Journal) -> None:
    await journal.write(note("before"))
    await limit_pages(journal, 4)
    with pytest.raises(StorageFull):
        await journal.write(note("large", "x" * 1_000_000))
    assert (names(journal), journal.is_refusing) == (["before"], True)
    await limit_pages(journal, 1_000_000)
    await journal.write(note("large", "x" * 1_000_000))
    assert (names(journal), journal.is_refusing) == (["before", "large"], False)


async def test_one_write_without_room_does_not_take_the_others_along(journal: Journal) -> None:
    await limit_pages(journal, 4)
    outcomes = await asyncio.gather(journal.write(note("small")), journal.write(note("large", "x" * 1_000_000)), return_exceptions=True)
    assert isinstance(outcomes[1], StorageFull)
    assert names(journal) == ([] if isinstance(outcomes[0], StorageFull) else ["small"])


async def test_a_writer_that_goes_leaves_the_batch_of_the_others_whole(journal: Journal) -> None:
    gone = asyncio.create_task(journal.write(note("gone")))
    stays = asyncio.create_task(journal.write(note("stays")))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert names(journal) == ["gone", "stays"]


def test_loops_that_come_after_each_other_share_a_journal(journal: Journal) -> None:
    for name in ("a", "b"):
        asyncio.run(journal.write(lambda connection, name=name: note(name)(connection)))  # type: ignore[misc]
    assert names(journal) == ["a", "b"]


async def test_every_commit_is_flushed(journal: Journal) -> None:
    (level,) = await journal.write(lambda connection: connection.execute("PRAGMA synchronous").fetchone())
    (mode,) = journal.reader.execute("PRAGMA journal_mode").fetchone()
    assert (level, mode) == (2, "wal")


def test_a_file_of_another_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    before = (tmp_path / JOURNAL).read_bytes()
    with pytest.raises(SettingsConflict, match=f"the format {FORMAT + 1} of another version"):
        _ = Journal(tmp_path).reader
    assert (tmp_path / JOURNAL).read_bytes() == before


_COUNTER = """
import asyncio, sys
from pathlib import Path
from threading import Barrier
from moorage.store.journal import Journal
from moorage.store.reserve import RESERVED_BYTES, Reserve
from moorage.store.sqlite_table import SqliteTable

async def main():
    table = SqliteTable(Journal(Path(sys.argv[1])))
    for n in range(50):
        await asyncio.gather(*(table.update("p", "s", add={"n": 1, sys.argv[2]: 1}, must_exist=False) for _ in range(4)))

asyncio.run(main())
"""


def test_processes_that_write_at_once_take_turns(journal: Journal) -> None:
    command = [sys.executable, "-c", _COUNTER, str(journal.folder)]
    writers = [subprocess.Popen([*command, name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    (item,) = journal.reader.execute("SELECT item FROM records").fetchone()
    assert json.loads(item) == {"PK": "p", "SK": "s", "n": 600, "a": 200, "b": 200, "c": 200}


_WRITER = """
import asyncio, sys
from pathlib import Path
from threading import Barrier
from moorage.store.journal import Journal
from moorage.store.reserve import RESERVED_BYTES, Reserve

async def main():
    journal = Journal(Path(sys.argv[1]))
    for n in range(100000):
        await asyncio.gather(*(journal.write(
            lambda c, i=i: (c.execute("INSERT INTO documents VALUES (?, '1')", (f"{n}-{i}-a",)),
                            c.execute("INSERT INTO documents VALUES (?, '2')", (f"{n}-{i}-b",)))) for i in range(4)))
        print(n, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 7, 23])
async def test_what_was_acknowledged_before_a_sigkill_is_there_and_every_write_whole(journal: Journal, after: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(journal.folder)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = -1
    for line in writer.stdout:
        acknowledged = int(line)
        if acknowledged >= after:
            break
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    await journal.write(note("the next one goes on"))
    found = set(names(journal)) - {"the next one goes on"}
    assert {f"{n}-{i}-{half}" for n in range(acknowledged + 1) for i in range(4) for half in "ab"} <= found
    assert {name.removesuffix("-a") for name in found if name.endswith("a")} == {
        name.removesuffix("-b") for name in found if name.endswith("b")
    }


async def test_what_finds_no_room_is_tried_once_more_in_the_room_that_was_kept_back(journal: Journal) -> None:
    await journal.write(note("before"))
    held = [journal.reserve.is_held]
    await limit_pages(journal, 4)
    with pytest.raises(StorageFull):
        await journal.write(note("large", "x" * 1_000_000))
    held += [journal.reserve.is_held, journal.reserve.hold(), journal.reserve.is_held]
    assert held == [True, False, True, True]


def test_several_threads_hold_the_room_at_once(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    together = Barrier(8)

    def hold() -> bool:
        together.wait()
        return reserve.hold()

    with ThreadPoolExecutor(8) as threads:
        held = list(threads.map(lambda _: hold(), range(8)))
    assert (held, [(file.name, file.stat().st_size) for file in tmp_path.iterdir()]) == ([True] * 8, [("reserve", RESERVED_BYTES)])


def test_room_that_a_killed_process_held_by_half_is_held_whole(tmp_path: Path) -> None:
    (tmp_path / "reserve").write_bytes(b"")
    reserve = Reserve(tmp_path)
    assert [reserve.is_held, reserve.hold(), reserve.is_held] == [False, True, True]
