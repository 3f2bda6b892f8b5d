"""Objects go with their rows, and those that never had one go too."""

import fcntl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from moorage import limits
from moorage.local.housekeeping import HOLD, Housekeeping, tidy
from moorage.store import keys, object_keys
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal
from moorage.store.sqlite_table import SqliteTable


class World:
    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder)
        self._disk = ThreadPoolExecutor(1)
        self.table, self.blobs = SqliteTable(self.journal), FileBlobs(self.journal, self._disk)
        self.house = Housekeeping(self.journal)

    async def row(self, response_id: str, sk: str, ttl: int) -> None:
        await self.table.put({"PK": keys.response("t", response_id), "SK": sk, "ttl": ttl})

    async def put(self, key: str, age: float = 0) -> None:
        await self.blobs.put_bytes(key, b"x")
        await self.journal.write(lambda c: c.execute("UPDATE objects SET modified = modified - ? WHERE key = ?", (age, key)))

    def objects(self) -> list[str]:
        return [row[0] for row in self.journal.reader.execute("SELECT key FROM objects ORDER BY key")]

    def files(self) -> int:
        return sum(path.is_file() for place in ("objects", "incoming") for path in (self.journal.folder / place).rglob("*"))

    def close(self) -> None:
        self.journal.close()
        self._disk.shutdown()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


async def test_a_response_that_expires_takes_its_objects_along_with_its_last_row(world: World) -> None:
    for response_id in ("resp_old", "resp_new"):
        await world.put(object_keys.response_blob("t", response_id, "meta"))
    await world.put("T/t/F/file_1")
    await world.row("resp_old", "META", 100)
    await world.row("resp_old", "EV#0", 200)
    await world.row("resp_new", "META", 900)
    assert await world.house.expire(150) == 1
    assert len(world.objects()) == 3
    assert await world.house.expire(250) == 1
    assert world.objects() == [object_keys.response_blob("t", "resp_new", "meta"), "T/t/F/file_1"]
    assert (world.files(), await world.house.unlink(), world.files(), await world.house.unlink()) == (3, 1, 2, 0)


async def test_an_object_without_a_row_goes_when_no_writer_can_be_left(world: World) -> None:
    old = limits.CONTAINER_OBJECT_SECONDS_MIN + 60
    await world.put(object_keys.response_blob("t", "resp_lost", "meta"), age=old)
    await world.put(object_keys.response_blob("t", "resp_young", "meta"))
    await world.put(object_keys.response_blob("t", "resp_kept", "meta"), age=old)
    await world.row("resp_kept", "META", 10**12)
    await world.put("T/t/C/cntr_1/x", age=old)

    assert await world.house.sweep(time.time()) == 1
    assert world.objects() == [
        object_keys.response_blob("t", "resp_kept", "meta"),
        object_keys.response_blob("t", "resp_young", "meta"),
        "T/t/C/cntr_1/x",
    ]


async def test_nothing_is_unlinked_while_a_backup_holds_the_files(world: World) -> None:
    await world.put("T/t/F/a")
    await world.blobs.delete("T/t/F/a")
    with (world.journal.folder / HOLD).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert (await world.house.unlink(), world.files()) == (0, 1)
    assert (await world.house.unlink(), world.files()) == (1, 0)


async def test_a_start_settles_files_with_a_name_and_drops_the_others(world: World) -> None:
    await world.put("T/t/F/a")
    (named,) = (world.journal.folder / "objects").rglob("*/*")
    incoming = world.journal.folder / "incoming"
    named.rename(incoming / named.name)
    assert await world.blobs.get_bytes("T/t/F/a") == b"x"
    (incoming / ("0" * 32)).write_bytes(b"nobody was told of it")
    tidy(world.journal)
    assert (list(incoming.iterdir()), named.read_bytes()) == ([], b"x")


def test_names_of_responses_are_told_from_others() -> None:
    assert object_keys.owner_of_blob(object_keys.response_blob("t", "resp_1", "step-0-1")) == ("t", "resp_1")
    assert [object_keys.owner_of_blob(key) for key in ("T/t/F/file_1", "T/t/C/c/R/x", "x")] == [None, None, None]
    assert [keys.is_response(pk) for pk in (keys.response("t", "r"), keys.container("t", "c"), "INFLIGHT")] == [True, False, False]
