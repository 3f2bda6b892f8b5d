"""Tenants never meet: what one has made is unknown to the other, on every route."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

import pytest
from moorage.api.routers import ROUTERS
from moorage.ids import approval_id
from moorage.store.api_keys import ApiKeys
from moorage.store.sqlite_table import SqliteTable

from tests.processes import until
from tests.stack import SHELL, Stack, say, script, shell
from tests.unit.skills.archives import skill

BEARER: Any = {"type": "static_bearer", "mcp_server_url": "https://depot.example/mcp", "token": "abc"}


@pytest.fixture(scope="module")
def other_key(stack: Stack) -> str:
    """A key of another tenant, made as the operator would."""
    return make_key(stack, "other")


def make_key(stack: Stack, tenant_id: str) -> str:
    with keys_of(stack) as keys:
        _, secret = asyncio.run(keys.create(tenant_id))
    return secret


def revoke(stack: Stack, tenant_id: str) -> None:
    """Revoke all keys of a tenant."""
    with keys_of(stack) as keys:
        for key in asyncio.run(keys.page()):
            if key.tenant_id == tenant_id:
                assert asyncio.run(keys.revoke(key.key_id))


@contextmanager
def keys_of(stack: Stack) -> Iterator[ApiKeys]:
    with stack.journal() as journal:
        yield ApiKeys(SqliteTable(journal), clock=time.time)


def belongings(stack: Stack, key: str | None = None) -> dict[str, str]:
    """One of everything, made by the tenant of this key, or by the first; ids by the name that the paths below use."""
    client = stack.client(key)
    tools: Any = [SHELL]
    ran = client.responses.create(model="demo", input=script(shell("echo x > file.txt"), say("file.txt")), tools=tools)
    queued = client.responses.create(model="demo", input=script(say("x")), background=True)
    asking: Any = [{**SHELL, "require_approval": "always"}]
    held = client.responses.create(model="demo", input=script(shell("true")), tools=asking, background=True)
    container_id = ran.tools[0].environment.container_id  # type: ignore[union-attr]
    with stack.http(key) as http:
        session = http.post(f"/containers/{container_id}/sessions", json={}).json()
    conversation = client.conversations.create(items=[{"role": "user", "content": "hello"}])
    ended = client.responses.create(model="demo", input=script(shell("true")), tools=asking)
    upload = client.uploads.create(bytes=3, filename="x.txt", mime_type="text/plain", purpose="user_data")
    store, stored = client.vector_stores.create(name="x"), client.files.create(file=("b.txt", b"abc"), purpose="assistants")
    vault = client.beta.agents.vaults.create()
    lead: Any = {"model": "demo", "multi_agent": {"enabled": True}}
    spawn = {"call": {"name": "spawn_agent", "arguments": {"task_name": "a", "message": "hi", "fork_turns": "none"}}}
    wait = {"call": {"name": "wait_agent", "arguments": {}}}
    leaves = shell(f"mkdir -p /workspace/outputs; echo x > /workspace/outputs/{token_hex(4)}.txt")  # An artifact's id follows its path.
    work = script(leaves, spawn, wait, say("x"))
    agent_session = client.beta.agents.sessions.create(agent=lead, environment={"type": "openai_hosted"}, input=work)
    until(lambda: client.beta.agents.sessions.retrieve(agent_session.id).status == "idle")
    (subagent,) = client.beta.agents.sessions.subagents.list(agent_session.id)
    (subagent_turn,) = client.beta.agents.sessions.subagents.turns.list(subagent.id, session_id=agent_session.id)
    wakes: Any = {"type": "existing_session", "session_id": agent_session.id, "instructions": "x"}
    automation = client.beta.agents.automations.create(type="once", name="x", run_at=4_000_000_000, target=wakes)
    return {
        "response": ran.id,
        "background": queued.id,
        "held": held.id,
        "approval": approval_id(held.id, 0),
        "question": ended.output[-1].id or "",
        "item": ran.output[-1].id or "",
        "container": container_id,
        "session": session["id"],
        "container_file": next(iter(client.containers.files.list(container_id))).id,
        "file": client.files.create(file=("a.txt", b"abc"), purpose="user_data").id,
        "conversation": conversation.id,
        "conversation_item": client.conversations.items.list(conversation.id).data[0].id or "",
        "vault": vault.id,
        "credential": client.beta.agents.vaults.credentials.create(vault.id, name="x", auth=BEARER).id,
        "agent": client.beta.agents.create(model="demo").id,
        "template": client.beta.agents.environments.templates.create().id,
        "agent_session": agent_session.id,
        "automation": automation.id,
        "invocation": client.beta.agents.automations.invocations.create(automation.id).id,
        "turn": next(iter(client.beta.agents.sessions.turns.list(agent_session.id))).id,
        "artifact": next(iter(client.beta.agents.sessions.artifacts.list(agent_session.id))).id,
        "subagent": subagent.id,
        "subagent_turn": subagent_turn.id,
        "upload": upload.id,
        "skill": client.skills.create(files=list(skill().items())).id,
        "store": store.id,
        "stored": stored.id,
        "batch": client.vector_stores.file_batches.create(store.id, file_ids=[stored.id]).id,
        "webhook": client.webhooks.create(name="x", url="https://hooks.example/", event_types=["response.failed"]).id,
    }


HELD = {"type": "openai_hosted", "environment_id": "{container}"}
BEGUN = {"agent": {"model": "demo"}, "environment": {"type": "openai_hosted"}, "input": "x"}
ONCE = {"type": "once", "name": "x", "run_at": 4_000_000_000}
WAKES = {"type": "existing_session", "session_id": "{agent_session}", "instructions": "x"}
BEGINS = {"type": "new_session", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]}
ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/responses/{response}", None),
    ("GET", "/responses/{response}?stream=true", None),
    ("GET", "/responses/{response}?at=1", None),
    ("GET", "/responses/{response}/input_items", None),
    ("GET", "/responses/{response}/events", None),
    ("GET", "/responses/{response}/steps", None),
    ("GET", "/responses/{response}/steps/step_0/prompt", None),
    ("GET", "/responses/{response}/trace", None),
    ("POST", "/responses/{background}/cancel", None),
    ("POST", "/responses/{background}/pause", None),
    ("POST", "/responses/{background}/budget", {"tool_calls": 1}),
    ("POST", "/responses/{background}/resume", None),
    ("POST", "/responses/{response}/fork", {}),
    ("GET", "/responses/{held}/approvals", None),
    ("POST", "/responses/{held}/approvals/{approval}", {"approve": True}),
    ("POST", "/responses/{held}/approvals/{approval}/link", {}),
    ("DELETE", "/responses/{response}", None),
    ("GET", "/containers/{container}", None),
    ("GET", "/containers/{container}/files", None),
    ("GET", "/containers/{container}/files/{container_file}", None),
    ("GET", "/containers/{container}/files/{container_file}/content", None),
    ("GET", "/containers/{container}/tree", None),
    ("GET", "/containers/{container}/tree?at=1", None),
    ("GET", "/containers/{container}/sandboxes", None),
    ("GET", "/containers/{container}/versions", None),
    ("GET", "/containers/{container}/skills", None),
    ("GET", "/archives/{container}", None),
    ("GET", "/containers/{container}/egress", None),
    ("GET", "/processes/{container}", None),
    ("GET", "/containers/{container}/screen", None),
    ("POST", "/containers/{container}/screen/control", {"action": "take", "holder": "x"}),
    ("POST", "/containers/{container}/screen/input", {"holder": "x", "number": 1, "actions": [{"type": "keypress", "keys": ["A"]}]}),
    ("POST", "/containers/{container}/sessions", {}),
    ("GET", "/containers/{container}/sessions", None),
    ("GET", "/containers/{container}/sessions/{session}", None),
    ("GET", "/sessions/{session}/output", None),
    ("POST", "/sessions/{session}/input", {"text": "exit"}),
    ("POST", "/sessions/{session}/resize", {"columns": 80, "rows": 24}),
    ("DELETE", "/sessions/{session}", None),
    ("POST", "/containers/{container}/files", {"file_id": "{file}"}),
    ("DELETE", "/containers/{container}/files/{container_file}", None),
    ("DELETE", "/containers/{container}", None),
    ("GET", "/files/{file}", None),
    ("GET", "/files/{file}/content", None),
    ("DELETE", "/files/{file}", None),
    ("GET", "/conversations/{conversation}", None),
    ("POST", "/conversations/{conversation}", {"metadata": {}}),
    ("GET", "/conversations/{conversation}/items", None),
    ("POST", "/conversations/{conversation}/items", {"items": [{"role": "user", "content": "x"}]}),
    ("GET", "/conversations/{conversation}/items/{conversation_item}", None),
    ("DELETE", "/conversations/{conversation}/items/{conversation_item}", None),
    ("DELETE", "/conversations/{conversation}", None),
    ("GET", "/agents/{agent}", None),
    ("GET", "/agents/{agent}?version=1", None),
    ("POST", "/agents/{agent}", {"name": "x"}),
    ("GET", "/agents/{agent}/export", None),
    ("POST", "/agents/import", {"file_id": "{file}"}),
    ("DELETE", "/agents/{agent}", None),
    ("GET", "/vaults/{vault}", None),
    ("POST", "/vaults/{vault}", {"name": "x"}),
    ("POST", "/vaults/{vault}/credentials", {"name": "x", "auth": BEARER}),
    ("GET", "/vaults/{vault}/credentials", None),
    ("GET", "/vaults/{vault}/credentials/{credential}", None),
    ("POST", "/vaults/{vault}/credentials/{credential}", {"metadata": {}}),
    ("DELETE", "/vaults/{vault}/credentials/{credential}", None),
    ("DELETE", "/vaults/{vault}", None),
    ("GET", "/agents/environments/templates/{template}", None),
    ("POST", "/agents/environments/templates/{template}", {"name": "x"}),
    ("DELETE", "/agents/environments/templates/{template}", None),
    ("GET", "/agents/environments/{container}", None),
    ("GET", "/agents/environments/{container}/files", None),
    ("POST", "/agents/environments/{container}/files", {"type": "inline", "path": "/workspace/a", "data": ""}),
    (
        "POST",
        "/agents/environments",
        {"environment": {"type": "openai_hosted", "files": [{"type": "file_id", "file_id": "{file}", "path": "/workspace/a"}]}},
    ),
    ("GET", "/agents/sessions/{agent_session}", None),
    ("POST", "/agents/sessions/{agent_session}", {"metadata": {"a": "b"}}),
    ("DELETE", "/agents/sessions/{agent_session}?force=true", None),
    ("POST", "/agents/sessions/{agent_session}/fork", {}),
    ("GET", "/agents/sessions/{agent_session}/events", None),
    ("POST", "/agents/sessions/{agent_session}/events", {"events": [{"type": "agent.session.input.cancel"}]}),
    ("GET", "/agents/sessions/{agent_session}/items", None),
    ("GET", "/agents/sessions/{agent_session}/turns", None),
    ("GET", "/agents/sessions/{agent_session}/turns/{turn}", None),
    ("GET", "/agents/sessions/{agent_session}/turns/{turn}/items", None),
    ("GET", "/agents/sessions/{agent_session}/turns/{subagent_turn}", None),
    ("GET", "/agents/sessions/{agent_session}/turns/{subagent_turn}/items", None),
    ("GET", "/agents/sessions/{agent_session}/subagents", None),
    ("GET", "/agents/sessions/{agent_session}/subagents/{subagent}", None),
    ("GET", "/agents/sessions/{agent_session}/subagents/{subagent}/items", None),
    ("GET", "/agents/sessions/{agent_session}/subagents/{subagent}/turns", None),
    ("GET", "/agents/sessions/{agent_session}/subagents/{subagent}/turns/{subagent_turn}", None),
    ("GET", "/agents/sessions/{agent_session}/subagents/{subagent}/turns/{subagent_turn}/items", None),
    ("GET", "/agents/sessions/{agent_session}/traces", None),
    ("GET", "/agents/sessions/{agent_session}/artifacts", None),
    ("GET", "/agents/sessions/{agent_session}/artifacts/{artifact}", None),
    ("GET", "/agents/sessions/{agent_session}/artifacts/{artifact}/content", None),
    ("DELETE", "/agents/sessions/{agent_session}/artifacts/{artifact}", None),
    ("POST", "/agents/sessions", {"agent_id": "{agent}", "environment": {"type": "none"}, "input": "x"}),
    ("POST", "/agents/sessions", BEGUN | {"vault_ids": ["{vault}"]}),
    ("POST", "/agents/sessions", {**BEGUN, "environment": {"type": "openai_hosted", "environment_template_id": "{template}"}}),
    ("GET", "/agents/automations/{automation}", None),
    ("POST", "/agents/automations/{automation}", {"name": "y"}),
    ("DELETE", "/agents/automations/{automation}", None),
    ("POST", "/agents/automations/{automation}/pause", None),
    ("POST", "/agents/automations/{automation}/resume", None),
    ("POST", "/agents/automations/{automation}/invocations", None),
    ("GET", "/agents/automations/{automation}/invocations", None),
    ("GET", "/agents/automations/{automation}/invocations/{invocation}", None),
    ("POST", "/agents/automations", ONCE | {"target": WAKES}),
    ("POST", "/agents/automations", ONCE | {"target": BEGINS | {"agent_id": "{agent}", "environment": {"type": "none"}}}),
    ("POST", "/agents/automations", ONCE | {"target": BEGINS | {"agent": {"model": "demo"}, "environment": HELD}}),
    ("POST", "/agents/sessions", {"agent": {"model": "demo"}, "environment": HELD}),
    ("POST", "/uploads/{upload}/parts", b"abc"),
    ("POST", "/uploads/{upload}/cancel", None),
    ("POST", "/uploads/{upload}/complete", {"part_ids": ["part_0"]}),
    ("GET", "/skills/{skill}", None),
    ("POST", "/skills/{skill}", {"default_version": "1"}),
    ("GET", "/skills/{skill}/content", None),
    ("POST", "/skills/{skill}/versions", None),
    ("GET", "/skills/{skill}/versions", None),
    ("GET", "/skills/{skill}/versions/1", None),
    ("GET", "/skills/{skill}/versions/1/content", None),
    ("DELETE", "/skills/{skill}/versions/1", None),
    ("DELETE", "/skills/{skill}", None),
    ("GET", "/vector_stores/{store}", None),
    ("POST", "/vector_stores/{store}", {"name": "x"}),
    ("POST", "/vector_stores/{store}/search", {"query": "x"}),
    ("POST", "/vector_stores/{store}/files", {"file_id": "{file}"}),
    ("GET", "/vector_stores/{store}/files", None),
    ("GET", "/vector_stores/{store}/files/{stored}", None),
    ("POST", "/vector_stores/{store}/files/{stored}", {"attributes": {}}),
    ("GET", "/vector_stores/{store}/files/{stored}/content", None),
    ("DELETE", "/vector_stores/{store}/files/{stored}", None),
    ("POST", "/vector_stores/{store}/file_batches", {"file_ids": ["{file}"]}),
    ("GET", "/vector_stores/{store}/file_batches/{batch}", None),
    ("POST", "/vector_stores/{store}/file_batches/{batch}/cancel", None),
    ("GET", "/vector_stores/{store}/file_batches/{batch}/files", None),
    ("DELETE", "/vector_stores/{store}", None),
    ("GET", "/webhook_endpoints/{webhook}", None),
    ("POST", "/webhook_endpoints/{webhook}", {"name": "x"}),
    ("POST", "/webhook_endpoints/{webhook}/rotate_secret", {}),
    ("POST", "/webhook_endpoints/{webhook}/test", {"event_type": "response.failed"}),
    ("GET", "/webhook_endpoints/{webhook}/deliveries", None),
    ("POST", "/webhook_endpoints/{webhook}/deliveries/evt_0/redeliver", None),
    ("DELETE", "/webhook_endpoints/{webhook}", None),
]

REFERENCES: list[tuple[str, dict[str, Any], int]] = [
    ("previous_response_id", {"previous_response_id": "{response}"}, 400),
    ("conversation", {"conversation": "{conversation}"}, 404),
    ("item_reference", {"input": [{"type": "item_reference", "id": "{item}"}]}, 404),
    (
        "container_reference",
        {"tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "{container}"}}]},
        404,
    ),
    ("file_ids", {"tools": [{"type": "shell", "environment": {"type": "container_auto", "file_ids": ["{file}"]}}]}, 404),
    (
        "mcp_approval_response",
        {
            "input": [{"type": "mcp_approval_response", "approval_request_id": "{question}", "approve": True}],
            "tools": [{**SHELL, "require_approval": "always"}],
        },
        400,
    ),
    (
        "input_file",
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "{file}"}]}]},
        404,
    ),
]


def filled(value: Any, ids: dict[str, str]) -> Any:
    match value:
        case str():
            return value.format(**ids) if "{" in value else value
        case dict():
            return {key: filled(inner, ids) for key, inner in value.items()}
        case list():
            return [filled(inner, ids) for inner in value]
        case _:
            return value


def test_a_foreign_id_is_unknown_on_every_route(stack: Stack, other_key: str) -> None:
    ids = belongings(stack)
    with stack.http(other_key) as http:
        for method, path, body in ROUTES:
            sent = {"files": {"data": body}} if isinstance(body, bytes) else {"json": filled(body, ids)}
            answer = http.request(method, filled(path, ids), **sent)
            assert answer.status_code == 404, f"{method} {path}: {answer.status_code} {answer.text}"
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, path
        for what, reference, status in REFERENCES:
            answer = http.post("/responses", json={"model": "demo", "input": "x", **filled(reference, ids)})
            assert answer.status_code == status, f"{what}: {answer.status_code} {answer.text}"
        lists = ("/agents", "/files", "/containers", "/skills", "/responses", "/usage", "/webhook_endpoints", "/approvals")
        beside = ("/agents/automations", "/agents/environments", "/agents/environments/templates", "/agents/sessions")
        for path in (*lists, *beside, "/vaults", "/vector_stores"):
            assert http.get(path).json()["data"] == [], path
        assert http.get("/me").json()["storage"]["used_bytes"] == 0, "what another tenant stores does not count"
    with stack.http() as http:
        assert http.post(filled("/responses/{held}/cancel", ids)).status_code == 200
        for path in ("/responses/{response}", "/containers/{container}", "/files/{file}", "/conversations/{conversation}"):
            assert http.get(filled(path, ids)).status_code == 200, f"{path} is still its owner's"


def test_a_foreign_id_is_unknown_below_a_record_of_ones_own(stack: Stack) -> None:
    key = make_key(stack, "beside")
    foreign, own = belongings(stack), belongings(stack, key)
    below = [route for route in ROUTES if route[1].partition("?")[0].count("{") > 1]
    assert len(below) > 30
    with stack.http(key) as http:
        for method, path, body in below:
            first, rest = path.split("}", 1)
            answer = http.request(method, filled(f"{first}}}", own) + filled(rest, foreign), json=filled(body, foreign))
            assert answer.status_code == 404, f"{method} {path}: {answer.status_code} {answer.text}"


def test_every_route_with_an_id_is_in_the_matrix() -> None:
    tried = {(method, path.partition("?")[0]) for method, path, _ in ROUTES}
    missing = [
        f"{method} {path}"
        for path, method in routes()
        if "{" in path and not any(method == other and leads_to(path, asked) for other, asked in tried)
    ]
    assert missing == []


def routes() -> Iterator[tuple[str, str]]:
    for router in ROUTERS:
        for route in router.routes:
            path = getattr(route, "path", "")
            if not path.startswith("/models"):
                yield from ((path, method) for method in (getattr(route, "methods", None) or set()) - {"HEAD"})


def leads_to(route: str, asked: str) -> bool:
    """Whether a request for this path is that route's: word by word, with anything in the place of an id."""
    words, others = route.split("/"), asked.split("/")
    return len(words) == len(others) and all(word == other or word.startswith("{") for word, other in zip(words, others, strict=True))
