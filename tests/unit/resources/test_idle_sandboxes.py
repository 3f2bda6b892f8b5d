"""An operator who pays for each second has the idle sandboxes of responses stopped before their containers expire."""

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerRecord
from moorage.files.store import FileStore

from tests.unit.resources.places import Places, places_of
from tests.unit.resources.support import Clock, FakeProvisioner, Store
from tests.unit.resources.world import IDLE

SOON = 60


class Turns:
    """The two halves of a deployment on Fargate, its two reapers, and the responses that run."""

    def __init__(self, store: Store, clock: Clock, auto_idle_seconds: int) -> None:
        self.clock = clock
        self.running: set[str | None] = set()
        self.places: Places = places_of(store, clock, at_work=self._at_work, auto_idle_seconds=auto_idle_seconds)

    async def _at_work(self, tenant_id: str) -> set[str | None]:
        return self.running

    async def turn(self, *, is_auto: bool = True) -> tuple[ContainerRecord, LiveContainer]:
        """A container with a file that one command has written."""
        record = await self.places.outside.reserve("ten", name="auto", is_auto=is_auto)
        live = await self.command(record, "a.txt")
        return record, live

    async def command(self, record: ContainerRecord, path: str, *, has_processes: bool = False) -> LiveContainer:
        live = await self.places.live(record)
        sandbox = self.places.ecs.sandboxes[live.handle.sandbox_id]
        sandbox.write(path, b"a")
        sandbox.has_processes = has_processes
        await self.places.inside.artifacts.sync(live)
        return live

    async def minutes(self, count: int) -> None:
        """So many rounds of the reapers."""
        for _ in range(count):
            self.clock.advance(60)
            await self.places.inside.sweep.retire_idle(self.clock())
            await self.places.outside.sweep.expire_due(self.clock())

    def alive(self) -> int:
        return len(self.places.ecs.running())


@pytest.fixture
def turns(store: Store, clock: Clock) -> Turns:
    return Turns(store, clock, SOON)


async def test_the_idle_sandbox_of_a_turn_stops_and_its_container_goes_on_under_its_id(turns: Turns) -> None:
    record, live = await turns.turn()
    await turns.minutes(3)
    assert turns.alive() == 0
    container = await turns.places.outside.get("ten", record.id)
    assert container.expires_at > turns.clock(), "the container has not expired"
    again = await turns.places.live(record)
    assert (again.record.id, again.record.incarnation) == (record.id, 2)
    assert turns.places.ecs.sandboxes[again.handle.sandbox_id].files["a.txt"][0] == b"a"
    assert [life.end for life in await turns.places.outside.lives.of(again.record)] == ["", "idle"]
    assert live.handle.sandbox_id != again.handle.sandbox_id


async def test_a_sandbox_with_a_process_of_its_user_stays_as_long_as_its_container(turns: Turns) -> None:
    record, _ = await turns.turn()
    await turns.command(record, "b.txt", has_processes=True)
    await turns.minutes(IDLE // 60 - 1)
    assert turns.alive() == 1
    await turns.minutes(3)
    assert turns.alive() == 0


async def test_a_sandbox_stays_while_its_response_runs_and_stops_soon_after(turns: Turns) -> None:
    """A model that thinks for minutes finds it as it was."""
    record, _ = await turns.turn()
    turns.running = {record.id}
    await turns.minutes(10)
    assert turns.alive() == 1
    turns.running = set()
    await turns.minutes(3)
    assert turns.alive() == 0


async def test_a_use_puts_the_stop_off(turns: Turns) -> None:
    record, _ = await turns.turn()
    for _ in range(5):
        turns.clock.advance(SOON - 1)
        await turns.command(record, "a.txt")
        await turns.minutes(0)
    assert turns.alive() == 1


async def test_a_container_that_a_client_has_made_keeps_its_sandbox(turns: Turns) -> None:
    await turns.turn(is_auto=False)
    await turns.minutes(IDLE // 60 - 1)
    assert turns.alive() == 1


async def test_without_the_setting_a_sandbox_stays_as_long_as_its_container(store: Store, clock: Clock) -> None:
    turns = Turns(store, clock, 0)
    await turns.turn()
    await turns.minutes(IDLE // 60 - 1)
    assert turns.alive() == 1


async def test_one_machine_does_it_too(store: Store, clock: Clock) -> None:
    provisioner = FakeProvisioner()
    containers = Containers(
        store.table,
        store.blobs,
        provisioner,
        FileStore(store.table, store.blobs, clock=clock),
        clock=clock,
        sandbox_key=lambda: b"k" * 32,
        connect=provisioner.connect,
        auto_idle_seconds=SOON,
    )
    record = await containers.reserve("ten", name="auto", is_auto=True)
    await containers.artifacts.sync(await containers.sandboxes.ensure("ten", record.id))
    clock.advance(SOON)
    assert await containers.sweep.expire_due(clock()) == 1
    assert provisioner.running() == []


def test_no_use_is_so_late_noted_that_its_sandbox_stops_under_it() -> None:
    assert limits.AUTO_IDLE_SECONDS_MIN >= limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS
