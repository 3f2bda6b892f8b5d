"""A desk's browser, driven through a bare exec server: a real Chromium, and pages behind a stand-in for the egress proxy."""

import asyncio
import os
import signal
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import DeskUnavailable, SandboxError, SandboxGone
from moorage.sandbox.desk_client import (
    ActionOutcome,
    DeskClient,
    DeskDialog,
    DeskDownload,
    DeskRefusal,
    DeskTab,
    PictureFormat,
)
from moorage.sandbox.exec_client import ExecClient

from tests.processes import descendants
from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.desk_support import (
    GLYPHS,
    GLYPHS_PAGE,
    PASSWORD,
    USERNAME,
    ShopServer,
    click,
    credential,
    do,
    missing_fonts,
    navigate,
    needs_browser,
    page_server,
    press,
    shop,
    type_text,
)
from tests.unit.sandbox.support import ServerProcess, exec_server, new_id

pytestmark = needs_browser
DONE = ActionOutcome(True)
SHOP = "http://shop.example/"

PAGES = {
    "shop.example/ask": """<title>Ask</title><button style="position:absolute;left:0;top:0;width:100px;height:100px"
        onclick="document.title = prompt('How many?', '1')">Prompt</button>
        <button style="position:absolute;left:100px;top:0;width:100px;height:100px"
        onclick="document.title = confirm('Sure?') ? 'yes' : 'no'">Confirm</button>
        <button style="position:absolute;left:200px;top:0;width:100px;height:100px"
        onclick="alert('Hello'); document.title = 'after'">Alert</button>""",
    "shop.example/links": """<title>Links</title><style>a { position: absolute; left: 0; width: 200px; height: 50px }</style>
        <a href="/" target=_blank style="top: 0">new tab</a><a href="/file" style="top: 50px">file</a>
        <a href="http://refused.example/" style="top: 100px">refused</a>""",
    "shop.example/closing": """<title>Closing</title><button style="position:absolute;left:0;top:0;width:100px;height:100px"
        onclick="setTimeout(() => window.close(), 60)">Close</button>""",
    "shop.example/glyphs": GLYPHS_PAGE,
    "shop.example/file": "attachment:report 1.csv:a,b\n",
    "shop.example/keys": """<title>Keys</title><textarea style="position:absolute;left:0;top:0;width:600px;height:300px"></textarea>
        <script>document.querySelector('textarea').oninput = (event) => { document.title = event.target.value.length }</script>""",
    "shop.example/mouse": """<title>Mouse</title><body style="margin:0;height:5000px"><script>
        const seen = []
        for (const name of ['dblclick', 'contextmenu', 'mousedown', 'mouseup', 'wheel'])
          addEventListener(name, (event) => { seen.push([name, event.clientX, event.clientY, event.button, event.shiftKey].join(' ')) })
        addEventListener('scroll', () => { document.title = scrollY })
        addEventListener('keydown', (event) => { if (event.key === 'q') document.title = seen.join('; ') })</script>""",
    "shop.example/foreign": """<title>?</title><script>
        fetch(`http://localhost:${location.search.slice(1)}/`, {mode: 'no-cors'}).finally(() => {
          const image = new Image()
          image.onerror = () => { document.title = 'none of it' }
          image.onload = () => { document.title = 'all of it' }
          image.src = `http://localhost:${location.search.slice(1)}/picture.svg` })</script>""",
    "shop.example/busy": "<title>Busy</title><button onclick='for (;;);' style='width:99px;height:99px'>x",
}


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[ShopServer]:
    async with shop(PAGES) as server:
        yield server


@pytest.fixture(scope="module")
def desk_server(server: ShopServer) -> Iterator[ServerProcess]:
    upstream = {"proxy": f"127.0.0.1:{server.port}", "username": USERNAME, "password": PASSWORD}
    # A browser has a socket in its directory, whose path may have 107 characters. It may write there until it is seen to have ended.
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True))
        yield stack.enter_context(exec_server(Path(name), desk={"directory": f"{name}/desk", "upstream": upstream}))


@pytest.fixture
async def client(desk_server: ServerProcess) -> AsyncIterator[ExecClient]:
    async with ExecClient(desk_server.handle) as client:
        await until_up(client)
        yield client


@pytest.fixture
async def desk(client: ExecClient, server: ShopServer) -> DeskClient:
    """On the shop's page, and nothing counted yet."""
    desk = DeskClient(client)
    await desk.start()
    await do(desk, *[press("CTRL", "W")] * 3, navigate(SHOP))
    server.asked.clear()
    return desk


async def test_a_click_reaches_the_page_and_the_picture_shows_it(desk: DeskClient, server: ShopServer) -> None:
    result = await do(desk, click(100, 50), click(60, 130), type_text("oranges"))
    assert (result.actions, result.is_lost, server.count) == ((DONE, DONE, DONE), False, 1)
    assert (result.page.url, result.page.title) == (SHOP, "s")
    assert result.page.tabs == (DeskTab(1, SHOP, "s", True),)
    assert result.picture is not None
    assert (result.picture[:4], struct.unpack(">II", result.picture[16:24])) == (b"\x89PNG", (1280, 800))
    assert server.credentials == {credential()}


async def test_a_started_desk_stays_as_it_is(desk: DeskClient) -> None:
    first, again = await asyncio.gather(desk.start(width=640, height=480), desk.start())
    assert first == again
    assert (first.width, first.height) == (1280, 800)
    assert first.browser.startswith("Chrome/")


async def test_a_batch_is_done_once_however_often_it_is_asked_for(desk: DeskClient, server: ShopServer) -> None:
    batch = new_id()
    results = await asyncio.gather(*(desk.run(batch, [click(50, 50)]) for _ in range(3)), desk_attach(desk, batch))
    assert len({result.picture for result in results}) == 1
    assert await desk.run(batch, [click(50, 50)]) == results[0]
    assert server.count == 1
    with pytest.raises(SandboxError, match="another batch"):
        await desk.run(batch, [click(51, 50)])


async def desk_attach(desk: DeskClient, batch: str) -> Any:
    while True:
        try:
            return await desk.attach(batch)
        except SandboxGone:
            await asyncio.sleep(0.01)


async def test_a_batch_goes_on_without_its_caller(desk: DeskClient, desk_server: ServerProcess, server: ShopServer) -> None:
    batch, actions = new_id(), [click(50, 50), {"type": "wait", "ms": 500}, click(50, 50)]
    async with ExecClient(desk_server.handle) as caller:
        calling = asyncio.create_task(DeskClient(caller).run(batch, actions))
        while server.count == 0:
            await asyncio.sleep(0.01)
        calling.cancel()
    assert (await desk.attach(batch)).actions == (DONE, DONE, DONE)
    assert server.count == 2


async def test_a_batch_that_nobody_has_begun_is_unknown(desk: DeskClient) -> None:
    with pytest.raises(SandboxGone, match="started anew"):
        await desk.attach("never")


async def test_a_failed_action_ends_its_batch(desk: DeskClient, server: ShopServer) -> None:
    result = await do(desk, click(50, 50), press("NOSUCHKEY"), click(50, 50))
    assert result.actions == (DONE, ActionOutcome(False, "There is no key 'NOSUCHKEY'."))
    assert server.count == 1
    assert result.picture is not None


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a file": (navigate("file:///etc/passwd"), "'file:' is not opened here"),
    "a page of the browser": (navigate("chrome://version"), "'chrome:' is not opened here"),
    "a source": (navigate("view-source:http://shop.example/"), "'view-source:' is not opened here"),
    "the developer tools": (navigate("devtools://devtools/bundled/inspector.html"), "'devtools:' is not opened here"),
    "a page of the browser by its old name": (navigate("about:version"), "'about:' is not opened here"),
    "a text": (navigate("data:text/html,hello"), "'data:' is not opened here"),
    "a blob": (navigate("blob:http://shop.example/1"), "'blob:' is not opened here"),
    "another protocol": (navigate("ftp://shop.example/"), "'ftp:' is not opened here"),
    "a script": (navigate("javascript:alert(1)"), "'javascript:' is not opened here"),
    "no place": ({"type": "click"}, "'x' must be a whole number"),
    "an unknown button": (click(1, 1, button="third"), "There is no button 'third'"),
    "an unknown element": ({"type": "click", "ref": 9_999}, "There is no element 9999"),
    "a short drag": ({"type": "drag", "path": [{"x": 1, "y": 1}]}, "a path of 2"),
    "a long wait": ({"type": "wait", "ms": 60_000}, "'ms' must be a whole number from 1 to 10000"),
    "a key of a window": (press("F12"), "no developer tools"),
    "an unknown tab": (press("CTRL", "9"), "There is no tab 9."),
}


async def test_what_cannot_be_done_is_said_in_words(desk: DeskClient) -> None:
    outcomes = {name: (await do(desk, action)).actions for name, (action, _) in WRONG.items()}
    said = {name: [words for one in outcomes[name] if not one.ok and words in one.error] for name, (_, words) in WRONG.items()}
    assert said == {name: [words] for name, (_, words) in WRONG.items()}, outcomes
    assert (await do(desk)).page.url == SHOP


async def test_what_is_no_action_is_refused(desk: DeskClient) -> None:
    with pytest.raises(SandboxError, match="There is no action 'dance'"):
        await do(desk, {"type": "dance"})
    with pytest.raises(SandboxError, match="25 actions at most"):
        await do(desk, *[{"type": "screenshot"}] * 26)


async def test_questions_of_a_page_are_answered_by_keys(desk: DeskClient) -> None:
    asked = await do(desk, navigate(f"{SHOP}ask"), click(50, 50))
    assert asked.page.dialog == DeskDialog("prompt", "How many?", "1")
    assert asked.picture is not None
    refused = await do(desk, click(50, 50))
    assert "waits for an answer" in refused.actions[0].error
    assert (await do(desk, type_text("7"))).page.title == "7"
    answers = {"ENTER": "yes", "ESC": "no"}
    for key, title in answers.items():
        result = await do(desk, click(150, 50), press(key))
        assert (result.page.title, result.page.dialog) == (title, None)


async def test_an_alert_is_accepted_and_told(desk: DeskClient) -> None:
    result = await do(desk, navigate(f"{SHOP}ask"), click(250, 50))
    assert (result.page.title, result.page.dialog) == ("after", None)
    assert result.page.notes == ("The page said in an alert: 'Hello'.",)


async def test_a_new_tab_is_shown_and_told(desk: DeskClient) -> None:
    opened = await do(desk, navigate(f"{SHOP}links"), click(50, 25))
    assert opened.page.notes == ("A new tab was opened, number 2, and is shown.",)
    assert opened.page.tabs == (DeskTab(1, f"{SHOP}links", "Links", False), DeskTab(2, SHOP, "Shop", True))
    assert (await do(desk, press("CTRL", "TAB"))).page.title == "Links"
    assert (await do(desk, press("CTRL", "2"))).page.title == "Shop"
    closed = await do(desk, press("CTRL", "W"))
    assert [tab.number for tab in closed.page.tabs] == [1]


async def test_keys_do_what_they_do_in_a_window(desk: DeskClient) -> None:
    result = await do(desk, press("CTRL", "L"), type_text("http://shop.example/links\n"))
    assert result.page.title == "Links"
    assert (await do(desk, press("ALT", "LEFT"))).page.title == "Shop"
    assert (await do(desk, press("ALT", "RIGHT"))).page.title == "Links"
    assert (await do(desk, press("F5"))).actions == (DONE,)
    refused = await do(desk, press("CTRL", "L"), type_text("shop.example/none"), press("ENTER"))
    assert "https://shop.example/none cannot be opened" in refused.actions[-1].error


async def test_text_arrives_exactly(desk: DeskClient) -> None:
    text = "é 価格 \N{GRINNING FACE}\n" + "x" * 10_000
    result = await do(desk, navigate(f"{SHOP}keys"), click(100, 100), type_text(text), has_tree=True)
    assert result.page.title == str(len(text.encode("utf-16-le")) // 2)
    assert (await do(desk, press("CTRL", "A"), type_text("short A!"))).actions == (DONE, DONE)
    while (await do(desk)).page.title != "8":  # The browser hears of a title when it has the time.
        await asyncio.sleep(0.05)


@pytest.mark.skipif(missing_fonts() != "", reason=missing_fonts())
async def test_chinese_japanese_korean_and_emoji_are_drawn_as_glyphs(desk: DeskClient) -> None:
    assert (await do(desk, navigate(f"{SHOP}glyphs"))).page.title == GLYPHS


async def test_mouse_actions_reach_the_page_with_held_keys(desk: DeskClient) -> None:
    drag = {"type": "drag", "path": [{"x": 10, "y": 10}, {"x": 60, "y": 10}], "keys": ["SHIFT"]}
    await do(desk, navigate(f"{SHOP}mouse"), drag, click(30, 40, button="right"), {"type": "double_click", "x": 5, "y": 6})
    seen = (await do(desk, press("q"))).page.title.split("; ")
    assert seen[:2] == ["mousedown 10 10 0 true", "mouseup 60 10 0 true"]
    assert "contextmenu 30 40 2 false" in seen
    assert seen[-1] == "dblclick 5 6 0 false"
    scrolled = await do(desk, {"type": "scroll", "x": 100, "y": 100, "scroll_x": 0, "scroll_y": 300}, {"type": "wait", "ms": 200})
    assert scrolled.page.title == "300"


async def test_elements_have_numbers_that_hold_until_the_page_changes(desk: DeskClient, server: ShopServer) -> None:
    shown = await do(desk, has_tree=True)
    assert shown.tree is not None
    button, search = shown.tree
    assert (button.role, button.name, button.x, button.y) == ("button", "Add to cart", 100, 50)
    assert (search.role, search.name, search.value) == ("textbox", "Search", "")
    assert shown.text == "Add to cart\nWelcome to the shop"
    filled = await do(
        desk, {"type": "click", "ref": button.ref}, {"type": "click", "ref": search.ref}, type_text("figs"), has_tree=True
    )
    assert server.count == 1
    assert filled.tree is not None
    assert filled.tree[1].ref == search.ref
    assert (filled.tree[1].value, filled.tree[1].states) == ("figs", ("focused",))
    stale = await do(desk, press("F5"), {"type": "click", "ref": button.ref})
    assert "hold until the page changes" in stale.actions[-1].error


async def test_a_download_lands_in_the_workspace(desk: DeskClient, desk_server: ServerProcess) -> None:
    result = await do(desk, navigate(f"{SHOP}links"), click(50, 75))
    path = f"{desk_server.workspace}/downloads/report 1.csv"
    assert result.page.downloads == (DeskDownload(f"{SHOP}file", path, 4, ""),)
    assert Path(path).read_text() == "a,b\n"
    again = await do(desk, navigate(f"{SHOP}file"))
    assert [each.path for each in again.page.downloads] == [path.replace("report 1", "report 1-2")]
    assert again.actions == (DONE,)


async def test_a_refused_host_is_told_with_the_reason(desk: DeskClient) -> None:
    by_link = await do(desk, navigate(f"{SHOP}links"), click(50, 125))
    reason = "refused.example is not among the allowed domains."
    assert by_link.page.refused == (DeskRefusal("refused.example", reason),)
    (outcome,) = (await do(desk, navigate("https://refused.example/"))).actions
    assert outcome.error.endswith(reason)


async def test_a_server_of_the_container_is_reached_and_no_other(desk: DeskClient, client: ExecClient, server: ShopServer) -> None:
    port = await page_server(client)
    assert (await do(desk, navigate(f"localhost:{port}"))).page.title == "Mine"
    assert (await do(desk, navigate(f"http://127.0.0.1:{port}/"))).page.title == "Mine"
    others = await do(desk, navigate(f"http://127.0.0.1:{server.port}/"))
    assert others.page.refused[0].reason == f"No server that a command has started listens on port {server.port}."
    foreign = await do(desk, navigate(f"{SHOP}foreign?{port}"), {"type": "wait", "ms": 300})
    assert foreign.page.title == "none of it"
    assert foreign.page.refused[0].reason == f"A page of another site may not reach the container's own server 'localhost:{port}'."


async def test_a_page_that_computes_for_ever_is_left(desk: DeskClient) -> None:
    stuck = await do(desk, navigate(f"{SHOP}busy"), click(50, 50))
    assert stuck.actions[-1] == ActionOutcome(False, "The page does not answer. 'navigate' opens another one.")
    assert (await do(desk, navigate(SHOP))).page.title == "Shop"


async def test_pictures_are_jpeg_where_that_is_asked_for(desk: DeskClient) -> None:
    result = await desk.run(new_id(), [], picture=PictureFormat("jpeg", 60))
    assert result.picture is not None
    assert (result.picture[:3], result.media_type) == (b"\xff\xd8\xff", "image/jpeg")


async def test_a_browser_that_dies_in_a_batch_is_lost_and_can_be_started_anew(
    desk: DeskClient, desk_server: ServerProcess, server: ShopServer
) -> None:
    before = await desk.start()
    batch = new_id()
    running = asyncio.create_task(desk.run(batch, [click(50, 50), {"type": "wait"}, click(50, 50)]))
    while server.count == 0:
        await asyncio.sleep(0.01)
    browsers = [pid for pid, line in descendants(desk_server.pid).items() if "--remote-debugging-pipe" in line and "--type" not in line]
    for pid in browsers:
        os.kill(pid, signal.SIGKILL)
    result = await running
    assert result.is_lost
    assert result.actions[-1].error == "The browser ended in the middle of this action, which may have happened."
    assert (await do(desk, click(50, 50))).is_lost
    assert (await desk.start()).desk_id != before.desk_id
    assert await desk.attach(batch) == result
    assert server.count == 1


async def test_a_browser_that_can_start_no_page_any_more_is_ended_and_started_anew(
    desk: DeskClient, desk_server: ServerProcess
) -> None:
    """As a page leaves it that takes all memory: without its zygotes a browser runs, and each page that it opens crashes."""
    before = await desk.start()
    await do(desk, navigate(SHOP))
    for pid in [pid for pid, line in descendants(desk_server.pid).items() if "--type=zygote" in line]:
        os.kill(pid, signal.SIGKILL)
    # The last tab that is closed gives way to an empty page, which needs a process. The browser may have one to spare.
    assert (await do(desk, *[press("CTRL", "W")] * 4)).is_lost
    assert (await desk.start()).desk_id != before.desk_id
    assert (await do(desk, navigate(SHOP))).page.title == "Shop"


async def test_tabs_are_closed_one_behind_the_other_also_those_that_close_themselves(desk: DeskClient) -> None:
    opened = await do(desk, *[press("CTRL", "T")] * 4, navigate(f"{SHOP}closing"))
    assert len(opened.page.tabs) == 5
    closed = await do(desk, click(50, 50), *[press("CTRL", "W")] * 6, navigate(SHOP))
    assert ([each.error for each in closed.actions if not each.ok], len(closed.page.tabs)) == ([], 1)


async def test_a_stopped_desk_leaves_no_process_and_no_profile(desk: DeskClient, desk_server: ServerProcess) -> None:
    await desk.stop()
    assert [line for line in descendants(desk_server.pid).values() if "chromium" in line] == []
    assert os.listdir(desk_server.workspace.parent / "desk") == []
    await desk.stop()


async def test_a_sandbox_without_a_browser_says_so(tmp_path: Path) -> None:
    with exec_server(tmp_path) as process:
        async with ExecClient(process.handle) as client:
            await until_up(client)
            with pytest.raises(DeskUnavailable, match="There is no browser here"):
                await DeskClient(client).start()
