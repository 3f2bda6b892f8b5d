"""A sandbox that its owner ends at a set time, as AWS does a MicroVM after eight hours: replaced before, with all files."""

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerRecord
from moorage.files.store import FileStore

from tests.unit.resources.support import Clock, FakeProvisioner, FakeSandbox, Store

LIFE = 8 * 3600


class Machines:
    """Containers whose sandboxes live for eight hours, and the reaper."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.clock, self.provisioner = clock, FakeProvisioner()
        self.at_work: set[str | None] = set()
        self.containers = Containers(
            store.table,
            store.blobs,
            self.provisioner,
            FileStore(store.table, store.blobs, clock=clock),
            clock=clock,
            sandbox_key=lambda: b"k" * 32,
            retention_seconds=limits.RETENTION_SECONDS,
            connect=self.provisioner.connect,
            at_work=self._at_work,
        )

    async def _at_work(self, tenant_id: str) -> set[str | None]:
        return self.at_work

    async def new(self) -> tuple[ContainerRecord, LiveContainer]:
        """A container that is kept for a day, and whose first command has ended."""
        record = await self.containers.reserve("ten", name="c", idle_minutes=limits.CONTAINER_IDLE_MINUTES_MAX)
        return record, await self.command(record, "a.txt")

    async def command(self, record: ContainerRecord, path: str = "b.txt", *, leaves_process: bool = False) -> LiveContainer:
        self.provisioner.ends_at = int(self.clock()) + LIFE
        live = await self.containers.sandboxes.ensure("ten", record.id)
        self.sandbox(live).write(path, b"x")
        self.sandbox(live).has_processes = leaves_process
        await self.containers.artifacts.sync(live)
        return live

    def sandbox(self, live: LiveContainer) -> FakeSandbox:
        return self.provisioner.sandboxes[live.handle.sandbox_id]

    async def minutes(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(60)
            await self.containers.sweep.expire_due(self.clock())

    def until_left(self, seconds: int) -> None:
        """Up to the moment when the first sandbox has so long to live."""
        self.clock.advance(LIFE - seconds)

    async def ends(self, record: ContainerRecord) -> list[str]:
        return [life.end for life in await self.containers.lives.of(await self.containers.get("ten", record.id))]


@pytest.fixture
def machines(store: Store, clock: Clock) -> Machines:
    return Machines(store, clock)


async def test_a_use_in_its_last_half_hour_begins_another_one(machines: Machines) -> None:
    record, first = await machines.new()
    machines.until_left(limits.SANDBOX_REPLACED_SECONDS)
    second = await machines.command(record)
    assert second.record.incarnation == 2
    assert await machines.containers.sandboxes.is_news(second), "the model is told that processes are gone"
    assert sorted(machines.sandbox(second).files) == ["a.txt", "b.txt"]
    assert (machines.provisioner.running(), await machines.ends(record)) == ([second.handle.sandbox_id], ["", "limit"])
    assert second.handle.ends_at == first.handle.ends_at + LIFE - limits.SANDBOX_REPLACED_SECONDS


async def test_a_use_before_that_finds_it_as_it_was(machines: Machines) -> None:
    record, first = await machines.new()
    machines.until_left(limits.SANDBOX_REPLACED_SECONDS + 1)
    assert (await machines.command(record)).handle == first.handle


@pytest.mark.parametrize("what", ["a command", "a process in the background"])
async def test_one_in_which_something_runs_is_used_up_to_its_last_minutes(machines: Machines, what: str) -> None:
    record, first = await machines.new()
    if what == "a command":
        machines.sandbox(first).running = 1
    else:
        await machines.command(record, leaves_process=True)
    machines.until_left(limits.SANDBOX_LAST_SECONDS + 60)
    again = await machines.containers.sandboxes.ensure("ten", record.id)
    assert again.handle == first.handle
    machines.clock.advance(60)
    assert (await machines.containers.sandboxes.ensure("ten", record.id)).record.incarnation == 2
    assert await machines.ends(record) == ["", "limit"]


async def test_the_reaper_stores_each_minute_what_a_background_process_writes(machines: Machines) -> None:
    record, first = await machines.new()
    await machines.command(record, leaves_process=True)
    sandbox = machines.sandbox(first)
    machines.until_left(limits.SANDBOX_STORED_SECONDS + 60)
    for minute in range(8):
        sandbox.write(f"{minute}.txt", b"late")
        await machines.minutes(1)
        paths = {file.path for file in await machines.containers.files_of("ten", record.id)}
        assert f"/mnt/data/{minute}.txt" in paths
    assert sandbox.is_alive
    sandbox.write("last.txt", b"late")
    await machines.minutes(1)
    assert (sandbox.is_alive, await machines.ends(record)) == (False, ["limit"])
    second = await machines.containers.sandboxes.ensure("ten", record.id)
    assert "last.txt" in machines.sandbox(second).files
    assert not (await machines.containers.get("ten", record.id)).ending


async def test_one_that_sleeps_with_nothing_in_it_is_ended_without_being_woken(machines: Machines) -> None:
    record, first = await machines.new()
    machines.sandbox(first).is_asleep = True
    machines.until_left(limits.SANDBOX_STORED_SECONDS + 60)
    await machines.minutes(0)
    assert machines.sandbox(first).is_alive
    await machines.minutes(1)
    assert (machines.sandbox(first).is_alive, machines.sandbox(first).is_asleep) == (False, True)
    assert await machines.ends(record) == ["limit"]


async def test_a_running_response_finds_another_one_at_its_next_command(machines: Machines) -> None:
    """Between the reaper's look and its stop a command could begin, and would be lost."""
    record, first = await machines.new()
    machines.at_work = {record.id}
    machines.until_left(limits.SANDBOX_STORED_SECONDS)
    await machines.minutes(7)
    assert machines.sandbox(first).is_alive
    assert (await machines.command(record)).record.incarnation == 2


async def test_its_end_does_not_lengthen_the_life_of_its_container(machines: Machines) -> None:
    record, _ = await machines.new()
    await machines.command(record, leaves_process=True)
    before = (await machines.containers.get("ten", record.id)).expires_at
    machines.until_left(limits.SANDBOX_STORED_SECONDS)
    await machines.minutes(9)
    assert (await machines.containers.get("ten", record.id)).expires_at == before


async def test_a_container_that_expires_before_ends_as_one_that_nobody_used(machines: Machines) -> None:
    record = await machines.containers.reserve("ten", name="c")
    await machines.command(record)
    await machines.minutes(limits.CONTAINER_IDLE_MINUTES_DEFAULT + 1)
    assert await machines.ends(record) == ["idle"]


async def test_a_sandbox_without_such_an_owner_has_no_end(machines: Machines) -> None:
    record, first = await machines.new()
    machines.provisioner.ends_at = 0
    await machines.containers.sandboxes.end(await machines.containers.get("ten", record.id), first.handle.sandbox_id, "lost")
    live = await machines.containers.sandboxes.ensure("ten", record.id)
    assert live.record.seconds_left(machines.clock()) == float("inf")
