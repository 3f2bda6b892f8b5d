"""A run of a team in the console: a lane for each agent, messages as arrows, and what each has used."""

import re
from typing import Any

import pytest
from openai import OpenAI
from playwright.sync_api import expect

from tests.browser import WAIT_MS, Console
from tests.scenarios.visits import make_key
from tests.stack import SHELL, Stack, say, script, shell, spawn, wait

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return make_key(stack, "team")


@pytest.fixture
def console(console: Console, key: str) -> Console:
    return console.enter(key)


@pytest.fixture(scope="module")
def ran(client: OpenAI) -> Any:
    """Three agents, one below the other, each with a command."""
    below = [shell("echo b"), say("b is done")]
    steps = [shell("echo a"), {"calls": [spawn("b", *below)]}, wait(), say("a is done")]
    tools: Any = [SHELL]
    return client.beta.responses.create(
        model="demo",
        input=script({"calls": [spawn("a", *steps)]}, wait(), say("All is done.")),
        tools=tools,
        multi_agent={"enabled": True},
        betas=["responses_multi_agent=v1"],
    )


def test_each_agent_has_a_lane_and_messages_are_arrows(console: Console, ran: Any) -> None:
    page = console.go(f"#/runs/{ran.id}").page
    timeline = page.get_by_role("group", name="Timeline")
    used = {each["agent_name"]: each for each in ran.usage.model_extra["agents"]}
    assert list(used) == ["/root", "/root/a", "/root/a/b"]
    for name in used:
        expect(timeline.get_by_role("group", name=f"Agent {name}: ")).to_be_visible()
    lane = timeline.get_by_role("group", name="Agent /root/a: ")
    expect(lane.get_by_role("button", name="/root/a: model step")).to_have_count(4)
    expect(lane.get_by_role("button", name="/root/a: command 1")).to_have_count(1)
    sent = [("/root", "/root/a"), ("/root/a", "/root/a/b"), ("/root/a/b", "/root/a"), ("/root/a", "/root")]
    for author, recipient in sent:
        expect(timeline.get_by_role("button", name=f"message of {author} to {recipient}", exact=True)).to_have_count(1)
    timeline.get_by_role("button", name="message of /root/a to /root", exact=True).click()
    expect(page).to_have_url(re.compile("at="))
    assert console.barriers() == []


def test_the_transcript_says_who_speaks_and_the_cost_is_told_by_agent(console: Console, ran: Any) -> None:
    page = console.go(f"#/runs/{ran.id}?tab=cost").page
    rounds = page.get_by_role("region", name="Transcript").get_by_role("article")
    first = page.get_by_role("article", name="/root/a/b 1", exact=True)
    first.scroll_into_view_if_needed()
    expect(first).to_contain_text("/root/a → /root/a/b")
    expect(first).to_contain_text("echo b")
    names = [str(round_.get_attribute("aria-label")).rpartition(" ")[0] for round_ in rounds.all()]
    assert set(names) == {"/root", "/root/a", "/root/a/b"}
    rows = page.get_by_role("table", name="By agent").get_by_role("row")
    expect(rows).to_have_count(4)
    for row, each in zip(rows.all()[1:], ran.usage.model_extra["agents"], strict=True):
        expect(row).to_contain_text(each["agent_name"])
        expect(row.locator("td").nth(3)).to_have_text(f"{each['input_tokens']:,}")
