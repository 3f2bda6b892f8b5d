"""``moorage webhooks`` against answers that a test gives."""

import json
from typing import Any

import pytest
from moorage.cli.main import main
from moorage.cli.output import moment
from moorage.webhooks.event_types import EVENT_TYPES

from tests.unit.cli.deployment import refusal, serving

ENDPOINT: dict[str, Any] = {"id": "wh_1", "status": "failing", "created_at": 1_000, "name": "mine", "url": "https://hooks.example/"}
DELIVERY: dict[str, Any] = {
    "id": "evt_1",
    "event_type": "response.completed",
    "response_id": "resp_1",
    "created_at": 1_000,
    "status": "pending",
    "attempt_count": 2,
    "attempts": [{"status_code": 500, "error": None}, {"status_code": None, "error": "it took longer than 10 seconds"}],
}


def test_endpoints_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"GET /v1/webhook_endpoints": (200, {"data": [ENDPOINT], "has_more": False, "last_id": "wh_1"})}) as deployment:
        assert main(["webhooks"], deployment.environ) == 0
        assert main(["webhooks", "list", "--json"], deployment.environ) == 0
    head, shown, told = capsys.readouterr().out.splitlines()
    assert head.split() == ["ENDPOINT", "STATUS", "CREATED", "NAME", "URL"]
    assert shown.split() == ["wh_1", "failing", *moment(1_000).split(), "mine", "https://hooks.example/"]
    assert json.loads(told) == ENDPOINT


def test_an_endpoint_is_made_for_all_events_or_those_named_and_shows_its_secret(capsys: pytest.CaptureFixture[str]) -> None:
    made = ENDPOINT | {"signing_secret": "whsec_x"}
    with serving({"POST /v1/webhook_endpoints": (200, made)}) as deployment:
        assert main(["webhooks", "create", "https://hooks.example/"], deployment.environ) == 0
        named = ["--name", "n", "--event", "response.failed", "--event", "moorage.approval.requested"]
        assert main(["webhooks", "create", "https://hooks.example/", *named], deployment.environ) == 0
        first, second = (body for _, body in deployment.requests)
    assert capsys.readouterr().out == "wh_1\nwhsec_x\n" * 2
    assert (first["name"], first["event_types"]) == ("https://hooks.example/", list(EVENT_TYPES))
    assert second == {"name": "n", "url": "https://hooks.example/", "event_types": ["response.failed", "moorage.approval.requested"]}


@pytest.mark.parametrize(("status", "code"), [(204, 0), (500, 1), (307, 1)])
def test_a_test_fails_where_the_endpoint_does_not_take_it(status: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"POST /v1/webhook_endpoints/wh_1/test": (200, {"status_code": status})}) as deployment:
        assert main(["webhooks", "test", "wh_1", "--event", "response.failed"], deployment.environ) == code
        assert deployment.requests == [("POST /v1/webhook_endpoints/wh_1/test", {"event_type": "response.failed"})]
    assert capsys.readouterr().out == f"It answered {status}.\n"


def test_deliveries_show_what_was_answered_last(capsys: pytest.CaptureFixture[str]) -> None:
    other = DELIVERY | {"id": "evt_0", "status": "delivered", "attempts": [{"status_code": 200, "error": None}]}
    untried = DELIVERY | {"id": "evt_2", "attempt_count": 0, "attempts": []}
    with serving({"GET /v1/webhook_endpoints/wh_1/deliveries": (200, {"data": [untried, DELIVERY, other]})}) as deployment:
        assert main(["webhooks", "deliveries", "wh_1", "-n", "3"], deployment.environ) == 0
        assert deployment.requests[0][0] == "GET /v1/webhook_endpoints/wh_1/deliveries?limit=3"
    _, first, second, third = capsys.readouterr().out.splitlines()
    assert first.endswith("pending    0")
    assert second.endswith("pending    2         it took longer than 10 seconds")
    assert third.endswith("delivered  2         200")


def test_a_deleted_endpoint_is_named_and_an_unknown_one_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {"DELETE /v1/webhook_endpoints/wh_1": [(200, {"deleted": True}), refusal(404, "No such webhook endpoint: wh_1")]}
    with serving(answers) as deployment:
        assert [main(["webhooks", "delete", "wh_1"], deployment.environ) for _ in range(2)] == [0, 1]
    said = capsys.readouterr()
    assert (said.out, "No such webhook endpoint: wh_1" in said.err) == ("wh_1 gets nothing more.\n", True)
