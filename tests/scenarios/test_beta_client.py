"""The SDK's beta client, whose types are those of a team: one agent answers it, and a team is refused by name."""

import json
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
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


def test_a_team_is_refused_by_name(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.beta.responses.create(model="demo", input="hello", multi_agent=TEAM, betas=BETAS)
    assert (refused.value.param, refused.value.code) == ("multi_agent.enabled", "unsupported_value")


def test_a_team_is_refused_by_name_on_a_connection_of_the_beta(stack: Stack) -> None:
    headers = {"authorization": f"Bearer {stack.key}", "openai-beta": "responses_multi_agent=v1"}
    url = stack.url.replace("http", "ws", 1) + "/responses?beta=true"
    with connect(url, additional_headers=headers) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "demo", "input": "hello", "multi_agent": TEAM}))
        answer = json.loads(socket.recv(30))
    assert (answer["type"], answer["status"], answer["error"]["param"]) == ("error", 400, "multi_agent.enabled")
