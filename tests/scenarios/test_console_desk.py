"""What an owner does in the console: webhooks, keys, the doctor, what is stored, and files by hand."""

import datetime
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage import __version__
from moorage.command_hints import typed_here
from moorage.hosts import covers
from moorage.webhooks.event_types import ENVIRONMENT_TYPES, SESSION_TYPES
from openai import OpenAI
from playwright.sync_api import Route, expect

from tests.browser import WAIT_MS, Console, page_of
from tests.command_line import moorage
from tests.receivers import Receiver, receiver_beside
from tests.scenarios.test_cli import lines
from tests.scenarios.visits import make_key
from tests.stack import Stack, say, script, shell
from tests.unit.skills.archives import skill, zip_of

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiver_beside() as running:
        yield running


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    """One whose webhooks may go to this machine."""
    environment = {"MOORAGE_METRICS_PORT": "0", "MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128"}
    running = Stack(Path(tmp_path_factory.mktemp("desk")), environment | {"MOORAGE_EGRESS_PORTS": str(receiver.port)}).start()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "owner")


@pytest.fixture
def console(console: Console, key: str) -> Console:
    return console.enter(key)


# --- webhooks ---


def test_an_endpoint_is_made_tried_edited_sealed_anew_and_deleted(console: Console, client: OpenAI, receiver: Receiver) -> None:
    page = console.go("#/webhooks").page
    page.get_by_role("textbox", name="Name").fill("billing")
    page.get_by_role("textbox", name="Address").fill(receiver.url)
    page.get_by_role("button", name="incomplete").click()
    page.get_by_role("button", name="Add").click()
    sealed = page.get_by_role("complementary").filter(has_text="The signing secret is shown now and never again.")
    first = str(sealed.locator("pre").text_content())
    page.get_by_role("link", name="billing").click()
    page.get_by_role("button", name="Send a test").click()
    expect(page.get_by_text("It answered 200.")).to_be_visible()
    assert receiver.sent[-1].unwrapped(first).type == "response.completed"
    page.get_by_role("button", name="Edit").click()
    assert console.barriers() == []
    page.get_by_role("textbox", name="Name").fill("accounts")
    page.get_by_role("button", name="cancelled").click()
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="accounts")).to_be_visible()
    (endpoint,) = client.webhooks.list().data
    assert (endpoint.name, endpoint.event_types) == (
        "accounts",
        ["response.completed", "response.failed", *SESSION_TYPES, *ENVIRONMENT_TYPES, "moorage.approval.requested"],
    )
    page.get_by_role("button", name="New secret").click()
    expect(sealed.locator("pre")).not_to_have_text(first)
    second = str(sealed.locator("pre").text_content())
    with page.expect_response("**/test"):
        page.get_by_role("button", name="Send a test").click()
    assert second != first
    assert receiver.sent[-1].unwrapped(second).type == receiver.sent[-1].unwrapped(first).type
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("heading", name="No endpoint yet")).to_be_visible()
    assert client.webhooks.list().data == []


def test_each_attempt_of_a_delivery_is_told_and_it_is_sent_again(console: Console, client: OpenAI, receiver: Receiver) -> None:
    endpoint = client.webhooks.create(name="trying", url=receiver.url, event_types=["response.completed"])
    receiver.answers.append(503)
    client.responses.create(model="demo", input=script(say("told")), background=True)
    page = console.go(f"#/webhooks/{endpoint.id}").page
    log = page.get_by_role("button", name="attempts of evt_")
    expect(log).to_contain_text("the last: 200")
    log.click()
    attempts = page.get_by_role("region", name="Attempts", exact=True).get_by_role("row")
    expect(attempts).to_have_count(3)
    expect(attempts.nth(1)).to_contain_text("200")
    expect(attempts.nth(2)).to_contain_text("503")
    assert "delivery=evt_" in page.url
    assert "".join(console.barriers()) == ""
    page.get_by_role("button", name="Send again").click()
    expect(attempts).to_have_count(4)
    client.webhooks.delete(endpoint.id)


def test_an_address_that_is_refused_says_why_and_keeps_what_was_typed(console: Console) -> None:
    page = console.go("#/webhooks").page
    page.get_by_role("textbox", name="Name").fill("inward")
    page.get_by_role("textbox", name="Address").fill("https://10.0.0.1/hook")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".notices .bad")).to_contain_text("is not a public address")
    expect(page.get_by_role("textbox", name="Address")).to_have_value("https://10.0.0.1/hook")
    console.takes_back(400)


# --- keys ---


def shown_command(console: Console) -> list[str]:
    """Without the name of the program."""
    return shlex.split(str(console.page.locator(".commands pre").text_content()))[1:]


def test_the_commands_that_the_page_of_keys_makes_do_what_it_says(console: Console, stack: Stack, client: OpenAI) -> None:
    page = console.go("#/keys").page
    page.get_by_label("Name of a new key").fill("Ann's laptop")
    expect(page.locator(".commands pre")).to_contain_text("laptop")
    (secret,) = _printed(stack, shown_command(console))
    with stack.http(secret) as http:
        made = http.get("/me").json()
        assert (made["tenant"], made["key"]["name"]) == ("owner", "Ann's laptop")
        http.post("/responses", json={"model": "demo", "input": script(say("hello"))})
    page.reload()
    page.get_by_role("tab", name="Give it a budget").click()
    page.get_by_role("combobox", name="Of").select_option(made["key"]["id"])
    page.get_by_role("combobox", name="Measure").select_option("tool calls")
    page.get_by_role("spinbutton", name="At most").fill("5")
    page.get_by_role("combobox", name="Then").select_option("finish")
    expect(page.locator(".commands pre")).to_contain_text("finish")
    assert lines(stack, shown_command(console))[-1] == "Processes that have just seen a key obey within 30 seconds."
    (shown,) = lines(stack, ["keys", "budget", made["key"]["id"], "--json"])
    budget = json.loads(shown)
    assert (budget["limits"], budget["on_limit"]) == ({"tool_calls": 5}, "finish")
    page.get_by_role("tab", name="Revoke a key").click()
    page.get_by_role("combobox", name="Of").select_option(made["key"]["id"])
    expect(page.locator(".commands pre")).to_contain_text(made["key"]["id"])
    lines(stack, shown_command(console))
    page.get_by_role("tab", name="Let somebody look").click()
    (address,) = lines(stack, shown_command(console))
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_text("read only", exact=True)).to_be_visible()


def _printed(stack: Stack, command: list[str]) -> list[str]:
    return moorage(stack, *command).stdout.splitlines()


# --- the doctor ---

_ERROR: Any = {"error": {"message": "The table is away.", "type": "server_error", "param": None, "code": None}}
_STUCK = {"id": "resp_stuck", "waiting_for": {"kind": "pause", "detail": "Its budget is used up."}}
_SAID: dict[str, tuple[str, int, Any, list[str]]] = {
    "no API": ("**/v1/me", 500, _ERROR, ["The API does not answer", "moorage logs", "The table is away."]),
    "no models": ("**/v1/models", 500, _ERROR, ["The models cannot be listed", "models.toml", "The table is away."]),
    "no usage": ("**/v1/usage?**", 500, _ERROR, ["Usage cannot be added up", "moorage doctor'"]),
    "no list": ("**/v1/responses?**", 500, _ERROR, ["What runs cannot be listed", "moorage doctor'"]),
    "standing still": (
        "**/v1/responses?**",
        200,
        {"data": [_STUCK]},
        ["1 paused run", "Resume or stop it", "Its budget is used up."],
    ),
    "failed runs": (
        "**/v1/usage?**",
        200,
        {"data": [{"responses": 3, "by_status": {"failed": 2}}]},
        ["2 of 3 runs failed today", "Their errors, in their own words"],
    ),
    "a webhook": (
        "**/v1/webhook_endpoints?**",
        200,
        {"data": [{"id": "wh_1", "name": "billing", "status": "failing"}]},
        ["1 endpoint of 1 does not take what it is sent", "What it answered", "billing"],
    ),
    "little room": (
        "**/v1/me",
        200,
        {"version": "1", "tenant": "owner", "key": {}, "storage": {"used_bytes": 95, "limit_bytes": 100}},
        ["Little room is left for files", "raise MOORAGE_STORED_BYTES_MAX", "95 B of 100 B"],
    ),
}


@pytest.mark.parametrize("trouble", _SAID)
def test_the_doctor_says_of_each_finding_what_to_do(console: Console, trouble: str) -> None:
    pattern, status, body, said = _SAID[trouble]
    page = console.go("#/files").page
    page.route(pattern, lambda route: route.fulfill(status=status, json=body))
    console.go("#/doctor")
    finding = page.get_by_role("main").get_by_role("listitem").filter(has_text=said[0])
    for words in said:
        expect(finding).to_contain_text(words)
    assert console.barriers() == []
    page.unroute(pattern)
    page.get_by_role("button", name="Look again").click()
    expect(finding).to_have_count(0)
    console.said = [each for each in console.said if "status of 500" not in each]


_OF_MODELS = {
    "sound": (200, {"status": "completed"}),
    "moody": (200, {"status": "completed"}),
    "away": (200, {"status": "failed", "error": {"message": "No connection to the model's server."}}),
    "cut": (429, {"error": {"message": "This key has no credit.", "code": "insufficient_quota"}}),
}
"""What each model is said to answer."""


def test_the_doctor_asks_every_model_and_trusts_none_whose_runs_all_failed(console: Console) -> None:
    asked: list[dict[str, Any]] = []

    def answer(route: Route) -> None:
        asked.append(json.loads(route.request.post_data or ""))
        status, body = _OF_MODELS[asked[-1]["model"]]
        route.fulfill(status=status, json=body)

    failed = {**_STUCK, "id": "resp_1", "status": "failed", "error": {"message": "The upstream refused it."}}
    models = [{"id": name, "object": "model", "owned_by": "me"} for name in _OF_MODELS]
    page = console.go("#/files").page
    page.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": models}))
    page.route("**/v1/responses", answer)
    page.route("**/v1/responses?model=moody**", lambda route: route.fulfill(json={"data": [failed, failed]}))
    console.go("#/doctor")
    found = page.get_by_role("list", name="Models").get_by_role("listitem")
    expect(found).to_contain_text(
        [
            re.compile(r"^oksound answered in"),
            re.compile(r"^warnmoody answered in .*, but its last 2 runs failed.*The upstream refused it\.$"),
            re.compile(r"^failaway did not answer.*No connection to the model's server\.$"),
            re.compile(r"^failcut did not answer.*This key has no credit\.$"),
        ]
    )
    assert sorted(asked, key=lambda body: str(body["model"])) == [
        {"model": name, "input": "Answer with one word: ready.", "store": False} for name in sorted(_OF_MODELS)
    ]
    assert console.barriers() == []
    console.takes_back(429)


def test_hints_name_the_command_that_works_where_the_stack_was_started(console: Console) -> None:
    page = console.go("#/doctor").page
    (command,) = page.locator("main pre").all_text_contents()
    done = subprocess.run(shlex.split(command.replace(" doctor", " --version")), capture_output=True, text=True, check=True)
    assert done.stdout == f"moorage {__version__}\n"
    expect(page.get_by_text(f"'{command}' looks at the machine")).to_be_visible()


def test_the_doctor_tries_a_sandbox_and_leaves_nothing(console: Console, client: OpenAI) -> None:
    before = [each.id for each in client.containers.list().data]
    page = console.go("#/doctor").page
    page.get_by_role("button", name="Try a sandbox").click()
    expect(page.get_by_text("A sandbox started, ran a command and answered")).to_be_visible()
    expect(page.get_by_role("button", name="Try a sandbox")).to_be_enabled()
    assert [each.id for each in client.containers.list().data] == before
    page.route("**/v1/responses", lambda route: route.fulfill(status=503, json=_ERROR))
    page.get_by_role("button", name="Try a sandbox").click()
    expect(page.get_by_text(typed_here("'moorage doctor' says what the machine lacks for sandboxes."))).to_be_visible()
    expect(page.get_by_role("main").get_by_text("The table is away.")).to_be_visible()
    console.takes_back(503)


# --- what is stored, and used ---


def test_what_is_stored_is_shown_where_an_owner_looks(console: Console, stack: Stack, key: str, client: OpenAI) -> None:
    client.files.create(file=("big.bin", b"x" * 3_000_000), purpose="user_data")
    client.embeddings.create(model="static-256", input="spring tides and neap tides")
    client.responses.create(model="demo", input=script(say("used")))
    with stack.http(key) as http:
        storage = http.get("/me").json()["storage"]
    used = f"{storage['used_bytes'] / 1e6:.1f} MB"
    page = console.go("#/files").page
    console.go("#/runs")
    expect(page.get_by_role("list", name="Health")).to_contain_text(f"{used} of 2.50 TB stored")
    console.go("#/usage?by=model")
    stored = page.get_by_role("region", name="Storage")
    expect(stored.get_by_text(used).first).to_be_visible()
    expect(stored).to_contain_text("of 2.50 TB")
    expect(stored.get_by_role("meter")).to_have_attribute("value", str(storage["used_bytes"]))
    expect(page.get_by_role("columnheader", name="Embedded")).to_be_visible()
    titles = page.get_by_role("region", name="Usage").get_by_role("columnheader").all_text_contents()
    row = page.get_by_role("row").filter(has_text="static-256").get_by_role("cell")
    assert int(str(row.nth(titles.index("Embedded")).text_content())) > 0
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    head, *rows = Path(saved.value.path()).read_text().splitlines()
    of = dict(zip(head.split(","), next(row for row in rows if row.startswith("static-256")).split(","), strict=True))
    assert int(of["embedding_tokens"]) > 0
    console.go("#/keys")
    expect(page.get_by_role("region", name="Storage")).to_contain_text(used)


def test_days_are_stacked_by_model_or_key_and_times_are_told_when_asked_for(console: Console) -> None:
    def part(name: str, tokens: int) -> dict[str, Any]:
        counted: dict[str, Any] = {"responses": 1, "by_status": {"completed": 1}, "tool_calls": 0, "cached_tokens": 0, "cost_usd": None}
        return {"id": name, "input_tokens": tokens, "output_tokens": 0, "unpriced_responses": 0, **counted}

    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    names = ["<b>one</b>", "two", "three", "four", "five", "six", "seven"]

    def answer(route: Route) -> None:
        group = part(today, 2800)
        if "split_by=model" in route.request.url:
            group["parts"] = [part(name, 100 * (at + 1)) for at, name in enumerate(names)]
        route.fulfill(json=json.loads(page_of([group])))

    runs: list[dict[str, Any]] = [{"id": f"resp_{number}", "created_at": 5, "ended_at": 9} for number in range(41)]
    asked: list[str] = []

    def steps(route: Route) -> None:
        asked.append(route.request.url)
        number = int(route.request.url.split("resp_")[1].split("/")[0])
        begun = {"started_at": 1000, "first_output_at": 1000 + 10 * number, "ended_at": 9000}
        calls: list[dict[str, Any]] = [{"call_id": None, **begun}, {"call_id": "c", **begun, "first_output_at": None, "ended_at": 3000}]
        route.fulfill(json=json.loads(page_of(calls)))

    page = console.page
    page.route("**/v1/usage?**", answer)
    page.route("**/v1/responses?**", lambda route: route.fulfill(json=json.loads(page_of(runs))))
    page.route("**/v1/responses/*/steps?**", steps)
    console.go("#/usage")
    page.get_by_role("group", name="What it is stacked of").get_by_role("button", name="by model").click()
    chart = page.get_by_role("img", name="tokens by day, at most 2,800")
    expect(chart.locator("rect")).to_have_count(6)
    expect(page.locator(".legend > span")).to_have_text(["seven", "six", "five", "four", "three", "others"])
    assert chart.locator("text[text-anchor=end]").all_text_contents() == ["0", "2,000", "4,000"]
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        expect(chart.locator("text").first).to_have_css("font-size", "11px")
        assert chart.evaluate("(svg) => svg.getScreenCTM().a") == 1
    assert chart.locator("g > title").last.text_content() == f"{today}: 700 seven, 600 six, 500 five, 400 four, 300 three, 300 others"
    assert console.barriers() == []
    assert asked == []
    page.get_by_role("button", name="Times of model and tools").click()
    expect(page.get_by_text("Time to first token: median 190 ms")).to_be_visible()
    expect(page.get_by_text("Tool call: median 2.0 s")).to_be_visible()
    expect(page.get_by_text("counted over 40 model steps of the latest 40 runs")).to_be_visible()
    assert len(asked) == 40
    assert console.said == []


def test_a_store_that_is_almost_full_says_so_and_what_to_do(console: Console) -> None:
    page = console.go("#/files").page

    def almost(route: Route) -> None:
        answer = route.fetch()
        storage = {"used_bytes": 95, "limit_bytes": 100, "file_bytes": 95, "container_bytes": 0, "vector_store_bytes": 0}
        route.fulfill(json=answer.json() | {"storage": storage})

    page.route("**/v1/me", almost)
    console.go("#/usage")
    expect(page.get_by_role("region", name="Storage")).to_contain_text("Little room is left.")
    assert console.barriers() == []


# --- by hand ---


def drop(console: Console, *paths: Path) -> None:
    """As a hand does it that brings files, or a folder, from another window."""
    session = console.page.context.new_cdp_session(console.page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 700, "y": 300, "data": data})
    session.detach()


def test_a_file_is_dropped_read_saved_and_deleted(console: Console, client: OpenAI, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "tides.csv").write_text("name,height\nmole,3\n")
    (tmp_path / "more" / "deep.txt").write_text("deep")
    page = console.go("#/files").page
    page.get_by_role("heading", name="Files", exact=True).wait_for()
    drop(console, tmp_path / "tides.csv", tmp_path / "more")
    expect(page.get_by_role("link", name="deep.txt")).to_be_visible()
    page.get_by_role("link", name="tides.csv").click()
    expect(page.get_by_role("cell", name="mole")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save").click()
    assert Path(saved.value.path()).read_text() == "name,height\nmole,3\n"
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("link", name="deep.txt")).to_be_visible()
    expect(page.get_by_role("link", name="tides.csv")).to_have_count(0)
    assert "tides.csv" not in {file.filename for file in client.files.list().data}


def test_a_skill_is_dropped_as_a_folder_and_as_a_zip_and_saved(console: Console, client: OpenAI, tmp_path: Path) -> None:
    for name, content in skill(notes=b"one\n").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    page = console.go("#/skills").page
    page.get_by_role("heading", name="No skills of your own yet").wait_for()
    drop(console, tmp_path / "tables")
    page.get_by_role("link", name="make-tables").click()
    (tmp_path / "next.zip").write_bytes(zip_of(skill(notes=b"two\n")))
    page.get_by_role("heading", name="Versions").or_(page.get_by_role("region", name="Versions")).first.wait_for()
    page.get_by_role("button", name="notes.txt").wait_for()  # What is still drawn anew under the hand takes no drop.
    drop(console, tmp_path / "next.zip")
    page.get_by_role("button", name="Version 2: what it holds").click()
    page.get_by_role("button", name="notes.txt").click()
    expect(page.get_by_role("group", name="notes.txt")).to_have_text("two\n")
    expect(page).to_have_url(re.compile(r"version=2.*file=notes.txt"))
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save version 2").click()
    assert saved.value.suggested_filename == "make-tables-2.zip"
    assert b"notes.txt" in Path(saved.value.path()).read_bytes()
    page.get_by_role("button", name="Make default").click()
    expect(page.get_by_text("Version 2 is the default.")).to_be_visible()
    page.get_by_role("button", name="Delete version 1").click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("button", name="Version 1: what it holds")).to_have_count(0)
    (tmp_path / "none.zip").write_bytes(b"no zip")
    drop(console, tmp_path / "none.zip")
    expect(page.locator(".notices .bad")).to_contain_text("Invalid skill")
    console.takes_back(400)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("heading", name="No skills of your own yet")).to_be_visible()
    assert client.skills.list().data == []


def test_who_uses_a_file_and_a_skill_is_found_as_far_as_one_looks(console: Console, client: OpenAI) -> None:
    file = client.files.create(file=("tides.md", b"High at noon."), purpose="user_data")
    other = client.files.create(file=("tides.md", b"High at noon."), purpose="user_data")
    store = client.vector_stores.create(name="harbour")
    client.vector_stores.files.create_and_poll(vector_store_id=store.id, file_id=file.id)
    know_how = client.skills.create(files=list(skill().items()))
    given = client.containers.create(name="given", extra_body={"skills": [{"type": "skill_reference", "skill_id": know_how.id}]})
    place = {"type": "container_auto", "file_ids": [file.id], "skills": [{"type": "skill_reference", "skill_id": know_how.id}]}
    tools: Any = [{"type": "shell", "environment": place}]
    ran: Any = client.responses.create(model="demo", input=f"<b>Read</b> {script(shell('cat tides.md'), say('noon'))}", tools=tools)
    content: Any = [{"type": "input_file", "file_id": file.id}, {"type": "input_text", "text": f"Look at it. {script(say('well'))}"}]
    client.responses.create(model="demo", input=[{"role": "user", "content": content}])
    page = console.go(f"#/files/{file.id}").page
    page.get_by_role("button", name="Show uses").press("Enter")
    runs = page.get_by_role("region", name="Runs that use it").get_by_role("row")
    expect(runs).to_have_count(2)
    expect(runs.nth(1)).to_contain_text("Look at it.")
    expect(runs.nth(1)).to_contain_text("asked with it")
    holding = page.get_by_role("region", name="Containers that were given it").get_by_role("row")
    expect(holding).to_have_count(2)
    container = ran.tools[0].environment.container_id
    expect(holding.nth(1).get_by_role("link")).to_have_attribute("href", f"#/containers/{container}")
    expect(page.get_by_role("region", name="Vector stores that hold it").get_by_role("row").nth(1)).to_contain_text("harbour")
    assert console.barriers() == []
    console.go(f"#/files/{other.id}")
    page.get_by_role("button", name="Show uses").click()
    expect(page.get_by_text("Nobody, as far as was looked.")).to_be_visible()
    console.go(f"#/skills/{know_how.id}")
    page.get_by_role("button", name="Show uses").click()
    expect(runs).to_have_count(2)
    expect(runs.nth(1)).to_contain_text("<b>Read</b>")
    expect(runs.nth(1)).to_contain_text("version 1")
    expect(runs.nth(1).get_by_role("link").last).to_have_attribute("href", f"#/containers/{container}")
    expect(holding.nth(2).get_by_role("link")).to_have_attribute("href", f"#/containers/{given.id}")
    console.go(f"#/containers/{given.id}?tab=facts")
    expect(page.locator(".facts").get_by_role("link")).to_have_attribute("href", f"#/skills/{know_how.id}")
    assert console.said == []


def test_files_dropped_on_the_playground_lie_in_its_container(console: Console, client: OpenAI, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("from a hand")
    page = console.go("#/playground").page
    page.get_by_label("Input").fill(script(shell("cat /mnt/data/given.txt"), say("{{output}}")))
    box = page.get_by_label("Input").bounding_box()
    assert box is not None
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(tmp_path / "given.txt")], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": box["x"] + 20, "y": box["y"] + 20, "data": data})
    expect(page.get_by_role("button", name="Take given.txt out")).to_be_visible()
    page.get_by_role("tab", name="curl").click()
    expect(page).to_have_url(re.compile("code=curl"))
    page.get_by_role("button", name="Run", exact=True).click()
    expect(console.transcript.locator(".said").last).to_contain_text("from a hand")


def test_hosts_beyond_what_the_operator_allows_are_refused_in_the_operators_words(console: Console) -> None:
    page = console.go("#/playground").page
    settings = page.get_by_role("region", name="Request")
    settings.get_by_label("Allowed hosts").fill("api.example.com")
    expect(settings.get_by_role("status")).to_have_text(
        "The operator does not allow api.example.com: no host at all. A request with it is refused."
    )
    assert console.barriers() == []
    settings.get_by_label("Operator secrets").fill("GITHUB_TOKEN@api.example.com")
    page.get_by_label("Input").fill("Look outside.")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".notices .bad")).to_contain_text("MOORAGE_ALLOWED_EGRESS_DOMAINS")
    console.takes_back(400)
    expect(page.get_by_label("Input")).to_have_value("Look outside.")
    page.get_by_role("tab", name="Python").click()
    shown = page.locator(".seen pre")
    expect(shown).to_contain_text('"domain_secrets": [{"domain": "api.example.com", "name": "GITHUB_TOKEN"}]')


def test_hosts_are_held_against_the_operators_as_the_server_does(console: Console) -> None:
    hosts = ["a.example", "x.b.example", "b.example", ".b.example", "*.b.example", "*.x.b.example", "*", "A.Example", "xb.example"]
    ceiling = ["a.example", "*.b.example"]
    found = console.evaluate(
        "async ([address, hosts, ceiling]) => (await import(address)).beyond(hosts.join(' '), ceiling)",
        [console.module("model/request.js"), hosts, ceiling],
    )
    assert found == [host for host in hosts if not any(covers(pattern, host.lower()) for pattern in ceiling)]
    assert found == ["b.example", ".b.example", "*", "xb.example"]


def test_whoever_goes_elsewhere_is_not_called_back_by_what_is_replayed(console: Console) -> None:
    console.go("#/files")
    where = console.evaluate(
        """async (address) => {
            const { setQuery } = await import(address);
            location.hash = "#/usage";
            setQuery({ page: "files", id: "", query: {} }, { at: 3 });
            await new Promise((resolve) => setTimeout(resolve, 600));
            return location.hash;
        }""",
        console.module("router.js"),
    )
    assert where == "#/usage"
