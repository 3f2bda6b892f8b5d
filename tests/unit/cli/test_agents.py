"""``moorage agents`` against answers that a test gives."""

import json
from typing import Any

import pytest
from moorage.cli.main import main
from moorage.cli.output import moment

from tests.unit.cli.deployment import refusal, serving

AGENT: dict[str, Any] = {
    "id": "agent_1",
    "version": 2,
    "created_at": 1_000,
    "updated_at": 2_000,
    "model": "demo",
    "name": "clerk",
    "instructions": "Be brief.",
    "tools": [{"type": "function", "name": "weigh"}, {"type": "mcp", "server_label": "papers"}, {"type": "web_search"}],
}


def test_agents_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"GET /v1/agents": (200, {"data": [AGENT], "has_more": False, "last_id": "agent_1"})}) as deployment:
        assert main(["agents"], deployment.environ) == 0
        assert main(["agents", "list", "--json"], deployment.environ) == 0
    head, shown, told = capsys.readouterr().out.splitlines()
    assert head.split() == ["AGENT", "VERSION", "CREATED", "MODEL", "NAME"]
    assert shown.split() == ["agent_1", "2", *moment(1_000).split(), "demo", "clerk"]
    assert json.loads(told) == AGENT


def test_an_agent_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"GET /v1/agents/agent_1": (200, AGENT)}) as deployment:
        assert main(["agents", "show", "agent_1"], deployment.environ) == 0
        assert main(["agents", "show", "agent_1", "--json"], deployment.environ) == 0
    *shown, told = capsys.readouterr().out.splitlines()
    assert shown == [
        f"agent_1  version 2, {moment(2_000)}  clerk",
        "model  demo",
        "tools  weigh, papers, web_search",
        "",
        "Be brief.",
    ]
    assert json.loads(told) == AGENT


def test_an_agent_is_deleted_and_an_unknown_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    gone = {"id": "agent_1", "object": "agent.deleted", "deleted": True}
    with serving({"DELETE /v1/agents/agent_1": (200, gone), "DELETE /v1/agents/agent_2": refusal(404, "Not there.")}) as deployment:
        assert main(["agents", "delete", "agent_1"], deployment.environ) == 0
        assert main(["agents", "delete", "agent_2"], deployment.environ) == 1
    said = capsys.readouterr()
    assert said.out == "agent_1 is deleted.\n"
    assert "Not there." in said.err
