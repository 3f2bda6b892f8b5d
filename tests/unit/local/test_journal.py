"""The journal: acknowledged means on disk, together and whole, and a full disk is said."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moorage.local.aws.journal import Journal, NoRoom

Work = Callable[[sqlite3.Connection], None]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite")
    yield opened
    opened.close()


def note(name: str, body: str = "x") -> Work:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO parts VALUES (?, 1, 0, '', ?)", (name, body))

    return work


def names(journal: Journal) -> list[str]:
    return [row[0] for row in journal.reader.execute("SELECT upload FROM parts ORDER BY upload")]


async def test_a_write_is_seen_when_it_returns_and_not_before(journal: Journal) -> None:
    writing = asyncio.create_task(journal.write(note("a")))
    await asyncio.sleep(0)
    assert names(journal) == []
    await writing
    assert names(journal) == ["a"]


async def test_writes_that_come_together_are_committed_together(journal: Journal) -> None:
    statements: list[str] = []
    journal._writer.set_trace_callback(statements.append)
    await asyncio.gather(*(journal.write(note(f"{n:03}")) for n in range(100)))
    assert statements.count("COMMIT") <= 3
    assert len(names(journal)) == 100


async def test_what_a_write_raises_undoes_it_alone(journal: Journal) -> None:
    def breaks(connection: sqlite3.Connection) -> None:
        note("half")(connection)
        raise ValueError("no")

    outcomes = await asyncio.gather(journal.write(note("a")), journal.write(breaks), journal.write(note("b")), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), ValueError, type(None)]
    assert names(journal) == ["a", "b"]


async def test_a_full_disk_refuses_the_write_lets_reads_go_on_and_heals(journal: Journal) -> None:
    await journal.write(note("before"))
    (pages,) = journal._writer.execute("PRAGMA page_count").fetchone()
    journal._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    for _ in range(3):
        with pytest.raises(NoRoom):
            await journal.write(note("large", "x" * 1_000_000))
    assert names(journal) == ["before"]
    journal._writer.execute("PRAGMA max_page_count = 1000000")
    await journal.write(note("large", "x" * 1_000_000))
    assert (names(journal), journal.is_refusing) == (["before", "large"], False)


async def test_one_write_without_room_does_not_take_the_others_along(journal: Journal) -> None:
    (pages,) = journal._writer.execute("PRAGMA page_count").fetchone()
    journal._writer.execute(f"PRAGMA max_page_count = {pages + 4}")
    outcomes = await asyncio.gather(journal.write(note("small")), journal.write(note("large", "x" * 1_000_000)), return_exceptions=True)
    assert isinstance(outcomes[1], NoRoom)
    assert names(journal) == ([] if isinstance(outcomes[0], NoRoom) else ["small"])


async def test_a_cancelled_writer_leaves_the_batch_of_the_others_whole(journal: Journal) -> None:
    gone = asyncio.create_task(journal.write(note("gone")))
    stays = asyncio.create_task(journal.write(note("stays")))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert "stays" in names(journal)


_WRITER = """
import asyncio, sys
from pathlib import Path
from moorage.local.aws.journal import Journal

async def main():
    journal = Journal(Path(sys.argv[1]))
    for n in range(100000):
        await asyncio.gather(*(journal.write(
            lambda c, i=i: (c.execute("INSERT INTO parts VALUES (?, 1, 0, '', '1')", (f"{n}-{i}-a",)),
                            c.execute("INSERT INTO parts VALUES (?, 1, 0, '', '2')", (f"{n}-{i}-b",)))) for i in range(4)))
        print(n, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 7, 23])
def test_what_was_acknowledged_before_a_sigkill_is_there_and_every_write_whole(tmp_path: Path, after: int) -> None:
    path = tmp_path / "journal.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = -1
    for line in writer.stdout:
        acknowledged = int(line)
        if acknowledged >= after:
            break
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    journal = Journal(path)
    found = set(names(journal))
    assert {f"{n}-{i}-{half}" for n in range(acknowledged + 1) for i in range(4) for half in "ab"} <= found
    assert {name.removesuffix("-a") for name in found if name.endswith("a")} == {
        name.removesuffix("-b") for name in found if name.endswith("b")
    }
    journal.close()


def test_every_commit_is_flushed(journal: Journal) -> None:
    assert journal._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
