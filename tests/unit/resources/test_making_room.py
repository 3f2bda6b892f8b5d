"""A tenant that has as many sandboxes as one may have, on a real launcher: the next container's command runs all the same."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.sandbox_wait import of_responses
from moorage.errors import response_not_found
from moorage.files.store import FileStore
from moorage.loop.call_containers import container_of
from moorage.sandbox.launcher_client import LauncherProvisioner

from tests.unit.resources.support import Clock, Store
from tests.unit.sandbox.support import launcher, run

IDLE_ENOUGH = limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS


class Responses:
    """Those that run, and the containers that they work in."""

    def __init__(self) -> None:
        self.containers: dict[str, str] = {}

    async def inflight_of(self, tenant_id: str) -> list[str]:
        assert tenant_id == "ten"
        return [*self.containers, "resp_just_deleted"]

    async def load(self, tenant_id: str, response_id: str) -> Any:
        if response_id not in self.containers:
            raise response_not_found(response_id)
        return SimpleNamespace(container_id=self.containers[response_id])


async def test_the_longest_idle_of_the_tenants_own_gives_way_and_comes_back_with_its_files(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    with launcher(tmp_path, "--tenant-sandboxes-max", "3") as socket:
        async with LauncherProvisioner(str(socket)) as provisioner:
            files = FileStore(store.table, store.blobs, clock=clock)
            responses = Responses()
            containers = Containers(
                store.table,
                store.blobs,
                provisioner,
                files,
                clock=clock,
                sandbox_key=lambda: b"k" * 32,
                at_work=of_responses(cast("Any", responses)),
            )

            async def made(tenant_id: str) -> str:
                return (await containers.reserve(tenant_id, name="c")).id

            async def ran(tenant_id: str, container_id: str, command: str) -> str:
                """As a tool step has a command run: it waits for the container, and leaves when the command has ended."""
                stored: Any = SimpleNamespace(tenant_id=tenant_id, container_id=container_id)
                runtime: Any = SimpleNamespace(computers=SimpleNamespace(containers=containers))
                async with await container_of(runtime.computers.containers, stored, None) as live:
                    said = (await run(live.client, command)).stdout
                    await containers.artifacts.sync(live)
                return said

            neighbours = await made("neighbour")
            await ran("neighbour", neighbours, "echo mine > /tmp/alive")
            thinking, idle, later, another = [await made("ten") for _ in range(4)]
            responses.containers["resp_thinking"] = thinking
            await ran("ten", thinking, "echo still > /tmp/alive")
            clock.advance(limits.CONTAINER_TOUCH_SECONDS)
            await ran("ten", idle, "echo kept > note.txt")
            clock.advance(limits.CONTAINER_TOUCH_SECONDS)
            await ran("ten", later, "echo there > /tmp/alive")
            clock.advance(IDLE_ENOUGH)
            assert await ran("ten", another, "echo another") == "another\n"
            assert await ran("ten", thinking, "cat /tmp/alive") == "still\n"
            assert await ran("ten", later, "cat /tmp/alive") == "there\n"
            assert await ran("neighbour", neighbours, "cat /tmp/alive") == "mine\n"
            clock.advance(IDLE_ENOUGH)
            assert await ran("ten", idle, "cat note.txt") == "kept\n"
