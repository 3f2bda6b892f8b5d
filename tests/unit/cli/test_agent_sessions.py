"""``moorage sessions`` against answers that a test gives."""

import json
from typing import Any

import pytest
from moorage.cli.main import main
from moorage.cli.output import moment

from tests.unit.cli.deployment import refusal, serving

SESSION: dict[str, Any] = {
    "id": "session_1",
    "status": "idle",
    "last_active_at": 2_000,
    "error": None,
    "agent": {"id": "agent_1", "name": "clerk", "model": "demo"},
    "environment": {"id": "cntr_1", "type": "openai_hosted"},
}
TURN: dict[str, Any] = {"id": "turn_1", "status": "completed", "created_at": 1_000, "response_ids": ["resp_1", "resp_2"]}
PLACE = "/v1/agents/sessions"


def page(one: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"data": [one], "has_more": False, "last_id": one["id"]}


def test_sessions_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({f"GET {PLACE}": page(SESSION)}) as deployment:
        assert main(["sessions"], deployment.environ) == 0
        assert main(["sessions", "list", "--json"], deployment.environ) == 0
    head, shown, told = capsys.readouterr().out.splitlines()
    assert head.split() == ["SESSION", "STATUS", "ACTIVE", "MODEL", "AGENT"]
    assert shown.split() == ["session_1", "idle", *moment(2_000).split(), "demo", "clerk"]
    assert json.loads(told) == SESSION


def test_a_session_is_shown_with_its_turns(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({f"GET {PLACE}/session_1": (200, SESSION), f"GET {PLACE}/session_1/turns": page(TURN)}) as deployment:
        assert main(["sessions", "show", "session_1"], deployment.environ) == 0
        assert main(["sessions", "show", "session_1", "--json"], deployment.environ) == 0
    *shown, told = capsys.readouterr().out.splitlines()
    assert shown == [
        "session_1  idle",
        "model  demo",
        "environment  cntr_1",
        f"turn_1  completed  {moment(1_000)}  resp_1, resp_2",
    ]
    assert json.loads(told) == {**SESSION, "turns": [TURN]}


def test_a_turn_is_cancelled_and_a_session_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    gone = {"id": "session_1", "object": "agent.session.deleted", "deleted": True}
    answers = {
        f"POST {PLACE}/session_1/events": (202, {}),
        f"DELETE {PLACE}/session_1": (200, gone),
        f"POST {PLACE}/session_2/events": refusal(400, "No turn of this session is active."),
    }
    with serving(answers) as deployment:
        assert main(["sessions", "cancel", "session_1"], deployment.environ) == 0
        assert main(["sessions", "delete", "session_1", "--force"], deployment.environ) == 0
        assert main(["sessions", "cancel", "session_2"], deployment.environ) == 1
    said = capsys.readouterr()
    assert said.out == "The turn of session_1 is cancelled.\nsession_1 is deleted.\n"
    assert "No turn of this session is active." in said.err


def test_a_session_is_forked_at_a_turn(capsys: pytest.CaptureFixture[str]) -> None:
    made = {**SESSION, "id": "session_2", "forked_from": {"session_id": "session_1", "turn_id": "turn_1", "files": 2}}
    with serving({f"POST {PLACE}/session_1/fork": (200, made)}) as deployment:
        assert main(["sessions", "fork", "session_1", "--turn", "turn_1"], deployment.environ) == 0
        assert main(["sessions", "fork", "session_1", "--json"], deployment.environ) == 0
    said, told = capsys.readouterr().out.splitlines()
    assert said == "session_2 goes on from turn_1."
    assert json.loads(told) == made
