"""A hundred thousand stored responses cost a stack on one machine neither memory nor time to start and stop."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.stack import Stack

RESPONSES = 100_000
_RSS_BYTES_MAX = 256 * 1024 * 1024


def fill(journal: Path, like: str) -> None:
    """Copies of one stored response, under ids of their own."""
    with closing(sqlite3.connect(journal)) as connection:
        rows = connection.execute("SELECT pk, sk, index_pk, index_sk, ttl, item FROM records WHERE pk LIKE ?", (f"%{like}",)).fetchall()
        assert len(rows) == 2

        def copies() -> object:
            for number in range(RESPONSES):
                new = f"resp_{number:048x}"
                for pk, sk, index_pk, index_sk, ttl, item in rows:
                    yield pk.replace(like, new), sk, index_pk, index_sk, ttl, item.replace(like.encode(), new.encode())

        connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", copies())  # type: ignore[arg-type]
        connection.commit()


def rss(stack: Stack) -> int:
    assert stack.process is not None
    return int(Path(f"/proc/{stack.process.pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.timeout(300)
def test_a_large_state_starts_stops_and_answers_like_a_small_one(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state")
    seconds = {}
    for name in ("small", "large"):
        began = time.monotonic()
        stack.start()
        seconds[f"start, {name}"] = time.monotonic() - began
        made = stack.client().responses.create(model="demo", input="hello " * 200)
        if name == "large":
            answered = stack.client().responses.retrieve(f"resp_{RESPONSES - 1:048x}")
            assert answered.output_text == made.output_text
            assert rss(stack) < _RSS_BYTES_MAX
            seconds["RSS in MiB"] = rss(stack) / 2**20
        began = time.monotonic()
        assert stack.stop() == 0
        seconds[f"stop, {name}"] = time.monotonic() - began
        if name == "small":
            fill(stack.state_dir / "store" / "journal.sqlite", made.id)
    print({name: round(value, 2) for name, value in seconds.items()})
