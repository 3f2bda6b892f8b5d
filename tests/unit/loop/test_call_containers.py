"""How a tool step waits for a sandbox that somebody else starts."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from moorage import limits
from moorage.containers.sandbox_wait import SandboxWait
from moorage.containers.sweep import nobody
from moorage.errors import SandboxCapacity, SandboxGone, SandboxStarting
from moorage.loop.call_containers import container_of

from tests.simulation import clock
from tests.unit.loop.lab import FakeSandboxes, Lab, say, shell


class ThereAfter(FakeSandboxes):
    """A start that takes so many seconds."""

    seconds = 0.0
    looks = 0

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        self.looks += 1
        if asyncio.get_running_loop().time() < self.seconds:
            raise SandboxStarting(limits.CONTAINER_POLL_SECONDS)
        return await super().ensure(tenant_id, container_id, seen=seen)


@pytest.mark.parametrize(("seconds", "looks_max"), [(0.0, 1), (0.01, 2), (0.08, 5), (0.15, 7), (0.4, 10), (1.0, 13), (10.0, 50)])
def test_a_start_is_seen_soon_after_its_end_however_long_it_takes(seconds: float, looks_max: int) -> None:
    sandboxes = ThereAfter()
    lab = Lab(sandboxes=sandboxes)

    async def waited() -> float:
        began = asyncio.get_running_loop().time()
        sandboxes.seconds = began + seconds
        await container_of(lab.runtime.computers.containers, lab.stored("go"), None)
        return asyncio.get_running_loop().time() - began

    late = clock.run(waited()) - seconds
    assert late <= max(limits.SANDBOX_POLL_SECONDS_MIN, 0.25 * seconds + 0.02)
    assert late <= limits.CONTAINER_POLL_SECONDS
    assert sandboxes.looks <= looks_max


class Full(FakeSandboxes):
    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        raise SandboxCapacity("64 sandboxes of this account are running; no account has more at once.")


def test_where_nobody_gives_way_the_wait_has_an_end() -> None:
    asked: list[tuple[str, set[str | None]]] = []

    async def make_room(tenant_id: str, *, spared: set[str | None]) -> bool:
        asked.append((tenant_id, spared))
        return False

    sandboxes: Any = Full()
    lab = Lab(sandboxes=sandboxes)
    lab.runtime.computers.containers.waiting = SandboxWait(sandboxes, cast("Any", SimpleNamespace(make_room=make_room)), nobody)
    stored = lab.stored("go")

    async def waited() -> float:
        began = asyncio.get_running_loop().time()
        with pytest.raises(SandboxCapacity):
            await container_of(lab.runtime.computers.containers, stored, None)
        return asyncio.get_running_loop().time() - began

    seconds = clock.run(waited())
    assert limits.SANDBOX_WAIT_SECONDS < seconds <= limits.SANDBOX_WAIT_SECONDS + limits.SANDBOX_CAPACITY_RETRY_SECONDS
    assert {tenant_id for tenant_id, _ in asked} == {stored.tenant_id}


class AwaitsFile(FakeSandboxes):
    """Its command ends once a file has been brought, which a client adds some seconds after its begin."""

    def __init__(self) -> None:
        super().__init__()
        self.is_there_at = 0.0
        self.has_file = asyncio.Event()
        self.looks: list[float] = []

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
        live = await super().ensure(tenant_id, container_id, seen=seen)
        live.before_end = self.has_file.wait
        return live

    async def bring_files(self, live: Any) -> bool:
        now = asyncio.get_running_loop().time()
        self.looks.append(now)
        if len(self.looks) == 1:
            raise SandboxGone("torn")
        if len(self.looks) == 3:
            self.has_file.set()
        return True


def test_a_command_that_waits_for_a_file_of_the_client_gets_it_and_ends() -> None:
    sandboxes = AwaitsFile()
    lab = Lab(shell("until [ -e go ]; do sleep 1; done"), say("done"), sandboxes=sandboxes)

    async def ran() -> float:
        began = asyncio.get_running_loop().time()
        stored = await lab.background()
        await lab.run(stored)
        assert (await lab.object_of(stored))["status"] == "completed"
        return asyncio.get_running_loop().time() - began

    assert clock.run(ran()) == pytest.approx(3 * limits.CONTAINER_FILES_POLL_SECONDS)
    assert len(sandboxes.looks) == 3
