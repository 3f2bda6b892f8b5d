"""Containers over a real table and bucket, with sandboxes that are none."""

from dataclasses import dataclass

from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerRecord
from moorage.files.store import FileStore
from moorage.store import keys
from moorage.wire.queries import PageQuery

from tests.unit.resources.support import Clock, FakeProvisioner, FakeSandbox, Store

IDLE = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60


@dataclass
class World:
    store: Store
    clock: Clock
    provisioner: FakeProvisioner
    files: FileStore
    containers: Containers
    strict: Containers

    async def new(self, **options: object) -> ContainerRecord:
        return await self.containers.reserve("ten", name="c", **options)  # type: ignore[arg-type]

    def sandbox(self, live: LiveContainer) -> FakeSandbox:
        return self.provisioner.sandboxes[live.handle.sandbox_id]

    async def only_a_mark_is_left(self) -> bool:
        """Nothing but the deleted container's place in the list, once its second erasure is due."""
        self.clock.advance(limits.CONTAINER_ERASE_AGAIN_SECONDS)
        await self.containers.sweep.expire_due(self.clock())
        return [item["SK"]["S"] for item in self.store.records()] == [keys.GONE]

    async def stored(self, record: ContainerRecord) -> dict[str, tuple[str, bytes]]:
        """What the API shows: path to source and content."""
        current = await self.containers.get("ten", record.id)
        page = await self.containers.file_page(current, PageQuery(limit=100))
        return {file.path: (file.source, b"".join([chunk async for chunk in self.containers.content(file)])) for file in page.entries}
