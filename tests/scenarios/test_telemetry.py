"""What a run writes into its logs: a line for each request and step with the metrics of the dashboard, and nothing of the content."""

import json
import re
import time
from typing import Any

import httpx
import pytest
from moorage.telemetry import Metric
from openai import BadRequestError

from tests.processes import until
from tests.stack import ROOT, SHELL, Stack, say, script, shell

SECRET = "planted-4f1c9b"


def step_log(stack: Stack) -> str:
    """What the workers of the loop have said."""
    return (stack.state_dir / "steps.log").read_text()


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def said(message: str, response_id: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of one kind about one response; other tests use the same stack."""
    return [line for line in lines if line["message"] == message and line.get("response_id") == response_id]


def metrics_of(lines: list[dict[str, Any]]) -> set[str]:
    return {
        metric["Name"]
        for line in lines
        if "_aws" in line
        for directive in line["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
    }


@pytest.fixture(scope="module")
def logged(stack: Stack) -> tuple[str, str, str]:
    """The id of a response with a shell, and the API's log and the steps' after it and one that failed."""
    client = stack.client()
    script_text = script(shell(f"echo {SECRET}"), say(f"It said {SECRET}"))
    ran = client.responses.create(model="demo", input=script_text, tools=[SHELL])  # type: ignore[list-item]
    assert ran.status == "completed"
    with pytest.raises(BadRequestError):
        client.responses.create(model="demo", input=script({"fail": {"status": 400}}, say("never said")))
    until(lambda: _is_whole([*lines_of(_api_log(stack)), *lines_of(step_log(stack))], ran.id))
    return ran.id, _api_log(stack), step_log(stack)


def _api_log(stack: Stack) -> str:
    return (stack.state_dir / "api.log").read_text()


def _is_whole(lines: list[dict[str, Any]], response_id: str) -> bool:
    return (len(said("model_step", response_id, lines)), len(said("tool_step", response_id, lines))) == (2, 1)


def test_the_dashboard_names_the_metrics_that_are_emitted(logged: tuple[str, str, str]) -> None:
    dashboards = (ROOT / "tests" / "infra" / "snapshots" / "everything-service.json").read_text()
    shown = set(re.findall(r'\[\\"moorage\\",\\"(\w+)\\"', dashboards))
    emitted = metrics_of(lines_of("\n".join(logged[1:])))
    # The template of this snapshot has no MicroVMs. Their alarm WrongNetwork: tests/infra/test_microvms.py.
    assert shown == {metric.value for metric in Metric} - {Metric.WRONG_NETWORK}
    # The proxy's own metric: tests/unit/aws. That it is down: tests/egress/test_service.py. The reaper's and the warm pool's:
    # tests/scenarios/test_warm_pool.py.
    elsewhere = {Metric.EGRESS_DENIED, Metric.PROXY_DOWN, Metric.SANDBOXES_ALIVE, Metric.WARM_POOL_HITS, Metric.WARM_POOL_MISSES}
    assert emitted - elsewhere == shown - elsewhere


def test_requests_and_steps_have_a_line_each_that_joins_them_by_the_response(logged: tuple[str, str, str]) -> None:
    response_id, lines = logged[0], lines_of("\n".join(logged[1:]))
    (call,) = said("tool_step", response_id, lines)
    (request,) = said("request", response_id, lines)
    steps = [line["step"] for line in said("model_step", response_id, lines)]
    assert sorted(steps) == [0, 1]
    assert (call["commands"], call["ended"], call["tenant_id"]) == (1, 1, "default")
    assert (request["method"], request["status"], request["tenant_id"]) == ("POST", 200, "default")
    assert request["request_id"].startswith("req_")


def test_an_address_that_nobody_serves_is_named_and_others_by_their_route(stack: Stack) -> None:
    with stack.http() as http:
        named = {http.get(path).headers["x-request-id"]: path for path in ("/nothing/of/the/kind", "/files/file-none")}
    lines = {line.get("request_id"): line for line in lines_of((stack.state_dir / "api.log").read_text())}
    told = {path: (lines[request_id].get("path"), lines[request_id].get("route")) for request_id, path in named.items()}
    assert told == {"/nothing/of/the/kind": ("/v1/nothing/of/the/kind", None), "/files/file-none": (None, "/files/{file_id}")}


def test_no_line_holds_content_or_a_key(stack: Stack, logged: tuple[str, str, str]) -> None:
    text = "\n".join(logged[1:])
    assert SECRET not in text
    assert "moorage-script" not in text
    assert stack.key not in text


def test_a_stack_counts_what_it_does_for_whoever_is_on_its_machine(stack: Stack, logged: tuple[str, str, str]) -> None:
    (address,) = set(re.findall(r"http://127\.0\.0\.1:\d+/metrics", (stack.state_dir / "up.log").read_text()))
    deadline = time.monotonic() + 60
    while 'moorage_tool_calls_total{type="shell_call"}' not in (text := httpx.get(address, timeout=60).text):
        assert time.monotonic() < deadline, "the steps' lines are not counted"
        time.sleep(0.1)
    assert 'moorage_requests_total{method="POST",route="/responses",status="200"}' in text
    assert 'moorage_responses_total{status="completed"}' in text
    assert "resp_" not in text
    assert httpx.get(stack.url.removesuffix("/v1") + "/metrics").status_code == 401  # The API's own port has a key before it.
