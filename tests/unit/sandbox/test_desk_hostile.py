"""Pages that mean harm: the container lives, the browser is of use again, and the model is told."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.sandbox.desk_client import BatchResult, DeskClient

from tests.unit.sandbox.desk_support import Beside, click, do, navigate, needs_browser, press, sandbox_with_desk
from tests.unit.sandbox.support import run

pytestmark = needs_browser
SHOP = "http://shop.example/"
TOLD_SECONDS_MAX = 25
"""10 s on a machine that does nothing else."""
BUTTON = "<title>Hostile</title><button style='position:absolute;left:0;top:0;width:200px;height:100px' onclick='{}'>Go</button>"
PAGES = {
    f"shop.example/{name}": BUTTON.format(script)
    for name, script in {
        "memory": "window.held = []; for (let n = 0; n < 3000; n++) held.push(new Uint8Array(1 << 20).fill(n))",
        "tabs": "for (let n = 0; n < 500; n++) window.open(`/tab?${n}`)",
        "alerts": "for (;;) alert(1)",
        "print": "print(); print(); document.title = 1",
        "leave": "addEventListener(`beforeunload`, (event) => event.preventDefault())",
        # Four take all the processor time that there is. Three hundred would take it from other tests, and no more from the browser.
        "workers": "for (let n = 0; n < 300; n++) new Worker(window.URL.createObjectURL(new Blob([n < 4 ? `for (;;);` : `held = n`])))",
        "loop": "for (;;);",
        # Each of them is a site of its own, with a process of its own.
        "frames": "for (let n = 0; n < 60; n++) document.body.append(Object.assign(document.createElement(`iframe`), "
        "{src: `http://h${n}.example/`}))",
        "race": "for (let n = 0; n < 60; n++) { const other = window.open(`/tab?${n}`); if (other) other.close() } "
        "const last = window.open(`about:blank`); setInterval(() => { last.location = `/tab?${Math.random()}` }, 1)",
        "files": "for (let n = 0; n < 50; n++) Object.assign(document.createElement(`a`), {download: n, "
        "href: window.URL.createObjectURL(new Blob([`x`]))}).click()",
        "reload": "setInterval(() => location.reload(), 1)",
        "title": "setInterval(() => { document.title = `x`.repeat(1 << 20) }, 1)",
        "dialogs": "navigator.credentials?.get({publicKey: {challenge: new Uint8Array(16)}}); Notification.requestPermission(); "
        "window.showOpenFilePicker?.(); document.documentElement.requestFullscreen(); document.body.requestPointerLock(); "
        "navigator.mediaDevices?.getDisplayMedia(); location = `mailto:a@b.example`",
    }.items()
} | {
    "shop.example/sign-in": "401:",
    "shop.example/printed": BUTTON.format("frames[0].postMessage(1, `*`)") + "<iframe src=http://other.example/prints></iframe>",
    "other.example/prints": "<script>onmessage = () => { for (let n = 0; n < 9; n++) print() }</script>",
    "shop.example/tab": "<title>Tab</title>",
    "shop.example/endless": "endless:",
}


@pytest.fixture(scope="module")
async def beside(launcher_socket: Path) -> AsyncIterator[Beside]:
    async with sandbox_with_desk(launcher_socket, PAGES) as beside:
        yield beside


@pytest.fixture
async def desk(beside: Beside) -> DeskClient:
    await beside.desk.start()
    return beside.desk


async def suffered(beside: Beside, page: str) -> BatchResult:
    """What is told of a page whose button was clicked. Afterwards the container lives, and the browser opens the next page."""
    began = time.monotonic()
    result = await do(beside.desk, navigate(f"{SHOP}{page}"), click(100, 50))
    assert time.monotonic() - began < TOLD_SECONDS_MAX
    assert (await run(beside.client, "echo alive")).stdout == "alive\n"
    await beside.desk.start()
    after = await do(beside.desk, *[press("CTRL", "W")] * 12, navigate(SHOP))
    assert (after.page.title, [each.error for each in after.actions if not each.ok]) == ("Shop", [])
    return result


async def test_a_page_that_takes_three_gigabytes_dies_alone(beside: Beside, desk: DeskClient) -> None:
    result = await suffered(beside, "memory")
    # On a busy machine it is seen before that it does not answer.
    assert "The page in tab 1 crashed, probably for want of memory. 'navigate' opens another one." in result.page.notes


async def test_of_five_hundred_tabs_a_few_are_opened(beside: Beside, desk: DeskClient) -> None:
    result = await suffered(beside, "tabs")
    assert len(result.page.tabs) <= 10


async def test_a_page_of_endless_alerts_is_stopped(beside: Beside, desk: DeskClient) -> None:
    result = await suffered(beside, "alerts")
    assert any("opened more than 20 dialogs one behind the other, and was closed" in note for note in result.page.notes)


async def test_sixty_frames_of_sixty_sites_leave_a_browser_to_the_next_call(beside: Beside, desk: DeskClient) -> None:
    began = time.monotonic()
    await do(desk, navigate(f"{SHOP}frames"), click(100, 50))
    assert time.monotonic() - began < TOLD_SECONDS_MAX
    for _ in range(3):  # The page does not answer, then the browser has ended, then there is another one.
        await desk.start()
        after = await do(desk, navigate(SHOP))
    assert (after.page.title, (await run(beside.client, "echo alive")).stdout) == ("Shop", "alive\n")


async def test_windows_that_are_closed_and_moved_as_they_open_leave_the_browser_usable(beside: Beside, desk: DeskClient) -> None:
    assert len((await suffered(beside, "race")).page.tabs) <= 10


async def test_of_fifty_files_at_once_a_few_are_taken(beside: Beside, desk: DeskClient) -> None:
    saved = [each for each in (await suffered(beside, "files")).page.downloads if each.path]
    assert 0 < len(saved) < 50
    await run(beside.client, "rm -r downloads")


@pytest.mark.parametrize("page", ["reload", "title", "dialogs", "printed"])
async def test_a_page_does_not_hold_the_browser_by(page: str, beside: Beside, desk: DeskClient) -> None:
    assert [each.error for each in (await suffered(beside, page)).actions if not each.ok] == []


async def test_a_page_that_asks_for_a_password_in_the_browsers_own_window_is_left(beside: Beside, desk: DeskClient) -> None:
    asked = await do(desk, navigate(f"{SHOP}sign-in"))
    assert [each.error for each in asked.actions] == [f"{SHOP}sign-in cannot be opened: net::ERR_INVALID_AUTH_CREDENTIALS."]
    assert (await do(desk, navigate(SHOP))).page.title == "Shop"


async def test_a_print_dialog_does_not_appear(beside: Beside, desk: DeskClient) -> None:
    assert (await suffered(beside, "print")).page.title == "1"


async def test_a_page_that_wants_to_stay_is_left(beside: Beside, desk: DeskClient) -> None:
    await suffered(beside, "leave")


async def test_three_hundred_workers_leave_the_browser_usable(beside: Beside, desk: DeskClient) -> None:
    await suffered(beside, "workers")


async def test_a_page_that_computes_for_ever_is_left(beside: Beside, desk: DeskClient) -> None:
    assert "The page does not answer" in (await suffered(beside, "loop")).actions[-1].error


async def test_a_download_without_end_is_broken_off(beside: Beside, desk: DeskClient) -> None:
    seen = list((await do(desk, navigate(f"{SHOP}endless"))).page.downloads)
    while not seen:
        seen += (await do(desk, {"type": "wait", "ms": 500})).page.downloads
    assert [(each.path, each.error) for each in seen] in ([("", "It is larger than 256 MiB.")], [("", "It was broken off.")])
    assert (await run(beside.client, "ls downloads 2>/dev/null; echo alive")).stdout == "alive\n"
    assert (await do(desk, navigate(SHOP))).page.title == "Shop"
