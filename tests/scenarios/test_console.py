"""The console in a real browser, over a real stack."""

import json
import re
from typing import Any

import pytest
from moorage.loop.fold import fold
from openai import OpenAI
from playwright.sync_api import Route, expect

from tests.browser import WAIT_MS, Console, long_log, page_of
from tests.scenarios.test_cli import lines
from tests.scenarios.visits import make_key, run_page, tab_to
from tests.stack import SHELL, Stack, say, script, shell
from tests.unit.skills.archives import MANIFEST, skill

expect.set_options(timeout=WAIT_MS)

NODES_MAX = 2000
HEAP_BYTES_MAX = 150 * 1024 * 1024


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    """Of a tenant that has what the tests below look at, and nothing else."""
    return make_key(stack, "onlooker")


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


def test_no_request_of_a_page_comes_behind_the_end_of_its_session(console: Console, stack: Stack) -> None:
    """One that was on its way was refused with 401, because the session had ended before it came."""
    (address,) = lines(stack, ["console", "--no-browser"])
    held: dict[str, Route] = {}

    def hold(route: Route) -> None:
        if (name := f"{route.request.method} {route.request.url.rsplit('/', 1)[-1]}") in ("GET me", "DELETE session"):
            held[name] = route
        else:
            route.continue_()

    console.page.route("**/v1/**", hold)
    console.page.goto(address)
    with console.page.expect_event("requestfailed", lambda request: request.url.endswith("/v1/me")):
        console.page.get_by_role("button", name="Forget the key and leave").click()
    expect(console.page.get_by_label("API key")).to_be_visible()
    with console.page.expect_response("**/v1/console/session") as answered:
        held["DELETE session"].continue_()
    assert answered.value.json()["ended"]


def test_a_response_that_the_command_names_is_what_opens(console: Console, stack: Stack) -> None:
    with stack.http() as http:
        ran = http.post("/responses", json={"model": "demo", "input": "What is a bollard?"}).json()
    (address,) = lines(stack, ["console", "--no-browser", ran["id"]])
    console.page.goto(address)
    expect(console.page.get_by_role("heading", name="What is a bollard?")).to_be_visible()
    assert console.page.url == f"{console.base}#/runs/{ran['id']}"


def test_a_code_that_was_used_asks_for_a_key(console: Console, stack: Stack) -> None:
    (address,) = lines(stack, ["console", "--no-browser"])
    with stack.http(address.partition("#k=")[2]) as http:
        assert http.post("/console/session").status_code == 200
    console.page.goto(address)
    expect(console.page.get_by_text("This code has been used or has run out.")).to_be_visible()
    expect(console.page.get_by_label("API key")).to_be_visible()
    console.takes_back(401)


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
    expect(measured).to_contain_text(f"3 model steps · 2 calls · {usage.input_tokens:,} in · {usage.output_tokens:,} out")
    expect(console.page).to_have_url(re.compile(r"range=\d+-\d+"))
    console.page.get_by_role("button", name="Clear").click()
    expect(measured).to_have_count(0)
    console.page.get_by_role("slider").focus()
    console.page.keyboard.press("Home")
    console.page.keyboard.press("]")
    expect(measured).to_contain_text("0 calls · 0 in · 0 out")


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
    file = console.page.get_by_role("tabpanel").get_by_role("link", name="t.csv")
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
    console.page.get_by_role("tabpanel").get_by_role("link", name="<b>page.html").click()
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
    expect(console.page.get_by_text("Median run")).to_have_text("Median run 10 s")
    expect(console.page.get_by_text("95th percentile")).to_have_text("95th percentile 19 s")
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
