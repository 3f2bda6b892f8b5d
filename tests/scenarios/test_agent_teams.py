"""A session's agent that starts others, driven by the SDK's own helpers on a real stack. Each agent plays the script in its task."""

from collections.abc import Iterable
from typing import Any

from openai import OpenAI

from tests.processes import until
from tests.scenarios.test_agent_sessions import HOSTED, NONE, WEIGH, _replay, call, ended
from tests.stack import Stack, say, script, shell, spawn, wait

AGENT: Any = {"model": "demo", "multi_agent": {"enabled": True, "max_concurrent_subagents": 2}}
NAMES = ("a", "b")
BEGIN = {"calls": [spawn(name, shell(f"echo {name} > {name}.txt; echo wrote"), say(f"{name} is done")) for name in NAMES]}
STORY = script(BEGIN, wait(), wait(), shell("cat a.txt b.txt"), say("All: {{output}}"))


def types(items: Iterable[Any]) -> list[str]:
    return [item.type for item in items]


def test_an_agent_of_a_session_starts_others(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    saved = client.beta.agents.create(name="lead", **AGENT)
    session = sessions.create(agent_id=saved.id, environment=HOSTED)
    with sessions.stream(session.id, input=STORY).with_result_collection() as stream:
        told = list(stream)
        result = stream.get_final_result()
    assert result.output_text == "All: [exit code 0]\na\nb"
    listed = list(sessions.subagents.list(session.id, order="asc", limit=1))
    assert [(each.name, each.status, each.parent_agent_id) for each in listed] == [
        (f"/root/{name}", "closed", session.agent.id) for name in NAMES
    ]
    assert [sessions.subagents.retrieve(each.id, session_id=session.id).to_dict() for each in listed] == [
        each.to_dict() for each in listed
    ]
    for name, subagent in zip(NAMES, listed, strict=True):
        (turn,) = sessions.subagents.turns.list(subagent.id, session_id=session.id)
        assert (turn.subagent_id, turn.status) == (subagent.id, "completed")
        assert sessions.subagents.turns.retrieve(turn.id, session_id=session.id, subagent_id=subagent.id) == turn
        assert sessions.turns.retrieve(turn.id, session_id=session.id) == turn
        items: Any = list(sessions.subagents.items.list(subagent.id, session_id=session.id, order="asc"))
        assert types(items) == ["agent_message", "command_execution", "message"]
        assert (items[1].output, items[2].content[0].text, items[2].phase) == ("wrote\n", f"{name} is done", "final_answer")
        of_turn = sessions.subagents.turns.items.list(turn.id, session_id=session.id, subagent_id=subagent.id, order="asc")
        assert list(of_turn) == items
        heard: Any = [event for event in told if event.type.endswith("item.done") and getattr(event, "turn_id", None) == turn.id]
        assert types(event.item for event in heard) == ["command_execution", "message"]
    root: Any = list(sessions.items.list(session.id, order="asc"))
    assert sorted(set(types(root))) == [
        "agent_message",
        "command_execution",
        "create_subagent_call",
        "message",
        "wait_for_subagents_call",
    ]
    assert {item.recipient_agent_id for item in root if item.type == "agent_message"} == {session.agent.id}
    kinds = [event.type.removeprefix("agent.session.") for event in told]
    assert [kind for kind in kinds if kind.startswith("subagent")] == ["subagent.created"] * 2 + ["subagent.closed"] * 2
    assert (kinds.count("turn.completed"), kinds[-1]) == (3, "idle")


def test_what_subagents_use_adds_up_to_the_use_of_the_turn(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent=AGENT, environment=HOSTED, input=STORY)
    ended(client, session.id)
    turn: Any = next(iter(sessions.turns.list(session.id)))
    (response_id,) = turn.response_ids
    by_agent: Any = client.responses.retrieve(response_id).usage
    used = {each["agent_name"]: each["total_tokens"] for each in by_agent.agents}
    assert sum(used.values()) == turn.usage.total_tokens
    found: Any = {each.name: each for each in sessions.subagents.list(session.id)}
    assert {name: each.usage["total_tokens"] for name, each in found.items()} == {
        name: tokens for name, tokens in used.items() if name != "/root"
    }


def test_subagents_call_the_functions_of_the_client(client: OpenAI) -> None:
    sessions: Any = client.beta.agents.sessions
    asked: list[Any] = []

    def weigh(arguments: Any) -> str:
        asked.append(arguments["parcel"])
        return f"3 kg {arguments['parcel']}"

    begin = {"calls": [spawn(name, call("weigh", parcel=name), say(f"{name}: {{{{output}}}}")) for name in NAMES]}
    given = script(begin, call("weigh", parcel="mine"), wait(), wait(), say("The end."))
    tools = {**AGENT, "tools": [WEIGH]}
    made = sessions.create(agent=tools, environment=NONE, input=given, stream=True, tool_handlers={"weigh": weigh})
    with made.with_result_collection() as stream:
        told = list(stream)
        result = stream.get_final_result()
    assert (result.output_text, sorted(asked)) == ("The end.", ["a", "b", "mine"])
    session_id = told[0].session.id
    said = {}
    for subagent in sessions.subagents.list(session_id):
        *_, last = sessions.subagents.items.list(subagent.id, session_id=session_id, order="asc")
        said[subagent.name] = last.content[0].text
    assert said == {f"/root/{name}": f"{name}: 3 kg {name}" for name in NAMES}


def test_a_cancel_ends_the_subagents_too_and_the_session_goes_on(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    begin = {"calls": [spawn("a", shell("sleep 600"), say("never"))]}
    session = sessions.create(agent=AGENT, environment=HOSTED, input=script(begin, wait(), say("never")))

    def runs_its_command() -> bool:
        found = [sessions.subagents.items.list(each.id, session_id=session.id) for each in sessions.subagents.list(session.id)]
        return any("command_execution" in types(items) for items in found)

    until(runs_its_command)
    sessions.events.create(session.id, events=[{"type": "agent.session.input.cancel"}])
    ended(client, session.id)
    (subagent,) = sessions.subagents.list(session.id)
    (turn,) = sessions.subagents.turns.list(subagent.id, session_id=session.id)
    assert (subagent.status, turn.status) == ("closed", "cancelled")
    with sessions.stream(session.id, input=script(say("On we go."))) as stream:
        assert stream.get_final_result().output_text == "On we go."


def test_the_stream_of_a_team_goes_on_behind_any_event(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent=AGENT, environment=HOSTED, input=STORY)
    ended(client, session.id)
    with stack.http() as http:
        whole = _replay(http, session.id, "0", turns=1)
        assert len({event["event_id"] for event in whole}) == len(whole)
        for position in range(len(whole) - 1):
            assert _replay(http, session.id, whole[position]["event_id"], turns=1) == whole[position + 1 :], whole[position]
