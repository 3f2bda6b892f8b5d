"""No button of the console is dead: each is pressed, and does something that one sees."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.browser import WAIT_MS, Console, context_of
from tests.scenarios.test_console_pages import PAGES, addresses, furnish, masked
from tests.stack import Stack

expect.set_options(timeout=WAIT_MS)

REFUSED = "It is refused, so that the next button finds what this one found."
_SOON_MS = 8_000
"""After which a press has done nothing. What is refused, shown or asked for is there at the next drawing."""
_ASKS = {"Look again": "/v1/models"}
"""What only asks anew, and finds what it found before."""
_STILL_MS = 500
_CHOSEN = "[aria-selected=true], [aria-pressed=true]"
"""What is chosen already, and may stay as it is."""


@pytest.fixture(scope="module")
def furnished(stack: Stack) -> tuple[str, dict[str, str]]:
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(furnish, stack, "pressed").result()


@dataclass
class Presser:
    """A tab whose writes are refused, and what a press does in it."""

    console: Console
    done: list[str] = field(default_factory=list)
    """What leaves no trace in the page: requests that write, windows to choose files in, files that are saved."""

    def __post_init__(self) -> None:
        page = self.console.page
        page.route("**/v1/**", self._answer)
        page.on("filechooser", lambda _: self.done.append("chooses a file"))
        page.on("download", lambda _: self.done.append("saves a file"))

    def _answer(self, route: Route) -> None:
        request = route.request
        if request.method == "GET" or request.url.endswith(("/input_tokens", "/search")):
            route.continue_()
            return
        self.done.append(f"{request.method} {request.url}")
        route.fulfill(status=409, json={"error": {"message": REFUSED, "type": "invalid_request_error", "param": None, "code": None}})

    def looks(self) -> str:
        """The page as it is told, and where one is."""
        page = self.console.page
        where = page.evaluate("() => [location.hash, document.activeElement?.getAttribute('aria-valuenow')].join()")
        return f"{where}\n{masked(page.locator('body').aria_snapshot())}"

    def open(self, where: str) -> None:
        page = self.console.page
        page.keyboard.press("Escape")
        page.evaluate("() => { localStorage.removeItem('moorage.timeline.run'); location.hash = '#/nowhere' }")
        page.get_by_text("There is no such page.").wait_for()
        self.console.go(where)
        expect(page.get_by_role("status", name="Loading")).to_have_count(0)

    def press(self, button: Locator, name: str) -> bool:
        """Whether anything came of it."""
        page = self.console.page
        self.done.clear()
        before = self.looks()
        if name in _ASKS:
            with page.expect_request(f"**{_ASKS[name]}"):
                button.click()
            return True
        button.click()
        waited = 0
        while waited < _SOON_MS:
            if self.done and self.done[0].startswith(("chooses", "saves")):
                return True
            if self.done:
                expect(page.get_by_text(REFUSED).first).to_be_visible()
                return True
            if self.looks() != before:
                return True
            page.wait_for_timeout(100)
            waited += 100
        return False


@pytest.mark.parametrize("page", [*PAGES, "run", "container", "file", "skill", "store", "webhook"])
def test_every_button_of_a_page_does_something(
    browser: Browser, stack: Stack, furnished: tuple[str, dict[str, str]], page: str
) -> None:
    """Requests that would change something are refused: then the page says so, in the words of the refusal."""
    key, found = furnished
    context = context_of(browser, accept_downloads=True, permissions=["clipboard-read", "clipboard-write"])
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/").enter(key)
    presser = Presser(console)
    where = addresses(found)[page]
    presser.open(where)
    buttons = console.page.locator("main").get_by_role("button").or_(console.page.locator("main").get_by_role("tab"))
    expect(buttons.first).to_be_attached()
    dead = []
    for name in dict.fromkeys(_settled(buttons)):
        presser.open(where)
        button = buttons.nth(_settled(buttons, name).index(name))
        if not button.is_enabled() or not button.is_visible() or button.evaluate(f"(button) => button.matches('{_CHOSEN}')"):
            continue
        if not presser.press(button, name):
            dead.append(name)
    context.close()
    assert (dead, [said for said in console.said if "409" not in said]) == ([], [])


def _settled(buttons: Locator, awaited: str = "") -> list[str]:
    """The names of all, once no more come: what is asked for stands before others when it has come."""
    deadline = time.monotonic() + WAIT_MS / 1000
    before: list[str] = []
    while (names := _names(buttons)) != before or not names or (awaited and awaited not in names):
        assert time.monotonic() < deadline, f"{awaited or 'A button'} does not come: {names}"
        before = names
        buttons.page.wait_for_timeout(_STILL_MS)
    return names


def _names(buttons: Locator) -> list[str]:
    """Those that do the same to different things have one name."""
    names = buttons.evaluate_all("(all) => all.map((each) => each.ariaLabel || each.textContent.trim())")
    return [re.sub(r"\s+", " ", masked(f" {name} ")).strip() for name in names]
