"""A session whose vault opens an MCP server, whose calls a person allows, on a real stack."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from playwright.sync_api import expect

from tests.browser import WAIT_MS, Console, chromium, context_of
from tests.mcp_servers import LOOPBACK, Depot, Running, depot_beside
from tests.processes import until
from tests.stack import Stack, say, script, shell
from tests.token_endpoint import TokenEndpoint, token_endpoint

expect.set_options(timeout=WAIT_MS)

TOKEN = "the-token-of-the-depot"
NONE: Any = {"type": "none"}


@pytest.fixture(scope="module")
def depot() -> Iterator[tuple[Depot, Running]]:
    there = Depot()
    with depot_beside(there) as running:
        yield there, running


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as running:
        yield running


@pytest.fixture(scope="module")
def running(depot: tuple[Depot, Running], endpoint: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    ports = f"{depot[1].port},{endpoint.port}"
    opened = {"MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK), "MOORAGE_EGRESS_PORTS": ports}
    stack = Stack(tmp_path_factory.mktemp("vaults"), opened).start()
    yield stack
    assert stack.stop() == 0


@pytest.fixture(scope="module")
def client(running: Stack) -> OpenAI:
    return running.client()


def served(depot: tuple[Depot, Running], **fields: Any) -> Any:
    """An agent with the depot's server."""
    transport = {"type": "http", "server_url": f"{depot[1].url}/mcp"}
    return {"model": "demo", "tools": [{"type": "mcp", "server_label": "depot", "transport": transport, **fields}]}


def vault_of(client: OpenAI, depot: tuple[Depot, Running]) -> tuple[str, str]:
    """A vault with the depot's token, and the id of that credential."""
    vault = client.beta.agents.vaults.create(name="depot")
    auth: Any = {"type": "static_bearer", "mcp_server_url": f"{depot[1].url}/mcp", "token": TOKEN}
    return vault.id, client.beta.agents.vaults.credentials.create(vault.id, name="depot", auth=auth).id


def find(sku: str) -> str:
    return script({"call": {"name": "depot__find_part", "arguments": {"sku": sku}}}, say("{{output}}"))


def test_the_token_of_a_vault_opens_the_server_and_is_never_shown(client: OpenAI, depot: tuple[Depot, Running]) -> None:
    sessions, there = client.beta.agents.sessions, depot[0]
    vault_id, credential_id = vault_of(client, depot)
    agent = served(depot, credential_id=credential_id)
    with sessions.create(agent=agent, environment=NONE, input=find("A-7"), vault_ids=[vault_id], stream=True) as stream:
        told: list[Any] = [event.to_dict() for event in stream]
    (call,) = [event["item"] for event in told if event["type"].endswith("item.done") and event["item"]["type"] == "mcp_call"]
    assert (call["server_label"], call["name"], call["arguments"], call["status"]) == (
        "depot",
        "find_part",
        {"sku": "A-7"},
        "completed",
    )
    assert "14 of A-7 in stock" in str(call["output"])
    assert {sent["authorization"] for sent in there.headers} == {f"Bearer {TOKEN}"}
    session: Any = sessions.retrieve(told[0]["session"]["id"])
    assert (session.vault_ids, session.agent.tools[0].credential_id) == ([vault_id], credential_id)
    (turn,) = sessions.turns.list(session.id)
    made: Any = turn.to_dict()["response_ids"]
    shown = [told, session.to_dict(), client.responses.retrieve(made[0]).to_dict()]
    assert TOKEN not in json.dumps(shown, default=str)


def test_a_vault_that_is_gone_fails_the_session_until_the_next_message(client: OpenAI, depot: tuple[Depot, Running]) -> None:
    sessions = client.beta.agents.sessions
    vault_id, credential_id = vault_of(client, depot)
    with pytest.raises(openai.NotFoundError, match=credential_id):
        sessions.create(agent=served(depot, credential_id=credential_id), environment=NONE, input="x")
    with pytest.raises(openai.NotFoundError, match="vault_none"):
        sessions.create(agent=served(depot), environment=NONE, input="x", vault_ids=["vault_none"])
    session = sessions.create(agent=served(depot), environment=NONE, input=find("A-1"), vault_ids=[vault_id])
    until(lambda: sessions.retrieve(session.id).status == "idle")
    client.beta.agents.vaults.delete(vault_id)
    message: Any = {"role": "user", "content": [{"type": "input_text", "text": find("A-2")}]}
    with pytest.raises(openai.NotFoundError, match=vault_id):
        sessions.events.create(session.id, events=[{"type": "agent.session.input.message", "input": [message]}])


@pytest.mark.parametrize(("decision", "orders", "words"), [("approve", [("B-1", 2)], "ordered 2 of B-1"), ("deny", [], "not")])
def test_a_person_decides_about_a_call(
    client: OpenAI, depot: tuple[Depot, Running], decision: Any, orders: list[tuple[str, int]], words: str
) -> None:
    sessions, there = client.beta.agents.sessions, depot[0]
    there.orders.clear()
    vault_id, _ = vault_of(client, depot)
    order = script({"call": {"name": "depot__order_part", "arguments": {"sku": "B-1", "count": 2}}}, say("{{output}}"))
    agent = served(depot, require_approval="always")
    session = sessions.create(agent=agent, environment=NONE, input=order, vault_ids=[vault_id])
    until(lambda: sessions.retrieve(session.id).status == "requires_action")
    action: Any = sessions.retrieve(session.id).required_actions[0]
    assert (action.type, action.request.server_label, action.request.name, action.request.arguments) == (
        "mcp_approval_request",
        "depot",
        "order_part",
        {"sku": "B-1", "count": 2},
    )
    assert (there.orders, [turn.status for turn in sessions.turns.list(session.id)]) == ([], ["waiting"])
    response: Any = {"type": "mcp_tool_call", "decision": decision}
    answer: Any = {"type": "agent.session.input.mcp_approval_request_result", "request_id": action.request_id, "response": response}
    sessions.events.create(session.id, events=[answer])
    until(lambda: sessions.retrieve(session.id).status == "idle")
    last: Any = next(iter(sessions.items.list(session.id)))
    assert (there.orders, words in last.content[0].text) == (orders, True), last.content[0].text


def test_a_person_decides_about_a_call_in_the_console(client: OpenAI, depot: tuple[Depot, Running]) -> None:
    sessions, there = client.beta.agents.sessions, depot[0]
    there.orders.clear()
    vault_id, _ = vault_of(client, depot)
    calls = [{"name": "depot__order_part", "arguments": {"sku": sku, "count": 1}} for sku in ("B-1", "B-2")]
    order = f"Order both. {script({'calls': calls})}"
    session = sessions.create(agent=served(depot, require_approval="always"), environment=NONE, input=order, vault_ids=[vault_id])
    with chromium() as browser:
        console = Console.opened(context_of(browser), str(client.base_url).removesuffix("v1/") + "console/")
        page = console.enter(client.api_key, f"#/sessions/{session.id}").page
        asked = page.get_by_role("region", name="Waiting for you").get_by_role("article")
        expect(asked).to_have_count(2)
        assert console.barriers() == []
        asked.filter(has_text="B-2").get_by_role("textbox").fill("One is enough.")
        asked.filter(has_text="B-2").get_by_role("button", name="Deny").click()
        expect(asked).to_have_count(1)
        asked.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("region", name="Answer")).to_contain_text("They say: One is enough.")
        expect(asked).to_have_count(0)
        assert console.said == []
    assert there.orders == [("B-1", 1)]


def test_a_token_that_ends_within_a_response_is_refreshed_once(
    running: Stack, client: OpenAI, depot: tuple[Depot, Running], endpoint: TokenEndpoint
) -> None:
    """It is refreshed in the second half of its life, which the two calls behind the pause meet."""
    sessions, there = client.beta.agents.sessions, depot[0]
    endpoint.expires_in = 20
    vault = client.beta.agents.vaults.create(name="depot")
    way: Any = {"type": "none"}
    refresh: Any = {"client_id": "moorage", "refresh_token": endpoint.refresh_token, "token_endpoint": endpoint.url}
    refresh["token_endpoint_auth"] = way
    auth: Any = {"type": "mcp_oauth", "mcp_server_url": f"{depot[1].url}/mcp", "access_token": "access-0", "refresh": refresh}
    auth["expires_at"] = "2001-01-01T00:00:00Z"
    client.beta.agents.vaults.credentials.create(vault.id, name="depot", auth=auth)
    there.headers.clear()
    calls = [{"name": "depot__find_part", "arguments": {"sku": sku}} for sku in ("A-1", "A-2")]
    # The model's script counts two calls at once as two turns.
    order = script({"call": calls[0]}, shell("sleep 11"), {"calls": calls}, say("never"), {"call": calls[0]}, say("Found."))
    session = sessions.create(agent=served(depot), environment={"type": "openai_hosted"}, input=order, vault_ids=[vault.id])
    until(lambda: sessions.retrieve(session.id).status == "idle", 120)
    (turn,) = sessions.turns.list(session.id)
    found = [item for item in sessions.items.list(session.id, order="asc") if item.type == "mcp_call"]
    assert (turn.status, [call.status for call in found]) == ("completed", ["completed"] * 4)
    sent = [headers["authorization"].removeprefix("Bearer ") for headers in there.headers]
    assert len(set(sent)) >= 2
    numbers = [
        int(token.partition("-")[2])
        for token, headers in zip(sent, there.headers, strict=True)
        if headers["mcp-method"] == "tools/call"
    ]
    # Of two calls at once, one may refresh a token with which the other opens the server meanwhile: it is valid.
    first, *at_once, last = numbers
    assert (len(at_once), first <= min(at_once), max(at_once) <= last) == (2, True, True), "no token comes back"
    assert [f"access-{number}" for number in range(1, endpoint.given + 1)] == list(dict.fromkeys(sent)), "none is asked for twice"
    told = json.dumps([session.to_dict(), turn.to_dict(), *(call.to_dict() for call in found)], default=str).encode()
    kept = [path for path in (*running.state_dir.glob("*"), *(running.state_dir / "store").rglob("*")) if path.is_file()]
    places = {"what clients are told": told} | {str(path): path.read_bytes() for path in kept}
    secrets = {token.encode() for token in (*sent, endpoint.refresh_token)}
    assert {place for place, content in places.items() if any(secret in content for secret in secrets)} == set()
