"""Automations of agents, made by the SDK, on a real stack."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.processes import until
from tests.stack import say, script

NONE: Any = {"type": "none"}


def told(text: str) -> Any:
    return [{"role": "user", "content": [{"type": "input_text", "text": text}]}]


def test_an_automation_begins_a_session_at_its_time(client: OpenAI) -> None:
    agents = client.beta.agents
    agent = agents.create(model="demo", name="clerk")
    target: Any = {"type": "new_session", "agent_id": agent.id, "environment": NONE, "input": told(script(say("All is well.")))}
    run_at = int(time.time()) + 2
    made = agents.automations.create(type="once", name="report", run_at=run_at, target=target, metadata={"a": "b"})
    assert (made.type, made.status, made.metadata) == ("once", "active", {"a": "b"})
    until(lambda: agents.automations.retrieve(made.id).status == "completed")
    until(lambda: next(iter(agents.automations.invocations.list(made.id))).status == "completed")
    (invocation,) = agents.automations.invocations.list(made.id)
    assert (invocation.scheduled_at, invocation.error) == (run_at, None)
    assert invocation.source.type == "automation"
    assert invocation.session_id is not None
    session_id = invocation.session_id
    until(lambda: agents.sessions.retrieve(session_id).status == "idle")
    items: list[Any] = list(agents.sessions.items.list(session_id, order="asc"))
    assert items[-1].content[0].text == "All is well."
    assert agents.sessions.retrieve(session_id).agent.id == agent.id


def test_an_automation_wakes_a_session(client: OpenAI) -> None:
    agents = client.beta.agents
    session = agents.sessions.create(agent={"model": "demo"}, environment=NONE, input=script(say("Hello.")))
    until(lambda: agents.sessions.retrieve(session.id).status == "idle")
    wakes: Any = {"type": "existing_session", "session_id": session.id, "instructions": script(say("I looked."))}
    made = agents.automations.create(type="periodic", name="look", expression="0 9 * * MON", timezone="Europe/Berlin", target=wakes)
    assert [each.id for each in agents.automations.list(session_id=session.id)] == [made.id]
    invocation = agents.automations.invocations.create(made.id)
    assert (invocation.status, invocation.session_id, invocation.source.type) == ("completed", session.id, "manual")
    assert agents.automations.invocations.retrieve(invocation.id, automation_id=made.id) == invocation
    until(lambda: len([turn for turn in agents.sessions.turns.list(session.id) if turn.status == "completed"]) == 2)
    items: list[Any] = list(agents.sessions.items.list(session.id, order="asc"))
    assert items[-1].content[0].text == "I looked."
    assert agents.automations.pause(made.id).status == "paused"
    changed = agents.automations.update(made.id, expression="30 9 * * *", name="look daily")
    assert changed.type == "periodic"
    assert (changed.expression, changed.name, changed.status) == ("30 9 * * *", "look daily", "paused")
    assert agents.automations.resume(made.id).status == "active"
    with pytest.raises(BadRequestError, match="five fields"):
        agents.automations.update(made.id, expression="daily")
    gone = agents.automations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "agent.automation.deleted", True)
    with pytest.raises(NotFoundError):
        agents.automations.retrieve(made.id)
    assert agents.sessions.retrieve(session.id).id == session.id


def test_an_agent_wakes_itself_by_its_tool(client: OpenAI) -> None:
    agents = client.beta.agents
    run_at = datetime.fromtimestamp(int(time.time()) + 12, UTC).isoformat()
    wanted = {"action": "create", "name": "look", "run_at": run_at, "instructions": "Look again."}
    order = script({"call": {"name": "automations", "arguments": wanted}}, say("I will look."))
    session = agents.sessions.create(agent={"model": "demo", "tools": [{"type": "automations"}]}, environment=NONE, input=order)
    until(lambda: len([turn for turn in agents.sessions.turns.list(session.id) if turn.status == "completed"]) == 2)
    (made,) = agents.automations.list(session_id=session.id)
    items: list[Any] = list(agents.sessions.items.list(session.id, order="asc"))
    (call,) = [item for item in items if item.type == "mcp_call"]
    assert (call.server_label, call.name, call.status, call.arguments["name"]) == ("moorage", "automations", "completed", "look")
    assert made.created_by.to_dict() == {"type": "agent", "session_id": session.id, "tool_call_id": call.id}
    assert [item.content[0].text for item in items if item.type == "message" and item.role == "user"][1:] == ["Look again."]
    assert agents.automations.retrieve(made.id).status == "completed"
