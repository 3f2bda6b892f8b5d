"""What a local stack counts, and who may read it."""

import json
import re
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from moorage import limits
from moorage.errors import SettingsConflict
from moorage.local.logs import API, STEPS, cut
from moorage.local.metrics import MEDIA_TYPE, Counters, Metrics, listening, text_of
from moorage.settings import SettingsError
from moorage.webhooks.store import Delivery

from tests.unit.loop.lab import TENANT, Lab, say

LINES: list[dict[str, Any]] = [
    {"message": "request", "method": "POST", "route": "/responses", "status": 200, "duration_ms": 1500, "tenant_id": "planted"},
    {"message": "request", "method": "POST", "route": "/responses", "status": 200, "duration_ms": 500},
    {"message": "request", "method": "GET", "path": "/planted", "status": 404, "duration_ms": 0},
    {"message": "model_step", "InputTokens": [10.0], "CachedTokens": [4.0], "OutputTokens": [2.0], "response_id": "planted"},
    {"message": "model_step", "InputTokens": [20.0], "status": "completed", "TimeToFirstToken": [250.0]},
    {"message": "response_ended", "status": "cancelled"},
    {"message": "tool_step", "call_type": "shell_call", "duration_ms": 40},
    {"message": "upstream_failed", "code": "rate_limit_exceeded", "model": "planted"},
    {"message": "upstream_failed"},
    {"message": "sandbox_started", "duration_ms": 80},
    {"message": "webhook", "delivered": True},
    {"message": "webhook", "delivered": False},
    {"message": "webhook", "delivered": False, "gave_up": True},
    {"message": "unhandled error", "level": "ERROR"},
    {"message": "of a later version"},
]
COUNTED = """\
moorage_requests_total{method="GET",route="unknown",status="404"} 1
moorage_requests_total{method="POST",route="/responses",status="200"} 2
moorage_request_seconds_count{route="/responses"} 2
moorage_request_seconds_count{route="unknown"} 1
moorage_request_seconds_sum{route="/responses"} 2
moorage_request_seconds_sum{route="unknown"} 0
moorage_responses_total{status="cancelled"} 1
moorage_responses_total{status="completed"} 1
moorage_model_steps_total 2
moorage_first_output_seconds_count 1
moorage_first_output_seconds_sum 0.25
moorage_tokens_total{kind="cached"} 4
moorage_tokens_total{kind="input"} 30
moorage_tokens_total{kind="output"} 2
moorage_tool_calls_total{type="shell_call"} 1
moorage_tool_seconds_count{type="shell_call"} 1
moorage_tool_seconds_sum{type="shell_call"} 0.04
moorage_upstream_errors_total{code="rate_limit_exceeded"} 1
moorage_upstream_errors_total{code="unknown"} 1
moorage_sandbox_start_seconds_count 1
moorage_sandbox_start_seconds_sum 0.08
moorage_webhook_attempts_total{outcome="delivered"} 1
moorage_webhook_attempts_total{outcome="failed"} 1
moorage_webhook_attempts_total{outcome="gave_up"} 1
moorage_errors_total 1
"""

_SAMPLE = re.compile(r'(?P<name>[a-z_]+)(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.e+-]+')


def assert_is_exposition(text: str) -> None:
    """By the grammar of the format: each metric has its HELP and TYPE once, and its samples right behind them."""
    kind = name = ""
    seen: set[str] = set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in seen
            seen.add(name)
        elif line.startswith("# TYPE "):
            _, _, said, kind = line.split(" ")
            assert (said, kind in ("counter", "gauge", "summary")) == (name, True)
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert sample["name"] in ({f"{name}_sum", f"{name}_count"} if kind == "summary" else {name})


def samples(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))


def test_lines_of_the_log_add_up() -> None:
    counters = Counters()
    for line in LINES:
        counters.take(line)
    text = text_of(counters.samples())
    assert_is_exposition(text)
    assert samples(text) == COUNTED
    assert "planted" not in text


def test_a_value_cannot_break_out_of_its_label() -> None:
    counters = Counters()
    counters.take({"message": "upstream_failed", "code": 'a"} 1\nmoorage_errors_total 9\\'})
    text = text_of(counters.samples())
    assert_is_exposition(text)
    assert samples(text) == 'moorage_upstream_errors_total{code="a\\"} 1\\nmoorage_errors_total 9\\\\"} 1\n'


def written(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))


async def test_what_was_told_since_the_start_is_counted_once_also_when_the_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {"message": "response_ended", "status": "failed"}
    written(tmp_path / API, ended)
    with closing(Metrics(Lab().runtime, tmp_path)) as metrics:
        written(tmp_path / API, ended)
        written(tmp_path / STEPS, ended, ended)
        for expected in (3, 3):
            assert f'moorage_responses_total{{status="failed"}} {expected}\n' in await metrics.text()
        monkeypatch.setattr(limits, "LOCAL_LOG_BYTES_MAX", 1)
        cut(tmp_path / STEPS)
        written(tmp_path / STEPS, ended)
        assert 'moorage_responses_total{status="failed"} 4\n' in await metrics.text()


async def test_what_runs_and_what_it_waits_for_is_read_from_the_records(tmp_path: Path) -> None:
    lab = Lab(say("done"))
    await lab.background()
    await lab.run(await lab.background())
    paused = await lab.background()
    await lab.responses.request_pause(paused)
    await lab.responses.park(paused, "It is paused.")
    event = {"event_type": "response.completed", "created_at": int(lab.now), "body": b"{}", "began_at": 0, "next_at": 9}
    await lab.runtime.stores.webhooks.add(Delivery(TENANT, "wh_1", "evt_1", response_id="resp_1", **event))  # type: ignore[arg-type]
    text = await Metrics(lab.runtime, tmp_path).text()
    assert_is_exposition(text)
    assert samples(text) == (
        "moorage_responses_running 2\n"
        'moorage_responses_waiting{for="pause"} 1\n'
        'moorage_responses_waiting{for="start"} 1\n'
        "moorage_sandboxes 0\n"
        "moorage_webhook_deliveries_pending 1\n"
    )


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/metrics", {}, 200),
        ("POST", "/metrics", {}, 405),
        ("GET", "/", {}, 404),
        ("GET", "/metrics", {"host": "evil.example"}, 403),
        ("GET", "/metrics", {"origin": "https://evil.example"}, 403),
    ],
)
async def test_they_are_read_at_one_address_and_by_no_web_page(
    method: str, path: str, headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    app: Any = Metrics(Lab().runtime, tmp_path).app()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:9464") as http:
        answer = await http.request(method, path, headers=headers)
    assert answer.status_code == status
    if status == 200:
        assert answer.headers["content-type"] == MEDIA_TYPE


def test_without_a_port_nothing_listens() -> None:
    with listening({}) as listener:
        assert listener is None


def test_they_listen_on_this_machine_alone() -> None:
    with listening({"MOORAGE_METRICS_PORT": "0"}) as listener:
        assert listener is not None
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("port", ["x", "-1", "65536", "٣"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(SettingsError, match="MOORAGE_METRICS_PORT takes a port number"), listening({"MOORAGE_METRICS_PORT": port}):
        pass


def test_a_port_that_is_taken_is_said_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsConflict, match=f"Port {port} cannot be had"), listening({"MOORAGE_METRICS_PORT": str(port)}):
            pass
