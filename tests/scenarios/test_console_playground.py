"""Where somebody types into the console, in a real browser: the playground, and terminals of containers."""

import re
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from playwright.sync_api import expect

from tests.browser import WAIT_MS, Console
from tests.scenarios.visits import make_key
from tests.stack import Stack, say, script

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "player")


def test_a_first_visit_shows_the_lines_to_type_and_a_button_that_makes_a_run(console: Console, stack: Stack) -> None:
    console.enter(make_key(stack, "newcomer"))
    expect(console.page.get_by_role("heading", name="Nothing has run yet")).to_be_visible()
    expect(console.page.get_by_text(f'base_url="{stack.url}"')).to_be_visible()
    console.page.get_by_role("button", name="Run the demonstration").click()
    expect(console.page.get_by_role("button", name="end", exact=True)).to_be_visible()
    expect(console.transcript.get_by_role("link", name="chart.png")).to_be_attached()


@pytest.mark.parametrize(("platform", "key_name"), [("Linux x86_64", "Ctrl"), ("Win32", "Ctrl"), ("MacIntel", "⌘")])
def test_keys_are_named_as_the_readers_keyboard_has_them(platform: str, key_name: str, console: Console, key: str) -> None:
    console.page.add_init_script(f"Object.defineProperty(navigator, 'platform', {{ get: () => '{platform}' }})")
    page = console.enter(key, "#/playground").page
    expect(page.locator("kbd").filter(has_text="Enter")).to_have_text(f"{key_name} Enter")
    expect(page.locator("kbd").filter(has_text="K")).to_have_text(f"{key_name} K")


_EXAMPLES = {
    "runs": "client.responses.create(",
    "approvals": '"require_approval": "always"',
    "containers": "moorage containers list",
    "files": "moorage files put report.csv",
    "skills": "moorage skills push ./my-skill",
    "vector_stores": "client.vector_stores.create(",
    "webhooks": "moorage webhooks create https://",
    "usage": "moorage usage --by model",
}


def test_an_empty_page_has_an_example_to_copy(console: Console, stack: Stack) -> None:
    page = console.enter(make_key(stack, "beginner")).page
    for where, example in _EXAMPLES.items():
        console.go(f"#/{where}")
        expect(page.locator("main .code").filter(has_text=example)).to_be_visible()
        assert (where, console.barriers()) == (where, [])
    expect(page.get_by_role("img", name="tokens by day, at most 0")).to_contain_text("Nothing yet")


def test_the_playground_runs_a_request_and_says_it_as_programs(console: Console, key: str) -> None:
    console.enter(key, "#/playground")
    console.page.get_by_label("Input").fill("Say \"this\" and 'that'")
    console.page.get_by_role("tab", name="curl").click()
    expect(console.page.locator(".seen pre")).to_contain_text("Say \\\"this\\\" and '\\''that'\\''")
    console.page.get_by_role("tab", name="Python").click()
    compile(str(console.page.locator(".seen pre").text_content()), "python", "exec")
    console.page.get_by_role("button", name="Run", exact=True).click()
    expect(console.transcript.get_by_text("scripted demo model")).to_be_visible()
    console.page.get_by_role("button", name="Continue this run").click()
    expect(console.page.get_by_text("Continues")).to_be_visible()


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
    settings.get_by_role("checkbox", name="Ask for approval").check()
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
    settings.get_by_text("Advanced").click()
    settings.get_by_label("MCP servers").fill("moorage:workspace http://127.0.0.1:9/mcp github")
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
    settings.get_by_label("MCP servers").fill("")
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


def test_a_terminal_is_typed_into_and_found_again_as_it_was_left(console: Console, key: str, client: OpenAI) -> None:
    container = client.containers.create(name="place")
    console.enter(key, f"#/containers/{container.id}?tab=terminal")
    console.page.get_by_role("button", name="New terminal").click()
    screen = console.page.locator(".xterm-rows")
    expect(console.page.get_by_role("status").filter(has_text="It runs.")).to_be_visible()
    console.page.keyboard.type("printf '\\033[38;2;200;0;0mred\\033[0m %s\\n' $((6*7))\n")
    expect(screen).to_contain_text("red 42")
    expect(screen.get_by_text("red", exact=True)).to_have_css("color", "rgb(200, 0, 0)")
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
