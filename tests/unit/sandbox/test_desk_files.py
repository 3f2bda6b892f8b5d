"""A page that asks for files gets copies of those whose paths are typed, as in the file dialog of a window."""

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from moorage.sandbox.desk_client import ActionOutcome, BatchResult, DeskClient, DeskDialog
from moorage.sandbox.exec_client import ExecClient

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.desk_support import PASSWORD, USERNAME, click, do, navigate, needs_browser, press, shop, type_text
from tests.unit.sandbox.support import ServerProcess, exec_server, new_id, run

pytestmark = needs_browser
SITE = "http://shop.example/"
DONE = ActionOutcome(True)
INPUT = """<title>-</title><style>* { position: absolute; left: 0; width: 200px; height: 50px; margin: 0 }</style>
<input id=files type=file ATTRIBUTES style="top:0"><input id=text style="top:60px"><p style="top:120px">Elsewhere</p><script>
let times = 0
files.onchange = async () => {
  times += 1
  const read = await Promise.all([...files.files].map(async (file) => `${file.name}=${await file.text()}`))
  document.title = `${times}: ${read.join()}`
}
files.oncancel = () => { document.title = 'cancelled' }
</script>"""
PAGES = {
    "shop.example/one": INPUT.replace("ATTRIBUTES", ""),
    "shop.example/many": INPUT.replace("ATTRIBUTES", "multiple"),
    "shop.example/asking": INPUT.replace("ATTRIBUTES", "oninput=\"document.title = confirm('Sure?')\""),
    "shop.example/late": INPUT.replace("ATTRIBUTES", "").replace("files.onchange", "onkeydown"),
    "shop.example/folder": INPUT.replace("ATTRIBUTES", "webkitdirectory"),
    "shop.example/framed": """<title>-</title><body style="margin:0"><iframe src="/one" style="border:0"></iframe><script>
        const frame = document.querySelector('iframe')
        onwheel = () => location.search === '?removed' ? frame.remove() : frame.contentWindow.location.assign('/many')</script>""",
}
CHOOSE = click(100, 25)
ELSEWHERE = click(100, 140)
READ: dict[str, Any] = {"type": "wait", "ms": 200}
ONE = DeskDialog(
    "file", "The page asks for a file: type its path, below /mnt/data or /workspace, and keypress ENTER. ESC gives none.", ""
)
MANY = DeskDialog(
    "files",
    "The page asks for files: type their paths, one a line, below /mnt/data or /workspace, and keypress ENTER. ESC gives none.",
    "",
)


@dataclass(frozen=True)
class Browser:
    desk: DeskClient
    workspace: Path

    async def do(self, *actions: dict[str, Any]) -> BatchResult:
        return await do(self.desk, *actions)


@pytest.fixture(scope="module")
async def desk_server() -> AsyncIterator[ServerProcess]:
    async with shop(PAGES) as server:
        upstream = {"proxy": f"127.0.0.1:{server.port}", "username": USERNAME, "password": PASSWORD}
        with ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True))
            yield stack.enter_context(exec_server(Path(name), desk={"directory": f"{name}/desk", "upstream": upstream}))


@pytest.fixture
async def browser(desk_server: ServerProcess) -> AsyncIterator[Browser]:
    """Beside a container with two files, a folder, and two links out of it."""
    async with ExecClient(desk_server.handle) as client:
        await until_up(client)
        files = "echo -n one > a.txt; echo -n two > b.txt; mkdir -p folder; ln -sf /etc/passwd link; ln -sfn /etc way"
        await run(client, files)
        desk = DeskClient(client)
        await desk.start()
        yield Browser(desk, desk_server.workspace)


async def test_a_page_gets_the_file_whose_path_is_typed_and_entered(browser: Browser) -> None:
    asked = await browser.do(navigate(f"{SITE}one"), CHOOSE)
    assert (asked.page.dialog, asked.page.notes) == (ONE, ())
    typed = await browser.do(type_text(f"{browser.workspace}/a.txt"))
    assert (typed.page.dialog, typed.page.title) == (ONE, "-")
    given = await browser.do(press("ENTER"), READ)
    assert (given.actions, given.page.dialog, given.page.title) == ((DONE, DONE), None, "1: a.txt=one")


@pytest.mark.parametrize(
    "actions",
    {
        "a text that ends with a line's end": [type_text("/workspace/a.txt\n")],
        "a path in the workspace": [type_text("a.txt"), press("ENTER")],
        "keys": [*[press(key) for key in "a.tyt"], press("BACKSPACE"), press("BACKSPACE"), type_text("xt"), press("Return")],
        "the location bar of a file dialog": [type_text("b"), press("CTRL", "L"), type_text("a.txt"), press("ENTER")],
        "what the loop makes of that bar and a path": [navigate("/workspace/a.txt")],
    }.values(),
)
async def test_the_ways_to_name_a_file(browser: Browser, actions: list[dict[str, Any]]) -> None:
    given = await browser.do(navigate(f"{SITE}one"), CHOOSE, *actions, READ)
    assert ({*given.actions}, given.page.dialog, given.page.title) == ({DONE}, None, "1: a.txt=one")


async def test_a_page_that_takes_several_gets_one_a_line(browser: Browser) -> None:
    asked = await browser.do(navigate(f"{SITE}many"), CHOOSE)
    assert asked.page.dialog == MANY
    given = await browser.do(type_text(f"a.txt\n{browser.workspace}/b.txt"), press("ENTER"), READ)
    assert given.page.title == "1: a.txt=one,b.txt=two"


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ("link", "There is no regular file 'link'."),
        ("way/passwd", "There is no regular file 'way/passwd'."),
        ("folder", "There is no regular file 'folder'."),
        ("missing", "There is no regular file 'missing'."),
        ("/etc/passwd", "'/etc/passwd' is not a path below {workspace}."),
        ("../exec.sock", "'../exec.sock' is not a path below {workspace}."),
        ("/workspace/../etc/passwd", "'/workspace/../etc/passwd' is not a path below {workspace}."),
        ("a\0.txt", "'a\0.txt' cannot be read."),
        ("x" * 300, f"'{'x' * 300}' cannot be read."),
        ("a.txt\n/etc/passwd", "'/etc/passwd' is not a path below {workspace}."),
        ("a.txt\n" * 10 + "b.txt", "10 files are given at once at most."),
    ],
)
async def test_what_is_no_file_of_the_container_is_refused_and_none_is_given(browser: Browser, paths: str, why: str) -> None:
    refused = await browser.do(navigate(f"{SITE}many"), CHOOSE, type_text(paths), press("ENTER"))
    error = f"The page got no file: {why.format(workspace=browser.workspace)}"
    assert (refused.actions[-1], refused.page.dialog) == (ActionOutcome(False, error), MANY)
    given = await browser.do(type_text("b.txt\n"), READ)
    assert given.page.title == "1: b.txt=two", "nothing came before it"


async def test_a_file_beyond_the_bound_is_refused_and_no_copy_stays(browser: Browser) -> None:
    (browser.workspace / "large").touch()
    os.truncate(browser.workspace / "large", (256 << 20) + 1)
    refused = await browser.do(navigate(f"{SITE}many"), CHOOSE, type_text("a.txt\nlarge\n"))
    assert refused.actions[-1] == ActionOutcome(False, "The page got no file: A file for a page has 256 MiB at most.")
    (uploads,) = (browser.workspace.parent / "desk").glob("*/uploads")
    assert list(uploads.rglob("large")) == []


async def test_a_page_that_takes_one_file_is_given_no_two(browser: Browser) -> None:
    refused = await browser.do(navigate(f"{SITE}one"), CHOOSE, type_text("a.txt\nb.txt\n"))
    assert refused.actions[-1] == ActionOutcome(False, "The page got no file: it takes one, and these are 2 paths.")
    for actions in ([press("ENTER")], [press("TAB")]):
        told = await browser.do(*actions)
        assert (told.actions, told.page.dialog, told.page.title) == ((ActionOutcome(False, ONE.message),), ONE, "-")


@pytest.mark.parametrize("dismissal", [press("ESC"), ELSEWHERE], ids=["ESC", "a click"])
async def test_a_dismissed_question_gives_none_and_keys_are_the_pages_again(browser: Browser, dismissal: dict[str, Any]) -> None:
    dismissed = await browser.do(navigate(f"{SITE}one"), CHOOSE, type_text("a.txt"), dismissal)
    assert ({*dismissed.actions}, dismissed.page.dialog, dismissed.page.title) == ({DONE}, None, "cancelled")
    after = await do(browser.desk, click(100, 85), type_text("a.txt"), press("ENTER"), READ, has_tree=True)
    assert after.tree is not None
    assert (after.page.title, [node.value for node in after.tree if node.role == "textbox"]) == ("cancelled", ["a.txt"])


async def test_another_address_dismisses_it(browser: Browser) -> None:
    left = await browser.do(navigate(f"{SITE}one"), CHOOSE, navigate(f"{SITE}many"))
    assert ({*left.actions}, left.page.dialog, left.page.url) == ({DONE}, None, f"{SITE}many")


async def test_a_batch_that_is_asked_for_twice_gives_its_file_once(browser: Browser) -> None:
    batch_id, actions = new_id(), [navigate(f"{SITE}one"), CHOOSE, type_text("a.txt\n"), READ]
    first = await browser.desk.run(batch_id, actions)
    assert await browser.desk.run(batch_id, actions) == first
    assert (await browser.do(READ)).page.title == "1: a.txt=one"


async def test_what_becomes_of_the_file_does_not_change_what_the_page_got(browser: Browser) -> None:
    await browser.do(navigate(f"{SITE}late"), CHOOSE, type_text("a.txt\n"))
    (browser.workspace / "a.txt").write_text("changed")
    assert (await browser.do(press("F2"), READ)).page.title == "1: a.txt=one"


async def test_a_question_behind_the_choice_is_asked(browser: Browser) -> None:
    asked = await browser.do(navigate(f"{SITE}asking"), CHOOSE, type_text("a.txt\n"))
    assert ({*asked.actions}, asked.page.dialog) == ({DONE}, DeskDialog("confirm", "Sure?", ""))
    assert (await browser.do(press("ENTER"), READ)).page.title == "1: a.txt=one"


async def test_a_person_gives_a_file_in_the_same_way(browser: Browser) -> None:
    await browser.do(navigate(f"{SITE}one"))
    await browser.desk.take("anna")
    assert await browser.desk.input("anna", 1, [CHOOSE, type_text("/workspace/a.txt"), press("ENTER")]) == (DONE, DONE, DONE)
    await browser.desk.give("anna")
    assert (await browser.do(READ)).page.title == "1: a.txt=one"


async def test_half_a_path_that_a_person_has_typed_is_not_the_models(browser: Browser) -> None:
    await browser.do(navigate(f"{SITE}one"), CHOOSE)
    await browser.desk.take("anna")
    assert await browser.desk.input("anna", 1, [type_text("/mnt/data/private")]) == (DONE,)
    await browser.desk.give("anna")
    told = await browser.do(press("ENTER"))
    assert (told.actions, told.page.dialog) == ((ActionOutcome(False, ONE.message),), ONE)


async def test_a_page_that_asks_for_a_folder_gets_none(browser: Browser) -> None:
    refused = await browser.do(navigate(f"{SITE}folder"), CHOOSE, type_text("folder\n"))
    assert refused.actions[-1] == ActionOutcome(False, "The page got no file: it asks for a folder, and no folder is given.")
    assert (refused.page.dialog, refused.page.title) == (ONE, "-")


@pytest.mark.parametrize("end", ["removed", "elsewhere"])
async def test_a_question_ends_with_its_frame(browser: Browser, end: str) -> None:
    asked = await browser.do(navigate(f"{SITE}framed?{end}"), CHOOSE)
    assert asked.page.dialog == ONE
    ended = await browser.do({"type": "scroll", "x": 100, "y": 400, "scroll_y": 100})
    assert ended.page.dialog is None
