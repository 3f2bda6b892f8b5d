"""A person at the screen of a container in the console, and the pictures of a run. On real Chromium, twice."""

from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import expect

from tests.browser import WAIT_MS, Console
from tests.processes import until
from tests.scenarios.test_computer import CLICK, OPEN, SERVE, acts, ask, needs_browser, said
from tests.scenarios.test_screen import container_of
from tests.stack import Stack, say, shell

pytestmark = needs_browser
expect.set_options(timeout=WAIT_MS)
DRAG: dict[str, Any] = {"type": "drag", "path": [{"x": 300, "y": 300}, {"x": 500, "y": 400}]}


@pytest.fixture(scope="module")
def shop(client: OpenAI) -> Any:
    """A response that asked for no pictures, with a shop in its browser."""
    actions: list[dict[str, Any]] = [{"type": "click", "x": 100, "y": 150}, {"type": "type", "text": "tea"}, CLICK, DRAG]
    return ask(client, shell(SERVE), acts(OPEN), acts(*actions), say("ready"), include=[])


@pytest.fixture
def console(console: Console, stack: Stack) -> Console:
    return console.enter(stack.key)


def test_a_call_is_a_picture_with_its_actions_drawn_on_it(console: Console, shop: Any) -> None:
    console.go(f"#/runs/{shop.id}")
    console.transcript.get_by_role("article", name="Round 3").scroll_into_view_if_needed()
    used = console.transcript.get_by_role("img", name="Drawn on it: click")
    expect(used).to_have_attribute(
        "aria-label", 'Drawn on it: click at 100, 150; type "tea"; click at 100, 50; drag 300, 300 → 500, 400'
    )
    picture = used.locator("xpath=..").get_by_role("img", name="The screen after these actions")
    assert str(picture.get_attribute("src")).startswith("data:image/jpeg;base64,")
    assert (used.locator("circle").count(), used.locator("polyline").count(), used.locator("text").count()) == (2, 1, 3)
    assert console.barriers() == []


def test_a_person_watches_takes_over_acts_and_hands_back(console: Console, client: OpenAI, shop: Any) -> None:
    page = console.go(f"#/containers/{container_of(shop)}?tab=screen").page
    screen = page.get_by_role("region", name="Screen")
    status = screen.get_by_role("status")
    picture = screen.get_by_role("img", name="The page of the browser")
    expect(picture).to_be_visible()
    expect(status).to_have_text("The model has control.")
    assert console.barriers() == []
    screen.get_by_role("button", name="Take over").click()
    expect(status).to_contain_text("You have control.")
    box = picture.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 100 / 1280, box["y"] + box["height"] * 150 / 800)
    page.keyboard.type("cocoa")
    page.mouse.click(box["x"] + box["width"] * 100 / 1280, box["y"] + box["height"] * 50 / 800)
    waiting = ask(client, acts(CLICK), say("end"), previous_response_id=shop.id, background=True)
    until(lambda: client.responses.retrieve(waiting.id).status == "in_progress")
    screen.get_by_role("textbox", name="Address").fill("about:blank")
    screen.get_by_role("button", name="Open").click()
    expect(screen.get_by_text("about:blank").last).to_be_visible()
    screen.get_by_role("textbox", name="Address").fill("localhost:3000")
    page.keyboard.press("Enter")
    expect(screen.get_by_text("http://localhost:3000/").last).to_be_visible()
    screen.get_by_role("button", name="Hand back").click()
    expect(status).to_have_text("The model has control.")
    until(lambda: client.responses.retrieve(waiting.id).status == "completed")
    counted = ask(client, shell("cat /tmp/said"), say("end"), previous_response_id=waiting.id)
    heard = said(counted)
    assert any(line.startswith('typed "') and "cocoa" in line for line in heard)
    assert heard.count("click") == 3
