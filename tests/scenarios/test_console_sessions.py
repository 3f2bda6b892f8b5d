"""Sessions of agents in the console: the list, and the page of one."""

import re
from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import Browser, expect

from tests.browser import WAIT_MS, Console, context_of, page_of
from tests.processes import until
from tests.scenarios.visits import make_key
from tests.stack import Stack, say, script, shell

expect.set_options(timeout=WAIT_MS)

NODES_MAX = 2000
NONE: Any = {"type": "none"}
HOSTED: Any = {"type": "openai_hosted"}
WEIGH: Any = {
    "type": "function",
    "name": "weigh",
    "description": "The weight of a parcel.",
    "parameters": {"type": "object", "properties": {"parcel": {"type": "string"}}, "required": ["parcel"]},
}


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "sessions")


@pytest.fixture
def console(console: Console, key: str) -> Console:
    return console.enter(key)


def begun(client: OpenAI, text: str, environment: Any = NONE, **agent: Any) -> str:
    """A session whose first turn has ended, or waits for somebody."""
    sessions: Any = client.beta.agents.sessions
    made = sessions.create(agent={"model": "demo", **agent}, environment=environment, input=text)
    until(lambda: sessions.retrieve(made.id).status in ("idle", "requires_action"))
    return str(made.id)


def test_a_session_begins_with_a_form_and_goes_on_with_messages(console: Console, client: OpenAI) -> None:
    agent = client.beta.agents.create(model="demo", name="clerk of the form")
    page = console.go("#/sessions").page
    page.get_by_role("button", name="New session").click()
    page.get_by_label(re.compile("^Agent")).select_option(label="clerk of the form")
    page.get_by_label("Environment").select_option("none")
    page.get_by_label("First message").fill(f"What is new? {script(say('Nothing **new**.'))}")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", level=1, name="What is new?")).to_be_visible()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("Nothing new.")
    page.get_by_label("Message").fill(f"And now? {script(say('The tide turned.'))}")
    page.get_by_label("Message").press("Control+Enter")
    expect(page.get_by_role("region", name="Answer")).to_contain_text("The tide turned.")
    expect(page.get_by_role("list", name="Turns").get_by_role("button")).to_have_count(2)
    (session,) = client.beta.agents.sessions.list(agent_id=agent.id)
    console.go("#/sessions")
    row = page.get_by_role("row").filter(has_text="clerk of the form")
    expect(row).to_contain_text("And now?The tide turned.")
    row.get_by_role("link", name="And now?").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("heading", level=1, name="Sessions")).to_be_visible()
    assert session.id not in [each.id for each in client.beta.agents.sessions.list()]


def test_a_running_turn_is_seen_from_its_beginning_and_cancelled(console: Console, client: OpenAI, stack: Stack, key: str) -> None:
    """Also what it printed before somebody looked."""
    sessions = client.beta.agents.sessions
    counting, printing = script(shell("echo before; sleep 600"), say("never")), "response.shell_call_output_content.delta"
    made = sessions.create(agent={"model": "demo"}, environment=HOSTED, input=f"Count. {counting}")
    turns: list[Any] = [turn.to_dict() for turn in sessions.turns.list(made.id)]
    run = turns[0]["response_ids"][0]
    with stack.http(key) as http:
        until(lambda: "before" in http.get(f"/responses/{run}/events", params={"types": printing}).text)
    page = console.go(f"#/sessions/{made.id}").page
    printed = page.get_by_role("region", name="Transcript").get_by_role("group", name="Output of the command")
    expect(printed).to_have_text("before\n")
    expect(page.get_by_role("button", name="Turn 1, in progress")).to_be_visible()
    page.get_by_role("button", name="Cancel the turn").click()
    expect(page.get_by_role("button", name="Turn 1, cancelled")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel the turn")).to_have_count(0)


def test_a_turn_that_is_over_does_not_run_again_as_it_is_told_from_its_beginning(console: Console) -> None:
    seen = console.evaluate(
        """async (address) => {
            const { empty, hear, turnsOf } = await import(address);
            const state = empty();
            const turn = (id, status) => ({ type: `agent.session.turn.${status}`, turn: { id, status } });
            state.turns.set("turn_1", { id: "turn_1", status: "completed" });
            const again = [turn("turn_1", "queued"), turn("turn_1", "in_progress")];
            const told = [...again, turn("turn_2", "in_progress"), turn("turn_2", "failed")];
            return told.map((event) => (hear(state, event), turnsOf(state).map((each) => each.status)));
        }""",
        console.module("model/session.js"),
    )
    assert seen == [["completed"], ["completed"], ["completed", "in_progress"], ["completed", "failed"]]


def test_results_of_functions_and_approvals_are_given_in_place(console: Console, client: OpenAI) -> None:
    calls = [{"name": "weigh", "arguments": {"parcel": "blue"}}, {"name": "weigh", "arguments": {"parcel": "green"}}]
    made = begun(client, f"Weigh them. {script({'calls': calls}, say('Weighed.'))}", tools=[WEIGH])
    page = console.go("#/sessions").page
    expect(page.get_by_role("row").filter(has_text="Weigh them.")).to_contain_text("Waiting for a result of weigh")
    console.go(f"#/sessions/{made}")
    waiting = page.get_by_role("region", name="Waiting for you")
    expect(waiting.get_by_role("article")).to_have_count(2)
    first = waiting.get_by_role("article").filter(has_text="blue")
    first.get_by_role("textbox").fill("3 kg")
    first.get_by_role("button", name="Send the result").click()
    expect(waiting.get_by_role("article")).to_have_count(1)
    waiting.get_by_role("textbox").fill("The scale is broken.")
    waiting.get_by_role("button", name="It failed").click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("Weighed.")
    expect(waiting).to_have_count(0)
    results = [item for item in client.beta.agents.sessions.items.list(made, order="asc") if item.type == "function_call_output"]
    assert [(item.output, item.error) for item in results] == [("3 kg", None), (None, "The scale is broken.")]
    expect(page.get_by_text("the function failed")).to_be_visible()


def test_artifacts_are_named_by_the_answer_and_read_beside_it(console: Console, client: OpenAI) -> None:
    steps = script(shell("mkdir -p /workspace/outputs; printf 'day,high\\nMon,2.1\\n' > /workspace/outputs/tides.csv"), say("Written."))
    made = begun(client, f"Write the report. {steps}", HOSTED)
    page = console.go(f"#/sessions/{made}").page
    page.get_by_role("region", name="Answer").get_by_role("button", name="tides.csv").click()
    expect(page.get_by_role("region", name="Preview of tides.csv").get_by_role("cell", name="2.1")).to_be_visible()
    expect(page.get_by_role("tab", name="Artifacts 1")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Environment").click()
    expect(page.get_by_role("tabpanel").get_by_text("ready")).to_be_visible()
    assert console.barriers() == []
    page.get_by_role("link", name="its run").click()
    expect(page.get_by_role("heading", level=1, name="Write the report.")).to_be_visible()
    console.go("#/runs")
    page.get_by_role("row").filter(has_text="Write the report.").get_by_role("link", name="The session of").click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("Written.")


def test_a_turn_that_failed_is_red_and_the_next_one_goes_on(console: Console, client: OpenAI) -> None:
    made = begun(client, f"Ask it. {script({'fail': {'status': 400, 'times': 0}}, say('never'))}")
    page = console.go(f"#/sessions/{made}").page
    expect(page.get_by_role("button", name="Turn 1, failed")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("The script asked for an upstream failure")
    expect(page.get_by_role("region", name="Answer")).to_have_count(0)
    page.get_by_label("Message").fill(script(say("On we go.")))
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("On we go.")


def test_a_turn_of_six_hundred_commands_stays_small_in_the_page(console: Console, client: OpenAI, stack: Stack, key: str) -> None:
    made = begun(client, f"Count. {script(say('Counted.'))}")
    with stack.http(key) as http:
        (turn,) = http.get(f"/agents/sessions/{made}/turns").json()["data"]
    ran = {"type": "command_execution", "cwd": None, "duration_ms": None, "exit_code": 0, "status": "completed", "turn_id": turn["id"]}
    items = [{"id": f"cmd_{number:04d}", "command": f"seq {number}", "output": "line\n" * 40, **ran} for number in range(600)]
    page = console.page
    page.route("**/items?**", lambda route: route.fulfill(content_type="application/json", body=page_of(items)))
    console.go(f"#/sessions/{made}")
    expect(page.get_by_text("seq 599")).to_be_visible()
    assert console.nodes() <= NODES_MAX
    page.get_by_role("region", name="Transcript").evaluate("(box) => { box.scrollTop = 0 }")
    expect(page.get_by_text("seq 0")).to_be_visible()
    assert console.nodes() <= NODES_MAX


def test_a_stranger_and_a_key_that_only_reads_change_no_session(browser: Browser, stack: Stack, client: OpenAI) -> None:
    made = begun(client, f"Mine. {script(say('Yours alone.'))}")
    context = context_of(browser)
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/").enter(make_key(stack, "no-sessions"), "#/sessions")
    expect(console.page.get_by_role("heading", name="No session yet")).to_be_visible()
    console.page.evaluate("(where) => { location.hash = where }", f"#/sessions/{made}")
    expect(console.page.get_by_role("alert")).to_contain_text("not found")
    context.close()


def test_a_session_is_forked_after_the_turn_that_is_chosen(console: Console, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session_id = begun(client, f"First. {script(say('One.'))}")
    with sessions.stream(session_id, input=f"Second. {script(say('Two.'))}") as stream:
        stream.get_final_result()
    page = console.go(f"#/sessions/{session_id}").page
    expect(page.get_by_role("button", name="Fork", exact=True)).to_be_visible()
    page.get_by_role("button", name=re.compile("^Turn 1")).click()
    page.get_by_role("button", name="Fork after turn 1").click()
    expect(page.get_by_text("fork of")).to_be_visible()
    forks: list[Any] = [each for each in sessions.list() if (each.to_dict()["forked_from"] or {}).get("session_id") == session_id]  # type: ignore[attr-defined]
    (first, *_) = list(sessions.turns.list(session_id, order="asc"))
    assert [each.forked_from["turn_id"] for each in forks] == [first.id]
    page.locator(f'a[href*="{session_id}"]').first.click()
    expect(page.get_by_role("list", name="Turns").get_by_role("button")).to_have_count(2)


def test_a_subagent_has_a_lane_within_the_turn_that_began_it(console: Console, client: OpenAI) -> None:
    spawn = {"call": {"name": "spawn_agent", "arguments": {"task_name": "tides", "message": "Look it up.", "fork_turns": "none"}}}
    wait = {"call": {"name": "wait_agent", "arguments": {}}}
    session_id = begun(client, f"When? {script(spawn, wait, say('At noon.'))}", multi_agent={"enabled": True})
    page = console.go(f"#/sessions/{session_id}").page
    turn = page.get_by_role("article", name="Turn 1")
    expect(turn).to_contain_text("starts a subagent")
    expect(turn).to_contain_text("hears from /root/tides")
    expect(page.get_by_role("list", name="Turns").get_by_role("button")).to_have_count(1)
    lane = turn.locator("details.lane")
    expect(lane.locator("summary")).to_contain_text("/root/tides")
    expect(lane.locator("summary")).to_contain_text("completed")
    lane.locator("summary").click()
    expect(lane).to_contain_text("hears from /root")
    expect(lane).to_contain_text("Look it up.")
    page.reload()
    expect(turn.locator("details.lane summary")).to_contain_text("/root/tides")


def test_the_budget_of_a_session_is_shown_and_changed(console: Console, client: OpenAI) -> None:
    session_id = begun(client, f"First. {script(say('One.'))}")
    page = console.go(f"#/sessions/{session_id}?tab=budget").page
    panel = page.get_by_role("tabpanel")
    expect(panel).to_contain_text("This session has no budget.")
    panel.get_by_label("tokens").fill("5000")
    panel.get_by_label("At the limit").select_option("pause")
    panel.get_by_role("button", name="Set the budget").click()
    expect(panel).to_contain_text("of 5,000")
    shown: Any = client.beta.agents.sessions.retrieve(session_id)
    assert shown.budget == {"total_tokens": 5000, "on_limit": "pause"}
    panel.get_by_label("tokens").fill("")
    panel.get_by_role("button", name="Set the budget").click()
    expect(panel).to_contain_text("This session has no budget.")


def test_a_run_of_a_session_leads_to_it(console: Console, client: OpenAI) -> None:
    session_id = begun(client, f"First. {script(say('One.'))}")
    turn: Any = next(iter(client.beta.agents.sessions.turns.list(session_id)))
    page = console.go(f"#/runs/{turn.response_ids[0]}").page
    page.locator(f'a[href*="{session_id}"]').first.click()
    expect(page.get_by_role("heading", level=1, name="First.")).to_be_visible()
