"""The SDK's beta client, whose types are those of a team; teams themselves are in test_teams.py."""

import json
from typing import Any

from openai import OpenAI
from websockets.sync.client import connect

from tests.stack import SHELL, Stack, say, script, shell

TEAM: Any = {"enabled": True, "max_concurrent_subagents": 2}
TOOLS: Any = [SHELL]
BETAS: Any = ["responses_multi_agent=v1"]


def test_what_the_beta_client_was_answered_is_taken_back_as_it_wrote_it(client: OpenAI) -> None:
    asked: Any = [{"role": "user", "content": script(shell("echo anchor"), say("aweigh"))}]
    first = client.beta.responses.create(
        model="demo", input=asked, tools=TOOLS, multi_agent={"enabled": False}, betas=BETAS, store=False
    )
    written = [item.model_dump() for item in first.output]
    assert [(item["type"], item["agent"]) for item in written] == [
        ("shell_call", None),
        ("shell_call_output", None),
        ("message", None),
    ]

    asked += [*written, {"role": "user", "content": script(say("ahoy"))}]
    second = client.beta.responses.create(model="demo", input=asked, betas=BETAS, store=False)

    assert [part["text"] for item in second.output for part in item.model_dump()["content"]] == ["ahoy"]


def test_the_beta_client_reads_a_stream_of_one_agent(client: OpenAI) -> None:
    events = list(client.beta.responses.create(model="demo", input=script(say("one two")), stream=True, betas=BETAS))
    assert {getattr(event, "agent", None) for event in events} == {None}
    assert events[-1].type == "response.completed"


def test_a_team_answers_on_a_connection_of_the_beta(stack: Stack) -> None:
    headers = {"authorization": f"Bearer {stack.key}", "openai-beta": "responses_multi_agent=v1"}
    url = stack.url.replace("http", "ws", 1) + "/responses?beta=true"
    with connect(url, additional_headers=headers) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "demo", "input": script(say("one")), "multi_agent": TEAM}))
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "response.completed":
            events.append(json.loads(socket.recv(30)))
        socket.send(json.dumps({"type": "response.create", "model": "demo", "input": "x", "multi_agent": TEAM, "max_tool_calls": 1}))
        refused = json.loads(socket.recv(30))
    (answer,) = events[-1]["response"]["output"]
    assert (answer["phase"], answer["agent"], answer["content"][0]["text"]) == ("final_answer", {"agent_name": "/root"}, "one")
    assert (refused["type"], refused["status"], refused["error"]["param"]) == ("error", 400, "max_tool_calls")
