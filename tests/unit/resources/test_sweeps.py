"""Sweeps beside one another and beside those who use what they sweep: as many as there are, nothing is done twice, nobody waits for
ever, nothing is lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.files.store import FileStore
from moorage.sandbox.exec_client import ExecClient, SandboxHealth
from moorage.sandbox.provisioner import Handle, Provisioner
from moorage.sandbox.reach_only import ReachOnlyProvisioner

from tests.unit.resources.support import Clock, FakeClient, FakeProvisioner, Store
from tests.unit.resources.test_container_races import Dying, use

IDLE = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60
HANGS_SECONDS = 30


@dataclass
class Looks:
    """Looks into sandboxes, each of which waits."""

    wait: Callable[[], Awaitable[object]]
    at: list[str] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def connect(self, provisioner: FakeProvisioner) -> Callable[[Handle], ExecClient]:
        looks = self

        class Looking(FakeClient):
            async def health(self) -> SandboxHealth:
                looks.at.append(self.handle.sandbox_id)
                looks.begun.set()
                await looks.wait()
                return await super().health()

        return lambda handle: cast("ExecClient", Looking(provisioner.sandboxes.get(handle.sandbox_id), handle))


def containers_of(store: Store, clock: Clock, provisioner: Provisioner, connect: Callable[[Handle], ExecClient] | None) -> Containers:
    files = FileStore(store.table, store.blobs, clock=clock)
    return Containers(store.table, store.blobs, provisioner, files, clock=clock, sandbox_key=lambda: b"k" * 32, connect=connect)


async def idle(
    store: Store, clock: Clock, provisioner: FakeProvisioner, count: int, idle_minutes: int = limits.CONTAINER_IDLE_MINUTES_DEFAULT
) -> None:
    """So many sandboxes that nobody uses any more."""
    containers = containers_of(store, clock, provisioner, provisioner.connect)
    for _ in range(count):
        record = await containers.reserve("ten", name="c", idle_minutes=idle_minutes)
        await containers.sandboxes.ensure("ten", record.id)
    clock.advance(idle_minutes * 60)


async def ends(containers: Containers, container_id: str) -> list[str]:
    """Why each sandbox that the container has had is there no more."""
    return [life.end for life in await containers.lives.of(await containers.get("ten", container_id))]


@pytest.mark.parametrize("sweep", ["expire_due", "retire_idle"])
async def test_idle_sandboxes_are_looked_into_side_by_side(store: Store, clock: Clock, sweep: str) -> None:
    """None answers before so many have been asked."""
    provisioner, together = FakeProvisioner(), asyncio.Barrier(limits.SWEEP_AT_ONCE)
    await idle(store, clock, provisioner, limits.SWEEP_AT_ONCE)
    looks = Looks(together.wait)
    containers = containers_of(store, clock, provisioner, looks.connect(provisioner))
    async with asyncio.timeout(HANGS_SECONDS):
        assert await getattr(containers.sweep, sweep)(clock()) == limits.SWEEP_AT_ONCE


async def test_a_round_that_overlaps_another_does_nothing_twice(store: Store, clock: Clock) -> None:
    """The first one's sandboxes do not answer before the second one is through."""
    provisioner, is_over = FakeProvisioner(), asyncio.Event()
    await idle(store, clock, provisioner, 5)
    looks = Looks(is_over.wait)
    first = containers_of(store, clock, provisioner, looks.connect(provisioner)).sweep
    second = containers_of(store, clock, provisioner, looks.connect(provisioner)).sweep
    async with asyncio.timeout(HANGS_SECONDS), asyncio.TaskGroup() as tasks:
        begun = tasks.create_task(first.retire_idle(clock()))
        while len(looks.at) < 5:
            await asyncio.sleep(0.001)
        assert await second.retire_idle(clock()) == 0
        is_over.set()
    assert begun.result() == 5
    assert sorted(looks.at) == sorted(provisioner.sandboxes)


async def test_a_round_that_dies_leaves_its_sandboxes_to_a_later_one(store: Store, clock: Clock) -> None:
    provisioner = FakeProvisioner()
    await idle(store, clock, provisioner, 1)
    hanging = Looks(asyncio.Event().wait)
    dying = containers_of(store, clock, provisioner, hanging.connect(provisioner)).sweep
    task = asyncio.create_task(dying.retire_idle(clock()))
    async with asyncio.timeout(HANGS_SECONDS):
        await hanging.begun.wait()
    task.cancel()
    later = containers_of(store, clock, provisioner, provisioner.connect).sweep
    assert await later.retire_idle(clock()) == 0
    clock.advance(limits.SWEEP_CLAIM_SECONDS)
    assert await later.retire_idle(clock()) == 1


async def test_a_sandbox_that_was_in_use_is_looked_into_when_it_is_due_again(store: Store, clock: Clock) -> None:
    """However soon that is: a claim is for the time for which it was made."""
    provisioner = FakeProvisioner()
    inside = containers_of(store, clock, provisioner, provisioner.connect)
    outside = containers_of(store, clock, provisioner, None)
    await idle(store, clock, provisioner, 1, idle_minutes=1)
    (sandbox,) = provisioner.sandboxes.values()
    sandbox.running = 1
    assert await inside.sweep.retire_idle(clock()) == 0
    await outside.sweep.expire_due(clock())
    sandbox.running = 0
    clock.advance(60)
    assert await inside.sweep.retire_idle(clock()) == 1


CALLS = ("health", "list_files")
"""What a sweep asks of a sandbox: whether something runs in it, and for its files."""


async def test_an_idle_sandbox_that_does_not_answer_now_keeps_its_files(store: Store, clock: Clock) -> None:
    """On a busy machine: what a background process has written is stored when the sandbox answers again."""
    provisioner = FakeProvisioner()
    await idle(store, clock, provisioner, 1)
    containers = containers_of(store, clock, provisioner, provisioner.connect)
    (sandbox,), (container_id,) = provisioner.sandboxes.values(), provisioner.by_container
    sandbox.write("late.txt", b"late")
    for call in CALLS:
        sandbox.silent = {call}
        assert await containers.sweep.expire_due(clock()) == 0
        clock.advance(limits.CONTAINER_RETRY_SECONDS)
    assert not await containers.sweep.make_room("ten", spared=())
    assert provisioner.running() == [sandbox.sandbox_id]
    sandbox.silent = set()
    assert await containers.sweep.expire_due(clock()) == 1
    assert (provisioner.running(), [file.filename for file in await containers.files_of("ten", container_id)]) == ([], ["late.txt"])


@pytest.mark.parametrize("call", CALLS)
async def test_a_sandbox_that_never_answers_is_ended_after_a_while_as_lost(store: Store, clock: Clock, call: str) -> None:
    provisioner = FakeProvisioner()
    await idle(store, clock, provisioner, 1)
    containers = containers_of(store, clock, provisioner, provisioner.connect)
    (sandbox,), (container_id,) = provisioner.sandboxes.values(), provisioner.by_container
    sandbox.silent = {call}
    for _ in range(limits.SANDBOX_SILENT_SECONDS_MAX // limits.CONTAINER_RETRY_SECONDS):
        assert await containers.sweep.expire_due(clock()) == 0
        clock.advance(limits.CONTAINER_RETRY_SECONDS)
    assert await containers.sweep.expire_due(clock()) == 1
    assert (provisioner.running(), await ends(containers, container_id)) == ([], ["lost"])


async def test_a_sandbox_that_has_ended_is_not_waited_for(store: Store, clock: Clock) -> None:
    provisioner = FakeProvisioner()
    await idle(store, clock, provisioner, 1)
    containers = containers_of(store, clock, provisioner, provisioner.connect)
    (sandbox,), (container_id,) = provisioner.sandboxes.values(), provisioner.by_container
    sandbox.is_alive = False
    assert await containers.sweep.expire_due(clock()) == 1
    assert await ends(containers, container_id) == ["lost"]


async def test_a_silent_sandbox_is_asked_again_in_a_later_round(store: Store, clock: Clock) -> None:
    """There nobody can say whether it has ended; and one that is silent does not keep the others."""
    provisioner = FakeProvisioner()
    await idle(store, clock, provisioner, 2)
    inside = containers_of(store, clock, ReachOnlyProvisioner(), provisioner.connect)
    outside = containers_of(store, clock, provisioner, None)
    silent, other = provisioner.sandboxes.values()
    silent.silent = {"list_files"}
    assert await inside.sweep.retire_idle(clock()) == 1
    assert await outside.sweep.expire_due(clock()) == 1
    assert (provisioner.running(), other.is_alive) == ([silent.sandbox_id], False)
    clock.advance(limits.SWEEP_CLAIM_SECONDS)
    assert await inside.sweep.retire_idle(clock()) == 0
    clock.advance(limits.SANDBOX_SILENT_SECONDS_MAX)
    assert await inside.sweep.retire_idle(clock()) == 1
    assert await outside.sweep.expire_due(clock()) == 1
    assert [await ends(outside, container_id) for container_id in provisioner.by_container] == [["lost"], ["idle"]]


async def test_who_comes_while_a_sandbox_is_looked_into_keeps_it(store: Store, clock: Clock) -> None:
    provisioner, is_over = FakeProvisioner(), asyncio.Event()
    await idle(store, clock, provisioner, 1)
    looks = Looks(is_over.wait)
    user = containers_of(store, clock, provisioner, provisioner.connect)
    (container_id,) = provisioner.by_container
    async with asyncio.timeout(HANGS_SECONDS), asyncio.TaskGroup() as tasks:
        sweep = containers_of(store, clock, provisioner, looks.connect(provisioner)).sweep
        begun = tasks.create_task(sweep.retire_idle(clock()))
        await looks.begun.wait()
        live = await user.sandboxes.ensure("ten", container_id)
        is_over.set()
    assert begun.result() == 0
    kept = await user.sandboxes.ensure("ten", container_id)
    assert (kept.handle, kept.record.incarnation, len(provisioner.running())) == (live.handle, 1, 1)


@pytest.mark.parametrize("seed", range(4))
async def test_who_uses_containers_while_they_are_swept_loses_no_file_and_gets_through(store: Store, clock: Clock, seed: int) -> None:
    """Sweeps run all the time, several at once, and each finds everything idle: the clock leaps on between a worker's steps."""
    dice = random.Random(seed)
    provisioner = Dying(dice, clock)
    containers = containers_of(store, clock, provisioner, provisioner.connect)
    records = [await containers.reserve("ten", name=str(number)) for number in range(3)]

    async def sweep() -> None:
        while True:
            clock.advance(IDLE if dice.random() < 0.3 else 1)
            rounds = (containers.sweep.retire_idle(clock()), containers.sweep.expire_due(clock()), containers.sweep.expire_due(clock()))
            await asyncio.gather(*rounds)
            await asyncio.sleep(dice.random() * 0.02)

    sweeper = asyncio.create_task(sweep())
    async with asyncio.timeout(120):
        users = [use(containers, provisioner, record, worker, dice, files=3) for record in records for worker in range(2)]
        await asyncio.gather(*users)
    sweeper.cancel()
    for record in records:
        stored = {file.filename for file in await containers.files_of("ten", record.id)}
        assert stored == {f"{worker}-{n}" for worker in range(2) for n in range(3)}
    for _ in range(20):
        clock.advance(IDLE)
        await containers.sweep.expire_due(clock())
    assert provisioner.running() == []
