"""The effects of the bodies of the Agents API: agents, sessions and their input, environments, automations, vaults."""

import base64
import time
from typing import Any

from tests.contract import agent_bodies
from tests.contract.effects.world import FUNCTION, PIXEL, Json, World, row
from tests.processes import until
from tests.stack import raw_events
from tests.unit.skills.archives import asked_plugin, plugin, skill, zip_of
from tests.upstream import called, called_shell, said

_FUNCTION: Json = {name: FUNCTION[name] for name in ("type", "name", "description", "parameters")}
_HOSTED = "environment<openai_hosted>"
_TOOL = "agent.tools[]"
_INPUT = "events.events[]<agent.session.input."


def place_of(world: World, body: str) -> str:
    """Where a body is sent, with what has to be there first."""
    route = agent_bodies.ROUTES[body]
    if "{vault_id}" in route:
        return route.format(vault_id=world.post("/vaults", {})["id"])
    return route.format(session_id=begun(world)["id"]) if "{session_id}" in route else route


def begun(world: World, *, agent: Json | None = None, environment: Json | None = None, **fields: Any) -> Json:
    """A session without a turn."""
    own = {"agent": {"model": "native", **(agent or {})}, "environment": environment or {"type": "openai_hosted"}}
    return world.post("/agents/sessions", {**own, **fields})


def rested(world: World, session: Json, status: str = "idle") -> Json:
    path = f"/agents/sessions/{session['id']}"
    until(lambda: world.get(path)["status"] == status)
    return world.get(path)


def asked(world: World, *, environment: Json | None = None, agent: Json | None = None, **fields: Any) -> Json:
    """What the upstream was asked for a session's first turn."""
    made = begun(world, agent=agent, environment=environment or {"type": "none"}, input="hi", **fields)
    assert rested(world, made)["error"] is None
    return dict(world.upstream.requests[-1].body)


def give(world: World, session: Json, *events: Json) -> None:
    assert world.http.post(f"/agents/sessions/{session['id']}/events", json={"events": list(events)}).status_code == 202


def message(*parts: Json) -> Json:
    return {"role": "user", "content": list(parts)}


TEXT: Json = {"type": "input_text", "text": "hi"}

# --- Agents -------------------------------------------------------------------------------------------------------------


@row("agent", *(f"agent.{name}" for name in ("model", "name", "instructions", "reasoning", "text", "service_tier", "metadata")))
@row("agent", "agent.compaction", "agent.experimental")
def settings_of_agents(world: World) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    settings: Json = {
        "model": "native",
        "name": "clerk",
        "instructions": "Be brief.",
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "schema": schema}, "verbosity": "low"},
        "service_tier": "flex",
    }
    idle: Json = {"multi_agent": {"enabled": False, "max_concurrent_subagents": 3}, "compaction": {"async": False}}
    made = world.post("/agents", {**settings, **idle, "experimental": {"time_awareness": False}, "metadata": {"a": "1"}})
    assert {name: made[name] for name in settings} == settings
    assert made["metadata"] == {"a": "1"}
    assert (made["multi_agent"], made["compaction"]) == ({"enabled": False, "max_concurrent_subagents": None}, {"async": False})
    world.upstream.plays(said('{"a": "b"}'))
    session = world.post("/agents/sessions", {"agent_id": made["id"], "environment": {"type": "none"}, "input": "hi"})
    rested(world, session)
    body = world.upstream.requests[-1].body
    assert (body["model"], body["service_tier"], body["text"]["verbosity"]) == ("upstream-of-native", "flex", "low")
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["text"]["format"]["schema"] == schema
    assert body["instructions"].endswith("Be brief.")


@row("agent", f"{_TOOL}<computer_use>", f"{_TOOL}<computer_use>.include_screenshots")
def browsers_of_agents(world: World) -> None:
    """``tests/scenarios/test_computer.py`` shows a call and its picture."""
    tool = {"type": "computer_use", "include_screenshots": True}
    session = begun(world, agent={"tools": [tool]}, input="hi")
    assert rested(world, session)["agent"]["tools"] == [tool]
    assert "computer" in [each.get("name", each["type"]) for each in world.upstream.requests[-1].body["tools"]]


@row("agent", "agent.multi_agent")
def teams_of_agents(world: World) -> None:
    alone = asked(world, agent={"multi_agent": {"enabled": False, "max_concurrent_subagents": 3}})
    assert "spawn_agent" not in [tool["name"] for tool in alone.get("tools", ())]
    together = asked(world, agent={"multi_agent": {"enabled": True}})
    assert "spawn_agent" in [tool["name"] for tool in together["tools"]]
    assert "At most 7 agents are active at once" in str(together["input"])


@row("agent", "agent.tools", f"{_TOOL}<function>", f"{_TOOL}<tool_search>")
@row("agent", *(f"{_TOOL}<function>.{name}" for name in ("name", "description", "parameters", "defer_loading", "async")))
def functions_of_agents(world: World) -> None:
    later = {**_FUNCTION, "name": "later", "defer_loading": True, "async": False}
    tools = asked(world, agent={"tools": [_FUNCTION, {"type": "tool_search"}, later]})["tools"]
    kept = [{name: tool.get(name) for name in _FUNCTION} for tool in tools if tool["type"] == "function"]
    assert kept[0] == _FUNCTION
    assert [tool.get("defer_loading") for tool in tools if tool.get("name") == "later"] == [True]
    assert "tool_search" in [tool["type"] for tool in tools]


@row("agent", f"{_TOOL}<mcp>", f"{_TOOL}<mcp>.transport", f"{_TOOL}<mcp>.transport<http>")
@row("agent", *(f"{_TOOL}<mcp>.transport<http>.{name}" for name in ("server_url", "headers")))
@row("agent", *(f"{_TOOL}<mcp>.{name}" for name in ("server_label", "allowed_tools", "credential_id", "require_approval")))
@row("agent", *(f"{_TOOL}<mcp>.{name}" for name in ("connection_origin", "required")))
@row("agent", "session.vault_ids", "credential.auth<static_bearer>")
def servers_of_agents(world: World) -> None:
    vault = world.post("/vaults", {})["id"]
    auth = {"type": "static_bearer", "mcp_server_url": world.depot_url, "token": "the-token"}
    first, _ = (world.post(f"/vaults/{vault}/credentials", {"name": name, "auth": auth})["id"] for name in ("a", "b"))
    transport = {"type": "http", "server_url": world.depot_url, "headers": {"X-Team": "parcels"}}
    tool: Json = {"type": "mcp", "server_label": "depot", "transport": transport, "allowed_tools": ["find_part"]}
    tool |= {"connection_origin": "service", "required": False, "require_approval": "always"}
    agent: Json = {"model": "native", "tools": [tool]}
    session: Json = {"agent": agent, "environment": {"type": "none"}, "input": "hi", "vault_ids": [vault]}
    assert world.http.post("/agents/sessions", json=session).json()["error"]["param"] == "agent.tools[0].credential_id"
    tool["credential_id"] = first
    world.depot.headers.clear()
    world.upstream.plays(called("depot__find_part", {"sku": "A-7"}))
    waiting = rested(world, world.post("/agents/sessions", session), "requires_action")
    assert waiting["required_actions"][0]["request"]["server_label"] == "depot"
    assert {(sent["authorization"], sent["x-team"]) for sent in world.depot.headers} == {("Bearer the-token", "parcels")}
    offered = [tool["name"] for tool in world.upstream.requests[-1].body["tools"]]
    assert [name for name in offered if name.startswith("depot")] == ["depot__find_part"]
    world.http.delete(f"/agents/sessions/{waiting['id']}", params={"force": True})


@row("agent", f"{_TOOL}<web_search>")
def web_of_agents(world: World) -> None:
    search: Json = {"type": "web_search", "mode": "live", "context_size": "low", "allowed_domains": ["tides.example"]}
    search["location"] = {"city": "Oslo"}
    made = begun(world, agent={"tools": [search]}, environment={"type": "none"}, input="hi")
    assert rested(world, made)["agent"]["tools"][0]["location"]["city"] == "Oslo"
    assert "web_search" in str(world.upstream.requests[-1].body["tools"])
    assert "web_search" not in str(asked(world, agent={"tools": [{"type": "web_search", "mode": "disabled"}]}).get("tools", ()))


@row("agent", f"{_TOOL}<automations>", f"{_TOOL}<automations>.require_approval")
@row("tool", "automations", "automations.require_approval")
@row("item", "automation_call")
def automations_of_agents(world: World) -> None:
    wanted = {"action": "create", "name": "look", "run_at": "2039-01-31T12:00:00Z", "instructions": "Look."}
    world.upstream.plays(called("automations", wanted), said("So."))
    tool: Json = {"type": "automations", "require_approval": "always"}
    made = begun(world, agent={"tools": [tool]}, environment={"type": "none"}, input="hi")
    (asking,) = rested(world, made, "requires_action")["required_actions"]
    response = {"type": "mcp_tool_call", "decision": "approve"}
    kind = "agent.session.input.mcp_approval_request_result"
    give(world, made, {"type": kind, "request_id": asking["request_id"], "response": response})
    rested(world, made)
    (automation,) = world.get("/agents/automations", session_id=made["id"])["data"]
    assert (automation["created_by"]["type"], automation["target"]["instructions"]) == ("agent", "Look.")
    (turn,) = world.get(f"/agents/sessions/{made['id']}/turns")["data"]
    output = world.get(f"/responses/{turn['response_ids'][-1]}")["output"]
    call = next(item for item in output if item["type"] == "automation_call")
    body = world.asked("plain", input=[call, {"role": "user", "content": "So?"}])
    assert [item["type"] for item in body["input"][:2]] == ["function_call", "function_call_output"]
    assert automation["id"] in body["input"][1]["output"]
    refused = world.http.post("/responses", json={"model": "native", "input": "hi", "tools": [tool]})
    assert refused.json()["error"]["param"] == "tools[0].type"
    world.http.delete(f"/agents/automations/{automation['id']}")


# --- Sessions -----------------------------------------------------------------------------------------------------------


@row("agent", *(f"session.{name}" for name in ("agent", "agent_id", "agent_version", "input", "metadata", "review")))
@row("agent", "session.environment", "environment<none>")
def sessions(world: World) -> None:
    agent = world.post("/agents", {"model": "native", "instructions": "First."})
    world.post(f"/agents/{agent['id']}", {"instructions": "Second."})
    body: Json = {"agent_id": agent["id"], "agent_version": 1, "agent": {"service_tier": "flex"}, "environment": {"type": "none"}}
    made = world.post("/agents/sessions", {**body, "input": [message(TEXT)], "metadata": {"a": "1"}, "review": "none"})
    shown = rested(world, made)
    assert (shown["agent"]["instructions"], shown["agent"]["service_tier"], shown["agent"]["version"]) == ("First.", "flex", 1)
    assert (shown["metadata"], shown["review"], shown["environment"]) == ({"a": "1"}, "none", {"type": "none"})
    assert world.http.post("/agents/sessions", json=body).json()["error"]["param"] == "input"


@row("agent", "session.stream", "session.stream_options")
def streams_of_sessions(world: World) -> None:
    body: Json = {"agent": {"model": "native"}, "environment": {"type": "none"}, "input": "hi"}
    for hides in (True, False):
        sent = {**body, "stream": True, "stream_options": {"include_obfuscation": hides}}
        with world.http.stream("POST", "/agents/sessions", json=sent) as answer:
            told = raw_events(answer.iter_lines())
        assert (told[0]["type"], told[-1]["type"]) == ("agent.session.created", "agent.session.idle")
        assert any("obfuscation" in event for event in told) == hides
    refused = world.http.post("/agents/sessions", json={**body, "stream_options": {}})
    assert refused.json()["error"]["param"] == "stream_options"


@row("agent", "session.budget", "session.spend_control")
def budgets_of_sessions(world: World) -> None:
    environment: Json = {"type": "none"}
    made = begun(world, environment=environment, input="hi", budget={"total_tokens": 1})
    assert rested(world, made)["budget"] == {"total_tokens": 1}
    refused = world.http.post(f"/agents/sessions/{made['id']}/events", json={"events": [_message(message(TEXT))]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_reached")
    cents = {"agent": {"model": "demo"}, "environment": environment, "input": "hi", "spend_control": {"limit": 500}}
    assert world.post("/agents/sessions", cents)["spend_control"]["limit"] == 500


def _message(*messages: Json) -> Json:
    return {"type": "agent.session.input.message", "input": list(messages)}


@row("agent", "events.events", f"{_INPUT}message>", f"{_INPUT}tool_result>")
def input_of_sessions(world: World) -> None:
    world.upstream.plays(called("look", {}), said("So."))
    made = begun(world, agent={"tools": [_FUNCTION]}, environment={"type": "none"}, input="hi")
    (call,) = rested(world, made, "requires_action")["required_actions"]
    result = {"type": "agent.session.input.tool_result", "turn_id": call["turn_id"], "call_id": call["call_id"], "success": False}
    picture: Json = {"type": "input_image", "image_url": PIXEL}
    give(world, made, result | {"output": [TEXT], "error": "It fell."}, _message(message(TEXT, picture)))
    rested(world, made)
    sent = str(world.upstream.requests[-1].body["input"])
    assert all(part in sent for part in ("It fell.", "input_image", "call_1"))


@row("agent", f"{_INPUT}cancel>", f"{_INPUT}mcp_approval_request_result>")
def ends_of_sessions(world: World) -> None:
    transport = {"type": "http", "server_url": world.depot_url}
    tool = {"type": "mcp", "server_label": "depot", "transport": transport, "require_approval": "always"}
    world.upstream.plays(called("depot__find_part", {"sku": "A-7"}), said("So."))
    made = begun(world, agent={"tools": [tool]}, environment={"type": "none"}, input="hi")
    (asking,) = rested(world, made, "requires_action")["required_actions"]
    response = {"type": "mcp_tool_call", "decision": "deny"}
    kind = "agent.session.input.mcp_approval_request_result"
    give(world, made, {"type": kind, "request_id": asking["request_id"], "response": response})
    rested(world, made)
    world.upstream.plays(called("depot__find_part", {"sku": "A-8"}))
    give(world, made, _message(message(TEXT)))
    rested(world, made, "requires_action")
    give(world, made, {"type": "agent.session.input.cancel"})
    rested(world, made)
    turns = world.get(f"/agents/sessions/{made['id']}/turns", order="asc")["data"]
    assert [turn["status"] for turn in turns] == ["completed", "cancelled"]


_WEIGH = b"---\nname: weigh\ndescription: Weighs parcels.\n---\n"

# --- Environments -------------------------------------------------------------------------------------------------------


@row("agent", _HOSTED, "template.name", f"{_HOSTED}.environment_id", f"{_HOSTED}.environment_template_id")
@row("agent", *(f"{_HOSTED}.{name}" for name in ("container_size", "files", "skills", "env", "setup_commands")))
@row("agent", *(f"{_HOSTED}.{name}" for name in ("packages", "plugins", "capability_directories", "desktop")))
def environments(world: World) -> None:
    upload = world.http.post("/files", files={"file": ("a.txt", b"lines")}, data={"purpose": "user_data"}).json()["id"]
    template = world.post("/agents/environments/templates", {"name": "base", "env": {"WORD": "depot"}})
    archive = base64.b64encode(zip_of(skill())).decode()
    source = {"type": "base64", "media_type": "application/zip", "data": archive}
    configuration: Json = {
        "environment_template_id": template["id"],
        "container_size": "small",
        "files": [
            {"type": "file_id", "file_id": upload, "path": "/workspace/a.txt"},
            {"type": "inline", "data": "Yg==", "path": "/workspace/b.txt"},
        ],
        "skills": [{"type": "inline", "name": "make-tables", "description": "Makes tables.", "source": source}],
        "setup_commands": [{"command": 'echo "$WORD" > made', "cwd": "/workspace"}],
        "packages": {"npm": [], "python": [], "system": []},
        "plugins": [asked_plugin(plugin(version="1.0.0") | {"skills/weigh/SKILL.md": _WEIGH})],
        "capability_directories": [],
        "desktop": {"enabled": False},
    }
    made = world.post("/agents/environments", {"environment": {"type": "openai_hosted", **configuration}})
    assert ([file["path"] for file in made["files"]], [each["name"] for each in made["skills"]]) == (
        ["/workspace/a.txt", "/workspace/b.txt"],
        ["make-tables"],
    )
    assert made["plugins"] == [{"type": "inline", "name": "depot", "description": "Knows the depot."}]
    world.upstream.plays(called_shell("cat made a.txt b.txt"), said("So."))
    agent: Json = {"model": "plain"}
    session = begun(world, agent=agent, environment={"type": "openai_hosted", "environment_id": made["id"]}, input="hi")
    assert rested(world, session)["environment"]["container_size"] == "small"
    assert "depot\nlinesb" in str(world.get(f"/agents/sessions/{session['id']}/items")["data"]).replace("\\n", "\n")
    assert template["name"] == "base"
    told = str(world.upstream.requests[-1].body)
    assert all(skill in told for skill in ("Makes tables.", "Weighs parcels.")), "the model is told of all skills"


@row("agent", f"{_HOSTED}.network", *(f"{_HOSTED}.network.{name}" for name in ("access", "allowed_domains", "blocked_domains")))
def networks_of_environments(world: World) -> None:
    for network, shown in (
        ({"access": "disabled", "blocked_domains": []}, {"access": "disabled", "allowed_domains": []}),
        ({"access": "enabled"}, {"access": "enabled", "allowed_domains": ["api.example.com"]}),
        (
            {"access": "restricted", "allowed_domains": ["api.example.com"]},
            {"access": "enabled", "allowed_domains": ["api.example.com"]},
        ),
    ):
        made = begun(world, environment={"type": "openai_hosted", "network": network})
        assert made["environment"]["network"] == shown
    other = {"type": "openai_hosted", "network": {"access": "restricted", "allowed_domains": ["b.example"]}}
    refused = world.http.post("/agents/environments", json={"environment": other})
    assert refused.json()["error"]["param"].startswith("environment.network")


# --- Automations and vaults ---------------------------------------------------------------------------------------------


@row("agent", "automation<periodic>", "automation<once>", "automation.target<new_session>", "automation.target<existing_session>")
@row("agent", *(f"automation.{name}" for name in ("name", "expression", "timezone", "run_at", "metadata")))
def automations(world: World) -> None:
    at = int(time.time()) + 3_600
    vault = world.post("/vaults", {})["id"]
    new = {"type": "new_session", "environment": {"type": "none"}, "agent": {"model": "native"}, "input": [message(TEXT)]}
    target: Json = {**new, "metadata": {"b": "2"}, "vault_ids": [vault]}
    times: Json = {"expression": "0 9 * * MON", "timezone": "Europe/Berlin"}
    weekly = world.post("/agents/automations", {"type": "periodic", "name": "a", **times, "target": target, "metadata": {"a": "1"}})
    assert {name: weekly[name] for name in times} == times
    assert (weekly["name"], weekly["metadata"], weekly["target"]["vault_ids"]) == ("a", {"a": "1"}, [vault])
    invoked = world.post(f"/agents/automations/{weekly['id']}/invocations", None)
    session = rested(world, {"id": invoked["session_id"]})
    assert (session["metadata"], session["vault_ids"]) == ({"b": "2"}, [vault])
    existing = {"type": "existing_session", "session_id": session["id"], "instructions": "Go on."}
    once = world.post("/agents/automations", {"type": "once", "name": "b", "run_at": at, "target": existing})
    assert (once["run_at"], once["target"]) == (at, existing)
    world.post(f"/agents/automations/{once['id']}/invocations", None)
    until(lambda: "Go on." in str(world.get(f"/agents/sessions/{session['id']}/items")["data"]))
    for each in (weekly, once):
        world.http.delete(f"/agents/automations/{each['id']}")


@row("agent", *(f"{kind}.{name}" for kind in ("vault", "credential") for name in ("name", "metadata")))
@row("agent", "credential.auth<mcp_oauth>", "credential.auth<environment_variable>")
def vaults(world: World) -> None:
    vault = world.post("/vaults", {"name": "staging", "metadata": {"a": "1"}})
    assert (vault["name"], vault["metadata"]) == ("staging", {"a": "1"})
    refresh = {"client_id": "moorage", "token_endpoint": "https://issuer.example/token", "token_endpoint_auth": {"type": "none"}}
    shown: list[Json] = [
        {"type": "mcp_oauth", "mcp_server_url": "https://depot.example/mcp", "expires_at": "2031-01-31T12:00:00Z"},
        {"type": "environment_variable", "secret_name": "TOKEN", "networking": {"type": "limited", "allowed_hosts": ["a.example"]}},
    ]
    hidden: list[Json] = [{"access_token": "a", "refresh": {**refresh, "refresh_token": "b", "scope": "c"}}, {"secret_value": "v"}]
    for open_part, secret in zip(shown, hidden, strict=True):
        made = world.post(f"/vaults/{vault['id']}/credentials", {"name": "n", "auth": open_part | secret, "metadata": {"b": "2"}})
        assert (made["name"], made["metadata"]) == ("n", {"b": "2"})
        assert {name: made["auth"][name] for name in open_part} == open_part
        assert made["auth"].keys().isdisjoint({"access_token", "secret_value"})
