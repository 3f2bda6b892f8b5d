"""Sessions of agents, driven by the SDK's own helpers on a real stack."""

import json
from pathlib import Path
from typing import Any

import pytest
from moorage.limits import AGENT_SESSION_CHAIN_MAX
from openai import BadRequestError, ConflictError, NotFoundError, OpenAI
from openai.types.beta import AgentSession
from openai.types.beta.agents import PeriodicAutomation

from tests.processes import until
from tests.stack import Stack, say, script, shell

NONE: Any = {"type": "none"}
WEIGH: Any = {
    "type": "function",
    "name": "weigh",
    "description": "The weight of a parcel.",
    "parameters": {"type": "object", "properties": {"parcel": {"type": "string"}}, "required": ["parcel"]},
}


HOSTED: Any = {"type": "openai_hosted"}
SLOW = "echo waits; until [ -e /mnt/data/go ]; do sleep 0.1; done; echo went"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A step: the model calls a function."""
    return {"call": {"name": name, "arguments": arguments}}


def ended(client: OpenAI, session_id: str) -> Any:
    """The session, once its turn has ended."""
    until(lambda: client.beta.agents.sessions.retrieve(session_id).status == "idle")
    return client.beta.agents.sessions.retrieve(session_id)


def test_the_helper_reads_turns_of_one_conversation(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="demo", name="clerk")
    sessions = client.beta.agents.sessions
    session = sessions.create(agent_id=agent.id, environment=NONE, input=script(say("Hello.")))
    assert session.status in ("in_progress", "idle")
    ended(client, session.id)
    with sessions.stream(session.id, input=script(say("You said nothing new."))) as stream:
        result = stream.get_final_result()
    assert (result.turn.status, result.output_text) == ("completed", "You said nothing new.")
    items = list(sessions.items.list(session.id, order="asc", limit=1))
    assert [(item.type, getattr(item, "role", None)) for item in items] == [("message", "user"), ("message", "assistant")] * 2
    turns = list(sessions.turns.list(session.id, order="asc"))
    assert [(turn.status, turn.subagent_id, turn.usage is not None) for turn in turns] == [("completed", None, True)] * 2
    assert [len(list(sessions.turns.items.list(turn.id, session_id=session.id, limit=1))) for turn in turns] == [2, 2]


def test_a_session_goes_on_behind_the_length_of_a_chain(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=NONE, input="message 0")
    ended(client, session.id)
    for number in range(1, AGENT_SESSION_CHAIN_MAX + 1):
        with sessions.stream(session.id, input=f"message {number}") as stream:
            assert stream.get_final_result().turn.status == "completed"
    turn: Any = next(iter(sessions.turns.list(session.id)))
    read: list[Any] = client.responses.input_items.list(turn.response_ids[-1], order="asc", limit=100).data
    texts = [item.content[0].text for item in read if item.type == "message" and item.role == "user"]
    assert texts == [f"message {number}" for number in range(AGENT_SESSION_CHAIN_MAX + 1)]
    given = [item for item in sessions.turns.items.list(turn.id, session_id=session.id, order="asc") if item.type == "message"]
    assert [item.role for item in given] == ["user", "assistant"]


def test_a_function_of_the_client_is_called_within_the_turn(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    asked: list[Any] = []

    def weigh(arguments: Any) -> Any:
        asked.append(arguments)
        return "3 kg"

    given = script({"say": "I weigh it.", **call("weigh", parcel="a")}, say("It weighs {{output}}."))
    tools: Any = {"model": "demo", "tools": [WEIGH]}
    made = sessions.create(agent=tools, environment=NONE, input=given, stream=True, tool_handlers={"weigh": weigh})
    with made.with_result_collection() as stream:
        told = [_name(event) for event in stream]
        result = stream.get_final_result()
    assert asked == [{"parcel": "a"}]
    assert result.output_text == "It weighs 3 kg."
    assert [name for name in told if "delta" not in name] == [
        "created",
        "in_progress",
        "turn.created",
        "turn.in_progress",
        "turn.item.added message",
        "turn.item.added message commentary",
        "turn.content_part.added",
        "turn.output_text.done",
        "turn.content_part.done",
        "turn.item.done message commentary",
        "turn.item.added function_call",
        "requires_action",
        "in_progress",
        "turn.item.done function_call",
        "turn.item.added function_call_output",
        "turn.item.added message",
        "turn.content_part.added",
        "turn.output_text.done",
        "turn.content_part.done",
        "turn.item.done message final_answer",
        "turn.completed",
        "idle",
    ]


def _name(event: Any) -> str:
    """An event's type, with that of its item, and what a message that is done is."""
    item = getattr(event, "item", None)
    phase = getattr(item, "phase", None)
    words = [event.type.removeprefix("agent.session."), getattr(item, "type", None), phase]
    return " ".join(word for word in words if word)


def test_results_of_functions_can_come_one_by_one(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    calls = [{"name": "weigh", "arguments": {"parcel": parcel}} for parcel in ("a", "b")]
    given = script({"calls": calls}, say("{{output}}"))
    session = sessions.create(agent={"model": "demo", "tools": [WEIGH]}, environment=NONE, input=given)
    until(lambda: sessions.retrieve(session.id).status == "requires_action")
    actions: list[Any] = list(sessions.retrieve(session.id).required_actions)
    assert [(action.type, action.name, action.arguments) for action in actions] == [
        ("function_call", "weigh", {"parcel": "a"}),
        ("function_call", "weigh", {"parcel": "b"}),
    ]
    for action, result in zip(actions, ({"success": True, "output": "1 kg"}, {"success": False, "error": "no scale"}), strict=True):
        event: Any = {"type": "agent.session.input.tool_result", "turn_id": action.turn_id, "call_id": action.call_id, **result}
        sessions.events.create(session.id, events=[event])
        with pytest.raises(BadRequestError, match=f"Unknown pending tool call: {action.call_id}"):
            sessions.events.create(session.id, events=[event])
    until(lambda: sessions.retrieve(session.id).status == "idle")
    (turn,) = sessions.turns.list(session.id)
    items: list[Any] = list(sessions.turns.items.list(turn.id, session_id=session.id, order="asc"))
    assert [(item.type, item.status) for item in items] == [
        ("message", "completed"),
        ("function_call", "completed"),
        ("function_call", "failed"),
        ("function_call_output", "completed"),
        ("function_call_output", "failed"),
        ("message", "completed"),
    ]
    assert [(items[3].output, items[3].error), (items[4].output, items[4].error)] == [("1 kg", None), (None, "no scale")]
    assert "no scale" in items[5].content[0].text


def test_a_message_during_a_turn_is_taken_by_its_next_step(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED, input=script(shell(SLOW), shell("echo never")))
    assert session.environment.type == "openai_hosted"
    container_id = session.environment.id
    with stack.http() as http:
        assert _first(http, session.id, "agent.output.command_execution_output.delta")["delta"] == "waits\n"
    message: Any = {"role": "user", "content": [{"type": "input_text", "text": script(say("I stop here."))}]}
    sessions.events.create(session.id, events=[{"type": "agent.session.input.message", "input": [message]}])
    client.containers.files.create(container_id, file=("go", b""))
    ended(client, session.id)
    (turn,) = sessions.turns.list(session.id)
    items: list[Any] = list(sessions.items.list(session.id, order="asc"))
    assert [(item.type, getattr(item, "role", None) or item.status) for item in items] == [
        ("message", "user"),
        ("command_execution", "completed"),
        ("message", "user"),
        ("message", "assistant"),
    ]
    assert (items[1].command, items[1].output, items[1].exit_code) == (SLOW, "waits\nwent\n", 0)
    assert (turn.status, items[3].phase) == ("completed", "final_answer")


def _first(http: Any, session_id: str, kind: str) -> dict[str, Any]:
    """The first event of a type, of a session as it goes on."""
    with http.stream("GET", f"/agents/sessions/{session_id}/events", params={"after": "0"}) as answer:
        told = (json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: "))
        return next(event for event in told if event["type"] == kind)


def test_a_cancelled_turn_ends_and_the_session_goes_on(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo", "tools": [WEIGH]}, environment=HOSTED, input=script(shell("sleep 600")))
    assert session.environment.type == "openai_hosted"
    with pytest.raises(ConflictError, match="cancel it first"):
        sessions.delete(session.id)
    sessions.events.create(session.id, events=[{"type": "agent.session.input.cancel"}])
    ended(client, session.id)
    with pytest.raises(BadRequestError, match="No turn of this session is active"):
        sessions.events.create(session.id, events=[{"type": "agent.session.input.cancel"}])
    with sessions.stream(session.id, input=script(call("weigh", parcel="a"))) as stream:
        until_waiting = next(event for event in stream if event.type == "agent.session.requires_action")
    assert [action.type for action in until_waiting.session.required_actions] == ["function_call"]
    sessions.events.create(session.id, events=[{"type": "agent.session.input.cancel"}])
    with sessions.stream(session.id, input=script(say("On we go."))) as stream:
        assert stream.get_final_result().output_text == "On we go."
    assert [turn.status for turn in sessions.turns.list(session.id)] == ["completed", "cancelled", "cancelled"]


def test_a_stream_that_was_cut_at_any_event_goes_on_behind_it(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED, input=script(shell("echo a", "exit 3"), say("The end.")))
    ended(client, session.id)
    with sessions.stream(session.id, input=script(say("Again."))) as stream:
        stream.get_final_result()
    with stack.http() as http:
        whole = _replay(http, session.id, "0")
        assert [event["type"] for event in whole].count("agent.session.idle") == 2
        assert len({event["event_id"] for event in whole}) == len(whole)
        for position in range(len(whole) - 1):
            assert _replay(http, session.id, whole[position]["event_id"]) == whole[position + 1 :], whole[position]
        second, first = sessions.turns.list(session.id)
        for turn, since in ((first, "evt_00000001"), (second, "evt_00000002")):
            assert _replay(http, session.id, turn.id) == [event for event in whole if event["event_id"] >= since]
        no_turn = {"after": f"{first.id[:-4]}0000"}
        assert http.get(f"/agents/sessions/{session.id}/events", params=no_turn).status_code == 404


def _replay(http: Any, session_id: str, after: str, turns: int = 2) -> list[dict[str, Any]]:
    """The events behind one, to the end of so many turns; by the header that browsers send."""
    found: list[dict[str, Any]] = []
    query = {"include_obfuscation": "false"}
    with http.stream("GET", f"/agents/sessions/{session_id}/events", params=query, headers={"last-event-id": after}) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                if found[-1]["type"] == "agent.session.idle" and found[-1]["event_id"].startswith(f"evt_{turns:08x}"):
                    return found
    raise AssertionError("the stream has ended")


def test_what_a_session_is_and_what_is_changed_of_it(client: OpenAI) -> None:
    agents = client.beta.agents
    agent = agents.create(model="demo", name="clerk", instructions="Be brief.", tools=[WEIGH])
    session = agents.sessions.create(agent_id=agent.id, agent={"instructions": "Be long."}, environment=HOSTED, metadata={"team": "a"})
    assert (session.status, session.required_actions, session.usage, session.error) == ("idle", [], None, None)
    assert (session.agent.id, session.agent.name, session.agent.instructions) == (agent.id, "clerk", "Be long.")
    agents.update(agent.id, instructions="Never mind.")
    change: Any = {"model": "demo", "reasoning": {"effort": "low"}, "tools": []}
    changed = agents.sessions.update(session.id, agent=change, metadata={"team": "b"})
    assert (changed.agent.instructions, changed.agent.tools, changed.agent.reasoning.effort) == ("Be long.", [], "low")
    other = agents.sessions.create(agent={"model": "demo"}, environment=NONE, input="Hello")
    assert [each.id for each in agents.sessions.list(agent_id=agent.id)] == [session.id]
    assert [each.id for each in agents.sessions.list(extra_query={"metadata[team]": "b"})] == [session.id]
    assert {each.id for each in agents.sessions.list(limit=1)} >= {session.id, other.id}
    gone = agents.sessions.delete(session.id)
    assert (gone.id, gone.object, gone.deleted) == (session.id, "agent.session.deleted", True)
    assert session.environment.type == "openai_hosted"
    for look in (lambda: agents.sessions.retrieve(session.id), lambda: client.containers.retrieve(session.environment.id)):
        with pytest.raises(NotFoundError):
            look()


def test_an_agent_that_searches_its_tools_is_read_by_the_sdks_types_as_they_stand(stack: Stack, client: OpenAI) -> None:
    tools: Any = [{**WEIGH, "defer_loading": True}, {"type": "tool_search"}]
    agent = client.beta.agents.create(model="demo", tools=tools)
    assert [tool.type for tool in agent.tools] == ["function", "tool_search"]
    target = {"type": "new_session", "agent": {"model": "demo", "tools": tools}, "environment": NONE}
    target["input"] = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
    periodic = {"type": "periodic", "name": "report", "expression": "0 9 * * *", "timezone": "UTC", "target": target}
    shown: Any
    with stack.http() as http:
        for path, body, shape in (
            ("/agents/sessions", {"agent_id": agent.id, "environment": NONE, "input": "Hello"}, AgentSession),
            ("/agents/automations", periodic, PeriodicAutomation),
        ):
            shown = shape.model_validate_json(http.post(path, json=body).text, strict=True)
            told = shown.agent if path == "/agents/sessions" else shown.target.agent
            assert [tool.type for tool in told.tools] == ["function"]
        http.delete(f"/agents/automations/{shown.id}")


def test_a_session_that_is_refused_leaves_no_environment_behind(client: OpenAI) -> None:
    before = {container.id for container in client.containers.list()}
    team: Any = {"model": "demo", "multi_agent": {"enabled": True}}
    with pytest.raises(BadRequestError, match=r"budget\.wall_seconds"):
        client.beta.agents.sessions.create(agent=team, environment=HOSTED, extra_body={"budget": {"wall_seconds": 60}})
    assert {container.id for container in client.containers.list()} == before


def test_a_busy_session_is_deleted_by_force(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED, input=script(shell("sleep 600")))
    (turn,) = sessions.turns.list(session.id)
    with stack.http() as http:
        assert http.delete(f"/agents/sessions/{session.id}", params={"force": "true"}).status_code == 200
        for response_id in turn.to_dict()["response_ids"]:  # type: ignore[attr-defined]
            assert http.get(f"/responses/{response_id}").status_code == 404


def test_what_a_turn_leaves_is_published_and_outlives_its_container(client: OpenAI, tmp_path: Path) -> None:
    sessions = client.beta.agents.sessions
    write = "mkdir -p /mnt/data/outputs/a && echo {} > /mnt/data/outputs/a/report.txt && echo x > /mnt/data/notes.txt"
    session = sessions.create(agent={"model": "demo"}, environment=HOSTED, input=script(shell(write.format("one"))))
    ended(client, session.id)
    with sessions.stream(session.id, input=script(shell("echo two > /mnt/data/outputs/b.txt"), say("Done."))) as stream:
        result = stream.get_final_result()
    sessions.artifacts.for_result(result).download("/workspace/outputs/b.txt", to=tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "two\n"
    assert session.environment.type == "openai_hosted"
    client.containers.delete(session.environment.id)
    turns = [turn.id for turn in sessions.turns.list(session.id, order="asc")]
    artifacts = list(sessions.artifacts.list(session.id, order="asc", limit=1))
    assert [(one.path, one.size_bytes, one.turn_id, one.environment_id) for one in artifacts] == [
        ("/workspace/outputs/a/report.txt", 4, turns[0], session.environment.id),
        ("/workspace/outputs/b.txt", 4, turns[1], session.environment.id),
    ]
    assert [one.id for one in sessions.artifacts.list(session.id)] == [one.id for one in reversed(artifacts)]
    assert sessions.artifacts.retrieve(artifacts[0].id, session_id=session.id) == artifacts[0]
    assert sessions.artifacts.content(artifacts[0].id, session_id=session.id).read() == b"one\n"
    assert sessions.artifacts.delete(artifacts[0].id, session_id=session.id).deleted
    assert [one.id for one in sessions.artifacts.list(session.id, order="asc", after=artifacts[0].id)] == [artifacts[1].id]
    assert [one.id for one in sessions.artifacts.list(session.id)] == [artifacts[1].id]
    stored = {file.filename for file in client.files.list(purpose="assistants_output")}
    assert {"report.txt", "b.txt"} & stored == {"b.txt"}
    sessions.delete(session.id)
    assert "b.txt" not in {file.filename for file in client.files.list(purpose="assistants_output")}


def test_an_environment_that_was_deleted_is_made_anew_as_it_was_asked_for(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    hosted: Any = {"type": "openai_hosted", "env": {"GREETING": "hello"}, "setup_commands": [{"command": "echo set > /workspace/up"}]}
    look = "cat /workspace/up; cat /workspace/mine 2>/dev/null; echo $GREETING"
    given = script(shell(f"echo mine > /workspace/mine; {look}"), say("One."))
    session = sessions.create(agent={"model": "demo"}, environment=hosted, input=given)
    ended(client, session.id)
    places = [session.environment.id]  # type: ignore[union-attr]
    for _ in range(2):
        client.containers.delete(places[-1])
        with sessions.stream(session.id, input=script(shell(look), say("Next."))) as stream:
            stream.get_final_result()
        places.append(sessions.retrieve(session.id).environment.id)  # type: ignore[union-attr]
    items = [item for item in sessions.items.list(session.id, order="asc") if item.type == "command_execution"]
    assert [item.output for item in items] == ["set\nmine\nhello\n", "set\nhello\n", "set\nhello\n"]
    assert len(set(places)) == 3
    with stack.http() as http:
        whole = [event for event in _replay(http, session.id, "0", turns=3) if event["type"].endswith("environment.reset")]
    turns = [turn.id for turn in sessions.turns.list(session.id, order="asc")]
    assert [{**event, "event_id": ""} for event in whole] == [
        {
            "type": "agent.session.environment.reset",
            "session_id": session.id,
            "turn_id": turns[number],
            "environment_id": places[number],
            "reset_count": number,
            "event_id": "",
        }
        for number in (1, 2)
    ]
    sessions.delete(session.id)
    with pytest.raises(NotFoundError):
        client.containers.retrieve(places[-1])


def test_an_environment_that_cannot_be_set_up_is_told_to_the_model_and_to_readers(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    hosted: Any = {"type": "openai_hosted", "setup_commands": [{"command": "echo no depot; exit 7"}]}
    session = sessions.create(agent={"model": "demo"}, environment=hosted, input=script(shell("ls"), say("So.")))
    ended(client, session.id)
    (command,) = [item for item in sessions.items.list(session.id) if item.type == "command_execution"]
    assert "Setup command 1 of 1 failed with exit code 7." in str(command.output)
    with stack.http() as http:
        told = [event for event in _replay(http, session.id, "0", turns=1) if ".environment." in event["type"]]
    assert [event["type"].rpartition(".")[2] for event in told][:2] == ["pending", "failed"]
    assert "exit code 7" in told[1]["environment"]["error"]["message"]
    sessions.delete(session.id)
