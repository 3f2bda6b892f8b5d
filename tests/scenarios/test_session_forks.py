"""Forks of sessions from outside: two ways on from one turn, each with its own files."""

from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from tests.processes import until
from tests.scenarios.test_agent_sessions import HOSTED, NONE, WEIGH, call, ended
from tests.stack import Stack, say, script, shell

LOOK = "cat /workspace/plan.txt"


def forked(stack: Stack, session_id: str, turn_id: str | None = None) -> dict[str, Any]:
    body = {} if turn_id is None else {"turn_id": turn_id}
    with stack.http() as http:
        answer = http.post(f"/agents/sessions/{session_id}/fork", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def told(client: OpenAI, session_id: str, *steps: Any) -> Any:
    with client.beta.agents.sessions.stream(session_id, input=script(*steps)) as stream:
        return stream.get_final_result()


def printed(client: OpenAI, session_id: str) -> list[str]:
    items: list[Any] = list(client.beta.agents.sessions.items.list(session_id, order="asc"))
    return [item.output for item in items if item.type == "command_execution"]


def test_a_fork_in_the_middle_has_its_files_and_both_go_on(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    first = script(shell("echo one > /workspace/plan.txt"), say("Planned."))
    hosted: Any = {**HOSTED, "env": {"GREETING": "hello"}}
    session = sessions.create(agent={"model": "demo"}, environment=hosted, input=first, metadata={"team": "a"})
    ended(client, session.id)
    (turn,) = sessions.turns.list(session.id)
    told(client, session.id, shell("echo two > /workspace/plan.txt; echo more > /workspace/more.txt"), say("Changed."))

    fork = forked(stack, session.id, turn.id)
    assert (fork["status"], fork["metadata"], fork["usage"]) == ("idle", {"team": "a"}, None)
    assert fork["forked_from"] == {"session_id": session.id, "turn_id": turn.id, "files": 1}
    assert fork["environment"]["id"] != session.environment.id  # type: ignore[union-attr]
    told(client, fork["id"], shell(f"{LOOK}; ls /workspace; echo $GREETING; echo fork > /workspace/plan.txt"), say("Mine."))
    told(client, session.id, shell(LOOK), say("Mine too."))
    told(client, fork["id"], shell(LOOK), say("Still mine."))
    first_look, second_look = printed(client, fork["id"])
    assert (first_look.splitlines()[:3], second_look) == (["one", "plan.txt", "hello"], "fork\n")
    assert "processes that ran before are gone" in first_look
    assert printed(client, session.id) == ["", "", "two\n"]

    last: Any = next(iter(sessions.turns.list(fork["id"])))
    read: list[Any] = client.responses.input_items.list(last.response_ids[0], order="asc", limit=100).data
    assert "two" not in str(read), "what came since was not said in the fork"
    sessions.delete(session.id)
    told(client, fork["id"], shell(LOOK), say("Alone."))
    assert printed(client, fork["id"])[-1] == "fork\n"
    sessions.delete(fork["id"])
    with pytest.raises(NotFoundError):
        client.containers.retrieve(fork["environment"]["id"])


def test_a_fork_knows_what_was_said_up_to_its_turn_and_not_more(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=NONE, input="first")
    ended(client, session.id)
    (turn,) = sessions.turns.list(session.id)
    for text in ("second", "third"):
        with sessions.stream(session.id, input=text) as stream:
            stream.get_final_result()
    fork = forked(stack, session.id, turn.id)
    with sessions.stream(fork["id"], input="other") as stream:
        stream.get_final_result()
    own: Any = next(iter(sessions.turns.list(fork["id"])))
    response: Any = client.responses.retrieve(own.response_ids[0])
    before: list[Any] = client.responses.input_items.list(response.previous_response_id, order="asc").data
    texts = [item.content[0].text for item in before if item.type == "message"]
    assert (texts[0], len(texts)) == ("first", 2)
    whole = forked(stack, session.id)
    assert whole["forked_from"]["turn_id"] == next(iter(sessions.turns.list(session.id))).id


def test_what_a_fork_begins_with_is_kept_when_its_session_is_deleted(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo"}, environment=NONE, input="first")
    ended(client, session.id)
    fork = forked(stack, session.id)
    sessions.delete(session.id)
    with sessions.stream(fork["id"], input="second") as stream:
        assert stream.get_final_result().turn.status == "completed"
    second = forked(stack, fork["id"])
    sessions.delete(fork["id"])
    with sessions.stream(second["id"], input="third") as stream:
        assert stream.get_final_result().turn.status == "completed"


def test_a_turn_that_goes_on_is_not_forked_and_the_one_before_it_is(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = sessions.create(agent={"model": "demo", "tools": [WEIGH]}, environment=NONE, input=script(call("weigh", parcel="a")))
    until(lambda: sessions.retrieve(session.id).status == "requires_action")
    (turn,) = sessions.turns.list(session.id)
    with stack.http() as http:
        path = f"/agents/sessions/{session.id}/fork"
        none_yet = http.post(path).json()["error"]
        assert none_yet["message"] == "No turn of this session has ended yet: wait for its end, or cancel it."
        goes_on = http.post(path, json={"turn_id": turn.id}).json()["error"]
        assert goes_on == {
            "message": f"Turn '{turn.id}' has not ended yet: wait for its end, or cancel it.",
            "type": "invalid_request_error",
            "param": "turn_id",
            "code": "turn_active",
        }
        unknown = http.post(path, json={"turn_id": "turn_x"})
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "turn_id")
        assert http.post(path, json={"at": 1}).json()["error"]["param"] == "at"
    sessions.events.create(session.id, events=[{"type": "agent.session.input.cancel"}])
    ended(client, session.id)
    fork = forked(stack, session.id, turn.id)
    assert told(client, fork["id"], say("On we go.")).output_text == "On we go."


def test_a_fork_whose_environment_is_gone_has_a_new_one_as_it_was_asked_for(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    hosted: Any = {**HOSTED, "env": {"GREETING": "hello"}}
    given = script(shell("echo one > /workspace/plan.txt"), say("Planned."))
    session = sessions.create(agent={"model": "demo"}, environment=hosted, input=given)
    ended(client, session.id)
    client.containers.delete(session.environment.id)  # type: ignore[union-attr]
    fork = forked(stack, session.id)
    assert fork["forked_from"]["files"] is None
    told(client, fork["id"], shell("ls /workspace; echo $GREETING"), say("Empty."))
    assert printed(client, fork["id"]) == ["hello\n"]


def test_a_fork_has_the_budget_of_its_session_and_has_used_none_of_it(stack: Stack, client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    budget = {"total_tokens": 100_000}
    session = sessions.create(agent={"model": "demo"}, environment=NONE, input="first", extra_body={"budget": budget})
    ended(client, session.id)
    fork = forked(stack, session.id)
    assert (fork["budget"], fork["budget_used"]["total_tokens"]) == (budget, 0)
