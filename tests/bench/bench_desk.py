"""The browser of a hosted computer in figures, beside Playwright with the same browser and page, one measurement of each in turn.

    python -m tests.bench.bench_desk [--first 10] [--clicks 50]

A part of ``make bench-sandbox``. For the desk the page lies on a server of the container's own, for Playwright on one of this machine.
"""

import argparse
import asyncio
import http.server
import os
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from moorage import limits
from moorage.local.desks import browser_here
from moorage.sandbox.desk_client import DeskClient, PictureFormat
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec
from playwright.async_api import Browser, Page, async_playwright

from tests.bench.bench_exec import Row, percentiles, proportional_mib
from tests.processes import descendants
from tests.unit.sandbox.support import TOKEN, launcher_process, new_id, run

PICTURE: Final = PictureFormat("jpeg", limits.COMPUTER_QUALITY)
PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Shop</title><style>body { font: 16px sans-serif; background: "
    "linear-gradient(#fff, #cde) }</style><button style='position:absolute;left:0;top:0;width:200px;height:100px' "
    "onclick='document.title = ++n'>Add</button><script>let n = 0</script>"
    + "".join(f"<p style='margin-left:240px'>Line {number} of a page with some words to draw.</p>" for number in range(40))
)
SERVE: Final = "setsid -f python3 -m http.server 8000 >/dev/null 2>&1; until curl -sf localhost:8000 >/dev/null; do sleep 0.05; done"


async def desk_rows(first: int, clicks: int) -> list[Row]:
    if browser_here() is None or shutil.which("chromium") is None:
        return [("a hosted computer", "left out: Chromium is not installed")]
    firsts: dict[str, list[float]] = {"desk": [], "playwright": []}
    rounds: dict[str, list[float]] = {"desk": [], "playwright": []}
    memory = {"desk": 0.0, "playwright": 0.0}
    with tempfile.TemporaryDirectory(dir="/tmp") as name, launcher_process(Path(name)) as (process, socket), served(Path(name)) as url:
        async with LauncherProvisioner(str(socket)) as provisioner, async_playwright() as driver:
            for number in range(first):
                async with warm(provisioner) as handle:
                    began = time.perf_counter()
                    async with ExecClient(await provisioner.desk(handle)) as client:
                        desk = DeskClient(client)
                        await desk.start()
                        await desk.run(new_id(), [{"type": "navigate", "url": "http://localhost:8000/"}], picture=PICTURE)
                        firsts["desk"].append(time.perf_counter() - began)
                        if number == first - 1:
                            memory["desk"] = browser_mib(process.pid)
                            began = time.perf_counter()
                            browser, page = await opened(driver, url)
                            firsts["playwright"].append(time.perf_counter() - began)
                            memory["playwright"] = browser_mib(driver_pid())
                            await in_turn(desk, page, clicks, rounds)
                            await browser.close()
                            break
                began = time.perf_counter()
                browser, _ = await opened(driver, url)
                firsts["playwright"].append(time.perf_counter() - began)
                await browser.close()
    return [
        ("first picture of a page in a warm container", percentiles(firsts["desk"])),
        ("the same by Playwright, without a container", percentiles(firsts["playwright"])),
        ("click with its picture", percentiles(rounds["desk"])),
        ("the same by Playwright", percentiles(rounds["playwright"])),
        ("memory of the browser, and of Playwright's (PSS)", f"{memory['desk']:.0f} MiB, {memory['playwright']:.0f} MiB"),
    ]


async def in_turn(desk: DeskClient, page: Page, clicks: int, rounds: dict[str, list[float]]) -> None:
    for _ in range(clicks):
        began = time.perf_counter()
        result = await desk.run(new_id(), [{"type": "click", "button": "left", "x": 100, "y": 50}], picture=PICTURE)
        rounds["desk"].append(time.perf_counter() - began)
        assert result.picture is not None
        began = time.perf_counter()
        await page.mouse.click(100, 50)
        await page.screenshot(type="jpeg", quality=PICTURE.quality)
        rounds["playwright"].append(time.perf_counter() - began)
    assert await page.title() == str(clicks)
    assert result.page.title == str(clicks)


async def opened(driver: Any, url: str) -> tuple[Browser, Page]:
    """As the desk does it: the whole browser without a window, of the same size, up to the first picture."""
    browser: Browser = await driver.chromium.launch(
        executable_path=shutil.which("chromium"), args=["--no-sandbox", "--headless=new"], ignore_default_args=["--headless"]
    )
    page = await browser.new_page(viewport={"width": limits.COMPUTER_WIDTH_DEFAULT, "height": limits.COMPUTER_HEIGHT_DEFAULT})
    await page.goto(url)
    await page.screenshot(type="jpeg", quality=PICTURE.quality)
    return browser, page


@asynccontextmanager
async def warm(provisioner: LauncherProvisioner) -> AsyncIterator[Any]:
    """A container that serves the page."""
    handle = await provisioner.start(SandboxSpec("bench", new_id(), TOKEN))
    async with ExecClient(handle) as client:
        await run(client, f"cat > index.html <<'END'\n{PAGE}\nEND\n{SERVE}")
        yield handle
    await provisioner.stop(handle.sandbox_id)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    site = folder / "site"
    site.mkdir()
    (site / "index.html").write_text(PAGE)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(site))

        def log_message(self, format: str, *arguments: Any) -> None:
            """It is not asked for."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def browser_mib(below: int) -> float:
    """Of all processes of the browsers below a process."""
    return sum(proportional_mib(pid) for pid, line in descendants(below).items() if "chromium" in line and "python" not in line)


def driver_pid() -> int:
    """Of Playwright's own process."""
    return next(pid for pid, line in descendants(os.getpid()).items() if "playwright" in line and "run-driver" in line)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the browser of a hosted computer.")
    parser.add_argument("--first", type=int, default=10)
    parser.add_argument("--clicks", type=int, default=50)
    options = parser.parse_args(arguments)
    for name, value in asyncio.run(desk_rows(options.first, options.clicks)):
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
