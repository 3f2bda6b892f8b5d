"""Whose turn it is at a browser: batches, people, cancels, and the end of one that nobody uses. Its times are short here."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.errors import DeskHeld, DeskNotStarted
from moorage.sandbox.desk_client import ActionOutcome, DeskClient
from moorage.sandbox.exec_client import ExecClient

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.desk_support import PASSWORD, USERNAME, ShopServer, click, do, navigate, needs_browser, press, shop, type_text
from tests.unit.sandbox.support import exec_server, new_id

pytestmark = needs_browser
DONE = ActionOutcome(True)
BUTTON = click(50, 50)
PAUSE = {"type": "wait", "ms": 1_500}
LEASE_SECONDS, IDLE_SECONDS = 1, 3


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[ShopServer]:
    async with shop() as server:
        yield server


@pytest.fixture(scope="module")
async def client(server: ShopServer) -> AsyncIterator[ExecClient]:
    upstream = {"proxy": f"127.0.0.1:{server.port}", "username": USERNAME, "password": PASSWORD}
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        times = {"lease_seconds": LEASE_SECONDS, "idle_seconds": IDLE_SECONDS}
        with exec_server(Path(name), desk={"directory": f"{name}/desk", "upstream": upstream, **times}) as process:
            async with ExecClient(process.handle) as client:
                await until_up(client)
                yield client


@pytest.fixture
async def desk(client: ExecClient, server: ShopServer) -> DeskClient:
    desk = DeskClient(client)
    await desk.start()
    await do(desk, navigate("http://shop.example/"))
    server.asked.clear()
    return desk


async def until_counted(server: ShopServer, times: int) -> None:
    while server.count < times:
        await asyncio.sleep(0.01)


async def looking_on(desk: DeskClient) -> None:
    while True:
        await desk.frame(-1, wait_ms=200)
        await asyncio.sleep(0.2)


async def test_a_person_takes_control_between_two_actions(desk: DeskClient, server: ShopServer) -> None:
    batch = asyncio.create_task(desk.run(new_id(), [BUTTON, PAUSE, BUTTON]))
    await until_counted(server, 1)
    await desk.take("ada")
    assert await desk.input("ada", 1, [click(60, 130), type_text("figs")]) == (DONE, DONE)
    assert (batch.done(), server.count) == (False, 1)
    await desk.give("ada")
    result = await batch
    assert (result.actions, server.count) == ((DONE, DONE, DONE), 2)
    (note,) = result.page.notes
    assert re.fullmatch(r"A person had control of the browser for \d+ s before this\. Look at the page before you go on\.", note)
    assert (await do(desk)).page.notes == ()


async def test_half_an_address_that_a_person_has_typed_is_not_the_models(desk: DeskClient) -> None:
    await desk.take("ada")
    await desk.input("ada", 1, [press("CTRL", "L"), type_text("private.example/mail?of=ada")])
    await desk.give("ada")
    told = await do(desk, press("ENTER"))
    assert (told.actions, told.page.url, told.page.refused) == ((DONE,), "http://shop.example/", ())


async def test_a_lease_that_nobody_renews_runs_out(desk: DeskClient, server: ShopServer) -> None:
    lease = await desk.take("ada")
    assert 0 < lease.ms <= LEASE_SECONDS * 1000
    assert (await do(desk, BUTTON)).actions == (DONE,)
    with pytest.raises(DeskHeld):
        await desk.input("ada", 1, [BUTTON])
    assert (await desk.take("grace")).holder == "grace"
    await desk.give("grace")
    assert server.count == 1


async def test_a_cancelled_batch_stops_between_two_actions(desk: DeskClient, server: ShopServer) -> None:
    batch = new_id()
    running = asyncio.create_task(desk.run(batch, [BUTTON, PAUSE, BUTTON]))
    await until_counted(server, 1)
    assert await desk.cancel(batch)
    *done, last = (await running).actions
    assert (set(done), last) == ({DONE}, ActionOutcome(False, "The response was cancelled before this action."))
    assert not await desk.cancel(batch)
    assert not await desk.cancel("never")
    assert (await do(desk, BUTTON)).actions == (DONE,)
    assert server.count == 2


async def test_a_batch_that_waits_for_a_person_can_be_cancelled(desk: DeskClient, server: ShopServer) -> None:
    await desk.take("ada")
    batch = new_id()
    running = asyncio.create_task(desk.run(batch, [BUTTON]))
    while not await desk.cancel(batch):
        await asyncio.sleep(0.01)
    assert [each.ok for each in (await running).actions] == [False]
    assert (await desk.frame(-1, wait_ms=5_000)).holder == "ada"
    await desk.give("ada")
    assert server.count == 0


async def test_a_browser_that_nobody_uses_ends_though_somebody_looks(desk: DeskClient) -> None:
    before = await desk.start()
    with pytest.raises(DeskNotStarted):
        await looking_on(desk)
    after = await desk.start()
    assert after.desk_id != before.desk_id
    assert (await do(desk)).page.url == "about:blank"


async def test_a_person_in_control_keeps_the_browser(desk: DeskClient) -> None:
    before = await desk.start()
    end = asyncio.get_running_loop().time() + IDLE_SECONDS + LEASE_SECONDS
    while asyncio.get_running_loop().time() < end:
        await desk.take("ada")
        await asyncio.sleep(LEASE_SECONDS / 2)
    await desk.give("ada")
    assert await desk.start() == before
