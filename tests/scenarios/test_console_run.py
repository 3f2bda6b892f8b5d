"""What stands behind a run and its container in the console: prompts, traces, sandboxes, versions and archives."""

import json
import re
import shlex
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import Route, expect

from tests.browser import WAIT_MS, Console, page_of
from tests.processes import until
from tests.scenarios.visits import make_key
from tests.stack import SHELL, Stack, say, script, shell

expect.set_options(timeout=WAIT_MS)

HOSTILE = "<img src=x onerror=alert(1)>\u202egpj.exe"


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "inspector")


@pytest.fixture
def console(console: Console, key: str) -> Console:
    return console.enter(key)


@pytest.fixture(scope="module")
def ran(client: OpenAI) -> str:
    """A response of three rounds, whose input is hostile."""
    steps = [shell("echo one > a.txt"), shell("echo two > a.txt; mkdir -p sub; echo x,y > sub/t.csv"), say("Done.")]
    tools: Any = [SHELL]
    return str(client.responses.create(model="demo", input=f"{HOSTILE} {script(*steps)}", tools=tools).id)


def test_the_prompt_of_a_step_is_read_part_by_part(console: Console, ran: str, client: OpenAI) -> None:
    page = console.go(f"#/runs/{ran}?step=step_1").page
    page.get_by_role("button", name="Prompt as sent").click()
    parts = page.get_by_role("list", name="Parts of the prompt").get_by_role("listitem")
    expect(parts).to_have_count(4)
    heads = [part.locator("b").inner_text() for part in parts.all()]
    assert heads == ["instructions and tools", "user", "function call", "function call output"]
    expect(parts.nth(1)).to_contain_text("<img src=x onerror=alert(1)>gpj.exe")
    parts.nth(2).get_by_role("button").click()
    expect(parts.nth(2)).to_contain_text("echo one > a.txt")
    prompt: Any = client.get(f"/responses/{ran}/steps/step_1/prompt", cast_to=object)
    expect(page.get_by_text(f"{prompt['usage']['input_tokens']} tokens to")).to_be_visible()
    assert console.barriers() == []


def test_what_came_from_the_cache_is_shaded_and_said(console: Console, ran: str) -> None:
    sent = {
        "id": "step_1", "object": "response.prompt", "step": 1, "model": "upstream", "instructions": "Be brief.",
        "tools": [], "parameters": {},
        "input": [{"type": "message", "role": "user", "content": "first"}, {"type": "message", "role": "user", "content": "second"}],
        "estimated_tokens": {"frame": 10, "input": [10, 20]},
        "usage": {"input_tokens": 80, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 1, "total_tokens": 81},
    }  # fmt: skip
    console.page.route("**/prompt", lambda route: route.fulfill(json=sent))
    page = console.go(f"#/runs/{ran}?step=step_1").page
    page.get_by_role("button", name="Prompt as sent").click()
    expect(page.get_by_text("80 tokens to upstream, 40 of them from the cache")).to_be_visible()
    parts = page.get_by_role("list", name="Parts of the prompt").get_by_role("listitem")
    assert [part.get_by_text("cached").count() for part in parts.all()] == [1, 1, 0]
    assert [part.locator(".number").inner_text() for part in parts.all()] == ["~20", "~20", "~40"]
    assert console.barriers() == []


def test_the_trace_of_a_run_is_saved_as_opentelemetry_reads_it(console: Console, ran: str) -> None:
    page = console.go(f"#/runs/{ran}?tab=raw").page
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download the trace as OTLP").click()
    assert saved.value.suggested_filename == f"{ran}.otlp.json"
    spans = json.loads(saved.value.path().read_bytes())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["name"] for span in spans if span["name"].startswith("round")] == ["round 0", "round 1", "round 2"]
    assert spans[0]["name"] == "invoke_agent"


def container_of(client: OpenAI, ran: str) -> str:
    response: Any = client.responses.retrieve(ran)
    return str(response.tools[0].environment.container_id)


def test_a_file_of_a_run_is_read_over_the_run_which_stays(console: Console, ran: str, client: OpenAI) -> None:
    page = console.go(f"#/runs/{ran}?tab=files").page
    title = page.get_by_role("heading", level=1).text_content()
    drawer = page.get_by_role("dialog", name="File")
    shown = {
        "an answer's file": (page.get_by_role("region", name="Answer").get_by_role("link", name="a.txt"), "two"),
        "a row": (page.get_by_role("complementary", name="Details").get_by_role("link", name="sub/t.csv"), "y"),
    }
    for link, text in shown.values():
        link.click()
        expect(drawer.get_by_text(text, exact=True)).to_be_visible()
        assert console.barriers() == []
        page.keyboard.press("Escape")
        expect(drawer).to_have_count(0)
        expect(page).to_have_url(re.compile(f"#/runs/{ran}\\?tab=files$"))
    shown["a row"][0].click()
    drawer.get_by_role("link", name="Open its container").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(title or "")
    expect(drawer).to_have_count(0)
    assert f"#/containers/{container_of(client, ran)}?file=" in page.url


def test_the_timeline_has_the_sandbox_and_what_was_saved(console: Console, ran: str) -> None:
    timeline = console.go(f"#/runs/{ran}").page.get_by_role("group", name="Timeline")
    expect(timeline.get_by_role("img", name="sandbox 1: running, started in")).to_be_visible()
    expect(timeline.locator(".tick.diamond")).to_have_count(2)
    assert timeline.locator(".tick.diamond title").all_text_contents() == [
        "files saved: 1 change, 1 file then",
        "files saved: 2 changes, 2 files then",
    ]


def test_a_part_of_a_run_is_chosen_on_the_map_below_it(console: Console, ran: str) -> None:
    page = console.go(f"#/runs/{ran}").page
    timeline = page.get_by_role("group", name="Timeline")
    map_ = page.locator("svg.map")
    expect(map_.locator(".window")).to_be_visible()
    box = map_.bounding_box()
    assert box is not None

    def drag(begin: float, end: float) -> None:
        for place, act in ((begin, page.mouse.down), (end, page.mouse.up)):
            page.mouse.move(box["x"] + box["width"] * place, box["y"] + 9, steps=5)
            act()

    def window() -> list[float]:
        return [round(float(str(map_.locator(".window").get_attribute(name))) / box["width"], 1) for name in ("x", "width")]

    beginning = timeline.locator(".axis-text").first
    expect(beginning).to_have_text("0")
    drag(0.5, 0.8)
    expect(beginning).not_to_have_text("0")
    until(lambda: window() == [0.5, 0.3])
    drag(0.65, 0.85)
    until(lambda: window() == [0.7, 0.3])
    map_.dblclick()
    expect(beginning).to_have_text("0")


def test_a_sandbox_that_was_lost_or_waited_long_is_seen_at_a_glance(console: Console, ran: str) -> None:
    shown = console.evaluate(
        """async (address) => {
            const { Log, lanes } = await import(address);
            const log = new Log();
            const said = (number, type) => ({ type, sequence_number: number, response: { output: [] } });
            log.add([{ at: 1000, event: said(0, "response.created") }, { at: 9000, event: said(1, "response.completed") }]);
            const lived = (id, status, ordered_at, started_at, ended_at, end) =>
                ({ id, status, ordered_at, started_at, ended_at, end, refusal: null });
            const sandboxes = [
                lived("sandbox_3", "starting", 7000, null, null, null),
                lived("sandbox_2", "ended", 2000, 4500, 6000, "lost"),
                lived("sandbox_1", "ended", 10, 20, 900, "idle"),
            ];
            const versions = [{ id: "2", at: 5000 }, { id: "1", at: 500 }];
            const { container, saved } = lanes({ log, steps: [], egress: [], files: [], sandboxes, versions, nowMs: 9500 });
            const bars = container.map((bar) => [bar.label, bar.wait, bar.from, bar.to, bar.isBad, bar.isOpen]);
            return [bars, saved.map((each) => each.at)];
        }""",
        console.module("model/run.js"),
    )
    assert shown == [
        [
            ["sandbox 2: was lost, started in 2.5 s", 2000, 4500, 6000, True, False],
            ["sandbox 3: starting", 7000, 9500, 9500, False, True],
        ],
        [5000],
    ]


def test_the_versions_of_a_containers_files_are_looked_at_and_saved(console: Console, ran: str, client: OpenAI) -> None:
    container_id = container_of(client, ran)
    page = console.go(f"#/containers/{container_id}?tab=versions").page
    rows = page.get_by_role("region", name="Versions of the files").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("changed a.txt")
    expect(rows.nth(1)).to_contain_text("added sub/t.csv")
    expect(rows.nth(2)).to_contain_text("added a.txt")
    assert console.barriers() == []
    with page.expect_download() as saved:
        rows.nth(2).get_by_role("button", name="Zip of the files as of").click()
    assert _unpacked(saved.value.path()) == {"a.txt": b"one\n"}
    rows.nth(2).get_by_role("button", name="Look at the files as of").click()
    expect(page.get_by_role("status").filter(has_text="As they were")).to_be_visible()
    expect(page.get_by_role("list", name="Files").get_by_role("listitem")).to_have_count(1)
    page.get_by_role("list", name="Files").get_by_role("button").click()
    expect(page.get_by_role("group", name="a.txt")).to_have_text("one\n")
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page.get_by_role("list", name="Files").get_by_role("listitem")).to_have_count(3)
    with page.expect_download() as whole:
        page.get_by_role("button", name="All as zip").click()
    assert whole.value.suggested_filename == f"{container_id}.zip"
    assert _unpacked(whole.value.path()) == {"a.txt": b"two\n", "sub/t.csv": b"x,y\n"}


def _unpacked(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def test_the_sandboxes_of_a_container_are_told(console: Console, ran: str, client: OpenAI) -> None:
    page = console.go(f"#/containers/{container_of(client, ran)}?tab=sandboxes").page
    row = page.get_by_role("region", name="Sandboxes").get_by_role("row").nth(1)
    expect(row.get_by_role("cell").first).to_have_text("1")
    expect(row).to_contain_text("running")
    assert console.barriers() == []


def test_words_are_found_in_all_of_an_output_and_it_is_copied_as_it_was_printed(console: Console, client: OpenAI) -> None:
    """Also where only its end is shown; hostile lines and codes of colours are no hindrance."""
    printed = "seq 1 500; printf 'a \\033[31mne\\033[0medle <b>x</b> \\342\\200\\256 here\\n'; seq 501 1200"
    tools: Any = [SHELL]
    ran = client.responses.create(model="demo", input=script(shell(printed), say("done")), tools=tools)
    page = console.go(f"#/runs/{ran.id}").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.get_by_role("group", name="Output of command 1")).to_contain_text("1200")
    page.get_by_role("button", name="Find in: Output of command 1").press("Enter")
    field = page.get_by_role("searchbox", name="Words to find in: Output of command 1")
    expect(field).to_be_focused()
    field.fill("NEEDLE <b>")
    lines = page.get_by_role("list", name="Lines with these words").get_by_role("listitem")
    expect(lines).to_have_text(["501a needle <b>x</b>  here"])
    expect(lines.locator("mark")).to_have_text("needle <b>")
    field.fill("999")
    expect(page.get_by_role("search").get_by_role("status")).to_have_text("1 line")
    field.fill("(")
    expect(page.get_by_role("search").get_by_role("status")).to_have_text("No line has it.")
    field.fill("1")
    expect(page.get_by_role("search").get_by_role("status")).to_contain_text("lines, the first 200")
    assert console.barriers() == []
    field.press("Escape")
    expect(field).to_have_count(0)
    page.get_by_role("button", name="Copy raw: Output of command 1").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    copied = console.evaluate("() => navigator.clipboard.readText()")
    assert "a \x1b[31mne\x1b[0medle" in copied
    assert copied.startswith("1\n2\n")


def test_a_model_step_says_what_its_upstream_called_the_request(console: Console, ran: str) -> None:
    page = console.page

    def answer(route: Route) -> None:
        told = route.fetch().json()
        told["data"][0]["upstream_request_id"] = "req_<b>7</b>"
        route.fulfill(json=told)

    page.route("**/steps?**", answer)
    console.go(f"#/runs/{ran}?step=step_0")
    fact = page.locator(".facts > div").filter(has_text="upstream request id")
    expect(fact.locator("code")).to_have_text("req_<b>7</b>")
    expect(fact.get_by_role("button", name="Copy req_")).to_be_visible()
    page.unroute("**/steps?**")


def test_a_request_that_was_given_a_secret_has_a_key_on_the_timeline(console: Console, client: OpenAI, ran: str) -> None:
    """What was let pass, what was given a secret and what was refused have shapes of their own, beside their words."""
    page = console.page
    steps: Any = client.get(f"/responses/{ran}/steps", cast_to=object)
    now = steps["data"][0]["started_at"] // 1000  # a second of the run, however short that is

    def entry(name: str, **more: Any) -> dict[str, Any]:
        common = {"decision": "allowed", "port": 443, "method": "GET", "path": "/", "secrets": [], "count": 1, "status": 200}
        told = {"id": name, "host": f"{name}.example", "created_at": now, "message": None, "bytes_received": 1, "bytes_sent": 1}
        return common | told | more

    entries = [entry("plain"), entry("given", secrets=["<b>TOKEN</b>"]), entry("refused", decision="denied", message="Not allowed.")]
    page.route("**/egress?**", lambda route: route.fulfill(json=json.loads(page_of(entries))))
    console.go(f"#/runs/{ran}?tab=network")
    ticks = page.get_by_role("group", name="Timeline").locator(".tick:is(.dot, .key, .cross)")
    expect(ticks).to_have_count(3)
    assert [title.text_content() for title in ticks.locator("title").all()] == [
        "allowed plain.example",
        "allowed given.example, with a secret",
        "denied refused.example",
    ]
    shapes = [str(tick.get_attribute("class")).split()[1:3] for tick in ticks.all()]
    assert shapes == [["good", "dot"], ["good", "key"], ["bad", "cross"]]
    expect(page.get_by_role("region", name="Network decisions")).to_contain_text("secret <b>TOKEN</b>")
    assert console.barriers() == []
    page.unroute("**/egress?**")


def test_a_compaction_says_what_it_stands_for(console: Console, client: OpenAI) -> None:
    tools: Any = [SHELL]
    ran: Any = client.responses.create(
        model="demo",
        input=script({"say": "Counting.", **shell("seq 3000")}, say("done")),
        tools=tools,
        context_management=[{"type": "compaction", "compact_threshold": 2_000}],
        max_tool_calls=1,
    )
    (sealed,) = [len(item.encrypted_content) for item in ran.output if item.type == "compaction"]
    card = console.go(f"#/runs/{ran.id}").transcript.locator(".card", has=console.page.get_by_role("heading", name="compaction"))
    expect(card).to_contain_text(f"4 items → notes of {sealed:,} sealed characters" if sealed < 10_000 else "4 items → notes of")
    expect(card).to_contain_text("tokens in at the call before it")
    assert console.barriers() == []
    shown = console.evaluate(
        """async (address) => {
            const { shortened } = await import(address);
            const step = (tokens) => ({ call_id: null, usage: { input_tokens: tokens } });
            const marks = (indexes) => indexes.map((index) => ({ mark: { index } }));
            const round = (number, ...indexes) => ({ number, agent: null, nth: number, items: marks(indexes) });
            const rounds = [round(0, 0, 1), round(1, 2, 3), round(2, 4)];
            const steps = [step(900), step(1000), step(40)];
            const of = (round, index) => shortened({ input: [1, 2, 3], rounds, steps, round, index });
            return [of(1, 2), of(0, 0), of(2, 4)];
        }""",
        console.module("model/run.js"),
    )
    assert shown == [
        {"items": 5, "tokens": 900, "tokensAfter": 40},
        {"items": 3, "tokens": None, "tokensAfter": 1000},
        {"items": 7, "tokens": 1000, "tokensAfter": None},
    ]


SERVES = "import socket, time; s = socket.create_server(('127.0.0.1', 8123)); time.sleep(600) # <b onclick=x>\u202egnp.exe"


def test_what_runs_in_a_container_is_told_with_its_ports(console: Console, client: OpenAI, stack: Stack, key: str) -> None:
    container = client.containers.create(name="busy")
    page = console.go(f"#/containers/{container.id}?tab=processes").page
    expect(page.get_by_text("Nothing runs in it.")).to_be_visible()
    with stack.http(key) as http:
        command = f"exec python3 -c {shlex.quote(SERVES)}"
        session = http.post(f"/containers/{container.id}/sessions", json={"command": command}).json()
        row = page.get_by_role("region", name="Processes").get_by_role("row").filter(has_text="8123")
        expect(row.get_by_role("cell").nth(2)).to_have_text("8123")
        assert row.get_by_role("cell").nth(1).inner_text() == f"python3 -c {SERVES}".replace("\u202e", "")
        assert console.barriers() == []
        http.delete(f"/sessions/{session['id']}")
    expect(page.get_by_text("Nothing runs in it.")).to_be_visible()


def test_all_that_was_run_in_a_container_is_read_in_one_place(console: Console, ran: str, client: OpenAI) -> None:
    page = console.go(f"#/containers/{container_of(client, ran)}?tab=commands").page
    run = page.get_by_role("article").filter(has_text="<img src=x onerror=alert(1)>")
    expect(run.locator(".command")).to_have_text(["$ echo one > a.txt", "$ echo two > a.txt; mkdir -p sub; echo x,y > sub/t.csv"])
    expect(run.locator(".outcome")).to_have_count(2)
    assert console.barriers() == []


def test_a_container_is_kept_for_its_whole_time_again(console: Console, client: OpenAI) -> None:
    made = client.containers.create(name="kept")
    page = console.go(f"#/containers/{made.id}").page
    page.get_by_role("button", name="Extend").click()
    expect(page.get_by_text("It stays for its whole time again.")).to_be_visible()


def test_a_container_that_nobody_has_used_says_what_would_stand_there(console: Console, client: OpenAI) -> None:
    made = client.containers.create(name="empty")
    page = console.go(f"#/containers/{made.id}?tab=versions").page
    expect(page.get_by_text("Its files have not changed yet.")).to_be_visible()
    page.get_by_role("tab", name="Versions").press("ArrowRight")
    expect(page.get_by_text("It has had no sandbox yet")).to_be_visible()
    expect(page.get_by_role("tab", name="Sandboxes")).to_be_focused()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed ('make setup-dev' installs it).")
def test_a_call_of_a_computer_is_shown_with_its_actions_page_and_picture(console: Console, client: OpenAI) -> None:
    keys = {"type": "keypress", "keys": ["CTRL", "NO-SUCH-KEY"]}
    actions = {"actions": [{"type": "click", "x": 10, "y": 20}, {"type": "type", "text": "tea"}, keys]}
    tool: Any = {"type": "computer", "container": {"type": "container_auto"}}
    response = client.responses.create(
        model="demo",
        input=script({"call": {"name": "computer", "arguments": actions}}, say("end")),
        tools=[tool],
        include=["computer_call_output.output.image_url"],
    )
    page = console.go(f"#/runs/{response.id}").page
    card = page.locator(".card.call", has_text="computer").first
    expect(card.locator("li")).to_have_text(["click at 10, 20", 'type "tea"', "keypress CTRL+NO-SUCH-KEY"])
    output = page.locator(".card.output", has=page.get_by_alt_text("The screen after these actions"))
    expect(output).to_contain_text("about:blank")
    expect(output.locator(".bad")).to_contain_text("NO-SUCH-KEY")
    assert console.barriers() == []
