"""The life of a container with real sandboxes: bubblewrap behind the launcher."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerRecord
from moorage.errors import SandboxGone
from moorage.files.store import FileStore
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.wire.queries import PageQuery

from tests.unit.resources.support import Clock, Store, chunked
from tests.unit.sandbox.support import launcher, run

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None or os.geteuid() != 0, reason="needs bubblewrap and root")


@pytest.fixture(scope="module")
def launcher_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with launcher(tmp_path_factory.mktemp("launcher")) as socket:
        yield socket


@pytest.fixture
async def provisioner(launcher_socket: Path) -> AsyncIterator[LauncherProvisioner]:
    async with LauncherProvisioner(str(launcher_socket)) as client:
        yield client
        for sandbox in await client.running():
            await client.stop(sandbox.sandbox_id)


@pytest.fixture
def containers(store: Store, clock: Clock, provisioner: LauncherProvisioner) -> Containers:
    files = FileStore(store.table, store.blobs, clock=clock)
    return Containers(store.table, store.blobs, provisioner, files, clock=clock, sandbox_key=lambda: b"k" * 32)


async def stored(containers: Containers, record: ContainerRecord) -> dict[str, tuple[str, bytes]]:
    page = await containers.file_page(await containers.get("ten", record.id), PageQuery(limit=100))
    return {
        file.path.removeprefix("/mnt/data/"): (file.source, b"".join([chunk async for chunk in containers.content(file)]))
        for file in page.entries
    }


async def works(containers: Containers, live: LiveContainer, command: str) -> tuple[str, ...]:
    """Run a command, store what it left, return the notes."""
    result = await run(live.client, command)
    assert (result.exit_code, result.stderr) == (0, ""), result
    return (await containers.artifacts.sync(live)).notes


async def test_what_commands_do_to_files_is_followed(containers: Containers) -> None:
    record = await containers.reserve("ten", name="c")
    await containers.add_file(record, filename="in.txt", chunks=chunked(b"in\n"))
    async with await containers.sandboxes.ensure("ten", record.id) as live:
        await works(containers, live, "mkdir -p out && tr a-z A-Z < in.txt > out/upper.txt && echo one > 'a file ü.txt'")
        assert await stored(containers, record) == {
            "in.txt": ("user", b"in\n"),
            "out/upper.txt": ("assistant", b"IN\n"),
            "a file ü.txt": ("assistant", b"one\n"),
        }
        await works(containers, live, "mv out/upper.txt moved.txt && rm 'a file ü.txt' && echo more >> in.txt")
        assert await stored(containers, record) == {
            "in.txt": ("assistant", b"in\nmore\n"),
            "moved.txt": ("assistant", b"IN\n"),
        }


async def test_a_killed_sandbox_comes_back_with_its_files_and_without_its_processes(
    containers: Containers, provisioner: LauncherProvisioner
) -> None:
    record = await containers.reserve("ten", name="c")
    async with await containers.sandboxes.ensure("ten", record.id) as live:
        await works(containers, live, "echo kept > kept.txt; (sleep 1000 > /dev/null 2>&1 &)")
        await provisioner.stop(live.handle.sandbox_id)
        with pytest.raises(SandboxGone):
            await run(live.client, "true")
        assert await containers.sandboxes.confirm_gone(live)
    async with await containers.sandboxes.ensure("ten", record.id) as revived:
        assert revived.record.incarnation == 2
        assert (await run(revived.client, "cat kept.txt; pgrep sleep")).stdout == "kept\n"
        assert (await containers.artifacts.sync(revived)).changed == ()


async def test_the_programs_told_to_the_model_stay_those_of_the_creation(
    store: Store, clock: Clock, provisioner: LauncherProvisioner
) -> None:
    """Its prompts must not change, whatever a later deployment has in its image."""
    files = FileStore(store.table, store.blobs, clock=clock)

    def deployed(programs: str) -> Containers:
        return Containers(store.table, store.blobs, provisioner, files, clock=clock, sandbox_key=lambda: b"k" * 32, programs=programs)

    record = await deployed("python 3.11").reserve("ten", name="c")
    later = deployed("python 3.13, go 1.23")
    assert (await later.use("ten", record.id)).programs == "python 3.11"
    assert (await later.reserve("ten", name="d")).programs == "python 3.13, go 1.23"


async def test_an_expired_container_comes_back_with_its_files(containers: Containers, clock: Clock) -> None:
    record = await containers.reserve("ten", name="c")
    async with await containers.sandboxes.ensure("ten", record.id) as live:
        await works(containers, live, "echo kept > kept.txt")
    clock.advance(limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60)
    assert await containers.sweep.expire_due(clock()) == 1
    async with await containers.sandboxes.ensure("ten", record.id) as revived:
        assert (await run(revived.client, "cat kept.txt")).stdout == "kept\n"


async def test_a_command_that_outlives_its_caller_keeps_its_container(containers: Containers, clock: Clock) -> None:
    record = await containers.reserve("ten", name="c")
    async with await containers.sandboxes.ensure("ten", record.id) as live:
        events = live.client.exec("long", "echo begun; sleep 30", timeout_ms=60_000, max_output_length=100)
        await anext(events)
        clock.advance(limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60)
        assert await containers.sweep.expire_due(clock()) == 0
        await live.client.kill("long")
        await events.aclose()


async def test_what_is_no_regular_file_is_noted_and_not_followed(containers: Containers) -> None:
    record = await containers.reserve("ten", name="c")
    async with await containers.sandboxes.ensure("ten", record.id) as live:
        notes = await works(
            containers, live, "ln -s /etc/passwd link; ln -s / root; mkfifo pipe; truncate -s 2G sparse; echo ok > ok; ln ok hard"
        )
        assert notes == (
            f"Note: files over {limits.ARTIFACT_BYTES_MAX} bytes are not saved: /mnt/data/sparse.",
            "Note: sockets, pipes and devices are not saved: /mnt/data/pipe.",
            "Note: symbolic links are not saved: /mnt/data/link, /mnt/data/root.",
        )
        assert await stored(containers, record) == {"ok": ("assistant", b"ok\n"), "hard": ("assistant", b"ok\n")}


async def test_an_upload_cannot_be_led_out_of_the_workspace_by_a_link(containers: Containers) -> None:
    record = await containers.reserve("ten", name="c")
    async with await containers.sandboxes.ensure("ten", record.id) as live:
        await works(containers, live, "mkdir /tmp/outside; ln -s /tmp/outside/stolen bait.txt")
        await containers.add_file(live.record, filename="bait.txt", chunks=chunked(b"mine"))
    async with await containers.sandboxes.ensure("ten", record.id) as live:
        assert (await run(live.client, "cat bait.txt; ls /tmp/outside 2>/dev/null")).stdout == "mine"
