"""Objects go with their rows, and those that never had one go too."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage import limits
from moorage.local.aws.bucket import BucketService, Request
from moorage.local.aws.journal import Journal
from moorage.local.aws.leftovers import Leftovers
from moorage.local.aws.table import TableService
from moorage.store import keys

from tests.unit.local.test_table_service import NAME, TABLE


class World:
    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder / "journal.sqlite")
        self.table, self.bucket = TableService(self.journal), BucketService(self.journal, folder)
        self.leftovers = Leftovers(self.journal)

    async def begin(self) -> None:
        await self.table.handle("CreateTable", json.dumps(TABLE).encode())
        ttl = {"TableName": NAME, "TimeToLiveSpecification": {"Enabled": True, "AttributeName": "ttl"}}
        await self.table.handle("UpdateTimeToLive", json.dumps(ttl).encode())
        await self.bucket.handle(Request("PUT", "/moorage", "", {}, b""))

    async def row(self, response_id: str, sk: str, ttl: int) -> None:
        item = {"PK": {"S": keys.response("t", response_id)}, "SK": {"S": sk}, "ttl": {"N": str(ttl)}}
        assert (await self.table.handle("PutItem", json.dumps({"TableName": NAME, "Item": item}).encode()))[0] == 200

    async def put(self, key: str, age: float = 0) -> None:
        await self.bucket.handle(Request("PUT", f"/moorage/{key}", "", {}, b"x"))
        await self.journal.write(lambda c: c.execute("UPDATE objects SET modified = modified - ? WHERE key = ?", (age, key)))

    def objects(self) -> list[str]:
        return [row[0] for row in self.journal.reader.execute("SELECT key FROM objects ORDER BY key")]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.begin()
    yield made
    made.bucket.close()
    made.journal.close()


async def test_a_response_that_expires_takes_its_objects_along_with_its_last_row(world: World) -> None:
    for response_id in ("resp_old", "resp_new"):
        await world.put(keys.response_blob("t", response_id, "meta"))
    await world.put("T/t/F/file_1")
    await world.row("resp_old", "META", 100)
    await world.row("resp_old", "EV#0", 200)
    await world.row("resp_new", "META", 900)
    assert await world.leftovers.expire(150) == 1
    assert len(world.objects()) == 3
    assert await world.leftovers.expire(250) == 1
    assert world.objects() == [keys.response_blob("t", "resp_new", "meta"), "T/t/F/file_1"]


async def test_an_object_whose_row_was_never_written_goes_when_nobody_can_still_be_writing_it(world: World) -> None:
    old = limits.CONTAINER_OBJECT_SECONDS_MIN + 60
    await world.put(keys.response_blob("t", "resp_lost", "meta"), age=old)
    await world.put(keys.response_blob("t", "resp_young", "meta"))
    await world.put(keys.response_blob("t", "resp_kept", "meta"), age=old)
    await world.row("resp_kept", "META", 10**12)
    await world.put("T/t/C/cntr_1/x", age=old)

    assert await world.leftovers.sweep(time.time()) == 1
    assert world.objects() == [
        keys.response_blob("t", "resp_kept", "meta"),
        keys.response_blob("t", "resp_young", "meta"),
        "T/t/C/cntr_1/x",
    ]


def test_names_of_responses_are_told_from_others() -> None:
    assert keys.owner_of_blob(keys.response_blob("t", "resp_1", "step-0-1")) == ("t", "resp_1")
    assert [keys.owner_of_blob(key) for key in ("T/t/F/file_1", "T/t/C/c/R/x", "x")] == [None, None, None]
    assert [keys.is_response(pk) for pk in (keys.response("t", "r"), keys.container("t", "c"), "INFLIGHT")] == [True, False, False]
