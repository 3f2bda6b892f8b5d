"""The console in a real browser, over a real stack."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from moorage.loop.fold import fold
from openai import BadRequestError, OpenAI
from playwright.sync_api import Browser, Locator, Route, expect

from tests.browser import WAIT_MS, Console, chromium, context_of, long_log, page_of
from tests.scenarios import test_tenants
from tests.scenarios.test_cli import lines
from tests.stack import SHELL, Stack, say, script, shell
from tests.unit.skills.archives import MANIFEST, skill

expect.set_options(timeout=WAIT_MS)

NODES_MAX = 2000
HEAP_BYTES_MAX = 150 * 1024 * 1024


def make_key(stack: Stack, tenant_id: str) -> str:
    """In a thread of its own: an event loop of Playwright's runs in this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(test_tenants.make_key, stack, tenant_id).result()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    """Of a tenant that has what the tests below look at, and nothing else."""
    return make_key(stack, "onlooker")


@pytest.fixture(scope="module")
def client(stack: Stack, key: str) -> OpenAI:
    return stack.client(key)


@pytest.fixture
def console(browser: Browser, stack: Stack) -> Iterator[Console]:
    """A tab whose page has nothing to complain of."""
    context = context_of(browser)
    opened = Console.opened(context, stack.url.removesuffix("v1") + "console/")
    yield opened
    context.close()
    assert opened.said == []


@pytest.fixture(scope="module")
def ran(client: OpenAI) -> str:
    """A response of three rounds, with output in colour, an error, a file and a table."""
    steps = [
        {"reason": "First the disk.", **shell("printf '\\033[32mgreen\\033[0m\\n'; echo oops >&2; exit 3", "echo x,y > t.csv")},
        shell("cat /mnt/data/t.csv; echo 1,2 >> /mnt/data/t.csv"),
        say("# Done\n\nIt is **well**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
    ]
    return str(client.responses.create(model="demo", input=f"Look around. {script(*steps)}", tools=_tools()).id)


def _tools() -> Any:
    return [SHELL]


def _asking() -> Any:
    """What holds a run until somebody has looked."""
    return [{**SHELL, "require_approval": "always"}]


def run_page(console: Console, run: str, query: str = "") -> None:
    console.go(f"#/runs/{run}{query}")
    console.transcript.wait_for()


def tab_to(console: Console, target: Locator) -> None:
    """As somebody comes there who has no mouse."""
    for _ in range(150):
        if target.evaluate("(element) => element === document.activeElement"):
            return
        console.page.keyboard.press("Tab")
    pytest.fail(f"No key leads to {target}.")


# --- to come in ---


def test_a_code_of_the_command_line_opens_it_and_leaves_no_trace(console: Console, stack: Stack) -> None:
    (address,) = lines(stack, ["console", "--no-browser"])
    console.page.goto(address)
    expect(console.page.get_by_role("heading", name="Runs")).to_be_visible()
    assert console.page.url == f"{console.base}#/runs"
    assert console.page.context.cookies() == []
    assert console.evaluate("() => Object.keys(localStorage)") == []
    kept = console.evaluate("() => sessionStorage.getItem('moorage.key')")
    assert kept not in (stack.key, address.partition("#k=")[2])
    console.page.get_by_role("button", name="Forget the key and leave").click()
    expect(console.page.get_by_label("API key")).to_be_visible()
    assert console.evaluate("() => Object.keys(sessionStorage)") == []


def test_a_code_that_was_used_asks_for_a_key(console: Console, stack: Stack) -> None:
    (address,) = lines(stack, ["console", "--no-browser"])
    with stack.http(address.partition("#k=")[2]) as http:
        assert http.post("/console/session").status_code == 200
    console.page.goto(address)
    expect(console.page.get_by_text("This code has been used or has run out.")).to_be_visible()
    expect(console.page.get_by_label("API key")).to_be_visible()
    assert console.said.pop().startswith("Failed to load resource: the server responded with a status of 401")


def test_a_key_that_only_reads_is_shown_nothing_to_press(console: Console, stack: Stack) -> None:
    (address,) = lines(stack, ["console", "--no-browser", "--read-only"])
    console.page.goto(address)
    expect(console.page.get_by_text("read only", exact=True)).to_be_visible()
    console.go("#/files")
    expect(console.page.get_by_role("button", name="Upload")).to_have_count(0)
    console.go("#/playground")
    expect(console.page.get_by_text("This key looks and changes nothing.")).to_be_visible()


# --- a run ---


def test_a_run_reads_round_by_round(console: Console, key: str, ran: str) -> None:
    console.enter(key)
    run_page(console, ran)
    transcript = console.transcript
    expect(transcript.get_by_role("article")).to_have_count(3)
    expect(transcript.locator(".outcome").first).to_contain_text("exit 3")
    expect(transcript.locator(".ansi-green")).to_have_text("green")
    expect(transcript.get_by_role("group", name="Errors of command 1")).to_have_text("oops\n")
    transcript.get_by_role("button", name="Round 3").click()
    expect(transcript.get_by_role("cell", name="2")).to_be_visible()
    expect(console.page.get_by_role("tab", name="Step 5")).to_have_attribute("aria-selected", "true")
    expect(console.page.get_by_role("group", name="Timeline").get_by_role("button")).to_have_count(6)


def test_a_run_is_as_it_was_at_any_event(console: Console, key: str, ran: str, stack: Stack) -> None:
    events = _events(stack, key, ran)
    second = [number for number, event in enumerate(events) if event["type"] == "response.output_item.added"][3]
    console.enter(key)
    run_page(console, ran, f"?at={second - 1}")
    expect(console.transcript.get_by_role("article")).to_have_count(1)
    slider = console.page.get_by_role("slider", name="Moment of the run")
    expect(slider).to_have_attribute("aria-valuenow", str(second - 1))
    slider.focus()
    console.page.keyboard.press("ArrowRight")
    expect(console.transcript.get_by_role("article")).to_have_count(2)
    expect(console.page).to_have_url(re.compile(f"at={second}$"))
    console.page.keyboard.press("Home")
    expect(console.transcript.get_by_role("article")).to_have_count(0)
    console.page.keyboard.press("End")
    expect(console.transcript.get_by_role("article")).to_have_count(3)
    expect(console.page).not_to_have_url(re.compile("at="))
    console.page.get_by_role("button", name="To the first event").click()
    expect(console.transcript.get_by_role("article")).to_have_count(0)
    console.page.get_by_role("button", name="Replay").click()
    expect(console.transcript.get_by_role("article")).to_have_count(3)


def test_the_address_follows_a_cursor_that_moves_with_each_frame(console: Console, key: str, ran: str, stack: Stack) -> None:
    """Browsers refuse to change an address hundreds of times: the cursor moves all the same."""
    last = len(_events(stack, key, ran)) - 1
    console.enter(key)
    run_page(console, ran)
    slider = console.page.get_by_role("slider", name="Moment of the run")
    expect(slider).to_have_attribute("aria-valuenow", str(last))
    slider.evaluate(
        """async (slider) => {
            for (let frame = 0; frame < 250; frame += 1) {
                const key = frame % 2 ? "End" : "Home";
                slider.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    slider.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuenow", str(last - 1))
    expect(console.page).to_have_url(re.compile(f"at={last - 1}$"))


def test_a_range_of_the_timeline_says_what_it_took_and_cost(console: Console, key: str, ran: str, client: OpenAI) -> None:
    usage = client.responses.retrieve(ran).usage
    assert usage is not None
    console.enter(key)
    run_page(console, ran)
    timeline = console.page.get_by_role("group", name="Timeline")
    box = timeline.bounding_box()
    assert box is not None
    console.page.mouse.move(box["x"] + 40, box["y"] + 20)
    console.page.keyboard.down("Shift")
    console.page.mouse.down()
    console.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20, steps=3)
    console.page.mouse.up()
    console.page.keyboard.up("Shift")
    measured = console.page.get_by_role("status", name="Range")
    expect(measured).to_contain_text(f"3 model steps · 2 calls · {usage.input_tokens:,} / {usage.output_tokens:,} tokens")
    expect(console.page).to_have_url(re.compile(r"range=\d+-\d+"))
    console.page.get_by_role("button", name="Clear").click()
    expect(measured).to_have_count(0)
    console.page.get_by_role("slider").focus()
    console.page.keyboard.press("Home")
    console.page.keyboard.press("]")
    expect(measured).to_contain_text("0 calls · 0 / 0 tokens")


def test_what_a_run_costs_is_what_its_steps_add_up_to(console: Console, key: str, ran: str, client: OpenAI) -> None:
    usage = client.responses.retrieve(ran).usage
    assert usage is not None
    console.enter(key)
    run_page(console, ran, "?tab=cost")
    expect(console.page.locator(".inspector .figures dd").nth(1)).to_have_text(f"{usage.input_tokens:,}")
    expect(console.page.locator(".inspector .figures dd").nth(3)).to_have_text(f"{usage.output_tokens:,}")


def test_keys_alone_find_a_run_scrub_it_open_a_file_and_stop_another(console: Console, key: str, ran: str, client: OpenAI) -> None:
    steps = script(shell("echo here; sleep 300"), say("never"))
    going = client.responses.create(model="demo", input=f"Wait for long. {steps}", tools=_tools(), background=True)
    console.enter(key)
    press = console.page.keyboard.press
    expect(console.page.get_by_role("row").filter(has_text="Wait for long").get_by_text("tool", exact=True)).to_be_visible()
    press("/")
    console.page.keyboard.type("Wait for long")
    expect(console.page.get_by_role("row")).to_have_count(2)
    press("Escape")
    press("j")
    press("Enter")
    expect(console.transcript.get_by_text("here", exact=True)).to_be_visible()
    assert going.id in console.page.url
    tab_to(console, console.page.get_by_role("button", name="Stop", exact=True))
    press("Enter")
    expect(console.transcript.get_by_text("cancelled")).to_be_visible()
    press("Escape")
    press("g")
    press("c")
    expect(console.page.get_by_role("heading", name="Containers")).to_be_visible()
    console.go(f"#/runs/{ran}")
    console.transcript.wait_for()
    press("ArrowLeft")
    expect(console.page.get_by_role("slider")).not_to_have_attribute("aria-valuenow", "0")
    press("f")
    tab_to(console, console.page.get_by_role("tab", name="Step 5"))
    press("ArrowRight")
    press("ArrowRight")
    file = console.page.get_by_role("link", name="t.csv")
    tab_to(console, file)
    press("Enter")
    expect(console.page.get_by_role("region", name="Preview of t.csv")).to_be_visible()
    expect(console.page.get_by_role("columnheader", name="y")).to_be_visible()
    assert client.responses.retrieve(going.id).status == "cancelled"


HOSTILE = {
    "markup": "<img src=x onerror=alert(1)><script>alert(2)</script><b>bold</b>",
    "link": "[press](javascript:alert(3)) ![picture](https://tracker.example/p.png)",
    "direction": "abc\u202egnp.exe",
    "hebrew": "\u05e9\u05dc\u05d5\u05dd 1, 2",
    "line": "w" * 50_000,
}


def test_what_models_and_commands_say_is_never_markup(console: Console, key: str, client: OpenAI) -> None:
    elsewhere: list[str] = []
    console.page.on("request", lambda request: elsewhere.append(request.url))
    codes = r"printf '\033]0;title\007\033[2J\033[31mred\033[0m\r\n<i>out</i>\001\n\xe2\x80\xaeabc\n'"
    much = r"head -c 10000000 /dev/zero | tr '\0' z"
    steps = [shell(codes, much, "printf '<script>alert(4)</script>' > '/mnt/data/<b>page.html'"), say("\n\n".join(HOSTILE.values()))]
    ran = client.responses.create(model="demo", input=f"{HOSTILE['markup']} {script(*steps)}", tools=_tools())
    console.enter(key)
    run_page(console, ran.id)
    console.transcript.get_by_role("button", name="Round 2").click()
    said = console.transcript.locator(".said").last
    expect(said).to_contain_text("<script>alert(2)</script>")
    expect(said.get_by_role("link", name="picture")).to_have_attribute("href", "https://tracker.example/p.png")
    expect(said.get_by_role("link", name="press")).to_have_count(0)
    printed = console.transcript.get_by_role("group", name="Output of command 1")
    console.transcript.get_by_role("button", name="Round 1").click()
    expect(printed).to_be_visible()
    text = str(printed.text_content())
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]|title", text)
    assert console.evaluate("() => document.querySelectorAll('main :is(img, script, i, iframe)').length") == 0
    assert console.evaluate("() => document.title") == "Runs · moorage"
    run_page(console, ran.id, "?tab=files")
    console.page.get_by_role("link", name="<b>page.html").click()
    expect(console.page.get_by_role("region", name="Preview of <b>page.html")).to_contain_text("<script>alert(4)</script>")
    assert [url for url in elsewhere if not url.startswith((console.base.removesuffix("console/"), "blob:"))] == []


# --- what became of its files ---


def test_a_file_shows_what_a_round_changed_in_it(console: Console, key: str, ran: str) -> None:
    console.enter(key)
    run_page(console, ran, "?tab=files")
    details = console.page.get_by_role("complementary", name="Details")
    details.get_by_role("button", name="changed: changes of t.csv").click()
    changes = console.page.get_by_role("region", name="Changes of /mnt/data/t.csv")
    expect(changes.get_by_role("row")).to_have_count(2)
    expect(changes.locator(".added")).to_have_text("2+added1,2")
    assert console.barriers() == []
    details.get_by_role("combobox").select_option("round 1")
    expect(details.get_by_role("button", name="new: changes of t.csv", expanded=True)).to_be_visible()
    expect(changes.locator(".added")).to_have_count(2)
    console.page.get_by_role("button", name="To the first event").click()
    expect(details.get_by_text("No files were saved by then.")).to_be_visible()


def test_what_became_of_a_text_is_told_whole(console: Console, key: str) -> None:
    """Two texts come of what is told of both, whichever they are."""
    console.enter(key)
    wrong = console.evaluate(
        """async (address) => {
            const { diff } = await import(address);
            let seed = 1;
            const random = (most) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % most;
            const text = () => Array.from({ length: random(12) }, () => "abc"[random(3)]).join("\\n") + (random(2) ? "\\n" : "");
            for (let round = 0; round < 3000; round += 1) {
                const [before, after] = [text(), text()];
                const told = diff(before, after);
                const side = (other) => told.filter((line) => line.kind !== other).map((line) => line.text).join("");
                if (side("+") !== before || side("-") !== after) return [before, after];
            }
            const [many, others] = ["a", "b"].map((letter) => Array.from({ length: 3000 }, (_, at) => letter + at).join("\\n"));
            return diff(many, others).length === 6000 && diff(many, many).every((line) => line.kind === " ") ? null : "long";
        }""",
        console.module("model/diff.js"),
    )
    assert wrong is None


# --- live ---


def test_a_stream_that_breaks_off_is_taken_up_where_it_was(console: Console, key: str, client: OpenAI) -> None:
    words = [f"word{number}" for number in range(40)]
    going = client.responses.create(
        model="demo",
        input=script(shell("echo held"), {"delta_ms": 20, "say": " ".join(words)}),
        tools=_asking(),
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
    run_page(console, going.id)
    console.page.get_by_role("button", name="Approve").click()
    expect(console.transcript.locator(".said").last).to_have_text(" ".join(words))
    expect(console.page.get_by_role("button", name="end", exact=True)).to_be_visible()
    expect(console.page.get_by_text("reconnecting")).to_have_count(0)
    assert len(asked) >= 3
    assert all(console.said.pop().startswith("Failed to load resource") for _ in list(console.said))


def test_a_page_that_nobody_sees_asks_for_nothing_and_catches_up_afterwards(console: Console, key: str, client: OpenAI) -> None:
    going = client.responses.create(model="demo", input=script(shell("echo held"), say("through")), tools=_asking(), background=True)
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
    going = client.responses.create(model="demo", input=script(shell("sleep 6"), say("through")), tools=_asking(), background=True)
    console.enter(key)
    run_page(console, going.id)
    console.page.get_by_role("button", name="Approve").click()
    console.page.get_by_role("button", name="Pause", exact=True).click()
    console.page.get_by_role("button", name="Resume", exact=True).click()
    expect(console.transcript.get_by_text("through", exact=True)).to_be_visible()


def test_a_first_visit_shows_the_lines_to_type_and_a_button_that_makes_a_run(console: Console, stack: Stack) -> None:
    console.enter(make_key(stack, "newcomer"))
    expect(console.page.get_by_role("heading", name="Nothing has run yet")).to_be_visible()
    expect(console.page.get_by_text(f'base_url="{stack.url}"')).to_be_visible()
    console.page.get_by_role("button", name="Run the demonstration").click()
    expect(console.page.get_by_role("button", name="end", exact=True)).to_be_visible()
    expect(console.transcript.get_by_role("link", name="chart.png")).to_be_attached()


def test_the_playground_runs_a_request_and_says_it_as_programs(console: Console, key: str) -> None:
    console.enter(key, "#/playground")
    console.page.get_by_label("Input").fill("Say \"this\" and 'that'")
    console.page.get_by_role("tab", name="curl").click()
    expect(console.page.locator(".seen pre")).to_contain_text("Say \\\"this\\\" and '\\''that'\\''")
    console.page.get_by_role("tab", name="Python").click()
    compile(str(console.page.locator(".seen pre").text_content()), "python", "exec")
    console.page.get_by_role("button", name="Run", exact=True).click()
    expect(console.transcript.get_by_text("scripted demo model")).to_be_visible()
    console.page.get_by_role("button", name="Go on after this run").click()
    expect(console.page.get_by_text("goes on after")).to_be_visible()


def test_the_playground_says_what_a_deployment_does_not_serve_and_how_it_would(console: Console, key: str, client: OpenAI) -> None:
    console.enter(key, "#/playground")
    settings = console.page.get_by_role("region", name="Request")
    for tool in ("web_search", "image_generation"):
        name = tool.replace("_", " ")
        settings.get_by_role("checkbox", name=name).check()
        refused = settings.get_by_role("alert").filter(has_text=f"[{tool}]")
        asked: Any = [{"type": tool}]
        with pytest.raises(BadRequestError) as refusal:
            client.responses.input_tokens.count(model="demo", input="x", tools=asked)
        expect(refused).to_contain_text(refusal.value.body["message"])  # type: ignore[index]
        assert console.said.pop().startswith("Failed to load resource: the server responded with a status of 400")
        settings.get_by_role("checkbox", name=name).uncheck()
        expect(refused).to_have_count(0)


def test_the_playground_has_every_call_asked_about_if_any_is(console: Console, key: str, client: OpenAI) -> None:
    console.enter(key, "#/playground")
    chosen = {"asks": True, "shell": True, "python": True, "web": True, "image": True, "stores": ["vs_1"], "mcp": "github"}
    tools = console.evaluate(
        "async ([address, chosen]) => { const { requestOf, START } = await import(address);"
        " return requestOf({ ...START, ...chosen }, 'hi').tools }",
        [console.module("model/request.js"), chosen],
    )
    assert {tool["type"]: tool.get("require_approval") for tool in tools} == dict.fromkeys(
        ("shell", "code_interpreter", "web_search", "image_generation", "file_search", "mcp"), "always"
    )
    assert client.responses.input_tokens.count(model="demo", input="hi", tools=tools[:2]).input_tokens > 0
    settings = console.page.get_by_role("region", name="Request")
    settings.get_by_role("checkbox", name="code interpreter").check()
    settings.get_by_role("checkbox", name="shell").uncheck()
    settings.get_by_role("checkbox", name="ask before calls run").check()
    console.page.get_by_label("Input").fill(script({"python": "print(6 * 7)"}, say("done")))
    console.page.get_by_role("button", name="Run", exact=True).click()
    expect(console.page.get_by_role("region", name="Waiting for approval")).to_contain_text("print(6 * 7)")
    console.page.get_by_role("button", name="Approve").click()
    expect(console.transcript.get_by_text("done", exact=True)).to_be_visible()


def test_the_playground_tries_a_remote_server_and_searches_a_store(console: Console, key: str, client: OpenAI) -> None:
    store = client.vector_stores.create(name="harbour")
    file = ("tides.md", b"Spring tides come with new moon.")
    client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=file)
    console.enter(key, "#/playground")
    settings = console.page.get_by_role("region", name="Request")
    settings.get_by_label("remote MCP servers").fill("moorage:workspace http://127.0.0.1:9/mcp github")
    settings.get_by_role("button", name="Try the connection to github").click()
    unknown = settings.get_by_role("status", name="Tools of github")
    expect(unknown).to_contain_text("this deployment knows none by that label")
    assert console.said.pop().startswith("Failed to load resource: the server responded with a status of 400")
    listed = {"type": "mcp_list_tools", "server_label": "github", "tools": [{"name": "get_issue"}, {"name": "search"}]}
    console.page.route("**/v1/responses", lambda route: route.fulfill(json={"status": "completed", "error": None, "output": [listed]}))
    settings.get_by_role("button", name="Try the connection to github").click()
    expect(unknown).to_have_text("2 tools get_issue, search")
    console.page.unroute("**/v1/responses")
    settings.get_by_role("button", name="Try the connection to server_127_0_0_1").click()
    expect(settings.get_by_role("status", name="Tools of server_127_0_0_1")).to_contain_text("port 9 is not allowed")
    settings.get_by_label("Token for server_127_0_0_1").fill("hidden-from-code")
    console.page.get_by_role("tab", name="curl").click()
    shown = console.page.locator(".seen pre")
    expect(shown).to_contain_text('"authorization": "<token>"')
    assert console.evaluate("() => /hidden-from-code|127[.]0/.test(JSON.stringify(localStorage))") is False
    assert console.barriers() == []
    settings.get_by_label("remote MCP servers").fill("")
    settings.get_by_role("checkbox", name="shell").uncheck()
    settings.get_by_role("button", name="harbour").click()
    expect(shown).to_contain_text(store.id)
    steps = script({"calls": [{"name": "file_search", "arguments": {"queries": ["spring tides"]}}]}, say("found"))
    console.page.get_by_label("Input").fill(steps)
    console.page.get_by_role("button", name="Run", exact=True).click()
    expect(console.transcript.get_by_text("found", exact=True)).to_be_visible()
    console.transcript.get_by_role("list", name="Passages").get_by_text("tides.md").scroll_into_view_if_needed()
    expect(console.transcript.locator("mark").first).to_have_text("Spring")
    client.vector_stores.delete(store.id)
    console.page.reload()
    expect(settings.get_by_role("alert")).to_contain_text(store.id)
    assert console.said.pop().startswith("Failed to load resource: the server responded with a status of 40")
    settings.get_by_role("button", name=store.id).click()
    expect(settings.get_by_role("alert")).to_have_count(0)


def test_a_skill_is_read_and_its_versions_compared(console: Console, key: str, client: OpenAI) -> None:
    first = skill(notes=b"one\ntwo\n") | {"tables/SKILL.md": MANIFEST + b"\n<img src=x onerror=alert(1)> is **shown**.\n"}
    made = client.skills.create(files=list(first.items()))
    second = first | {"tables/notes.txt": b"one\n2\n", "tables/more.txt": b"new\n"}
    client.skills.versions.create(made.id, files=list(second.items()))
    console.enter(key, f"#/skills/{made.id}")
    manual = console.page.get_by_role("region", name="SKILL.md of version 1")
    expect(manual.get_by_text("How", exact=True)).to_be_visible()
    expect(manual.locator("strong")).to_have_text("shown")
    expect(manual).to_contain_text("<img src=x onerror=alert(1)>")
    console.page.get_by_role("button", name="notes.txt").click()
    expect(console.page.get_by_role("group", name="notes.txt")).to_have_text("one\ntwo\n")
    console.page.get_by_role("button", name="Version 2: what it holds").click()
    expect(console.page.get_by_role("button", name="more.txt")).to_be_visible()
    console.page.get_by_label("changes since").select_option("version 1")
    changes = console.page.get_by_role("region", name="Changes of notes.txt")
    expect(changes.locator(".added")).to_contain_text("2")
    expect(changes.locator(".removed")).to_contain_text("two")
    expect(console.page.get_by_role("region", name="Changes of more.txt").locator(".added")).to_contain_text("new")
    assert console.barriers() == []


# --- a terminal ---


def test_a_terminal_is_typed_into_and_found_again_as_it_was_left(console: Console, key: str, client: OpenAI) -> None:
    container = client.containers.create(name="place")
    console.enter(key, f"#/containers/{container.id}?tab=terminal")
    console.page.get_by_role("button", name="New terminal").click()
    screen = console.page.locator(".xterm-rows")
    expect(console.page.get_by_role("status").filter(has_text="It runs.")).to_be_visible()
    console.page.keyboard.type("printf '\\033[38;2;200;0;0mred\\033[0m %s\\n' $((6*7))\n")
    expect(screen).to_contain_text("red 42")
    assert screen.get_by_text("red", exact=True).evaluate("(span) => getComputedStyle(span).color") == "rgb(200, 0, 0)"
    console.page.keyboard.type("printf '\\033[2J\\033[7;3H'; stty size; exec cat > typed.txt\n")
    expect(screen.locator("> div").nth(6)).to_have_text(re.compile(r"^ {2}\d+ \d+"))
    assert console.barriers() == []
    console.page.reload()
    expect(screen.locator("> div").nth(6)).to_have_text(re.compile(r"^ {2}\d+ \d+"))
    expect(console.page.get_by_role("status").filter(has_text="It runs.")).to_be_visible()
    console.page.keyboard.type("kept")
    console.page.keyboard.press("Shift+F6")
    console.page.keyboard.type("?")
    expect(console.page.get_by_role("dialog", name="Keys")).to_be_visible()
    console.page.keyboard.press("Escape")
    console.page.locator(".xterm").click()
    console.page.keyboard.press("Enter")
    console.page.keyboard.press("Control+d")
    expect(console.page.get_by_role("status").filter(has_text="It has ended with exit code 0.")).to_be_visible()
    console.page.get_by_role("tab", name="Files").click()
    console.page.get_by_role("button", name=re.compile("^typed.txt")).click()
    expect(console.page.get_by_role("region", name="Preview of typed.txt")).to_contain_text("kept")


# --- whose ---


def test_tenants_see_nothing_of_each_other(console: Console, stack: Stack, ran: str) -> None:
    console.enter(make_key(stack, "stranger"))
    expect(console.page.get_by_role("heading", name="Nothing has run yet")).to_be_visible()
    console.page.evaluate("(where) => { location.hash = where }", f"#/runs/{ran}")
    expect(console.page.get_by_role("alert")).to_contain_text("not found")
    assert len([console.said.pop() for _ in list(console.said)]) == 2  # the run and its input, each a 404


# --- much ---


def test_a_log_of_twenty_thousand_events_stays_small_in_the_page(console: Console, key: str) -> None:
    log = long_log(20_000)
    assert len(log) > 20_000
    streamed = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in log[2000:])

    def answer(route: Route) -> None:
        url = route.request.url
        if "stream=true" in url:
            route.fulfill(content_type="text/event-stream", body=streamed)
        elif "/events" in url:
            after = int((re.search(r"after=(\d+)", url) or ["", "-1"])[1])
            part = [event for event in log[after + 1 : after + 1001] if event["sequence_number"] < 2000]
            body = json.loads(page_of([{"id": str(e["sequence_number"]), "at": 1000 + e["sequence_number"], "event": e} for e in part]))
            last = part[-1]["sequence_number"]
            route.fulfill(json=body | {"last_id": str(last), "has_more": last < 1999})
        elif "/input_items" in url or "/steps" in url:
            route.fulfill(content_type="application/json", body=page_of([]))
        else:
            route.fulfill(json=log[-1]["response"])

    console.page.route("**/v1/responses/resp_long**", answer)
    console.enter(key)
    run_page(console, "resp_long", "?tab=events")
    expect(console.page.get_by_role("slider")).to_have_attribute("aria-valuemax", str(len(log) - 1))
    expect(console.transcript.get_by_role("article")).to_have_count(100)
    assert console.nodes() <= NODES_MAX
    console.transcript.get_by_role("button", name="Round 50", exact=True).evaluate("(button) => button.scrollIntoView()")
    expect(console.transcript.get_by_text("line 199 of round 49")).to_be_attached()
    assert console.nodes() <= NODES_MAX
    run_page(console, "resp_long", "?tab=events&at=10000")
    expect(console.page.get_by_role("slider")).to_have_attribute("aria-valuenow", "10000")
    assert console.nodes() <= NODES_MAX
    assert console.heap_bytes() <= HEAP_BYTES_MAX


# --- to decide, and to begin anew ---


def test_keys_alone_find_what_waits_for_a_word_and_give_it(console: Console, key: str, client: OpenAI) -> None:
    steps = script(shell("echo deployed"), say("through"))
    going = client.responses.create(model="demo", input=steps, tools=_asking(), background=True)
    console.enter(key, "#/approvals")
    waiting = console.page.get_by_role("article").filter(has_text="echo deployed")
    expect(waiting).to_be_visible()
    tab_to(console, waiting.get_by_role("button", name="Approve"))
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    run_page(console, going.id)
    expect(console.transcript.get_by_text("through", exact=True)).to_be_visible()


def test_a_call_is_denied_where_it_stands_and_its_model_is_told_why(console: Console, key: str, client: OpenAI) -> None:
    going = client.responses.create(model="demo", input=script(shell("echo x"), say("{{output}}")), tools=_asking(), background=True)
    console.enter(key)
    run_page(console, going.id)
    asked = console.page.get_by_role("region", name="Waiting for approval")
    asked.get_by_placeholder("why").fill("Not on a Sunday.")
    asked.get_by_role("button", name="Deny").click()
    expect(console.transcript.locator(".said").last).to_contain_text("Not on a Sunday.")


def test_a_run_is_forked_from_the_event_under_the_cursor(console: Console, key: str, ran: str, stack: Stack) -> None:
    events = _events(stack, key, ran)
    second = [number for number, event in enumerate(events) if event["type"] == "response.output_item.added"][3]
    console.enter(key)
    run_page(console, ran, f"?at={second}")
    console.page.get_by_role("button", name="Fork from here").click()
    console.page.get_by_label("Added input").fill(script(say("another way")))
    console.page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(console.transcript.get_by_text("another way", exact=True)).to_be_visible()
    assert ran not in console.page.url
    expect(console.page.get_by_text("fork of")).to_be_visible()


# --- how long runs take ---


def test_how_long_runs_took_is_told_by_those_that_are_listed(console: Console, key: str) -> None:
    took = [*range(1, 20), 400]
    ended = [{"id": f"resp_{at}", "created_at": 1000, "ended_at": 1000 + seconds} for at, seconds in enumerate(took)]
    runs = json.loads(page_of([*ended, {"id": "resp_going", "created_at": 1000, "ended_at": None}]))
    console.page.route("**/v1/responses?**created_after=**", lambda route: route.fulfill(json=runs))
    console.enter(key, "#/usage")
    expect(console.page.get_by_text("Half of the runs took at most")).to_have_text("Half of the runs took at most 10 s")
    expect(console.page.get_by_text("95 % at most")).to_have_text("95 % at most 19 s")
    expect(console.page.get_by_text("counted over 20 runs")).to_be_visible()


# --- the same sums ---


def _events(stack: Stack, key: str, run: str) -> list[dict[str, Any]]:
    with stack.http(key) as http:
        return [each["event"] for each in http.get(f"/responses/{run}/events", params={"limit": 1000}).json()["data"]]


def _kinds(client: OpenAI, ran: str) -> list[str]:
    """Responses that between them have all kinds of items that the demo model makes."""
    python: Any = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    functions: Any = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
    calls = [{"name": "look", "arguments": {"at": "x"}}, {"name": "look", "arguments": {}}]
    asked: list[dict[str, Any]] = [
        {"input": script({"python": "print(6 * 7)"}, say("42")), "tools": python, "include": ["code_interpreter_call.outputs"]},
        {"input": script({"calls": calls}), "tools": functions},
        {"input": script({"reason": "Hm. " * 30, "say": "So."})},
        {"input": script({"fail": {"status": 400, "after_deltas": 3, "times": 0}, "say": "broken off here"}), "background": True},
    ]
    made = [client.responses.create(model="demo", **each).id for each in asked]
    return [ran, *made]


def test_the_page_adds_a_log_up_as_the_server_does(console: Console, key: str, client: OpenAI, ran: str, stack: Stack) -> None:
    console.enter(key)
    for run in _kinds(client, ran):
        with stack.http(key) as http:
            http.get(f"/responses/{run}", params={"stream": "true"})  # ends when the response does
        events = _events(stack, key, run)
        seen = console.evaluate(
            """async ([address, events]) => {
                const { empty, fold, output } = await import(address);
                return events.map((_, number) => {
                    const state = fold(structuredClone(events.slice(0, number + 1)));
                    const done = [...state.done].sort((a, b) => a - b);
                    return [state.next, state.isFinal, state.response?.status ?? null, done, output(state)];
                });
            }""",
            [console.module("model/fold.js"), events],
        )
        for number, (following, is_final, status, done, output) in enumerate(seen):
            folded = fold(json.loads(json.dumps(events[: number + 1])))
            expected = (folded.next_number, folded.is_final, (folded.response or {}).get("status"), sorted(folded.done), folded.output)
            assert (following, is_final, status, done, output) == expected, f"{run}, event {number}"


def test_what_the_page_shows_of_an_event_is_what_the_api_says_of_it(console: Console, key: str, ran: str, stack: Stack) -> None:
    console.enter(key)
    events = _events(stack, key, ran)
    folded = "async ([address, events]) => { const { fold, output } = await import(address); return output(fold(events)) }"
    with stack.http(key) as http:
        for number in range(0, len(events), 7):
            then = http.get(f"/responses/{ran}", params={"at": number}).json()
            seen = console.evaluate(folded, [console.module("model/fold.js"), events[: number + 1]])
            assert seen == then["output"], number


def test_servers_of_pages_stand_in_the_network_of_a_run_when_they_were_asked(console: Console, key: str, ran: str) -> None:
    console.enter(key)
    run_page(console, ran)
    action = {"type": "open_page", "url": "https://tides.example/oslo"}
    call = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": action, "hosts": ["tides.example"]}
    events = [
        {"type": "response.created", "sequence_number": 0, "response": {"output": []}},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": {**call, "status": "in_progress"}},
        {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": call},
    ]
    shown = console.evaluate(
        """async ([address, events]) => {
            const { Log, networkOf } = await import(address);
            const log = new Log();
            log.add(events.map((event, at) => ({ at: 1000 * (at + 5), event })));
            const egress = [{ id: "e1", host: "early.example", created_at: 4 }, { id: "e2", host: "late.example", created_at: 9 }];
            return networkOf({ log, egress }).map((entry) => [entry.created_at, entry.host, entry.path ?? null]);
        }""",
        [console.module("model/run.js"), events],
    )
    assert shown == [[4, "early.example", None], [7, "tides.example", action["url"]], [9, "late.example", None]]


def test_a_gap_in_a_log_is_refused_and_not_drawn_over(console: Console, key: str, ran: str, stack: Stack) -> None:
    console.enter(key)
    events = _events(stack, key, ran)
    refused = console.evaluate(
        "async ([address, events]) => { try { (await import(address)).fold(events) } catch (error) { return error.message } }",
        [console.module("model/fold.js"), [events[0], events[2]]],
    )
    assert refused == "event 2 where 1 was due"
