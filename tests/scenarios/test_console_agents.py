"""Agents, automations, vaults and environments in the console."""

import re
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import Browser, expect

from tests.browser import WAIT_MS, Console, context_of
from tests.processes import until
from tests.scenarios.test_cli import lines
from tests.scenarios.visits import make_key
from tests.stack import Stack, say, script

expect.set_options(timeout=WAIT_MS)

SECRET = "the-token-of-the-depot"


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "agents")


@pytest.fixture
def console(console: Console, key: str) -> Console:
    return console.enter(key)


def test_an_agent_is_made_and_changed_and_its_versions_stay(console: Console, client: OpenAI) -> None:
    page = console.go("#/agents").page
    expect(page.get_by_role("heading", name="No agent yet")).to_be_visible()
    page.get_by_role("button", name="New agent").click()
    form = page.get_by_role("region", name="Create the agent")
    form.get_by_label("Name").fill("clerk")
    form.get_by_label("Instructions").fill("Answer in one sentence.")
    form.get_by_label("Metadata").fill("team=parcels")
    form.get_by_role("button", name="a function").click()
    form.get_by_role("button", name="Create the agent").click()
    expect(page.get_by_role("heading", level=1, name="clerk")).to_be_visible()
    (made,) = client.beta.agents.list()
    assert (made.name, made.instructions, made.metadata) == ("clerk", "Answer in one sentence.", {"team": "parcels"})
    assert [tool.to_dict()["name"] for tool in made.tools] == ["weigh"]
    page.get_by_role("button", name="Edit").click()
    change = page.get_by_role("region", name="Save as the next version")
    change.get_by_label("Instructions").fill("")
    change.get_by_label("Reasoning effort").select_option("low")
    tools = change.get_by_label("Tools, as JSON")
    tools.fill("[")
    expect(change.get_by_role("status")).to_contain_text("This is no JSON")
    expect(change.get_by_role("button", name="Save as the next version")).to_be_disabled()
    tools.fill("")
    change.get_by_role("button", name="Save as the next version").click()
    expect(page.get_by_role("group", name="Versions").get_by_role("button", name="2")).to_have_attribute("aria-pressed", "true")
    changed = client.beta.agents.retrieve(made.id)
    assert (changed.instructions, changed.tools, changed.reasoning.effort) == (None, [], "low")
    page.get_by_role("group", name="Versions").get_by_role("button", name="1").click()
    expect(page.get_by_role("definition").filter(has_text="Answer in one sentence.")).to_be_visible()
    assert console.barriers() == []
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("heading", level=1, name="Agents")).to_be_visible()
    assert list(client.beta.agents.list()) == []


def test_an_agent_is_exported_and_imported_by_two_buttons(console: Console, client: OpenAI, tmp_path: Path) -> None:
    made = client.beta.agents.create(model="demo", name="traveller")
    page = console.go(f"#/agents/{made.id}").page
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    archive = tmp_path / download.value.suggested_filename
    download.value.save_as(archive)
    assert archive.name == f"{made.id}.tar"
    console.go("#/agents")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import").click()
    chooser.value.set_files(archive)
    expect(page.get_by_role("heading", level=1, name="traveller")).to_be_visible()
    copies = [agent.id for agent in client.beta.agents.list() if agent.name == "traveller" and agent.id != made.id]
    assert page.url.endswith(f"/agents/{copies[0]}")
    assert list(client.files.list()) == []
    for agent_id in (made.id, *copies):
        client.beta.agents.delete(agent_id)


def test_a_change_keeps_what_the_form_does_not_show(console: Console, client: OpenAI) -> None:
    made = client.beta.agents.create(model="demo", reasoning={"effort": "low", "summary": "auto"}, text={"verbosity": "low"})
    page = console.go(f"#/agents/{made.id}?edit=yes").page
    form = page.get_by_role("region", name="Save as the next version")
    form.get_by_label("Reasoning effort").select_option("default")
    form.get_by_role("button", name="Save as the next version").click()
    expect(page.get_by_role("group", name="Versions").get_by_role("button")).to_have_count(2)
    changed = client.beta.agents.retrieve(made.id)
    assert (changed.reasoning.effort, changed.reasoning.summary, changed.text.verbosity) == (None, "auto", "low")


def test_an_agent_that_the_service_refuses_says_why(console: Console) -> None:
    page = console.go("#/agents?new=yes").page
    form = page.get_by_role("region", name="Create the agent")
    form.get_by_label("Tools, as JSON").fill('[{"type": "programmatic_tool_calling"}]')
    form.get_by_role("button", name="Create the agent").click()
    expect(page.get_by_text("Agents run no programs in this version: ask '/v1/responses'.")).to_be_visible()
    console.takes_back(400)


def test_an_automation_is_made_invoked_paused_and_changed(console: Console, client: OpenAI) -> None:
    agent = client.beta.agents.create(model="demo", name="reporter")
    page = console.go(f"#/agents/{agent.id}").page
    page.get_by_role("button", name="Automate").click()
    form = page.get_by_role("region", name="Create the automation")
    form.get_by_label("Name").fill("weekly report")
    form.get_by_label("Minute, hour, day, month, weekday").fill("0 9 * * MON")
    form.get_by_label("Time zone").fill("Europe/Berlin")
    form.get_by_label(re.compile("^Environment")).select_option("none")
    form.get_by_label("Message").fill(f"Write it. {script(say('Written.'))}")
    form.get_by_role("button", name="Create the automation").click()
    expect(page.get_by_role("heading", level=1, name="weekly report")).to_be_visible()
    page.get_by_role("button", name="Invoke now").click()
    row = page.get_by_role("region", name="Invocations").get_by_role("row").nth(1)
    expect(row).to_contain_text("completed")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    change = page.get_by_role("region", name="Change the automation")
    change.get_by_label("Minute, hour, day, month, weekday").fill("30 7 * * *")
    change.get_by_label("Message").fill("Write it early.")
    change.get_by_role("button", name="Change the automation").click()
    expect(page.get_by_text("30 7 * * *")).to_be_visible()
    (kept,) = client.beta.agents.automations.list()
    said: Any = kept.to_dict()
    assert (said["expression"], said["status"], said["target"]["agent_id"]) == ("30 7 * * *", "paused", agent.id)
    assert [part["text"] for part in said["target"]["input"][0]["content"]] == ["Write it early."]
    row.get_by_role("link").click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text("Written.")


def test_an_automation_whose_environment_is_not_shown_whole_keeps_its_target(console: Console, client: OpenAI) -> None:
    """Its variables are shown nowhere: what would be sent back is without them."""
    environment: Any = {"type": "openai_hosted", "env": {"HARBOUR": "north"}}
    message = {"role": "user", "content": [{"type": "input_text", "text": "Go."}]}
    target: Any = {"type": "new_session", "agent": {"model": "demo"}, "environment": environment, "input": [message]}
    made = client.beta.agents.automations.create(type="periodic", name="north", expression="0 9 * * *", timezone="UTC", target=target)
    page = console.go(f"#/automations/{made.id}?edit=yes").page
    change = page.get_by_role("region", name="Change the automation")
    expect(change.get_by_label("Message")).to_have_count(0)
    change.get_by_label("Name").fill("south")
    change.get_by_role("button", name="Change the automation").click()
    expect(page.get_by_role("heading", level=1, name="south")).to_be_visible()
    assert client.beta.agents.automations.retrieve(made.id).to_dict()["target"] == made.to_dict()["target"]


def test_a_credential_is_added_and_replaced_and_never_shown(console: Console, client: OpenAI) -> None:
    page = console.go("#/vaults").page
    answers: list[str] = []
    page.on("response", lambda response: answers.append(response.text()) if "/v1/vaults" in response.url else None)
    page.get_by_label("Name of a new vault").fill("staging")
    page.get_by_role("button", name="New").click()
    form = page.get_by_role("region", name="Add a credential")
    form.get_by_label("Name").fill("depot")
    form.get_by_label("Address of the server").fill("https://depot.example/mcp")
    form.get_by_label("Token", exact=True).fill(SECRET)
    form.get_by_role("button", name="Add").click()
    rows = page.get_by_role("region", name="Credentials").get_by_role("row")
    expect(rows.filter(has_text="depot")).to_contain_text("bearer token")
    form.get_by_label(re.compile("^What it is")).select_option("environment_variable")
    form.get_by_label("Name", exact=True).fill("tides")
    form.get_by_label("Variable", exact=True).fill("TIDE_KEY")
    form.get_by_label("Hosts that get it").fill("tides.example.com")
    form.get_by_label("Value", exact=True).fill(SECRET)
    form.get_by_role("button", name="Add").click()
    expect(rows.filter(has_text="tides")).to_contain_text("TIDE_KEY at tides.example.com")
    rows.filter(has_text="depot").get_by_role("button", name="Replace").click()
    replacing = page.get_by_role("region", name="Replace the secret of depot")
    replacing.get_by_label("New token").fill(f"{SECRET}-again")
    replacing.get_by_role("button", name="Replace it").click()
    expect(replacing).to_have_count(0)
    assert console.barriers() == []
    assert answers
    assert not [text for text in [*answers, page.content()] if SECRET in text]
    assert console.evaluate("() => JSON.stringify([{ ...localStorage }, location.href])").find(SECRET) == -1
    (vault,) = client.beta.agents.vaults.list()
    page.get_by_role("button", name="Delete depot").click()
    page.get_by_role("button", name="Really?").click()
    expect(rows.filter(has_text="depot")).to_have_count(0)
    assert [each.name for each in client.beta.agents.vaults.credentials.list(vault.id)] == ["tides"]


def test_environments_and_templates_are_listed(console: Console, client: OpenAI) -> None:
    environments = client.beta.agents.environments
    made = environments.create(environment={"type": "openai_hosted"})
    network: Any = {"access": "disabled"}
    environments.templates.create(name="reports", env={"HARBOUR": "a sealed value"}, network=network)
    until(lambda: environments.retrieve(made.id).status == "ready")
    page = console.go("#/environments").page
    expect(page.get_by_role("row").filter(has_text=made.id[:11])).to_contain_text("ready")
    page.get_by_role("tab", name="Templates").click()
    row = page.get_by_role("row").filter(has_text="reports")
    expect(row).to_contain_text("disabled")
    assert "a sealed value" not in page.content()
    row.get_by_role("button", name="Delete reports").click()
    page.get_by_role("button", name="Really?").click()
    expect(page.get_by_role("heading", name="No template yet")).to_be_visible()
    page.get_by_role("tab", name="Environments").click()
    page.get_by_role("link", name=made.id[:11]).click()
    expect(page.get_by_role("tab", name="Terminal")).to_be_visible()


def test_a_key_that_only_reads_changes_nothing_of_agents(browser: Browser, stack: Stack) -> None:
    (address,) = lines(stack, ["console", "--no-browser", "--read-only"])
    made = stack.client().beta.agents.create(model="demo", name="read alone")
    context = context_of(browser)
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/")
    console.page.goto(address)
    expect(console.page.get_by_text("read only", exact=True)).to_be_visible()
    for where in ("#/agents?new=yes", f"#/agents/{made.id}?edit=yes", "#/automations?new=yes", "#/vaults", "#/sessions?new=yes"):
        console.go(where)
        expect(console.page.get_by_role("status", name="Loading")).to_have_count(0)
        buttons = console.page.get_by_role("main").get_by_role("button").all_text_contents()
        assert [each for each in buttons if re.search("New|Create|Save|Edit|Delete|Begin", each)] == [], where
    context.close()
    assert console.said == []
