"""Every page of the console on a small window and on a phone, in both themes: nothing is cut off, and all of it can be reached."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import WAIT_MS, Console, context_of
from tests.scenarios.test_console_pages import addresses, furnish
from tests.stack import Stack

expect.set_options(timeout=WAIT_MS)

SIZES = {"a small window": (1024, 768), "a phone": (390, 844)}

_WRONG = """() => {
    const wrong = [];
    const main = document.getElementById("main");
    const width = document.documentElement.clientWidth;
    const named = (element) => {
        const said = element.ariaLabel || element.textContent || element.placeholder || "";
        return `${element.tagName.toLowerCase()}.${element.className} "${said.trim().slice(0, 40)}"`;
    };
    const isScrolled = (element) => {
        if (element.closest(".rail")) return false;
        for (let at = element.parentElement; at && at !== main; at = at.parentElement)
            if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return true;
        return false;
    };
    for (const frame of [document.documentElement, main])
        if (frame.scrollWidth > frame.clientWidth) wrong.push(`${frame.tagName} is ${frame.scrollWidth} wide`);
    for (const element of document.querySelectorAll(".topbar > *, main *, .rail a")) {
        const { left, right, width: wide, height } = element.getBoundingClientRect();
        const style = getComputedStyle(element);
        const isUnseen = !wide || !height || style.visibility === "hidden" || style.clipPath !== "none";
        if (isUnseen || element.closest(".unseen, svg *, .xterm")) continue;
        if ((left < -1 || right > width + 1) && !isScrolled(element)) wrong.push(`${named(element)}: ${left} to ${right}`);
        const isTarget = element.matches("button, select, input:not([type=checkbox]), .button, .rail a");
        if (isTarget && (wide < 24 || height < 24)) wrong.push(`${named(element)} is ${wide} by ${height}`);
        const isCut = ["hidden", "clip"].includes(style.overflowX) && element.scrollWidth > element.clientWidth + 1;
        const isShortened = style.textOverflow === "ellipsis" && element.clientWidth >= 48;
        if (isCut && !isShortened && !element.matches(".crumbs")) wrong.push(`${named(element)} is cut`);
    }
    for (const text of document.querySelectorAll("main svg text")) {
        const pixels = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
        if (pixels < 8) wrong.push(`"${text.textContent}" is ${pixels.toFixed(1)} pixels high`);
    }
    return [...new Set(wrong)].slice(0, 12);
}"""
"""What stands beyond the window or is cut off, what a finger cannot hit, and words of drawings that nobody can read. What scrolls by
itself is reached by scrolling it, but for the way to the pages, where nobody would look for more of them."""


@pytest.fixture(scope="module")
def furnished(stack: Stack) -> tuple[str, dict[str, str]]:
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(furnish, stack, "sizes").result()


@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits(browser: Browser, stack: Stack, furnished: tuple[str, dict[str, str]], size: str) -> None:
    key, found = furnished
    width, height = SIZES[size]
    context = context_of(browser, viewport={"width": width, "height": height}, color_scheme="light")
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/").enter(key)
    wrong = {}
    for page, where in addresses(found).items():
        console.go(where)
        expect(console.page.get_by_role("status", name="Loading")).to_have_count(0)
        for theme in ("light", "dark"):
            console.page.emulate_media(color_scheme=theme)
            if said := console.evaluate(_WRONG):
                wrong[f"{page}, {theme}"] = said
    context.close()
    assert wrong == {}


_COVERED = """() => [...document.querySelectorAll(".rail a:has(.badge)")].map((link) => {
    const [badge, icon] = [".badge", "svg"].map((name) => link.querySelector(name).getBoundingClientRect());
    const wide = Math.max(0, Math.min(badge.right, icon.right) - Math.max(badge.left, icon.left));
    const high = Math.max(0, Math.min(badge.bottom, icon.bottom) - Math.max(badge.top, icon.top));
    return (wide * high) / (icon.width * icon.height) > 0.1;
})"""
"""Whether a count hides the sign of the page that it stands beside."""


@pytest.mark.parametrize("size", SIZES)
def test_a_run_shows_its_tabs_heads_and_counts_whole(
    browser: Browser, stack: Stack, furnished: tuple[str, dict[str, str]], size: str
) -> None:
    key, found = furnished
    width, height = SIZES[size]
    context = context_of(browser, viewport={"width": width, "height": height})
    page = Console.opened(context, stack.url.removesuffix("v1") + "console/").enter(key, found["run"]).page
    expect(page.get_by_role("navigation", name="Pages").locator(".badge")).to_be_visible()
    assert page.evaluate(_COVERED) == [False]
    round_one = page.get_by_role("button", name="Round 1", exact=True)
    assert round_one.evaluate("(button) => button.getBoundingClientRect().height") < 30
    shown = "(tabs) => [tabs.scrollWidth - tabs.clientWidth, tabs.childElementCount]"
    assert page.get_by_role("tablist").first.evaluate(shown) == [0, 6]
    for bar in page.locator(".timeline text.exit").all_text_contents():
        assert bar.startswith("exit ")
    context.close()
