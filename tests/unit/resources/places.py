"""Two halves of a deployment whose sandboxes are started in one place and reached in another."""

from dataclasses import dataclass

from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerRecord
from moorage.containers.sweep import AtWork, nobody
from moorage.errors import SandboxElsewhere
from moorage.files.store import FileStore
from moorage.sandbox.provisioner import Provisioner
from moorage.sandbox.reach_only import ReachOnlyProvisioner
from moorage.store.live_sandboxes import NO_BOUNDS, SandboxBounds

from tests.unit.resources.support import Clock, FakeProvisioner, Store


@dataclass
class Places:
    clock: Clock
    ecs: FakeProvisioner
    outside: Containers
    inside: Containers
    deaf: set[str]
    """Endpoints that do not listen yet."""

    async def new(self) -> ContainerRecord:
        return await self.outside.reserve("ten", name="c")

    async def live(self, record: ContainerRecord) -> LiveContainer:
        """What the loop does: the tool step's look, and the outside's help whenever it is wanted."""
        for _ in range(5):
            try:
                return await self.inside.sandboxes.ensure("ten", record.id)
            except SandboxElsewhere:
                await self.outside.sandboxes.place("ten", record.id)
        raise AssertionError("it goes round and round")

    async def wanted(self, record: ContainerRecord) -> str:
        """The same of a tool step that has time: which sandbox it gets."""
        for _ in range(5):
            try:
                async with await self.inside.waiting.sandbox("ten", record.id) as live:
                    return live.handle.sandbox_id
            except SandboxElsewhere:
                await self.outside.sandboxes.place("ten", record.id)
        raise AssertionError("it goes round and round")


def places_of(
    store: Store, clock: Clock, bounds: SandboxBounds = NO_BOUNDS, at_work: AtWork = nobody, auto_idle_seconds: int = 0
) -> Places:
    ecs = FakeProvisioner()
    files = FileStore(store.table, store.blobs, clock=clock)
    deaf: set[str] = set()

    async def can_reach(endpoint: str) -> bool:
        return endpoint not in deaf

    def containers(provisioner: Provisioner, *, is_inside: bool) -> Containers:
        return Containers(
            store.table,
            store.blobs,
            provisioner,
            files,
            clock=clock,
            sandbox_key=lambda: b"k" * 32,
            connect=ecs.connect if is_inside else None,
            at_work=at_work,
            auto_idle_seconds=auto_idle_seconds,
            bounds=bounds,
            can_start=not is_inside,
        )

    outside = containers(ecs, is_inside=False)
    inside = containers(ReachOnlyProvisioner(can_reach=can_reach), is_inside=True)
    return Places(clock, ecs, outside, inside, deaf)
