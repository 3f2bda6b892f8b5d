"""People who watch a browser and take it over."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.errors import DeskHeld
from moorage.sandbox.desk_client import ActionOutcome, DeskClient

from tests.unit.sandbox.desk_support import Beside, click, do, navigate, needs_browser, press, sandbox_with_desk, type_text
from tests.unit.sandbox.support import new_id

pytestmark = needs_browser
SHOP = "http://shop.example/"
DONE = ActionOutcome(True)


PAGES = {
    "shop.example/other": "<title>Other</title>other",
    "shop.example/sign-in": """<!doctype html><title>Sign in</title>
        <style>input, textarea, button { position: absolute; left: 0; height: 40px }</style><input aria-label=User style="top: 0">
        <textarea aria-label=Note style="top: 50px"></textarea><input aria-label=Untouched
        value=open style="top: 100px"><button style="top: 150px" onclick="document.title =
        [...document.querySelectorAll('input, textarea')]
        .map((field) => getComputedStyle(field).webkitTextSecurity).join()">Look</button>""",
}


@pytest.fixture(scope="module")
async def beside(launcher_socket: Path) -> AsyncIterator[Beside]:
    async with sandbox_with_desk(launcher_socket, PAGES) as beside:
        yield beside


@pytest.fixture
async def desk(beside: Beside) -> DeskClient:
    await beside.desk.start()
    await do(beside.desk, navigate(SHOP))
    beside.shop.asked.clear()
    return beside.desk


async def test_two_viewers_see_each_change(desk: DeskClient) -> None:
    first, other = await asyncio.gather(desk.frame(-1, wait_ms=10_000), desk.frame(-1, wait_ms=10_000))
    for frame in (first, other):
        assert (frame.picture[:3], frame.url, frame.title, frame.holder) == (b"\xff\xd8\xff", SHOP, "Shop", "")
    newest = max(first.number, other.number)
    waiting = [asyncio.create_task(desk.frame(newest, wait_ms=20_000)) for _ in range(2)]
    await do(desk, click(60, 130), type_text("figs"))
    for frame in await asyncio.gather(*waiting):
        assert frame.number > newest
        assert frame.picture
    assert (await desk.frame(-1, wait_ms=0)).pointer == (60, 130)


async def test_a_viewer_gets_nothing_if_nothing_changes(desk: DeskClient) -> None:
    number = -1
    while (frame := await desk.frame(number, wait_ms=1_000)).picture:
        number = frame.number
    assert frame.number == number


async def test_while_a_person_has_control_batches_wait(beside: Beside, desk: DeskClient) -> None:
    lease = await desk.take("ada")
    assert (lease.holder, 59_000 < lease.ms <= 60_000) == ("ada", True)
    batch = asyncio.create_task(desk.run(new_id(), [click(50, 50)]))
    assert await desk.input("ada", 1, [click(60, 130), type_text("figs")]) == (DONE, DONE)
    assert (await desk.frame(-1, wait_ms=5_000)).holder == "ada"
    assert (batch.done(), beside.shop.count) == (False, 0)
    assert (await desk.give("ada")).holder == ""
    assert (await batch).actions == (DONE,)
    assert beside.shop.count == 1


async def test_input_is_done_once_for_each_number(beside: Beside, desk: DeskClient) -> None:
    await desk.take("ada")
    inputs = await asyncio.gather(*(desk.input("ada", 1, [click(50, 50)]) for _ in range(3)))
    assert [*inputs, await desk.input("ada", 2, [click(50, 50)])] == [(DONE,)] * 4
    await desk.give("ada")
    await do(desk)
    assert beside.shop.count == 2


async def test_one_person_has_control_at_a_time(desk: DeskClient) -> None:
    with pytest.raises(DeskHeld):
        await desk.input("ada", 1, [click(50, 50)])
    await desk.take("ada")
    with pytest.raises(DeskHeld):
        await desk.take("grace")
    with pytest.raises(DeskHeld):
        await desk.input("grace", 1, [click(50, 50)])
    assert (await desk.give("grace")).holder == "ada"
    assert (await desk.give("ada")).holder == ""
    assert (await desk.take("grace")).holder == "grace"
    await desk.give("grace")


async def test_what_a_person_types_is_covered_before_the_model_goes_on(desk: DeskClient) -> None:
    await do(desk, navigate(f"{SHOP}sign-in"))
    await desk.take("ada")
    typing = [click(50, 20), type_text("canary-user"), press("TAB"), type_text("canary-note")]
    assert await desk.input("ada", 1, typing) == (DONE,) * 4
    await desk.give("ada")
    shown = await do(desk, click(10, 165), has_tree=True)
    assert shown.page.title == "disc,disc,none"
    assert shown.tree is not None
    assert {node.name: node.value for node in shown.tree} == {
        "User": "(typed by a person)",
        "Note": "(typed by a person)",
        "Untouched": "open",
        "Look": "",
    }
    assert "canary" not in repr(shown)
