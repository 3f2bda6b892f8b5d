"""The reaper's comparison of what runs with what the records own."""

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from moorage import limits
from moorage.errors import SandboxError
from moorage.sandbox.orphans import OrphanSandboxes
from moorage.store import keys
from moorage.store.table import Record

from tests.unit.store.memory import MemoryTable


@dataclass(frozen=True)
class Task:
    sandbox_id: str
    container_id: str = "cntr_1"
    incarnation: int = 1
    tenant_id: str = "acme"

    def belongs_to(self, token: str) -> bool:
        return token == token_of(self.container_id, self.incarnation)


def token_of(container_id: str, incarnation: int) -> str:
    return f"{container_id}/{incarnation}"


@dataclass
class Cluster:
    tasks: list[Task] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    refuses: bool = False

    async def running(self) -> list[Task]:
        return [task for task in self.tasks if task.sandbox_id not in self.stopped]

    async def stop(self, sandbox_id: str) -> None:
        if self.refuses:
            raise SandboxError("no")
        self.stopped.append(sandbox_id)


class World:
    def __init__(self) -> None:
        self.table, self.cluster, self.now = MemoryTable(), Cluster(), 1_800_000_000.0
        self.orphans = OrphanSandboxes(self.table, self.cluster, token_of, lambda: self.now)

    async def life(self, sandbox_id: str | None, incarnation: int = 1) -> None:
        """The record of a sandbox; ``sandbox_id`` None while its starter does not know it."""
        await self.table.put(
            {
                "PK": keys.container("acme", "cntr_1"),
                "SK": keys.life(incarnation),
                "container_id": "cntr_1",
                "incarnation": incarnation,
                "sandbox_id": sandbox_id,
            }
        )

    async def no_life(self, incarnation: int = 1) -> None:
        await self.table.delete(keys.container("acme", "cntr_1"), keys.life(incarnation))

    async def look(self, seconds_later: float = 0) -> list[str]:
        self.now += seconds_later
        await self.orphans.stop_lost(await self.cluster.running())
        return self.cluster.stopped

    def notes(self) -> list[str]:
        return [sk for pk, sk in self.table.records if pk == keys.ORPHANS]


@pytest.fixture
def world() -> World:
    return World()


async def test_a_task_that_nobody_owns_is_stopped_at_a_later_look(world: World) -> None:
    world.cluster.tasks = [Task("lost")]
    assert await world.look() == []
    assert await world.look(limits.ORPHAN_SECONDS_MIN - 1) == []
    assert await world.look(1) == ["lost"]
    assert world.notes() == []


@pytest.mark.parametrize("sandbox_id", [pytest.param("mine", id="its record names it"), pytest.param(None, id="it is being started")])
async def test_a_task_with_an_owner_is_left_alone(world: World, sandbox_id: str | None) -> None:
    world.cluster.tasks = [Task("mine")]
    await world.life(sandbox_id)
    for _ in range(3):
        assert await world.look(limits.ORPHAN_SECONDS_MIN) == []
    assert world.notes() == []


async def test_a_task_of_an_earlier_incarnation_is_not_kept_by_the_one_that_starts(world: World) -> None:
    world.cluster.tasks = [Task("old", incarnation=1), Task("new", incarnation=2)]
    await world.life(None, incarnation=2)
    await world.look()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == ["old"]


async def test_a_second_task_of_one_container_is_stopped_when_the_record_names_the_first(world: World) -> None:
    world.cluster.tasks = [Task("first"), Task("second")]
    await world.life("first")
    await world.look()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == ["second"]


async def test_one_that_finds_its_owner_between_two_looks_starts_with_a_clean_slate(world: World) -> None:
    world.cluster.tasks = [Task("mine")]
    await world.look()
    await world.life("mine")
    await world.look(limits.ORPHAN_SECONDS_MIN)
    await world.no_life()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == []
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == ["mine"]


async def test_another_tenants_record_of_the_same_id_owns_nothing(world: World) -> None:
    world.cluster.tasks = [Task("mine", tenant_id="other")]
    await world.life("mine")
    await world.look()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == ["mine"]


POOLED = Task("pooled", container_id="pool_1", tenant_id="pool")


async def slot(world: World) -> None:
    await world.table.put({"PK": keys.POOL, "SK": keys.pool_slot("1g", 0), "pool_id": "pool_1"})


async def claimed(world: World, incarnation: int = 1) -> None:
    token_sha256 = hashlib.sha256(token_of("cntr_1", incarnation).encode()).hexdigest()
    claim = {"pool_id": "pool_1", "tenant_id": "acme", "container_id": "cntr_1", "token_sha256": token_sha256}
    await world.table.delete(keys.POOL, keys.pool_slot("1g", 0))
    await world.table.put({"PK": keys.POOL, "SK": keys.pool_claim("pool_1"), **claim})


async def test_a_task_of_the_warm_pool_is_owned_by_its_slot_and_then_by_who_claimed_it(world: World) -> None:
    world.cluster.tasks = [POOLED]
    await slot(world)
    await world.look()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == []
    await claimed(world)
    for sandbox_id in (None, "pooled"):
        await world.life(sandbox_id)
        await world.look(limits.ORPHAN_SECONDS_MIN)
        assert await world.look(limits.ORPHAN_SECONDS_MIN) == []
    await world.no_life()
    await world.look()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == ["pooled"]


async def test_a_task_claimed_by_an_earlier_incarnation_is_not_kept(world: World) -> None:
    world.cluster.tasks = [POOLED]
    await claimed(world, incarnation=1)
    await world.life(None, incarnation=2)
    await world.look()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == ["pooled"]


async def test_a_task_whose_slot_was_closed_is_stopped(world: World) -> None:
    world.cluster.tasks = [POOLED]
    await world.look()
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == ["pooled"]


async def test_a_stop_that_fails_is_tried_again(world: World) -> None:
    world.cluster.tasks = [Task("lost")]
    await world.look()
    world.cluster.refuses = True
    assert await world.look(limits.ORPHAN_SECONDS_MIN) == []
    world.cluster.refuses = False
    assert await world.look(60) == ["lost"]


async def test_the_note_of_a_task_that_ended_by_itself_goes(world: World) -> None:
    world.cluster.tasks = [Task("lost")]
    await world.look()
    world.cluster.tasks = []
    await world.look(60)
    assert world.notes() == []


class SlowTable(MemoryTable):
    """Answers about containers when as many are asked for as are looked into side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.all_there = asyncio.Event()

    async def query(self, pk: str, **options: Any) -> list[Record]:
        if pk.startswith("T#"):
            self.asked += 1
            if self.asked == limits.SWEEP_AT_ONCE:
                self.all_there.set()
            await self.all_there.wait()
        return await super().query(pk, **options)


async def test_owners_are_asked_side_by_side(world: World) -> None:
    """One after the other, 30,000 would take longer than the reaper's function may run."""
    table = SlowTable()
    orphans = OrphanSandboxes(table, world.cluster, token_of, lambda: world.now)
    assert await orphans.stop_lost([Task(f"task-{number}", f"cntr_{number}") for number in range(3 * limits.SWEEP_AT_ONCE)]) == 0
    assert table.asked == 3 * limits.SWEEP_AT_ONCE
