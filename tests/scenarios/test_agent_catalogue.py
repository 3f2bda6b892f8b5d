"""Each event and each item that the SDK knows of sessions is seen on a real stack, or has its reason why it is never sent."""

import typing
from collections.abc import Iterator
from typing import Any, Final

import pytest
from openai import OpenAI
from openai.types.beta.agent_session_event import AgentSessionEvent
from openai.types.beta.agent_session_item import AgentSessionItem

from tests.mcp_servers import LOOPBACK, Depot, Running, depot_beside
from tests.processes import until
from tests.scenarios.test_agent_sessions import HOSTED, WEIGH, call, ended
from tests.stack import Stack, say, script, shell, spawn, wait

_OF_A_STREAM: Final = "a stream tells of turns: the environment shows its status, and webhooks tell of it"
_OF_SELF_HOSTED: Final = "environments of 'self_hosted' are refused"
_NO_QUESTION: Final = "the browser asks no one: its event is refused by name"
EVENTS_NEVER_SENT: Final = {
    "error": "a failure is told by the turn or the session that it ends",
    "agent.session.environment.connected": _OF_SELF_HOSTED,
    "agent.session.environment.disconnected": _OF_SELF_HOSTED,
    "agent.session.environment.expired": _OF_A_STREAM,
    "agent.session.environment.suspended": _OF_A_STREAM,
}
EVENTS_OF_OTHER_TESTS: Final = {"agent.session.subagent.active": "tests/unit/agents/test_session_teams.py"}
"""It needs an agent that stops at a bound of tokens."""
ITEMS_NEVER_SENT: Final = {
    "close_subagent_call": "the model has no such call",
    "computer_use_approval_request": _NO_QUESTION,
    "computer_use_approval_request_result": _NO_QUESTION,
    "resume_subagent_call": "the model has no such call",
}
ITEMS_OF_OTHER_TESTS: Final = {
    "computer_use_call": "test_computer.py",
    "web_search_call": "tests/unit/agents/test_turn_items.py",
}
"""They need a browser, or a search engine."""


@pytest.fixture(scope="module")
def depot() -> Iterator[Running]:
    with depot_beside(Depot()) as running:
        yield running


@pytest.fixture(scope="module")
def stack(depot: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    opened = {"MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK), "MOORAGE_EGRESS_PORTS": str(depot.port)}
    running = Stack(tmp_path_factory.mktemp("catalogue"), opened).start()
    yield running
    assert running.stop() == 0


def names_of(union: Any) -> set[str]:
    """The values of ``type`` in a union of the SDK."""
    members = typing.get_args(typing.get_args(union)[0])
    return {typing.get_args(member.model_fields["type"].annotation)[0] for member in members}


def heard(stream: Any) -> set[str]:
    with stream.with_result_collection() as events:
        return {event.type for event in events}


def told_of_work(client: OpenAI, depot: Running) -> tuple[set[str], str]:
    """A turn with a thought, a command, a function and a server's tool; one in a new environment; one that fails, one that is cut."""
    sessions = client.beta.agents.sessions
    server: Any = {"type": "mcp", "server_label": "depot", "transport": {"type": "http", "server_url": f"{depot.url}/mcp"}}
    thought: Any = {"reason": "Look first."} | shell("echo a")
    work = script(thought, call("depot__find_part", sku="A-7"), call("weigh", parcel="a"), say("done"))
    agent: Any = {"model": "demo", "tools": [WEIGH, server]}
    handlers: Any = {"weigh": lambda _: "3 kg"}
    told: set[str] = set()
    begun = sessions.create(agent=agent, environment=HOSTED, input=work, stream=True, tool_handlers=handlers)
    with begun.with_result_collection() as events:
        told.update(event.type for event in events)
        session_id = events.get_final_result().session_id
    client.containers.delete(sessions.retrieve(session_id).environment.id)  # type: ignore[union-attr]
    told |= heard(sessions.stream(session_id, input=script(shell("ls"), say("anew"))))
    told |= heard(sessions.stream(session_id, input=script({"say": "x", "fail": {"status": 400}})))
    with sessions.stream(session_id, input=script(shell("sleep 600"))) as events:
        for event in events:
            told.add(event.type)
            if event.type == "agent.session.turn.in_progress":
                sessions.events.create(session_id, events=[{"type": "agent.session.input.cancel"}])
    return told, session_id


def told_of_a_team(client: OpenAI) -> tuple[set[str], str]:
    sessions = client.beta.agents.sessions
    falls: Any = {"calls": [spawn("a", {"say": "x", "fail": {"status": 400}}), spawn("b", shell("sleep 600"))]}
    story = script(
        falls,
        wait(),
        call("send_message", target="b", message="Go on."),
        call("interrupt_agent", target="b"),
        say("done"),
    )
    session = sessions.create(agent={"model": "demo", "multi_agent": {"enabled": True}}, environment=HOSTED)
    return heard(sessions.stream(session.id, input=story)), session.id


def told_of_a_setup_that_fails(client: OpenAI) -> set[str]:
    hosted: Any = {"type": "openai_hosted", "setup_commands": [{"command": "exit 7"}]}
    work = script(shell("ls"), say("So."))
    return heard(
        client.beta.agents.sessions.create(agent={"model": "demo"}, environment=hosted, input=work, stream=True, tool_handlers={})
    )


def told_of_a_session_that_cannot_go_on(client: OpenAI) -> set[str]:
    """Its vault goes while a message waits for the next turn."""
    agents, told = client.beta.agents, set[str]()
    vault = agents.vaults.create()
    session = agents.sessions.create(agent={"model": "demo"}, environment=HOSTED, vault_ids=[vault.id])
    slow: Any = {"say": "These are the last words of a turn.", "delta_ms": 800}
    message: Any = {
        "type": "agent.session.input.message",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    }
    with agents.sessions.stream(session.id, input=script(slow)) as first:
        for event in first:
            if event.type == "agent.session.turn.output_text.delta":
                agents.sessions.events.create(session.id, events=[message])
                agents.vaults.delete(vault.id)
                break
    until(lambda: agents.sessions.retrieve(session.id).status == "failed")
    with agents.sessions.events.stream(session.id, extra_query={"after": "0"}) as events:
        for each in events:
            told.add(each.type)
            if each.type == "agent.session.failed":
                return told
    raise AssertionError("the stream has ended")


def test_each_event_and_each_item_of_the_sdk_is_seen_or_has_its_reason(client: OpenAI, depot: Running) -> None:
    work, session_id = told_of_work(client, depot)
    team, team_id = told_of_a_team(client)
    told = work | team | told_of_a_setup_that_fails(client) | told_of_a_session_that_cannot_go_on(client)
    unheard = set(EVENTS_NEVER_SENT) | set(EVENTS_OF_OTHER_TESTS)
    assert (names_of(AgentSessionEvent) - told, told - names_of(AgentSessionEvent)) == (unheard, set())
    ended(client, team_id)
    items = {item.type for session in (session_id, team_id) for item in client.beta.agents.sessions.items.list(session)}
    elsewhere = set(ITEMS_NEVER_SENT) | set(ITEMS_OF_OTHER_TESTS)
    assert (names_of(AgentSessionItem) - items, items - names_of(AgentSessionItem)) == (elsewhere, set())
