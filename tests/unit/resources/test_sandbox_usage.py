"""What of a sandbox's time no response has paid for: counted for its tenant when it has ended, by the hour and in its budget."""

import io
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moorage import limits
from moorage.containers.store import ContainerRecord
from moorage.errors import SandboxCapacity, StorageFull
from moorage.store import keys
from moorage.store.budgets import Budgets, Scope
from moorage.store.live_sandboxes import SandboxBounds
from moorage.store.sandbox_usage import SandboxPrice, SandboxRest, SandboxUsage
from moorage.store.table import Record
from moorage.telemetry import open_log

from tests.opened_logs import close_log
from tests.unit.resources.support import Clock, Store
from tests.unit.resources.test_tenant_bounds import IDLE, Deployment
from tests.unit.store.memory import MemoryBlobs, MemoryTable

HOUR = 3600
PRICE = SandboxPrice(3.6, 1.8, "a list")
TENANT = Scope("tenant", "ten")


class World(Deployment):
    def __init__(self, store: Store, clock: Clock, price: SandboxPrice | None = PRICE) -> None:
        self.budgets = Budgets(store.table, clock)
        self.usage = SandboxUsage(store.table, self.budgets, price, clock=clock, retention_seconds=30 * 24 * HOUR)
        super().__init__(store, clock, SandboxBounds(), usage=self.usage)

    async def counted(self, tenant_id: str = "ten") -> Any:
        now = int(self.clock())
        return await self.usage.between(tenant_id, now - 24 * HOUR, now)

    async def ran(self, seconds: float, **options: Any) -> ContainerRecord:
        """A container whose sandbox has run for so long."""
        record = await self.made(**options)
        await self.start(record)
        self.clock.advance(seconds)
        return record


@pytest.fixture
def world(store: Store, clock: Clock) -> World:
    clock.now -= clock.now % HOUR
    return World(store, clock)


@pytest.mark.parametrize(("tier", "second"), [("1g", 1_000_000), ("4g", 3_000_000), ("16g", 12_000_000), ("64g", 48_000_000)])
def test_a_second_costs_what_fargate_asks_for_its_processors_and_memory(tier: str, second: int) -> None:
    assert PRICE.nanodollars(tier) == second


async def test_what_is_idle_after_a_response_is_its_tenants(world: World) -> None:
    await world.budgets.put("ten", TENANT, {"usd": 10})
    record = await world.ran(100)
    await world.containers.pay("ten", record.id, "resp_1", 70)  # a response that began 30 s after the sandbox
    await world.expire()
    seconds = 30 + IDLE + 1
    assert await world.counted() == [(int(world.clock()) // HOUR * HOUR, SandboxRest(seconds, seconds * 1_000_000))]
    standing = await world.budgets.standing("ten", TENANT)
    assert standing is not None
    assert standing.used["usd"] == seconds * 0.001


async def test_deleting_a_container_ends_what_its_tenant_pays_for(world: World) -> None:
    record = await world.ran(50, memory_limit="16g")
    await world.containers.delete("ten", record.id)
    world.clock.advance(1_000)
    await world.containers.sweep.expire_due(world.clock())
    assert [rest for _, rest in await world.counted()] == [SandboxRest(50, 50 * 12_000_000)]
    assert await world.counted("neighbour") == []


async def test_each_sandbox_counts_once_and_each_hour_for_itself(world: World) -> None:
    record = await world.ran(10)
    world.provisioner.sandboxes["sb-1"].is_alive = False
    await world.start(record)  # its second sandbox; the first is found dead
    world.clock.advance(HOUR)
    second = await world.containers.get("ten", record.id)
    for _ in range(2):
        await world.containers.sandboxes.end(second, second.sandbox_id, "lost")
    hour = int(world.clock()) // HOUR * HOUR
    assert await world.counted() == [
        (hour - HOUR, SandboxRest(10, 10_000_000)),
        (hour, SandboxRest(HOUR, HOUR * 1_000_000)),
    ]
    assert await world.usage.between("ten", hour, hour) == [(hour, SandboxRest(HOUR, HOUR * 1_000_000))]
    assert await world.usage.between("ten", hour - HOUR, hour - 1) == [(hour - HOUR, SandboxRest(10, 10_000_000))]


async def test_responses_side_by_side_may_pay_more_than_there_is_and_nobody_gets_it_back(world: World) -> None:
    record = await world.ran(100)
    for response_id in ("resp_1", "resp_2"):
        await world.containers.pay("ten", record.id, response_id, 90)
    await world.containers.delete("ten", record.id)
    assert await world.counted() == []


async def test_a_response_that_ends_twice_pays_once(world: World) -> None:
    record = await world.ran(100)
    await world.containers.pay("ten", record.id, "resp_1", 60)  # its process dies before the end is written
    await world.containers.pay("ten", record.id, "resp_1", 70)  # the step that runs again ends it
    await world.containers.delete("ten", record.id)
    assert [rest for _, rest in await world.counted()] == [SandboxRest(30, 30_000_000)]


@pytest.mark.parametrize("refusal", [ClientError({"Error": {"Code": "ThrottlingException"}}, "UpdateItem"), StorageFull()])
async def test_what_cannot_be_counted_is_told_and_hinders_nobody(clock: Clock, refusal: Exception) -> None:
    """The response has ended by then, and the sandbox: nothing of these ends may fail for it."""
    table = MemoryTable()
    world = World(Store(table, MemoryBlobs()), clock)
    record = await world.ran(100)

    async def busy(changed: Record) -> None:
        if changed["PK"] in (keys.sandboxes("ten"), keys.usage("ten")):
            raise refusal

    table.before_write = busy
    handler = open_log(out := io.StringIO())
    try:
        await world.containers.pay("ten", record.id, "resp_1", 90)
        await world.containers.delete("ten", record.id)
    finally:
        close_log(handler)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["message"], line["seconds"]) for line in lines if line["level"] == "ERROR"] == [
        ("what a response has paid of its sandbox could not be counted", 90),
        ("the time of a sandbox could not be counted", 100),
    ]
    assert await world.counted() == []


async def test_what_never_ran_costs_nothing(world: World) -> None:
    world.provisioner.room = 0
    with pytest.raises(SandboxCapacity):
        await world.start(await world.made())
    world.clock.advance(limits.SANDBOX_WAIT_SECONDS)
    await world.expire()
    assert await world.counted() == []
    await world.containers.pay("ten", "cntr_none", "resp_1", 3)  # its sandbox has ended meanwhile


async def test_without_a_price_nothing_is_counted(store: Store, clock: Clock) -> None:
    world = World(store, clock, None)
    record = await world.ran(10)
    (entry,) = await store.table.query(keys.sandboxes("ten"), after=keys.TOTAL)
    assert "begun" not in entry
    await world.containers.delete("ten", record.id)
    assert await world.counted() == []


async def test_one_that_an_earlier_version_has_started_is_not_guessed_at(world: World) -> None:
    record = await world.ran(10)
    await world.store.table.update(keys.sandboxes("ten"), keys.live_sandbox(record.id, 1), remove=["begun"])
    await world.containers.delete("ten", record.id)
    assert await world.counted() == []
