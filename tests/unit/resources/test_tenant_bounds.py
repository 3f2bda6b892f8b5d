"""What one tenant's sandboxes may be, where the table counts them: as on AWS, where no launcher sees them all."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerRecord
from moorage.errors import ApiError, SandboxCapacity, SandboxElsewhere, SandboxStarting, TenantCapacity
from moorage.files.store import FileStore
from moorage.store import keys
from moorage.store.live_sandboxes import SandboxBounds

from tests.simulation import clock as counted
from tests.unit.resources.places import Places, places_of
from tests.unit.resources.support import Clock, FakeProvisioner, Store
from tests.unit.store.memory import MemoryBlobs, MemoryTable

IDLE = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60


class Deployment:
    def __init__(self, store: Store, clock: Clock, bounds: SandboxBounds, **options: Any) -> None:
        self.store, self.clock, self.provisioner = store, clock, FakeProvisioner()
        self.containers = Containers(
            store.table,
            store.blobs,
            self.provisioner,
            FileStore(store.table, store.blobs, clock=clock),
            clock=clock,
            sandbox_key=lambda: b"k" * 32,
            connect=self.provisioner.connect,
            bounds=bounds,
            **options,
        )

    async def made(self, tenant_id: str = "ten", **options: Any) -> ContainerRecord:
        return await self.containers.reserve(tenant_id, name="c", **options)

    async def start(self, record: ContainerRecord) -> str:
        async with await self.containers.sandboxes.ensure(record.tenant_id, record.id) as live:
            return live.handle.sandbox_id

    async def expire(self) -> None:
        self.clock.advance(IDLE + 1)
        await self.containers.sweep.expire_due(self.clock())

    async def counted(self, tenant_id: str = "ten") -> tuple[int, int, int]:
        """Entries, and what the sum says of them: how many, and CPU units."""
        entries = await self.store.table.query(keys.sandboxes(tenant_id), after=keys.TOTAL)
        total = await self.store.table.get(keys.sandboxes(tenant_id), keys.TOTAL) or {"sandboxes": 0, "cpu": 0}
        return len(entries), total["sandboxes"], total["cpu"]


Deployed = Callable[..., Deployment]


@pytest.fixture
def deployed(store: Store, clock: Clock) -> Deployed:
    def make(sandboxes: int = 0, vcpus: int = 0, starts_per_second: int = 0, **options: Any) -> Deployment:
        return Deployment(store, clock, SandboxBounds(sandboxes, vcpus, starts_per_second), **options)

    return make


async def test_a_look_for_an_idle_sandbox_is_two_reads_however_many_there_are(clock: Clock) -> None:
    """Whoever waits for room looks every few seconds."""
    table, here = MemoryTable(), [True]
    world = Deployment(Store(table, MemoryBlobs()), clock, SandboxBounds(), reaches=lambda *_: bool(here))
    for _ in range(5):
        await world.start(await world.made())
    clock.advance(IDLE)
    here.clear()
    before = table.reads
    with pytest.raises(SandboxElsewhere):
        await world.containers.sweep.make_room("ten", spared=())
    assert table.reads - before == 2


async def test_a_tenant_has_no_more_sandboxes_than_it_may_and_others_have_theirs(deployed: Deployed) -> None:
    world = deployed(sandboxes=2)
    first, second, third = [await world.made() for _ in range(3)]
    await world.start(first)
    await world.start(second)
    with pytest.raises(TenantCapacity) as refused:
        await world.start(third)
    assert refused.value.message == (
        "This account has as many sandboxes as it may: 2 sandboxes at once. Delete a container that is not needed, make "
        "containers with a shorter expires_after or a smaller memory_limit, or ask the operator for more."
    )
    assert await world.start(await world.made("neighbour")) == "sb-3"
    await world.start(first)  # the one that is there
    assert await world.counted() == (2, 2, 1024)
    await world.containers.delete("ten", first.id)
    assert await world.start(third) == "sb-4"
    assert await world.counted() == (2, 2, 1024)


async def test_sandboxes_are_bounded_by_their_processors_too(deployed: Deployed) -> None:
    """The largest has 16 vCPU, and costs as much as 32 of the smallest."""
    world = deployed(vcpus=17)
    await world.start(await world.made(memory_limit="64g"))
    await world.start(await world.made())
    await world.start(await world.made())
    with pytest.raises(TenantCapacity, match="17 vCPUs in sandboxes at once"):
        await world.start(await world.made())
    assert await world.counted() == (3, 3, 17 * limits.VCPU)


async def test_starts_that_meet_do_not_pass_the_bound(deployed: Deployed) -> None:
    world = deployed(sandboxes=3)
    made = [await world.made() for _ in range(12)]
    came = await asyncio.gather(*(world.start(record) for record in made), return_exceptions=True)
    assert sorted(type(each).__name__ for each in came) == ["TenantCapacity"] * 9 + ["str"] * 3
    assert await world.counted() == (3, 3, 3 * 512)


async def test_what_has_ended_is_counted_no_more_however_it_ended(deployed: Deployed) -> None:
    world = deployed(sandboxes=1)
    idle = await world.made()
    await world.start(idle)
    await world.expire()
    assert await world.counted() == (0, 0, 0)
    killed = await world.made()
    world.provisioner.sandboxes[await world.start(killed)].is_alive = False
    assert await world.start(killed) == "sb-3"  # its next incarnation takes the place of the dead one
    assert await world.counted() == (1, 1, 512)


async def test_starts_of_one_second_are_so_many_and_the_next_wait(deployed: Deployed) -> None:
    world = deployed(starts_per_second=1)
    made = [await world.made() for _ in range(limits.SANDBOX_STARTS_SECONDS + 2)]
    for record in made[:-1]:
        await world.start(record)
    with pytest.raises(SandboxStarting) as waits:
        await world.start(made[-1])
    assert waits.value.retry_after_seconds == 1
    await world.start(await world.made("neighbour"))
    world.clock.advance(1)
    await world.start(made[-1])


async def test_what_an_earlier_version_has_left_is_found_when_there_is_no_room(deployed: Deployed) -> None:
    """It deletes the record of a sandbox that has ended, and knows nothing of its entry."""
    world = deployed(sandboxes=1)
    gone = await world.made()
    await world.start(gone)
    await world.store.table.delete(keys.container("ten", gone.id), keys.life(1))
    await world.start(await world.made())
    assert await world.counted() == (1, 1, 512)


async def test_a_sandbox_that_an_earlier_version_has_started_ends_uncounted(deployed: Deployed) -> None:
    world = deployed(sandboxes=1)
    record = await world.made()
    await world.start(record)
    for key in (keys.TOTAL, keys.live_sandbox(record.id, 1)):
        await world.store.table.delete(keys.sandboxes("ten"), key)
    await world.expire()
    assert await world.counted() == (0, 0, 0)
    assert await world.store.table.query(keys.container("ten", record.id), prefix=keys.life.prefix) == []


async def test_where_sandboxes_are_only_reached_nothing_is_counted(deployed: Deployed) -> None:
    """Who starts them counts them: a call from inside of their network comes before, and goes round by way of that."""
    world = deployed(sandboxes=1, can_start=False)
    await world.start(await world.made())
    await world.start(await world.made())
    assert await world.counted() == (0, 0, 0)


async def test_a_terminal_that_finds_no_room_is_told_so_in_the_apis_words(deployed: Deployed) -> None:
    world = deployed(sandboxes=1)
    await world.start(await world.made())
    other = await world.made()
    with pytest.raises(ApiError) as refused:
        await world.containers.sessions.open(other, "sh", rows=24, columns=80)
    assert (refused.value.status, refused.value.type, refused.value.code) == (429, "rate_limit_error", "too_many_sandboxes")
    assert "Delete a container that is not needed" in refused.value.message


async def test_a_tenant_that_makes_room_reads_nothing_of_others(deployed: Deployed) -> None:
    world = deployed()
    for _ in range(5):
        await world.start(await world.made("neighbour"))
    mine = await world.made()
    await world.start(mine)
    world.clock.advance(limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS)
    assert await world.containers.sweep.make_room("ten", spared=())
    assert [await world.counted(tenant) for tenant in ("ten", "neighbour")] == [(0, 0, 0), (5, 5, 5 * 512)]


async def test_a_start_that_aws_refuses_counts_no_longer_than_it_is_tried(deployed: Deployed) -> None:
    """A tenant whose starts all find AWS full would have as many as it may, and none of them."""
    world = deployed(sandboxes=2)
    world.provisioner.room = 1
    await world.start(await world.made())
    refused = await world.made()
    for _ in range(3):
        with pytest.raises(SandboxCapacity):
            await world.start(refused)
    assert await world.counted() == (1, 1, 512)
    assert await world.store.table.query(keys.container("ten", refused.id), prefix=keys.life.prefix) == []
    world.provisioner.room = 2
    assert await world.start(refused) == "sb-2"
    assert await world.counted() == (2, 2, 1024)


# --- On AWS, where a sandbox is stopped in one place and its files are stored from another ---

A_WHILE = limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS


@pytest.fixture
def two_at_most(store: Store, clock: Clock) -> Places:
    return places_of(store, clock, SandboxBounds(sandboxes=2))


async def test_at_its_bound_a_tenants_longest_idle_sandbox_gives_way(two_at_most: Places) -> None:
    places = two_at_most
    first, second, third = [await places.new() for _ in range(3)]
    assert [await places.wanted(first), await places.wanted(second)] == ["sb-1", "sb-2"]
    places.ecs.sandboxes["sb-2"].write("kept.txt", b"kept")
    places.clock.advance(A_WHILE)
    await places.wanted(first)
    places.clock.advance(A_WHILE)
    assert await places.wanted(third) == "sb-3"
    assert places.ecs.running() == ["sb-1", "sb-3"]
    assert await places.wanted(second) == "sb-4"  # in the place of the first
    assert places.ecs.sandboxes["sb-4"].files["kept.txt"][0] == b"kept"
    assert places.ecs.running() == ["sb-3", "sb-4"]


async def test_where_aws_is_full_the_tenants_own_idle_sandbox_gives_way(store: Store, clock: Clock) -> None:
    places = places_of(store, clock)
    places.ecs.room = 1
    first, second = await places.new(), await places.new()
    await places.wanted(first)
    clock.advance(A_WHILE)
    assert await places.wanted(second) == "sb-2"
    assert places.ecs.running() == ["sb-2"]


def test_one_that_works_does_not_give_way_and_the_model_is_told_so(clock: Clock) -> None:
    store = Store(MemoryTable(), MemoryBlobs())
    at_work: set[str | None] = set()

    async def working(_tenant_id: str) -> set[str | None]:
        return at_work

    async def story() -> tuple[str, float, list[str]]:
        places = places_of(store, clock, SandboxBounds(sandboxes=1), working)
        busy, wanting = await places.new(), await places.new()
        await places.wanted(busy)
        at_work.add(busy.id)
        clock.advance(A_WHILE)
        began = asyncio.get_running_loop().time()
        with pytest.raises(SandboxCapacity) as refused:
            await places.wanted(wanting)
        waited = asyncio.get_running_loop().time() - began
        return refused.value.message, waited, places.ecs.running()

    said, waited, running = counted.run(story())
    assert said.startswith("This account has as many sandboxes as it may: 1 sandboxes at once.")
    assert limits.SANDBOX_WAIT_SECONDS - limits.SANDBOX_CAPACITY_RETRY_SECONDS <= waited <= limits.SANDBOX_WAIT_SECONDS
    assert running == ["sb-1"]
