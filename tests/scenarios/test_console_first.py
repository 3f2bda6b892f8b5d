"""The first screen of the console: what runs and what each run waits for, how the last ones ended, and whether all is well."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from openai import OpenAI
from playwright.sync_api import Browser, Route, expect

from tests.browser import WAIT_MS, Console, context_of, page_of
from tests.scenarios.visits import make_key
from tests.stack import Stack, say, script

expect.set_options(timeout=WAIT_MS)

FIRST_VISIT_BYTES_MAX = 100_000
NODES_MAX = 2000
_BEGAN = 1_790_000_000


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "watcher")


@pytest.fixture
def console(console: Console, key: str) -> Console:
    return console.enter(key, "#/files")


def row(number: int, **more: Any) -> dict[str, Any]:
    """A run, younger than those of smaller numbers."""
    usage = {"input_tokens": 900, "input_tokens_details": {"cached_tokens": 100}, "output_tokens": 100}
    at = _BEGAN + number
    return {
        "id": f"resp_{number:08d}",
        "object": "response.summary",
        "status": "completed",
        "model": "demo",
        "input_preview": f"Question {number}",
        "tool_calls": {"shell": 1},
        "usage": usage,
        "cost_usd": 0.01,
        "waiting_for": None,
        "error": None,
        "incomplete_details": None,
        "container_id": None,
        "metadata": {},
        "created_at": at,
        "ended_at": at + 4,
    } | more


def waiting(number: int, kind: str, detail: str) -> dict[str, Any]:
    wait = {"kind": kind, "detail": detail, "since": _BEGAN * 1000}
    return row(number, status="in_progress", ended_at=None, usage=None, cost_usd=None, waiting_for=wait)


def listing(rows: Callable[[], list[dict[str, Any]]]) -> Callable[[Route], None]:
    """An API that lists these, newest first, page by page."""

    def answer(route: Route) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        wanted = set(query["status"].split(",")) if "status" in query else None
        found = [each for each in rows() if wanted is None or each["status"] in wanted]
        found = [each for each in found if query.get("model", each["model"]) == each["model"]]
        found = [each for each in found if "has_container" not in query or each["container_id"]]
        is_oldest_first = query.get("order") == "asc"
        found = found[::-1] if is_oldest_first else found
        found = [each for each in found if int(query.get("created_after", 0)) <= each["created_at"]]
        if "after" in query:
            found = [each for each in found if (each["id"] > query["after"] if is_oldest_first else each["id"] < query["after"])]
        page = found[: int(query["limit"])]
        more = {"has_more": len(found) > len(page), "last_id": page[-1]["id"] if page else None}
        route.fulfill(json=json.loads(page_of(page)) | more)

    return answer


def test_what_runs_says_what_it_waits_for_however_old_it_is(console: Console) -> None:
    old = waiting(1, "approval", "It waits for a person's word.")
    new = [waiting(900, "tool", "sleep 40"), waiting(899, "model", "gpt-5"), waiting(898, "retry", "2 of 4 after a 429")]
    rows = [*new, *(row(number) for number in range(897, 1, -1)), old]
    page = console.page
    page.route("**/v1/responses?**", listing(lambda: rows))
    console.go("#/runs")
    body = page.get_by_role("region", name="Runs").get_by_role("row")
    expect(body.nth(1)).to_contain_text("Waiting for approval")
    for at, words in enumerate(["sleep 40", "gpt-5", "2 of 4 after a 429"], 2):
        expect(body.nth(at)).to_contain_text(words)
        expect(body.nth(at)).to_contain_text(new[at - 2]["waiting_for"]["kind"])
    today = page.locator(".figures")
    expect(today).to_contain_text(re.compile("running\\s*3"))
    expect(today).to_contain_text(re.compile("waiting for approval\\s*1"))
    page.get_by_role("button", name="completed").click()
    expect(body).to_have_count(51)
    expect(today).to_contain_text(re.compile("running\\s*3"))
    assert console.barriers() == []


def test_what_failed_says_why_and_words_and_dates_find_it(console: Console, client: OpenAI) -> None:
    refusing = script({"fail": {"status": 400, "times": 0}}, say("never"))
    client.responses.create(model="demo", input=script(say("well")))
    client.responses.create(model="demo", input=f"Fail, please. {refusing}", background=True)
    page = console.go("#/runs").page
    failed = page.get_by_role("row").filter(has_text="Fail, please.")
    expect(failed.get_by_text("failed", exact=True)).to_be_visible()
    (ended,) = [each for each in client.get("/responses", cast_to=object)["data"] if each["status"] == "failed"]  # type: ignore[index]
    expect(failed).to_contain_text(ended["error"]["message"])
    expect(page.get_by_role("list", name="Health")).to_contain_text(ended["error"]["message"])
    expect(page.get_by_text("The scripted demo answers.")).to_be_visible()
    box = page.get_by_role("searchbox", name="Filter runs")
    box.fill(f"{ended['error']['message'].split()[0]} fail,")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page).to_have_url(re.compile("q="))
    page.reload()
    expect(page.get_by_role("row")).to_have_count(2)
    box.fill("since:2090-01-01")
    expect(page.get_by_text("No run fits these filters.")).to_be_visible()
    box.fill("since:2020-01-01 until:2090-01-01")
    expect(page.get_by_role("row")).to_have_count(3)


def test_runs_with_a_container_are_chosen_and_the_operators_hosts_are_told(console: Console) -> None:
    page = console.page
    page.route("**/v1/responses?**", listing(lambda: [*(row(number) for number in range(300, 1, -1)), row(1, container_id="cntr_1")]))
    console.go("#/runs")
    body = page.get_by_role("region", name="Runs").get_by_role("row")
    expect(body).to_have_count(51)
    chip = page.get_by_role("button", name="has a container")
    chip.press("Enter")
    expect(body).to_have_count(2)
    expect(body.nth(1)).to_contain_text("Question 1")
    assert page.url.endswith("#/runs?has=container")
    assert chip.get_attribute("aria-pressed") == "true"
    expect(page.get_by_role("list", name="Health")).to_contain_text("no network for containers")
    hosts = ["a.example", "*.b.example", "c.example", "<i>d</i>.example"]

    def answer(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | {"network": {"allowed_domains": hosts}})

    page.route("**/v1/me", answer)
    console.go("#/files").go("#/runs")
    expect(page.get_by_role("list", name="Health")).to_contain_text("network: at most a.example, *.b.example, c.example and 1 more")
    assert console.barriers() == []


def test_turns_of_a_conversation_stand_behind_its_latest_with_what_was_answered(console: Console) -> None:
    talk = {"conversation": {"id": "conv_1"}}
    rows = [
        row(7, output_preview="Both hold.", **talk),
        row(6, previous_response_id="resp_00000005"),
        row(5, previous_response_id="resp_00000002"),
        row(4, status="failed", error={"message": "It broke."}, output_preview="Half an answer", **talk),
        row(3, output_preview="A **bowline**."),
        row(2),
        row(1, **talk),
    ]
    page = console.page
    page.route("**/v1/responses?**", listing(lambda: rows))
    console.go("#/runs")
    seen = page.locator("tbody a.asked")
    expect(seen).to_have_text(["Question 7", "Question 6", "Question 3"])
    expect(page.get_by_role("row").filter(has_text="Question 7")).to_contain_text("Both hold.")
    expect(page.get_by_role("row").filter(has_text="Question 3")).to_contain_text("A **bowline**.")
    page.get_by_role("row").filter(has_text="Question 7").get_by_role("button", name="3 turns").click()
    expect(seen).to_have_text(["Question 7", "Question 4", "Question 1", "Question 6", "Question 3"])
    expect(page.get_by_role("row").filter(has_text="Question 4")).to_contain_text("It broke.")
    assert console.barriers() == []
    for _ in range(3):
        page.keyboard.press("j")
    expect(page.locator("tr.chosen")).to_contain_text("Question 1")
    page.get_by_role("button", name="3 turns").first.click()
    expect(seen).to_have_text(["Question 7", "Question 6", "Question 3"])
    page.get_by_role("button", name="completed", exact=True).click()
    expect(seen).to_have_text([f"Question {number}" for number in (7, 6, 5, 3, 2, 1)])


def test_the_oldest_come_first_where_that_is_asked_for(console: Console) -> None:
    page = console.page
    page.route("**/v1/responses?**", listing(lambda: [row(number) for number in range(120, 0, -1)]))
    console.go("#/runs")
    body = page.get_by_role("region", name="Runs").get_by_role("row")
    expect(body.nth(1)).to_contain_text("Question 120")
    page.get_by_role("button", name="oldest first").press("Enter")
    expect(body.nth(1)).to_contain_text("Question 1")
    page.get_by_role("button", name="Newer runs").click()
    expect(page.get_by_text("Question 60", exact=True)).to_be_attached()
    expect(page).to_have_url(re.compile(r"#/runs\?order=asc$"))
    page.get_by_role("button", name="oldest first").click()
    expect(body.nth(1)).to_contain_text("Question 120")


def test_new_runs_wait_for_whoever_reads_further_down(console: Console) -> None:
    rows = [row(number) for number in range(400, 0, -1)]
    page = console.page
    page.set_viewport_size({"width": 1280, "height": 500})
    page.route("**/v1/responses?**", listing(lambda: rows))
    console.go("#/runs")
    expect(page.get_by_text("Question 400")).to_be_visible()
    page.get_by_text("Question 360").scroll_into_view_if_needed()
    rows[:0] = [row(number) for number in (402, 401)]
    page.get_by_role("button", name="2 new runs").click()
    expect(page.get_by_text("Question 402")).to_be_visible()
    assert console.evaluate("() => document.getElementById('main').scrollTop") == 0


def test_ten_thousand_runs_stay_small_in_the_page(console: Console) -> None:
    rows = [row(number) for number in range(10_000, 0, -1)]
    page = console.page
    page.route("**/v1/responses?**", listing(lambda: rows))
    console.go("#/runs")
    expect(page.get_by_text("Question 10000")).to_be_visible()
    console.evaluate(
        """async () => {
            const sight = () => new Promise((resolve) => setTimeout(resolve, 20));
            const older = () => [...document.querySelectorAll("main .more button")].find((button) => !button.disabled);
            const rows = () => Number(document.querySelector("main table").getAttribute("aria-rowcount"));
            while (rows() < 1000) { older()?.click(); await sight(); }
        }"""
    )
    page.get_by_role("button", name="Older runs").scroll_into_view_if_needed()
    expect(page.get_by_text("Question 9001", exact=True)).to_be_visible()
    assert console.nodes() <= NODES_MAX


def test_a_list_with_runs_never_says_for_a_moment_that_nothing_has_run(browser: Browser, stack: Stack, key: str) -> None:
    """The page fetched what it says then, and drew it until the rows came."""
    context = context_of(browser)
    context.add_init_script(f"sessionStorage.setItem('moorage.key', '{key}')")
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/")
    console.page.route("**/v1/responses?**", listing(lambda: [row(number) for number in range(50)]))
    held: list[Route] = []  # nothing else draws the page again meanwhile
    console.page.route("**/v1/responses?status=**", lambda route: held.append(route))
    loaded: list[str] = []
    console.page.on("request", lambda request: loaded.append(request.url.rsplit("/", 1)[-1]))
    console.page.goto(f"{console.base}#/runs")
    expect(console.page.get_by_text("Question 49")).to_be_visible()
    context.close()
    assert {"runs.js", "welcome.js"} & set(loaded) == {"runs.js"}
    assert console.said == []


def test_a_first_visit_loads_little(console: Console) -> None:
    page = console.page
    page.goto("about:blank")
    page.goto(f"{console.base}#/runs")
    page.get_by_role("heading", name="Runs").wait_for()
    page.wait_for_load_state("networkidle")
    size = console.evaluate(
        "() => performance.getEntriesByType('resource').filter((each) => each.name.includes('/console/')).reduce("
        "(sum, each) => sum + each.encodedBodySize, performance.getEntriesByType('navigation')[0].encodedBodySize)"
    )
    assert 10_000 < size <= FIRST_VISIT_BYTES_MAX
