"""Runs that go on while somebody looks at them, in a real browser: streams, pauses, and what waits for a word."""

import time
from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import Route, expect

from tests.browser import WAIT_MS, Console
from tests.scenarios.visits import asking, make_key, run_page, tab_to
from tests.stack import Stack, say, script, shell

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "bystander")


def test_a_stream_that_breaks_off_is_taken_up_where_it_was(console: Console, key: str, client: OpenAI) -> None:
    words = [f"word{number}" for number in range(40)]
    going = client.responses.create(
        model="demo",
        input=script(shell("echo held"), {"delta_ms": 20, "say": " ".join(words)}),
        tools=asking(),
        background=True,
    )
    asked: list[str] = []

    def cut(route: Route) -> None:
        """The first answer is broken off in the middle of an event; the second does not come at all."""
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(content_type="text/event-stream", body='event: response.created\ndata: {"type": "response.crea')
        elif len(asked) == 2:
            route.abort()
        else:
            route.continue_()

    console.page.route("**/v1/responses/*stream=true*", cut)
    console.enter(key)
    with console.page.expect_request(lambda request: "stream=true" in request.url and len(asked) >= 2):
        run_page(console, going.id)
    console.page.get_by_role("button", name="Approve").click()
    expect(console.transcript.locator(".said").last).to_have_text(" ".join(words))
    expect(console.page.get_by_role("button", name="end", exact=True)).to_be_visible()
    expect(console.page.get_by_text("reconnecting")).to_have_count(0)
    assert len(asked) >= 3
    assert all(console.said.pop().startswith("Failed to load resource") for _ in list(console.said))


def test_a_live_run_is_followed_to_its_answer_and_lets_go_of_a_reader_who_turns_back(
    console: Console, key: str, client: OpenAI
) -> None:
    """The end is in sight whenever nobody has turned the wheel, whatever the heights of what came before turn out to be."""
    commands = [f"seq {number} {number + 200}" for number in range(6)]
    steps = script(*(shell(command) for command in commands), say("It is the end."))
    going = client.responses.create(model="demo", input=steps, tools=asking(), background=True)
    console.enter(key)
    run_page(console, going.id)
    for command in commands:
        console.page.get_by_role("article", name="Approval").filter(has_text=command).get_by_role("button", name="Approve").click()
    expect(console.page.get_by_role("button", name="end", exact=True)).to_be_visible()
    expect(console.transcript.get_by_text("It is the end.", exact=True)).to_be_in_viewport()
    expect(console.page.get_by_role("region", name="Answer")).to_contain_text("It is the end.")
    console.transcript.get_by_text("It is the end.", exact=True).hover()
    console.page.mouse.wheel(0, -400)
    expect(console.transcript.get_by_text("It is the end.", exact=True)).not_to_be_in_viewport()
    console.page.set_viewport_size({"width": 1200, "height": 700})  # what is laid out anew moves nobody back
    expect(console.transcript.get_by_text("It is the end.", exact=True)).not_to_be_in_viewport()


def test_a_page_that_nobody_sees_asks_for_nothing_and_catches_up_afterwards(console: Console, key: str, client: OpenAI) -> None:
    going = client.responses.create(model="demo", input=script(shell("echo held"), say("through")), tools=asking(), background=True)
    console.enter(key)
    run_page(console, going.id)
    expect(console.page.get_by_role("button", name="Approve")).to_be_visible()
    with console.page.expect_event("requestfailed", lambda request: "stream=true" in request.url):
        _turn_away(console, is_hidden=True)
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    (approval,) = _approvals(client, going.id)
    client.post(f"/responses/{going.id}/approvals/{approval['id']}", cast_to=object, body={"approve": True})
    ended = _ended(client, going.id)
    console.page.wait_for_timeout(3000)  # of what is asked every two seconds
    assert asked == []
    _turn_away(console, is_hidden=False)
    expect(console.transcript.get_by_text("through", exact=True)).to_be_visible()
    assert ended == "completed"
    assert not any("stream=true" in url for url in asked)


def _turn_away(console: Console, *, is_hidden: bool) -> None:
    console.evaluate(
        "(isHidden) => { Object.defineProperty(document, 'hidden', { get: () => isHidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')) }",
        is_hidden,
    )


def _approvals(client: OpenAI, run: str) -> list[dict[str, Any]]:
    found: Any = client.get(f"/responses/{run}/approvals", cast_to=object)
    return [each for each in found["data"] if each["status"] == "waiting"]


def _ended(client: OpenAI, run: str) -> str | None:
    deadline = time.monotonic() + WAIT_MS / 1000
    while (status := client.responses.retrieve(run).status) in ("queued", "in_progress"):
        assert time.monotonic() < deadline, "The run does not end."
        time.sleep(0.05)
    return status


def test_a_run_stands_still_and_goes_on_by_its_buttons(console: Console, key: str, client: OpenAI) -> None:
    going = client.responses.create(model="demo", input=script(shell("sleep 6"), say("through")), tools=asking(), background=True)
    console.enter(key)
    run_page(console, going.id)
    console.page.get_by_role("button", name="Approve").click()
    console.page.get_by_role("button", name="Pause", exact=True).click()
    console.page.get_by_role("button", name="Resume", exact=True).click()
    expect(console.transcript.get_by_text("through", exact=True)).to_be_visible()


def test_keys_alone_find_what_waits_for_a_word_and_give_it(console: Console, key: str, client: OpenAI) -> None:
    steps = script(shell("echo deployed"), say("through"))
    going = client.responses.create(model="demo", input=steps, tools=asking(), background=True)
    console.enter(key, "#/approvals")
    waiting = console.page.get_by_role("article").filter(has_text="echo deployed")
    expect(waiting).to_be_visible()
    tab_to(console, waiting.get_by_role("button", name="Approve"))
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("heading", name="No call waits for approval")).to_be_visible()
    run_page(console, going.id)
    expect(console.transcript.get_by_text("through", exact=True)).to_be_visible()


def test_a_call_is_denied_where_it_stands_and_its_model_is_told_why(console: Console, key: str, client: OpenAI) -> None:
    going = client.responses.create(model="demo", input=script(shell("echo x"), say("{{output}}")), tools=asking(), background=True)
    console.enter(key)
    run_page(console, going.id)
    asked = console.page.get_by_role("region", name="Waiting for approval")
    asked.get_by_placeholder("why").fill("Not on a Sunday.")
    asked.get_by_role("button", name="Deny").click()
    expect(console.transcript.locator(".said").last).to_contain_text("Not on a Sunday.")
