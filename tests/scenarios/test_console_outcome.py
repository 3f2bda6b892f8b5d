"""The outcome first, in a real browser: what came out, what went wrong, and the same on a phone."""

from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import Browser, Locator, expect

from tests.browser import WAIT_MS, Console, context_of
from tests.scenarios.visits import make_key
from tests.stack import SHELL, Stack, say, script, shell

expect.set_options(timeout=WAIT_MS)

TOOLS: Any = [SHELL]
_PHONE = {"width": 390, "height": 844}
LINES_2_PX = 70
_IN_SIGHT = """(words) => [...document.querySelectorAll("main p")].some((each) => {
    const { top, bottom } = each.getBoundingClientRect();
    const main = document.getElementById("main").getBoundingClientRect();
    return each.textContent === words && top >= main.top && bottom <= main.bottom;
})"""
"""In the card of the answer, or at the end of the transcript, which a live run follows."""


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "outcome")


def opened(browser: Browser, stack: Stack, key: str, where: str, **options: Any) -> Console:
    return Console.opened(context_of(browser, **options), stack.url.removesuffix("v1") + "console/").enter(key, where)


def closed(console: Console) -> None:
    console.page.context.close()
    assert console.said == []


def test_a_run_begins_with_its_request_and_its_answer_and_its_files(browser: Browser, stack: Stack, key: str, client: OpenAI) -> None:
    steps = script(shell("echo 48 > sold.csv"), say("We sold **48** anchors."))
    ran = client.responses.create(model="demo", input=f"How many anchors did we sell? {steps}", tools=TOOLS)
    console = opened(browser, stack, key, f"#/runs/{ran.id}")
    page = console.page
    expect(page.get_by_role("heading", level=1)).to_have_text("How many anchors did we sell?")
    answer = page.get_by_role("region", name="Answer")
    expect(answer).to_contain_text("We sold 48 anchors.")
    expect(answer.get_by_role("link", name="sold.csv")).to_be_visible()
    tops = [one.bounding_box() for one in (answer, page.get_by_role("group", name="Timeline"), page.locator(".transcript"))]
    places = [box["y"] for box in tops if box is not None]
    assert places == sorted(places)
    assert len(places) == 3
    closed(console)


def test_what_failed_is_red_in_the_timeline_and_among_the_steps(browser: Browser, stack: Stack, key: str, client: OpenAI) -> None:
    steps = script(shell("echo fine"), shell("sleep 0.3; exit 6"), say("It failed."))
    ran = client.responses.create(model="demo", input=f"Try it. {steps}", tools=TOOLS)
    console = opened(browser, stack, key, f"#/runs/{ran.id}")
    page = console.page
    red = "(element, property) => getComputedStyle(element)[property] === getComputedStyle(document.querySelector('.bad')).color"
    rows = page.locator(".step-row.of-tool")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).not_to_contain_text("exit")
    expect(rows.nth(1)).to_contain_text("sleep 0.3; exit 6")
    expect(rows.nth(1).get_by_text("exit 6", exact=True)).to_have_class("bad")
    bars = page.locator(".timeline [data-bar]").filter(has=page.locator("rect.tool"))
    failed = page.locator(".timeline rect.tool.bad")
    expect(bars).to_have_count(2)
    expect(failed).to_have_count(1)
    assert failed.evaluate(red, "fill")
    on_the_map = page.locator(".timeline .map path.tool.bad")
    assert on_the_map.get_attribute("d") != ""
    assert on_the_map.evaluate(red, "fill")
    closed(console)


def test_a_model_that_gave_no_answer_is_red_too(browser: Browser, stack: Stack, key: str) -> None:
    steps = script({"fail": {"status": 400, "after_deltas": 3, "times": 0}, "say": "broken off here"})
    with stack.http(key) as http:
        ran = http.post("/responses", json={"model": "demo", "input": steps, "background": True}).json()
    console = opened(browser, stack, key, f"#/runs/{ran['id']}")
    page = console.page
    expect(page.get_by_role("alert")).to_contain_text("failed")
    expect(page.locator(".timeline rect.model.bad")).to_have_count(1)
    expect(page.locator(".step-row .step-name")).to_have_class("step-name bad")
    closed(console)


def test_a_timeline_hides_lanes_without_content_and_folds(browser: Browser, stack: Stack, key: str, client: OpenAI) -> None:
    spoken = client.responses.create(model="demo", input=f"Greet. {script(say('hello'))}")
    console = opened(browser, stack, key, f"#/runs/{spoken.id}")
    page = console.page
    # What costs nothing has a curve of its tokens.
    expect(page.locator(".timeline text.lane")).to_have_text(["model", "tokens"])
    page.get_by_role("button", name="Hide timeline").click()
    expect(page.locator(".timeline.folded")).to_be_attached()
    page.reload()
    page.get_by_role("button", name="Show timeline").click()
    expect(page.locator(".timeline.folded")).to_have_count(0)
    closed(console)


def test_on_a_phone_four_pages_have_names_and_the_others_are_behind_more(browser: Browser, stack: Stack, key: str) -> None:
    console = opened(browser, stack, key, "#/runs", viewport=_PHONE)
    pages = console.page.get_by_role("navigation", name="Pages")
    shown = "(links) => links.filter((link) => link.offsetParent).map((link) => link.querySelector('span').textContent)"
    assert pages.get_by_role("link").evaluate_all(shown) == ["Runs", "Playground", "Approvals", "Sessions"]
    expect(pages.get_by_role("link", name="Doctor")).to_be_hidden()
    pages.get_by_role("button", name="More").click()
    pages.get_by_role("link", name="Doctor").click()
    expect(console.page.get_by_role("heading", level=1, name="Doctor")).to_be_visible()
    closed(console)


def test_on_a_phone_a_row_has_its_outcome_and_time(browser: Browser, stack: Stack, key: str, client: OpenAI) -> None:
    client.responses.create(model="demo", input=f"Look for the crane. {script(shell('ls'), say('It is at the quay.'))}", tools=TOOLS)
    console = opened(browser, stack, key, "#/runs", viewport=_PHONE)
    run = console.page.get_by_role("region", name="Runs").get_by_role("row").filter(has_text="Look for the crane.")
    for words in ("Look for the crane.", "It is at the quay.", "completed"):
        expect(run.get_by_text(words, exact=True)).to_be_in_viewport()
    expect(run.locator("time")).to_be_in_viewport()
    console.go("#/containers")
    container = console.page.get_by_role("region", name="Containers").get_by_role("row").filter(has_text="Look for the crane.")
    name, status = container.locator("td.wide"), container.locator("[data-title=Status]")
    assert places(name, status) == sorted(places(name, status))
    expect(container.locator("[data-title=Memory]")).to_be_hidden()
    box = container.bounding_box()
    assert box is not None
    assert box["height"] < LINES_2_PX
    container.click()
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Look for the crane.")
    closed(console)


def places(*parts: Locator) -> list[float]:
    """How far down the window each begins."""
    return [box["y"] for box in (part.bounding_box() for part in parts) if box is not None]


def test_a_live_run_is_followed_although_another_was_read_before(browser: Browser, stack: Stack, key: str, client: OpenAI) -> None:
    read = client.responses.create(model="demo", input=f"Read me. {script(shell('seq 300'), say('done'))}", tools=TOOLS)
    steps = script(shell("seq 200; sleep 4; seq 200"), say("The end of the live run."))
    console = opened(browser, stack, key, f"#/runs/{read.id}?step=step_0", viewport=_PHONE)
    expect(console.page.get_by_text("done", exact=True).first).to_be_attached()
    going = client.responses.create(model="demo", input=f"Go on. {steps}", tools=TOOLS, background=True)
    console.go(f"#/runs/{going.id}")
    expect(console.page.get_by_role("heading", level=1, name="Go on.")).to_be_attached()
    console.page.wait_for_function(_IN_SIGHT, arg="The end of the live run.")
    expect(console.page.get_by_role("button", name="Jump to latest")).to_have_count(0)
    closed(console)


_SHRINK = """async () => {
    const box = document.querySelector(".transcript"), content = box.firstElementChild, filler = document.createElement("div");
    const shown = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    filler.style.height = "300px";
    content.append(filler);
    await shown();
    box.after(filler);
    await shown();
}"""
"""The content gets shorter by what stands below it gets higher: the page keeps its height."""


def test_a_live_run_is_followed_although_its_content_gets_shorter(browser: Browser, stack: Stack, key: str, client: OpenAI) -> None:
    steps = script(shell("seq 200; sleep 4; seq 200"), say("The end of the shorter run."))
    going = client.responses.create(model="demo", input=f"Go on. {steps}", tools=TOOLS, background=True)
    console = opened(browser, stack, key, f"#/runs/{going.id}", viewport=_PHONE)
    expect(console.page.get_by_role("heading", level=1, name="Go on.")).to_be_attached()
    console.page.evaluate(_SHRINK)
    expect(console.page.get_by_text("The end of the shorter run.", exact=True).first).to_be_attached()
    expect(console.page.get_by_role("button", name="Jump to latest")).to_have_count(0)
    closed(console)


def test_on_a_phone_the_playground_goes_to_its_run(browser: Browser, stack: Stack, key: str) -> None:
    console = opened(browser, stack, key, "#/playground", viewport=_PHONE)
    page = console.page
    page.get_by_role("textbox").first.fill(f"Greet. {script(say('A short answer.'))}")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("A short answer.")
    page.wait_for_function(_IN_SIGHT, arg="A short answer.")
    closed(console)
