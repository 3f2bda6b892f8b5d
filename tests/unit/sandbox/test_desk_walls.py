"""A browser beside a sandbox's commands: what they can reach of it, and what it can reach of them and of the world."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from moorage.errors import SandboxGone
from moorage.sandbox.desk_client import DeskClient, DeskDownload
from moorage.sandbox.exec_client import ExecClient

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.desk_support import (
    PASSWORD,
    USERNAME,
    Beside,
    click,
    credential,
    do,
    navigate,
    needs_browser,
    page_server,
    press,
    sandbox_with_desk,
    shop,
    type_text,
)
from tests.unit.sandbox.support import exec_server, run

pytestmark = needs_browser
SHOP = "http://shop.example/"
CANARY = "correct-horse-battery"
PAGES = {
    "shop.example/file": "attachment:report.csv:a,b\n",
}
ESCAPE = """<title>Escape</title><body style="height: 500px"><a href="{0}">out</a>
    <script>onclick = () => {{ document.links[0].click(); open({0!r}); location = {0!r} }}</script>"""
FOREIGN_SCHEMES = {
    "a file": "file:///etc/passwd",
    "the browser's version": "chrome://version",
    "the browser's settings": "chrome://settings",
    "an untrusted part of the browser": "chrome-untrusted://print/",
    "the developer tools": "devtools://devtools/bundled/inspector.html",
    "a source": "view-source:http://shop.example/",
    "an old name of the browser's pages": "about:version",
}
SAFE_ADDRESSES = ("http://shop.example/", "about:blank")

# Finds browsers in sight, opens the pipe of one to write into it, and looks for what was typed in their memory. A canary in two halves,
# for it must not find itself.
PROBE = """python3 - <<'PY'
import glob, json, os, socket
found = set()
canary = b"correct-horse" + b"-battery"
for directory in glob.glob("/proc/[0-9]*"):
    try:
        command = open(f"{directory}/cmdline", "rb").read()
        if b"--remote-debugging" + b"-pipe" not in command:
            continue
        found.add("process")
        os.close(os.open(f"{directory}/fd/3", os.O_WRONLY | os.O_NONBLOCK))
        found.add("pipe")
    except OSError:
        pass
    try:
        with open(f"{directory}/maps") as maps, open(f"{directory}/mem", "rb", 0) as memory:
            for line in maps:
                area, rights = line.split()[:2]
                first, last = (int(part, 16) for part in area.split("-"))
                if rights.startswith("rw") and last - first < 1 << 28:
                    memory.seek(first)
                    try:
                        if canary in memory.read(last - first):
                            found.add("memory")
                    except OSError:
                        pass
    except (OSError, ValueError, OverflowError):
        pass
for name in ("tcp", "tcp6"):
    for line in list(open(f"/proc/net/{name}"))[1:]:
        local, state = line.split()[1], line.split()[3]
        if state != "0A":
            continue
        try:  # A proxy of the desk's has words of its own for it; developer tools tell where their sockets are.
            with socket.create_connection(("127.0.0.1", int(local.split(":")[1], 16)), 2) as connection:
                connection.sendall(b"GET http://localhost:1/json/version HTTP/1.0\\r\\n\\r\\n")
                answer = connection.makefile("rb").read(10_000)
                found |= {"port"} if b"port 1." in answer or b"webSocketDebuggerUrl" in answer else set()
        except OSError:
            pass
for line in open("/proc/net/unix"):
    path = line.split()[-1]
    if "Singleton" in path or "chromium" in path.lower() or "/desk" in path:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path.replace("@", "\\0", 1))
                found.add("socket")
        except OSError:
            pass
for root in ("/var", "/run", "/tmp", "/home", "/mnt", "/dev"):
    for directory, names, files in os.walk(root):
        found |= {"profile" for name in names if name in ("Default", "desk") or name.startswith("desk-")}
        found |= {"socket" for name in files if name.endswith(".sock") and directory != "/run/egress"}
print(json.dumps(sorted(found)))
PY"""


@pytest.fixture(scope="module", params=["launcher_socket", "ordinary_socket"], ids=["as root", "as an ordinary user"])
async def beside(request: pytest.FixtureRequest) -> AsyncIterator[Beside]:
    async with sandbox_with_desk(request.getfixturevalue(request.param), PAGES) as beside:
        await beside.desk.start(start_url=SHOP)
        yield beside


async def test_no_command_reaches_the_browser(beside: Beside) -> None:
    typed = await do(beside.desk, navigate(SHOP), click(60, 130), type_text(CANARY), has_tree=True)
    assert typed.tree is not None
    assert typed.tree[-1].value == CANARY
    assert (await run(beside.client, PROBE, timeout_ms=60_000)).text == "[]\n"


async def test_the_probe_finds_a_browser_without_walls() -> None:
    """So that what it does not find says something."""
    # A browser has a socket in its profile, whose path may have 107 characters.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        async with shop() as server:
            upstream = {"proxy": f"127.0.0.1:{server.port}", "username": USERNAME, "password": PASSWORD}
            with exec_server(Path(name), desk={"directory": f"{name}/desk", "upstream": upstream}) as process:
                async with ExecClient(process.handle) as client:
                    await until_up(client)
                    desk = DeskClient(client)
                    await desk.start(start_url=SHOP)
                    await do(desk, click(60, 130), type_text(CANARY))
                    found = (await run(client, PROBE, timeout_ms=60_000)).stdout
                    await desk.stop()
    assert {"process", "pipe", "memory", "port", "socket"} <= set(json.loads(found))


async def test_pages_come_by_the_containers_way_out(beside: Beside) -> None:
    beside.shop.asked.clear()
    beside.shop.credentials.clear()
    result = await do(beside.desk, navigate(SHOP), click(50, 50), {"type": "wait", "ms": 200})
    assert result.page.title == "Shop"
    assert beside.shop.asked[-1] == "POST shop.example/count"
    assert beside.shop.credentials == {credential()}
    refused = await do(beside.desk, navigate("https://refused.example/"))
    assert refused.actions[0].error.endswith("refused.example is not among the allowed domains.")


async def test_a_browser_shows_what_a_command_serves(beside: Beside) -> None:
    port = await page_server(beside.client)
    assert (await do(beside.desk, navigate(f"localhost:{port}"))).page.title == "Mine"
    none = await do(beside.desk, navigate("localhost:3128"))
    assert none.page.refused[0].reason == "No server that a command has started listens on port 3128."


async def test_files_go_between_the_browser_and_the_workspace(beside: Beside) -> None:
    saved = await do(beside.desk, navigate(f"{SHOP}file"))
    assert saved.page.downloads == (DeskDownload(f"{SHOP}file", "/mnt/data/downloads/report.csv", 4, ""),)
    assert (await run(beside.client, "cat downloads/report.csv; rm -r downloads")).stdout == "a,b\n"


@pytest.mark.parametrize("what", FOREIGN_SCHEMES)
async def test_no_page_opens(what: str, beside: Beside) -> None:
    """By a link, a window, or by moving there; and no model by naming it."""
    url = FOREIGN_SCHEMES[what]
    beside.shop.pages["shop.example/escape"] = ESCAPE.format(url)
    result = await do(beside.desk, navigate(f"{SHOP}escape"), click(50, 200), {"type": "wait", "ms": 200}, press("F5"))
    shown = [tab.url for tab in result.page.tabs]
    assert [url for url in shown if not url.startswith(SAFE_ADDRESSES)] == []
    (outcome,) = (await do(beside.desk, navigate(url))).actions
    assert "is not opened here" in outcome.error or "cannot be opened" in outcome.error
    await do(beside.desk, *[press("CTRL", "W")] * 3)


async def test_a_browser_has_another_user_and_no_network(launcher_socket: Path) -> None:
    async with sandbox_with_desk(launcher_socket, PAGES) as beside:
        await beside.desk.start()
        (commands,) = [each.pid for each in await beside.provisioner.running() if each.sandbox_id == beside.handle.sandbox_id]
        browsers = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_browser_of(pid, commands)]
        assert browsers
        for pid in browsers:
            interfaces = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
            assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
            for kind in ("pid", "mnt", "net", "user", "ipc", "uts"):
                own = os.readlink(f"/proc/{pid}/ns/{kind}")
                assert own not in {os.readlink(f"/proc/{other}/ns/{kind}") for other in (commands, os.getpid())}
            if os.geteuid() == 0:
                assert Path(f"/proc/{pid}").stat().st_uid != Path(f"/proc/{commands}").stat().st_uid


def _is_browser_of(pid: int, commands: int) -> bool:
    """Whether it is a browser that the launcher of this sandbox started."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"--remote-debugging-pipe" in line and _launcher_of(pid) == _launcher_of(commands)
    except (FileNotFoundError, ProcessLookupError):
        return False


def _launcher_of(pid: int) -> int:
    while b"moorage.local.launcher" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        if pid <= 1:
            return pid
    return pid


async def test_a_desk_ends_with_its_sandbox(either_socket: Path) -> None:
    async with sandbox_with_desk(either_socket, PAGES) as beside:
        await beside.desk.start()
        await beside.provisioner.stop(beside.handle.sandbox_id)
        with pytest.raises(SandboxGone):
            await beside.provisioner.desk(beside.handle)
        with pytest.raises(SandboxGone):
            await do(beside.desk)


async def test_a_sandbox_has_one_desk_which_starts_anew_after_its_end(launcher_socket: Path) -> None:
    async with sandbox_with_desk(launcher_socket, PAGES) as beside:
        one, other = await asyncio.gather(beside.provisioner.desk(beside.handle), beside.provisioner.desk(beside.handle))
        assert one == other
        before = await beside.desk.start()
        await beside.desk.stop()
        assert (await beside.desk.start()).desk_id != before.desk_id
