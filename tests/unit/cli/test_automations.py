"""``moorage automations`` against answers that a test gives."""

import json
from typing import Any

import pytest
from moorage.cli.main import main
from moorage.cli.output import moment

from tests.unit.cli.deployment import refusal, serving

PLACE = "/v1/agents/automations"
WEEKLY: dict[str, Any] = {
    "id": "auto_1",
    "type": "periodic",
    "name": "weekly",
    "expression": "0 9 * * MON",
    "timezone": "UTC",
    "status": "paused",
    "pause_reason": "target_session_failed",
    "target": {"type": "existing_session", "session_id": "session_1", "instructions": "Look."},
}
ONCE: dict[str, Any] = {
    **WEEKLY,
    "id": "auto_2",
    "type": "once",
    "name": "later",
    "run_at": 5_000,
    "status": "active",
    "pause_reason": None,
    "target": {"type": "new_session"},
}
DONE: dict[str, Any] = {"id": "invoc_1", "scheduled_at": 4_000, "created_at": 4_001, "status": "completed", "error": None}
LOST: dict[str, Any] = {"id": "invoc_2", "scheduled_at": None, "created_at": 4_500, "status": "failed", "session_id": None}


def test_automations_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({f"GET {PLACE}": (200, {"data": [WEEKLY, ONCE], "has_more": False, "last_id": "auto_2"})}) as deployment:
        assert main(["automations"], deployment.environ) == 0
    head, *shown = capsys.readouterr().out.splitlines()
    assert head.split() == ["AUTOMATION", "STATUS", "TIMES", "NAME"]
    assert [line.split() for line in shown] == [
        ["auto_1", "paused", "0", "9", "*", "*", "MON", "(UTC)", "weekly"],
        ["auto_2", "active", *moment(5_000).split(), "later"],
    ]


def test_an_automation_is_shown_with_its_invocations(capsys: pytest.CaptureFixture[str]) -> None:
    invocations = [LOST | {"error": {"code": "x", "message": "Gone."}}, DONE | {"session_id": "session_1"}]
    answers = {f"GET {PLACE}/auto_1": (200, WEEKLY), f"GET {PLACE}/auto_1/invocations": (200, {"data": invocations})}
    with serving(answers) as deployment:
        assert main(["automations", "show", "auto_1"], deployment.environ) == 0
        assert main(["automations", "show", "auto_1", "--json"], deployment.environ) == 0
    *shown, told = capsys.readouterr().out.splitlines()
    assert shown == [
        "auto_1  paused (target_session_failed)  weekly",
        "times   0 9 * * MON (UTC)",
        "target  session_1",
        f"{moment(4_500)}  failed  Gone.",
        f"{moment(4_000)}  completed  session_1",
    ]
    assert json.loads(told) == WEEKLY | {"invocations": invocations}


def test_an_automation_is_paused_resumed_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {
        f"POST {PLACE}/auto_1/pause": (200, WEEKLY),
        f"POST {PLACE}/auto_1/resume": (200, WEEKLY | {"status": "active"}),
        f"DELETE {PLACE}/auto_1": (200, {"id": "auto_1", "object": "agent.automation.deleted", "deleted": True}),
        f"DELETE {PLACE}/auto_3": refusal(404, "Not there."),
    }
    with serving(answers) as deployment:
        assert [main(["automations", action, "auto_1"], deployment.environ) for action in ("pause", "resume", "delete")] == [0, 0, 0]
        assert main(["automations", "delete", "auto_3"], deployment.environ) == 1
    said = capsys.readouterr()
    assert said.out == "auto_1 is paused.\nauto_1 is active.\nauto_1 is deleted.\n"
    assert "Not there." in said.err
