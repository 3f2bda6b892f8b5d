"""The line of a step or request, and the metrics that CloudWatch reads from it."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from moorage.egress.store import EgressLogEntry
from moorage.errors import MoorageError
from moorage.telemetry import Metric, open_log, tell, tell_error

from functions.egress_proxy.journal import DecisionLog
from tests.opened_logs import close_log


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    written = io.StringIO()
    handler = open_log(written, service="mine")
    yield written
    close_log(handler)


def test_a_line_is_json_with_its_metrics_in_the_embedded_format(out: io.StringIO) -> None:
    tell("model_step", {"response_id": "resp_1", "step": 0, "status": None}, {Metric.ROUNDS: 1, Metric.SANDBOX_START: 12})
    (line,) = map(json.loads, out.getvalue().splitlines())
    described = line.pop("_aws")["CloudWatchMetrics"]
    del line["timestamp"]
    assert line == {
        "level": "INFO",
        "message": "model_step",
        "service": "mine",
        "response_id": "resp_1",
        "step": 0,
        "Rounds": [1.0],
        "SandboxStart": [12.0],
    }
    assert described == [
        {
            "Namespace": "moorage",
            "Dimensions": [["service"]],
            "Metrics": [{"Name": "Rounds", "Unit": "Count"}, {"Name": "SandboxStart", "Unit": "Milliseconds"}],
        }
    ]


def test_a_line_without_metrics_carries_no_metric_description(out: io.StringIO) -> None:
    tell("request", {"status": 200})
    assert "_aws" not in json.loads(out.getvalue())


def test_nothing_is_written_where_no_log_was_opened(capsys: pytest.CaptureFixture[str]) -> None:
    tell("request", {"status": 500}, {Metric.ERRORS: 1})
    assert capsys.readouterr() == ("", "")


class _StepFailed(MoorageError):
    pass


def _read() -> None:
    raise ConnectionError("the answer was sk-secret")


def _step() -> None:
    try:
        _read()
    except ConnectionError as error:
        raise _StepFailed("sk-secret again") from error


def _told(error: BaseException, out: io.StringIO, **ids: Any) -> dict[str, Any]:
    tell_error(error, "step_failed", **ids)
    line: dict[str, Any] = json.loads(out.getvalue().splitlines()[-1])
    del line["timestamp"]
    return line


def test_an_error_is_told_with_frames_and_causes_without_its_message(out: io.StringIO) -> None:
    with pytest.raises(_StepFailed) as caught:
        _step()
    line = _told(caught.value, out, response_id="resp_1", step=None)
    here = "aws/test_telemetry.py"
    frames = [(of["error"], [frame.rsplit(":", 2)[::2] for frame in of["where"]]) for of in (line, *line.pop("causes"))]
    assert frames == [
        (
            "tests.unit.aws.test_telemetry._StepFailed",
            [[here, "test_an_error_is_told_with_frames_and_causes_without_its_message"], [here, "_step"]],
        ),
        ("ConnectionError", [[here, "_step"], [here, "_read"]]),
    ]
    assert {key: value for key, value in line.items() if key not in ("error", "where")} == {
        "level": "ERROR",
        "message": "step_failed",
        "service": "mine",
        "response_id": "resp_1",
    }
    assert "secret" not in out.getvalue()


def test_of_errors_that_came_together_each_is_told(out: io.StringIO) -> None:
    """As the reaper raises what stopped its parts."""
    try:
        raise ExceptionGroup("the reaper could not do all of its work", [KeyError("sk-secret"), _failed()])
    except ExceptionGroup as group:
        told = _told(group, out)
    assert (told["error"], [cause["error"] for cause in told["causes"]]) == ("ExceptionGroup", ["KeyError", "OSError"])
    assert [frame.rpartition(":")[2] for frame in told["causes"][1]["where"]] == ["_failed"]
    assert "sk-secret" not in out.getvalue()


def _failed() -> OSError:
    try:
        raise OSError("sk-secret")
    except OSError as error:
        return error


def test_an_error_that_was_never_raised_and_one_that_causes_itself_are_told_too(out: io.StringIO) -> None:
    circular = ValueError()
    circular.__cause__ = circular
    assert (_told(OSError(), out)["where"], len(_told(circular, out)["causes"])) == ([], 3)


@pytest.mark.usefixtures("out")
def test_the_proxy_counts_what_it_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    journal = DecisionLog(None, 60, lambda: 0)  # type: ignore[arg-type]  # nothing is flushed here
    entry = EgressLogEntry("0-0", 0, "acme", "cntr_1", "pkg.example.com", 443, "CONNECT", None, "denied", "not_allowed")
    journal.ended(entry)
    line = json.loads(capsys.readouterr().out)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Metrics"] == [{"Name": Metric.EGRESS_DENIED.value, "Unit": "Count"}]
    assert (line["EgressDenied"], line["service"], line["host"]) == ([1.0], "mine", "pkg.example.com")
