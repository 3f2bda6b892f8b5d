"""A desk in a container of its own, to which only the exec server of the commands can hand anything, as in a task of Fargate's."""

import asyncio
import json
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import DeskHeld, DeskUnavailable, SandboxGone
from moorage.sandbox.desk_client import DeskClient
from moorage.sandbox.exec_client import ExecClient

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.desk_support import PASSWORD, USERNAME, ShopServer, click, do, navigate, needs_browser, page_server, press, shop
from tests.unit.sandbox.support import EXEC_SERVER, exec_server, new_id, run

SHOP = "http://shop.example/"
PAGES = {"shop.example/file": "attachment:report.csv:a,b\n"}


@contextmanager
def desk_container(directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The desk's exec server, which has been told nothing but where its configuration will be."""
    with (directory / "desk.log").open("wb") as log:
        command = [sys.executable, "-I", "-S", str(EXEC_SERVER), "--config-file", str(directory / "run/desk/config.json")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Task:
    client: ExecClient
    desk: DeskClient
    shop: ShopServer
    directory: Path
    process: "subprocess.Popen[bytes]"


@asynccontextmanager
async def task(directory: Path) -> AsyncIterator[Task]:
    async with shop(PAGES) as server:
        upstream = {"proxy": f"127.0.0.1:{server.port}", "username": USERNAME, "password": PASSWORD}
        link = f"{directory}/run/desk/link.sock"
        config: dict[str, Any] = {
            "listen": f"unix:{directory}/run/desk/run/exec.sock",
            "spool_dir": f"{directory}/desk-spool",
            "desk": {"alone": True, "directory": f"{directory}/browser", "link": link, "upstream": upstream},
        }
        beside = {"directory": f"{directory}/run", "policies": {"PrintingEnabled": False}, "config": config}
        with desk_container(directory) as process, exec_server(directory, beside=beside, neighbour_path=link) as commands:
            async with ExecClient(commands.handle) as client:
                await until_up(client)
                yield Task(client, DeskClient(client), server, directory, process)


@pytest.fixture
async def beside() -> AsyncIterator[Task]:
    # A browser has a socket in its profile, whose path may have 107 characters.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        async with task(Path(name)) as running:
            yield running


@needs_browser
async def test_the_server_of_the_commands_passes_on_what_is_asked_of_the_desk(beside: Task) -> None:
    state = await beside.desk.start(start_url=SHOP)
    batch_id = new_id()
    batch = [click(50, 50), {"type": "wait", "ms": 200}]
    first = await beside.desk.run(batch_id, batch)
    assert (first.page.title, await beside.desk.run(batch_id, batch), await beside.desk.attach(batch_id)) == ("Shop", first, first)
    assert beside.shop.count == 1
    port = await page_server(beside.client)
    assert (await do(beside.desk, navigate(f"localhost:{port}"))).page.title == "Mine"
    saved = await do(beside.desk, navigate(f"{SHOP}file"))
    assert saved.page.downloads[0].path.endswith("data/downloads/report.csv")
    assert (await beside.desk.start()).desk_id == state.desk_id
    with pytest.raises(SandboxGone):
        await beside.desk.attach("unknown")


@needs_browser
async def test_a_person_watches_and_takes_over_by_the_same_way(beside: Task) -> None:
    await beside.desk.start(start_url=SHOP)
    assert (await beside.desk.frame(-1, wait_ms=5_000)).picture
    await beside.desk.take("a person")
    (done,) = await beside.desk.input("a person", 1, [press("CTRL", "L")])
    with pytest.raises(DeskHeld):
        await beside.desk.take("another")
    assert (done.ok, (await beside.client.health()).running) == (True, 1)
    await beside.desk.give("a person")
    assert (await beside.client.health()).running == 0


@needs_browser
async def test_a_browser_whose_container_has_ended_is_told_and_commands_go_on(beside: Task) -> None:
    await beside.desk.start()
    batch = asyncio.create_task(beside.desk.run(new_id(), [{"type": "wait", "ms": 5_000}]))
    async with asyncio.timeout(30):
        while (await beside.client.health()).running == 0:
            await asyncio.sleep(0.01)
    beside.process.kill()
    with pytest.raises(SandboxGone):
        await batch
    beside.process.wait()  # Until then its socket may take a connection, and break it off.
    with pytest.raises(DeskUnavailable, match="The container of the browser has ended"):
        await beside.desk.start()
    assert (await run(beside.client, "echo on")).stdout == "on\n"


async def test_the_folders_are_closed_before_any_command_runs_and_keep_no_secret(tmp_path: Path) -> None:
    beside = {"directory": f"{tmp_path}/run", "policies": {"PrintingEnabled": False}, "config": {"listen": "unix:/elsewhere"}}
    with exec_server(tmp_path, beside=beside) as commands:
        async with ExecClient(commands.handle) as client:
            await until_up(client)
            modes = {
                path: stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("run", "run/desk/run", "run/policies/moorage.json")
            }
            written = json.loads((tmp_path / "run/desk/config.json").read_text())
            listening = await asyncio.start_unix_server(lambda reader, writer: writer.close(), tmp_path / "run/desk/run/exec.sock")
            async with listening:
                with pytest.raises(SandboxGone):
                    await DeskClient(client).attach("any")
            closed = stat.S_IMODE((tmp_path / "run/desk/run").stat().st_mode)
    assert modes == {"run": 0o700, "run/desk/run": 0o777, "run/policies/moorage.json": 0o644}
    assert {**written, "token": len(written["token"])} == {"listen": "unix:/elsewhere", "token": 64}
    assert (closed, (tmp_path / "run/desk/config.json").exists()) == (0o755, False)
