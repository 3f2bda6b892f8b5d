"""A computer in the container, on real Chromium: the model builds a page by the shell, and sees and uses it in the browser."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses.response_computer_tool_call import ResponseComputerToolCall
from openai.types.responses.response_computer_tool_call_output_item import ResponseComputerToolCallOutputItem

from tests.browser import chromium
from tests.processes import is_worker, kill_all, until
from tests.stack import SHELL, Stack, outputs, say, script, shell

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed ('make setup-dev' installs it).")
COMPUTER: Any = {"type": "computer", "container": {"type": "container_auto"}}
TOOLS: Any = [SHELL, COMPUTER]
WITH_PICTURES: Any = ["computer_call_output.output.image_url"]
SITE = "http://localhost:3000/"

SERVER = r"""
import http.server, urllib.parse

PAGE = '''<!doctype html><html lang=en><meta charset=utf-8><title>Shop</title>
<style>body { margin: 0; background: #fff } button { position: absolute; left: 0; top: 0; width: 200px; height: 100px }
textarea { position: absolute; left: 0; top: 120px; width: 400px; height: 60px } #patch { position: absolute; left: 600px; top: 0;
width: 300px; height: 300px; background: #d00 } a { position: absolute; left: 0; top: 300px; width: 200px; height: 40px }</style>
<button onclick="post('click')">Add to cart</button><textarea aria-label=Search></textarea><div id=patch></div>
<a href=/report download>Report</a>
<script>
const post = (text) => fetch('/said', {method: 'POST', body: text})
document.querySelector('textarea').addEventListener('input', (event) => {
  document.querySelector('#patch').style.background = event.target.value === 'tea' ? '#0a0' : '#d00'
})
document.querySelector('textarea').addEventListener('change', (event) => post('typed ' + JSON.stringify(event.target.value)))
</script>'''

class Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_report = self.path == '/report'
        body = b'the report' if is_report else PAGE.encode()
        self.send_response(200)
        self.send_header('content-type', 'application/octet-stream' if is_report else 'text/html')
        if is_report:
            self.send_header('content-disposition', 'attachment; filename="report.txt"')
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        said = self.rfile.read(int(self.headers['content-length'])).decode()
        with open('/tmp/said', 'a') as log:
            log.write(said + '\n')
        self.send_response(204)
        self.end_headers()

http.server.ThreadingHTTPServer(('127.0.0.1', 3000), Shop).serve_forever()
"""
WRITE = f"cat > server.py <<'END'\n{SERVER}\nEND"
TRY = f"for i in $(seq 100); do curl -s {SITE} >/dev/null && break; sleep 0.1; done"
SERVE = f"{WRITE}\nsetsid nohup python3 server.py >/dev/null 2>&1 & {TRY}"
CLICK: dict[str, Any] = {"type": "click", "x": 100, "y": 50}
SHOT: dict[str, Any] = {"type": "screenshot"}
OPEN: dict[str, Any] = {"type": "navigate", "url": SITE}


def acts(*actions: dict[str, Any]) -> dict[str, Any]:
    return {"call": {"name": "computer", "arguments": {"actions": list(actions)}}}


def ask(client: OpenAI, *steps: dict[str, Any], **fields: Any) -> Any:
    return client.responses.create(**{"model": "demo", "input": script(*steps), "tools": TOOLS, "include": WITH_PICTURES, **fields})


def shown(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "computer_call_output"]


def said(response: Any) -> list[str]:
    """What the last command of the shell printed, by line."""
    return outputs(response.output)[-1][0][0].splitlines()


@pytest.fixture(scope="module")
def colours() -> Iterator[Any]:
    """The colour of a picture at a point, as Chromium decodes it."""
    with chromium() as browser:
        page = browser.new_page()
        look = """async ([url, x, y]) => {
            const image = await createImageBitmap(await (await fetch(url)).blob())
            const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d')
            canvas.drawImage(image, 0, 0)
            return [image.width, image.height, ...canvas.getImageData(x, y, 1, 1).data.slice(0, 3)]
        }"""
        yield lambda url, x, y: page.evaluate(look, [url, x, y])


# --- one call -----------------------------------------------------------------------------------------------------------------------


@needs_browser
def test_a_model_looks_clicks_types_and_answers(client: OpenAI, colours: Any) -> None:
    typing: list[dict[str, Any]] = [{"type": "click", "x": 100, "y": 150}, {"type": "type", "text": "tea"}]
    response = ask(client, shell(SERVE), acts(OPEN, SHOT), acts(*typing, CLICK, SHOT), shell("sort /tmp/said"), say("I typed tea."))
    assert response.output_text == "I typed tea."
    before, after = shown(response)
    calls = [item for item in response.output if item.type == "computer_call"]
    assert [ResponseComputerToolCall.model_validate(call.model_dump()).call_id for call in calls] == [before.call_id, after.call_id]
    assert all(ResponseComputerToolCallOutputItem.model_validate(item.model_dump()).status == "completed" for item in (before, after))
    assert said(response) == ["click", 'typed "tea"']
    width, height, red, green, _ = colours(before.output.image_url, 700, 100)
    assert (width, height, red > green) == (1280, 800, True)
    _, _, red, green, _ = colours(after.output.image_url, 700, 100)
    assert green > red, "the patch is green when the page has heard 'tea'"
    assert (after.page["url"], after.page["title"]) == (SITE, "Shop")
    assert response.tools[1].model_dump()["container"]["type"] == "container_reference"


@needs_browser
def test_a_batch_is_one_call_with_one_picture_and_stops_where_an_action_fails(client: OpenAI) -> None:
    six = [CLICK, {"type": "move", "x": 1, "y": 1}, {"type": "scroll", "x": 1, "y": 1, "scroll_y": 10}, SHOT, {"type": "wait"}, CLICK]
    failing = [CLICK, CLICK, {"type": "keypress", "keys": ["NO-SUCH-KEY"]}, CLICK]
    response = ask(client, shell(SERVE), acts(OPEN), acts(*six), acts(*failing), shell("grep -c click /tmp/said"), say("end"))
    _, first, second = shown(response)
    assert first.actions == [{"ok": True}] * 6
    assert [result["ok"] for result in second.actions] == [True, True, False]
    assert second.output.image_url.startswith("data:image/jpeg;base64,")
    assert said(response) == ["4"]


@needs_browser
def test_text_arrives_exactly_as_it_was_typed(client: OpenAI) -> None:
    text = "é 価格 \U0001f600\nnew line " + "x" * 10_000
    response = ask(
        client,
        shell(SERVE),
        acts(OPEN, {"type": "click", "x": 100, "y": 150}, {"type": "type", "text": text}, CLICK, {"type": "wait"}),
        shell("grep typed /tmp/said", max_output_length=100_000),
        say("end"),
    )
    (typed,) = said(response)
    assert json.loads(typed.removeprefix("typed ")) == text


@needs_browser
def test_a_download_is_a_file_of_the_container(client: OpenAI) -> None:
    report = {"type": "click", "x": 20, "y": 310}
    response = ask(client, shell(SERVE), acts(OPEN, report, {"type": "wait"}), shell("cat downloads/*"), say("end"))
    assert said(response) == ["the report"]
    container_id = response.tools[1].model_dump()["container"]["container_id"]
    paths = [file.path for file in client.containers.files.list(container_id)]
    assert "/mnt/data/downloads/report.txt" in paths


PAGE_OF_UPLOADS = """<!doctype html><title>Nothing yet</title><style>* { margin: 0 }</style>
<input id=files type=file multiple aria-label=Report style="position: absolute; left: 0; top: 0; width: 200px; height: 100px">
<script>
const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('')
const told = async (file) => `${file.name} ${file.size} ${hex(await crypto.subtle.digest('SHA-256', await file.arrayBuffer()))}`
files.onchange = async () => { document.title = (await Promise.all([...files.files].map(told))).join(', ') }
files.oncancel = () => { document.title = 'Cancelled' }
</script>"""
SERVE_UPLOADS = (
    f"mkdir -p site && cat > site/index.html <<'END'\n{PAGE_OF_UPLOADS}\nEND\n"
    "seq 100 > report.csv; seq 200 > 'more of it.csv'; mkdir -p folder; ln -sf /etc/passwd link\n"
    f"setsid nohup python3 -m http.server 3000 --bind 127.0.0.1 --directory site >/dev/null 2>&1 & {TRY}"
)
ENTER: dict[str, Any] = {"type": "keypress", "keys": ["ENTER"]}
ESC: dict[str, Any] = {"type": "keypress", "keys": ["ESC"]}
WAIT: dict[str, Any] = {"type": "wait"}


def types(text: str) -> dict[str, Any]:
    return {"type": "type", "text": text}


def sums(response: Any) -> str:
    """Name, size and SHA-256 of each file, as the shell told them last, in the words of the page."""
    told = [line.split(maxsplit=2) for line in said(response)]
    return ", ".join(f"{name} {size} {digest}" for size, digest, name in told)


@needs_browser
def test_models_of_all_kinds_upload_files_to_a_page(own_stack: Stack) -> None:
    client = own_stack.client()
    hashes = 'for f in report.csv \'more of it.csv\'; do echo $(stat -c %s "$f") $(sha256sum < "$f" | cut -c -64) "$f"; done'
    response = ask(client, shell(SERVE_UPLOADS), acts(OPEN), shell(hashes), say("ready"), model="demo-refs")
    (element,) = [each for each in shown(response)[0].page["elements"] if each["name"].startswith("Report")]
    both = sums(response)
    first = both.partition(", ")[0]
    points: dict[str, dict[str, Any]] = {
        "refs": {"ref": element["ref"]},
        "text": {"ref": element["ref"]},
        "pixels": {"x": 100, "y": 50},
        "grid1000": {"x": 78, "y": 62},
    }
    for mode, point in points.items():
        response = ask(
            client,
            acts({"type": "click", **point}),
            acts(types("/mnt/data/report.csv"), ENTER, WAIT),
            acts({"type": "click", **point}, types("/workspace/report.csv\n/mnt/data/more of it.csv\n"), WAIT),
            say("end"),
            model=f"demo-{mode}",
            previous_response_id=response.id,
        )
        asked, one, two = shown(response)
        assert asked.page["dialog"]["kind"] == "files", mode
        assert asked.page["dialog"]["message"].startswith("The page asks for files: type their paths, one a line,"), mode
        assert (one.page["title"], two.page["title"]) == (first, both), mode
        assert "dialog" not in two.page, mode
        calls = [item for item in response.output if item.type == "computer_call"]
        assert [[action.type for action in call.actions] for call in calls] == [
            ["click"],
            ["type", "keypress", "wait"],
            ["click", "type", "wait"],
        ], mode


@needs_browser
def test_a_page_gets_no_file_but_those_of_the_container(client: OpenAI) -> None:
    refused = [
        "/etc/passwd",
        "/mnt/data/../../etc/passwd",
        "/mnt/data/link",
        "/mnt/data/folder",
        "/mnt/data/missing",
        "report.csv\nlink",
    ]
    response = ask(
        client,
        shell(SERVE_UPLOADS),
        acts(OPEN, CLICK),
        *(acts(types(path), ENTER) for path in refused),
        acts(ESC, WAIT),
        acts(CLICK, types("/mnt/data/report.csv"), {"type": "click", "x": 600, "y": 500}, WAIT),
        say("end"),
    )
    _, *refusals, dismissed, left = shown(response)
    for path, output in zip(refused, refusals, strict=True):
        assert output.actions[-1]["error"].startswith("The page got no file: "), path
        assert (output.page["title"], output.page["dialog"]["kind"]) == ("Nothing yet", "files"), path
    for output in (dismissed, left):
        assert all(result["ok"] for result in output.actions)
        assert (output.page["title"], "dialog" in output.page) == ("Cancelled", False)


# --- processes die ------------------------------------------------------------------------------------------------------------------


@needs_browser
def test_a_killed_worker_repeats_no_click(own_stack: Stack) -> None:
    client = own_stack.client()
    ready = ask(client, shell(SERVE), acts(OPEN), say("ready"))
    waits = [CLICK, {"type": "wait"}, CLICK, {"type": "wait"}, CLICK]
    running = ask(client, acts(*waits), say("end"), previous_response_id=ready.id, background=True)
    assert own_stack.process is not None
    until(lambda: any(item.type == "computer_call_output" for item in _events(own_stack, running.id)))
    time.sleep(1)  # It is in its first wait: two seconds long.
    assert kill_all(own_stack.process.pid, is_worker)
    until(lambda: client.responses.retrieve(running.id).status not in ("queued", "in_progress"))
    ended = client.responses.retrieve(running.id, include=WITH_PICTURES)
    (output,) = shown(ended)
    assert (ended.status, output.actions) == ("completed", [{"ok": True}] * 5)
    counted = ask(client, shell("grep -c click /tmp/said"), say("end"), previous_response_id=ended.id)
    assert said(counted) == ["3"]


def _events(stack: Stack, response_id: str) -> list[Any]:
    """The items that the log has opened."""
    with stack.http() as http:
        events = http.get(f"/responses/{response_id}/events", params={"limit": 100}).json()["data"]
    return [type("Item", (), each["event"]["item"]) for each in events if each["event"]["type"] == "response.output_item.added"]


# --- the network --------------------------------------------------------------------------------------------------------------------


@needs_browser
def test_the_browser_reaches_what_the_policy_allows_and_no_files(client: OpenAI) -> None:
    places = ["http://refused.example/", "file:///etc/passwd", "chrome://version"]
    response = ask(client, *(acts({"type": "navigate", "url": place}) for place in places), say("end"), tools=[COMPUTER])
    refused, files, settings = shown(response)
    heard = json.dumps([refused.actions, refused.page])
    assert "refused.example" in heard
    for output in (files, settings):
        assert "root:" not in json.dumps(output.page)
        assert not output.actions[-1]["ok"]


# --- each model in its own way ------------------------------------------------------------------------------------------------------

MODELS = """
[[models]]
name = "demo-{mode}"
provider = "demo"
computer = "{mode}"
"""


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("computers")
    (folder / "models.toml").write_text("".join(MODELS.format(mode=mode) for mode in ("pixels", "grid1000", "refs", "text", "off")))
    running = Stack(folder / "state", {"MOORAGE_MODELS_FILE": str(folder / "models.toml")}).start()
    yield running
    running.stop()


@needs_browser
def test_models_of_all_kinds_make_the_same_click_in_one_chain(own_stack: Stack) -> None:
    client = own_stack.client()
    response = ask(client, shell(SERVE), acts(OPEN), say("ready"), model="demo-refs")
    (output,) = shown(response)
    (button,) = [element for element in output.page["elements"] if element["name"] == "Add to cart"]
    assert abs(button["x"] - 100) < 3
    ways = {
        "refs": {"ref": button["ref"]},
        "text": {"ref": button["ref"]},
        "pixels": {"x": 100, "y": 50},
        "grid1000": {"x": 78, "y": 62},
    }
    for mode, point in ways.items():
        response = ask(client, acts({"type": "click", **point}), say("x"), model=f"demo-{mode}", previous_response_id=response.id)
        (call,) = [item for item in response.output if item.type == "computer_call"]
        assert (abs(call.actions[0].x - 100) < 3, abs(call.actions[0].y - 50) < 3) == (True, True), mode
        assert shown(response)[0].actions == [{"ok": True}], mode
    response = ask(client, shell("grep -c click /tmp/said"), say("end"), model="demo-pixels", previous_response_id=response.id)
    assert said(response) == ["4"]


def test_a_model_without_a_computer_is_refused_by_name(own_stack: Stack) -> None:
    with pytest.raises(openai.BadRequestError, match="The operator offers no hosted computer to 'demo-off'"):
        ask(own_stack.client(), acts(SHOT), model="demo-off")


def test_a_deployment_without_a_browser_names_the_package(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state", {"MOORAGE_SANDBOX_BROWSER": "false"}).start()
    try:
        with pytest.raises(openai.BadRequestError, match="the package 'chromium'"):
            ask(stack.client(), acts(SHOT))
    finally:
        stack.stop()


# --- pictures -----------------------------------------------------------------------------------------------------------------------


@needs_browser
def test_pictures_go_with_their_response(own_stack: Stack) -> None:
    client = own_stack.client()

    def kept() -> list[str]:
        with own_stack.journal() as journal:
            return [key for (key,) in journal.reader.execute("SELECT key FROM objects") if "/counted/" in key]

    before = len(kept())
    stored = client.responses.create(model="demo-pixels", input=script(acts(SHOT), say("end")), tools=[COMPUTER])
    assert len(kept()) == before + 1
    assert shown(client.responses.retrieve(stored.id))[0].output.image_url is None
    asked = client.responses.retrieve(stored.id, include=WITH_PICTURES)
    assert shown(asked)[0].output.image_url.startswith("data:image/jpeg;base64,")
    client.responses.delete(stored.id)
    assert len(kept()) == before
    unstored = ask(client, acts(SHOT), say("end"), model="demo-pixels", tools=[COMPUTER], store=False)
    assert shown(unstored)[0].output.image_url.startswith("data:image/jpeg;base64,")
    until(lambda: len(kept()) == before)


@needs_browser
def test_an_output_that_comes_back_without_its_picture_is_completed(own_stack: Stack) -> None:
    client = own_stack.client()
    first = client.responses.create(model="demo-pixels", input=script(acts(SHOT), say("end")), tools=[COMPUTER])
    history: Any = [item.model_dump(exclude_none=True) for item in first.output]
    again = client.responses.create(model="demo-pixels", input=[*history, {"role": "user", "content": script(say("Seen."))}])
    assert again.output_text == "Seen."


# --- a person ---------------------------------------------------------------------------------------------------------------------


@needs_browser
def test_a_call_waits_for_a_persons_word(own_stack: Stack) -> None:
    client = own_stack.client()
    tool = COMPUTER | {"require_approval": "always"}
    running = ask(client, acts(SHOT), say("Seen."), model="demo-pixels", tools=[tool], background=True)
    with own_stack.http() as http:
        place = f"/responses/{running.id}/approvals"
        until(lambda: http.get(place).json()["data"])
        (approval,) = http.get(place).json()["data"]
        assert approval["call"]["type"] == "computer_call"
        assert http.post(f"{place}/{approval['id']}", json={"approve": True}).status_code == 200
    until(lambda: client.responses.retrieve(running.id).status == "completed")
    assert shown(client.responses.retrieve(running.id))[0].actions == [{"ok": True}]


@needs_browser
def test_an_agent_of_a_session_uses_the_browser_of_its_environment(client: OpenAI) -> None:
    sessions: Any = client.beta.agents.sessions
    agent = {"model": "demo", "tools": [{"type": "computer_use", "include_screenshots": True}]}
    with pytest.raises(openai.BadRequestError, match="a browser runs beside an environment"):
        sessions.create(agent=agent, environment={"type": "none"}, input="x")
    session = sessions.create(agent=agent, environment={"type": "openai_hosted"})
    given = script(shell(SERVE), acts(OPEN, CLICK), shell("cat /tmp/said"), say("Bought."))
    with sessions.stream(session.id, input=given).with_result_collection() as stream:
        told = [event.item for event in stream if event.type == "agent.session.turn.item.done"]
        assert stream.get_final_result().output_text == "Bought."
    (seen,) = [item for item in told if item.type == "computer_use_call"]
    assert (seen.status, seen.title, seen.output.type) == ("completed", "Shop", "computer_screenshot")
    assert seen.output.image_url.startswith("data:image/jpeg;base64,")
    listed = list(sessions.items.list(session.id, order="asc"))
    assert [item.to_dict() for item in listed if item.type == "computer_use_call"] == [seen.to_dict()]
    assert [item.output for item in listed if item.type == "command_execution"][-1] == "click\n"
    sessions.update(session.id, agent={"tools": [{"type": "computer_use"}]})
    with sessions.stream(session.id, input=script(acts(SHOT), say("Looked."))).with_result_collection() as stream:
        told = [event.item for event in stream if event.type == "agent.session.turn.item.done"]
    assert [(item.status, item.output) for item in told if item.type == "computer_use_call"] == [("completed", None)]
