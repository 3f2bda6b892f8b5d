"""Many processes use, lose, expire and delete containers at once; afterwards everything adds up."""

import asyncio
import math
import random

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerRecord
from moorage.errors import ApiError, SandboxError, SandboxStarting
from moorage.files.store import FileStore
from moorage.sandbox.provisioner import Handle, SandboxSpec

from tests.unit.resources.support import Clock, FakeProvisioner, Store, chunked

IDLE = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60


class Dying(FakeProvisioner):
    """Sandboxes start slowly, are refused now and then, take too long, and die while they are started."""

    def __init__(self, dice: random.Random, clock: Clock) -> None:
        super().__init__()
        self.dice = dice
        self.clock = clock

    async def start(self, spec: SandboxSpec) -> Handle:
        await asyncio.sleep(self.dice.random() * 0.005)
        if self.dice.random() < 0.2:
            raise SandboxStarting(0.001)
        if self.dice.random() < 0.1:
            # This starter is so slow that its claim runs out.
            self.clock.advance(limits.CONTAINER_START_LEASE_SECONDS + 1)
            await asyncio.sleep(0.02)
        handle = await super().start(spec)
        if self.dice.random() < 0.1:
            self.sandboxes[handle.sandbox_id].is_alive = False
        return handle


async def use(
    containers: Containers, provisioner: Dying, record: ContainerRecord, worker: int, dice: random.Random, *, files: float = 6
) -> None:
    """One step worker: it wants a sandbox, writes into it, stores what it wrote, and sometimes the sandbox dies under it."""
    written = 0
    while written < files:
        try:
            live = await containers.sandboxes.ensure("ten", record.id)
        except SandboxStarting:
            await asyncio.sleep(0.001)
            continue
        sandbox = provisioner.sandboxes[live.handle.sandbox_id]
        assert live.handle.token == sandbox.token, "a handle of another incarnation"
        name = f"{worker}-{written}"
        if sandbox.is_alive:
            sandbox.write(name, name.encode())
        if dice.random() < 0.2:
            sandbox.is_alive = False
        try:
            artifacts = await containers.artifacts.sync(live)
        except SandboxError:
            await containers.sandboxes.confirm_gone(live)
            continue
        if any(file.path == f"/mnt/data/{name}" for file in artifacts.files):
            written += 1


@pytest.mark.parametrize("seed", range(4))
async def test_workers_at_once_lose_no_file_and_leave_no_sandbox(store: Store, clock: Clock, seed: int) -> None:
    dice = random.Random(seed)
    provisioner = Dying(dice, clock)
    files = FileStore(store.table, store.blobs, clock=clock)
    containers = Containers(
        store.table, store.blobs, provisioner, files, clock=clock, sandbox_key=lambda: b"k" * 32, connect=provisioner.connect
    )
    record = await containers.reserve("ten", name="c")
    await containers.add_file(record, filename="user.txt", chunks=chunked(b"user"))
    async with asyncio.timeout(60):
        await asyncio.gather(*(use(containers, provisioner, record, worker, dice) for worker in range(5)))
    stored = {file.filename for file in await containers.files_of("ten", record.id)}
    assert stored == {"user.txt"} | {f"{worker}-{n}" for worker in range(5) for n in range(6)}
    clock.advance(IDLE)
    for _ in range(20):
        await containers.sweep.expire_due(clock())
        clock.advance(limits.CONTAINER_RETRY_SECONDS)
    assert provisioner.running() == []
    assert [item["SK"]["S"] for item in store.records() if item["SK"]["S"].startswith("LIFE")] == []


@pytest.mark.parametrize("seed", range(6))
async def test_a_deletion_among_users_leaves_nothing(store: Store, clock: Clock, seed: int) -> None:
    dice = random.Random(seed)
    provisioner = Dying(dice, clock)
    files = FileStore(store.table, store.blobs, clock=clock)
    containers = Containers(
        store.table, store.blobs, provisioner, files, clock=clock, sandbox_key=lambda: b"k" * 32, connect=provisioner.connect
    )
    record = await containers.reserve("ten", name="c")

    async def until_gone(worker: int) -> None:
        with pytest.raises(ApiError) as caught:
            await use(containers, provisioner, record, worker, dice, files=math.inf)
        assert caught.value.status == 404

    async def delete() -> None:
        await asyncio.sleep(dice.random() * 0.2)
        await containers.delete("ten", record.id)

    async with asyncio.timeout(60):
        await asyncio.gather(delete(), *(until_gone(worker) for worker in range(3)))
    for _ in range(20):
        clock.advance(IDLE + limits.RETENTION_SECONDS)
        await containers.sweep.expire_due(clock())
    assert provisioner.running() == []
    assert store.objects() == []
    assert [item["SK"]["S"] for item in store.records()] == ["GONE"]
