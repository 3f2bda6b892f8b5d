"""Environments of agents on a real stack: what their setup leaves is there for the first command."""

import base64
import time
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.stack import outputs, say, script, shell
from tests.unit.skills.archives import asked_plugin, plugin, skill, zip_of


def tools_in(environment_id: str) -> Any:
    return [{"type": "shell", "environment": {"type": "container_reference", "container_id": environment_id}}]


def settled(client: OpenAI, environment_id: str) -> Any:
    """The environment, once its sandbox has come to run or to an end."""
    for _ in range(300):
        environment = client.beta.agents.environments.retrieve(environment_id)
        if environment.status != "pending":
            return environment
        time.sleep(0.1)
    raise AssertionError(environment)


def test_an_environment_is_set_up_before_its_first_command(client: OpenAI) -> None:
    wanted: Any = {
        "type": "openai_hosted",
        "container_size": "small",
        "env": {"GREETING": "good morning"},
        "files": [{"type": "inline", "path": "/workspace/in/name.txt", "data": "d29ybGQ="}],
        "setup_commands": [
            {"command": 'echo "$GREETING $(cat in/name.txt)" > said.txt; pwd'},
            {"command": "mv ../said.txt . && echo made > ~/home.txt", "cwd": "/workspace/in"},
        ],
    }
    made = client.beta.agents.environments.create(environment=wanted)
    assert settled(client, made.id).status == "ready"
    response = client.responses.create(
        model="demo",
        input=script(shell("cat in/said.txt ~/home.txt; echo $GREETING"), say("done")),
        tools=tools_in(made.id),
    )
    assert outputs(response.output) == [[("good morning world\nmade\ngood morning\n", "", 0)]]
    files = client.beta.agents.environments.files.list(made.id, order="asc")
    assert [file.path for file in files] == ["/workspace/in/name.txt", "/workspace/in/said.txt"]


def test_a_session_tells_its_model_of_the_skills_of_its_environment(client: OpenAI) -> None:
    """In its first turn, and in a later one."""
    source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(zip_of(skill())).decode()}
    hosted: Any = {
        "type": "openai_hosted",
        "skills": [{"type": "inline", "name": "make-tables", "description": "Makes tables.", "source": source}],
    }
    work = script(shell("tail -n 1 /home/oai/skills/make-tables-*/SKILL.md"), say("done"))
    session = client.beta.agents.sessions.create(agent={"model": "demo"}, environment=hosted)
    for count in (1, 2):
        with client.beta.agents.sessions.stream(session.id, input=work) as stream:
            list(stream)
        ran = [item for item in client.beta.agents.sessions.items.list(session.id) if item.type == "command_execution"]
        assert [item.output for item in ran] == ["# How\n"] * count
    turns: Any = client.beta.agents.sessions.turns.list(session.id)
    for turn in turns:
        told: Any = client.responses.retrieve(turn.response_ids[-1]).to_dict()["tools"]
        assert [each["name"] for each in told[0]["environment"]["skills"]] == ["make-tables"]


def test_an_agent_reads_the_skills_of_a_plugin(client: OpenAI) -> None:
    """In a session by itself, and in one whose environment comes from a template."""
    environments = client.beta.agents.environments
    template = environments.templates.create(plugins=[asked_plugin(plugin())])
    shown = {"type": "inline", "name": "depot", "description": "Knows the depot."}
    wanted: tuple[Any, ...] = ({"plugins": [asked_plugin(plugin())]}, {"environment_template_id": template.id})
    for fields in wanted:
        hosted: Any = {"type": "openai_hosted", **fields}
        session = client.beta.agents.sessions.create(
            agent={"model": "demo"},
            environment=hosted,
            input=script(shell("tail -n 1 /home/oai/skills/make-tables-*/SKILL.md; ls -A /home/oai/skills | wc -l"), say("done")),
            stream=True,
        )
        list(session)
        made: Any = next(iter(client.beta.agents.sessions.list(limit=1)))
        environment = environments.retrieve(made.environment.id)
        assert [each.to_dict() for each in environment.plugins] == [shown]
        assert (made.to_dict()["environment"]["plugins"], environment.skills) == ([shown], [])
        ran = [item for item in client.beta.agents.sessions.items.list(made.id) if item.type == "command_execution"]
        assert [item.output for item in ran] == ["# How\n1\n"]
        turn: Any = next(iter(client.beta.agents.sessions.turns.list(made.id)))
        told: Any = client.responses.retrieve(turn.response_ids[-1]).to_dict()["tools"]
        assert [skill["name"] for skill in told[0]["environment"]["skills"]] == ["make-tables"]
    environments.templates.delete(template.id)


def test_a_plugin_with_more_than_skills_is_refused_by_the_name_of_its_part(client: OpenAI) -> None:
    files = plugin(mcpServers="./.mcp.json") | {".mcp.json": b'{"mcpServers": {}}'}
    with pytest.raises(BadRequestError) as caught:
        client.beta.agents.sessions.create(
            agent={"model": "demo"}, environment={"type": "openai_hosted", "plugins": [asked_plugin(files)]}, input="hi"
        )
    assert (caught.value.param, caught.value.code) == ("environment.plugins[0].source.data", "invalid_plugin")
    assert "'mcpServers' in '.codex-plugin/plugin.json' is not available: it has MCP servers. Give them to the agent" in str(
        caught.value
    )


def test_the_stream_of_a_session_says_ready_once_the_setup_has_run(client: OpenAI) -> None:
    for command, status in (("sleep 1", "ready"), ("exit 7", "failed")):
        environment: Any = {"type": "openai_hosted", "container_size": "small", "setup_commands": [{"command": command}]}
        stream = client.beta.agents.sessions.create(
            agent={"model": "demo"}, environment=environment, input=script(shell("true"), say("done")), stream=True
        )
        told = [event.type.removeprefix("agent.session.") for event in stream if not event.type.endswith(".delta")]
        assert [name for name in told if name.startswith("environment.")] == ["environment.pending", f"environment.{status}"]
        assert told.index("turn.in_progress") < told.index(f"environment.{status}") < told.index("turn.completed")


def test_an_environment_whose_setup_fails_tells_why(client: OpenAI) -> None:
    wanted: Any = {
        "type": "openai_hosted",
        "container_size": "small",
        "env": {"TOKEN": "word-7193"},
        "setup_commands": [{"command": "true"}, {"command": 'echo "no depot for $TOKEN" >&2; exit 7'}, {"command": "touch later"}],
    }
    made = client.beta.agents.environments.create(environment=wanted)
    failed = settled(client, made.id)
    said = "Setup command 2 of 3 failed with exit code 7. Its output ends with: no depot for [...]"
    assert (failed.status, failed.to_dict()["error"]["message"]) == ("failed", said)
    response = client.responses.create(model="demo", input=script(shell("ls"), say("done")), tools=tools_in(made.id))
    assert "exit code 7" in str(outputs(response.output))
