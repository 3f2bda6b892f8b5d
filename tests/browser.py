"""A real browser for the tests of the console: Debian's Chromium, driven by Playwright. Without one, they are skipped and say so.

Tests take Chromium without its windows where it is installed, which draws pages alike: the whole one makes a toolbar, which is a page
of its own, for each context. What a user sees is measured, and its pictures are taken, in the whole one.
"""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Playwright, sync_playwright

from tests.stack import ROOT

WAIT_MS = 60_000
"""For what comes sooner or later: a busy machine is no reason to fail."""
AXE = ROOT / ".build" / "console" / "axe.min.js"
WHOLE = "chromium"
WINDOWLESS = "chromium-headless-shell"
_SIZE = {"width": 1280, "height": 800}


def skip_without(*programs: str) -> str:
    """Why there can be no test of the console here, with one of these programs; empty if there can."""
    if not any(map(shutil.which, programs)):
        return f"{programs[-1]} is not installed, and make may not install it."
    if not AXE.exists():
        return "the console's libraries are not here: 'make setup' fetches them."
    return ""


@contextmanager
def chromium(*programs: str) -> Iterator[Browser]:
    """The first of these programs that is installed; without any, those that tests take."""
    programs = programs or (WINDOWLESS, WHOLE)
    if reason := skip_without(*programs):
        pytest.skip(reason)
    program = next(filter(None, map(shutil.which, programs)))
    driver: Playwright
    with sync_playwright() as driver:
        # Root has no namespaces of its own to build Chromium's sandbox of.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Console:
    """One tab, and what went wrong in it."""

    page: Page
    base: str
    """Address of the console; ends with a slash."""
    said: list[str] = field(default_factory=list)
    """Errors and warnings of the page."""

    @classmethod
    def opened(cls, context: BrowserContext, base: str) -> "Console":
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        console = cls(page, base)
        page.on("console", console._hear)
        page.on("pageerror", lambda error: console.said.append(str(error)))
        page.on("dialog", lambda dialog: console.said.append(f"a dialog: {dialog.message}"))
        page.add_init_script("addEventListener('unhandledrejection', (event) => console.error('unhandled', event.reason?.stack))")
        return console

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.said.append(f"{message.text} ({message.location.get('url', '')})")

    def takes_back(self, status: int) -> None:
        """Wait until the browser has told of an answer of ``status``, and forget that: it may tell after the page has shown it."""
        told = f"Failed to load resource: the server responded with a status of {status}"
        deadline = time.monotonic() + WAIT_MS / 1000
        while not (found := [each for each in self.said if each.startswith(told)]):
            assert time.monotonic() < deadline, self.said
            self.page.wait_for_timeout(20)
        self.said.remove(found[0])

    def enter(self, key: str, where: str = "#/runs") -> "Console":
        """With a key, as if it had been pasted."""
        self.page.goto(self.base)
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Open").click()
        self.page.get_by_role("navigation", name="Pages").wait_for()
        return self.go(where)

    def go(self, where: str) -> "Console":
        self.page.evaluate("(where) => { location.hash = where }", where)
        self.page.locator("main h1").first.wait_for(state="attached")
        return self

    def barriers(self) -> list[str]:
        """What axe finds. It comes in by the driver, past the page's own policy, which lets no script in."""
        if not self.page.evaluate("() => Boolean(window.axe)"):
            self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        nodes = [(each["id"], node) for each in found["violations"] for node in each["nodes"]]
        return [f"{rule}: {node['html'][:160]} {node['failureSummary'][:200]}" for rule, node in nodes]

    def nodes(self) -> int:
        return int(self.page.evaluate("() => document.querySelectorAll('*').length"))

    def heap_bytes(self) -> int:
        session = self.page.context.new_cdp_session(self.page)
        session.send("HeapProfiler.collectGarbage")
        used = session.send("Runtime.getHeapUsage")["usedSize"]
        session.detach()
        return int(used)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def module(self, name: str) -> str:
        """The address of one of the console's own modules."""
        assets = str(self.page.locator("script[type=module]").get_attribute("src")).rsplit("/", 1)[0]
        return f"{self.base}{assets}/{name}"

    @property
    def transcript(self) -> Locator:
        return self.page.get_by_role("region", name="Transcript")


def context_of(browser: Browser, **options: Any) -> BrowserContext:
    return browser.new_context(viewport=options.pop("viewport", _SIZE), reduced_motion="reduce", **options)


def page_of(entries: list[dict[str, Any]]) -> str:
    """A list of the API, whole."""
    return json.dumps({"object": "list", "data": entries, "first_id": None, "last_id": None, "has_more": False})


def long_log(deltas: int) -> list[dict[str, Any]]:
    """A response of a hundred rounds, each with a command that prints much."""
    response = {"id": "resp_long", "object": "response", "status": "in_progress", "model": "demo", "output": [], "created_at": 1}
    events: list[dict[str, Any]] = [{"type": f"response.{name}", "response": response} for name in ("created", "in_progress")]
    each = deltas // 100
    for number in range(100):
        call = {"id": f"sh_{number}", "type": "shell_call", "call_id": f"c{number}", "action": {"commands": ["seq 1 200"]}}
        output: dict[str, Any] = {"id": f"sho_{number}", "type": "shell_call_output", "call_id": f"c{number}", "output": []}
        place, done = {"output_index": 2 * number + 1, "command_index": 0}, {"type": "exit", "exit_code": 0}
        text = "".join(f"line {line} of round {number}\n" for line in range(each))
        printed = {"stdout": text, "stderr": "", "outcome": done}
        events += [
            {"type": "response.output_item.added", "output_index": 2 * number, "item": call},
            {"type": "response.output_item.done", "output_index": 2 * number, "item": call},
            {"type": "response.output_item.added", "output_index": 2 * number + 1, "item": output},
            *(
                {"type": "response.shell_call_output_content.delta", "delta": {"stdout": f"line {line} of round {number}\n"}, **place}
                for line in range(each)
            ),
            {"type": "response.shell_call_output_content.done", "output": [printed], **place},
            {"type": "response.output_item.done", "output_index": 2 * number + 1, "item": {**output, "output": [printed]}},
        ]
    events.append({"type": "response.completed", "response": {**response, "status": "completed"}})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]
