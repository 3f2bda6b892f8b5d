"""What a local stack told its operator, read from the files of all its processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from moorage.cli.main import main
from moorage.local.logs import aside
from moorage.telemetry import about, log_to_file, tell

from tests.opened_logs import close_log
from tests.unit.cli.test_commands import local_state


def line(second: int, message: str, **fields: object) -> str:
    timestamp = f"2026-11-22T10:00:{second:02d}.500+00:00"
    return json.dumps({"level": "INFO", "message": message, "timestamp": timestamp, "service": "m", **fields})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    local_state(tmp_path)
    (tmp_path / "api.log.1").write_text(line(1, "request", response_id="resp_1", status=200) + "\n")
    (tmp_path / "api.log").write_text(line(4, "request", response_id="resp_2", status=200) + "\nnot JSON\n")
    why = {"upstream": "127.0.0.1:9", "cause": "ConnectError: refused", "Errors": [1.0], "_aws": {}}
    failed = line(3, "upstream_failed", response_id="resp_1", **why)
    (tmp_path / "steps.log").write_text(line(2, "model_step", response_id="resp_1", step=1) + "\n" + failed + "\n")
    return tmp_path


def shown(state: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["logs", *arguments], {"MOORAGE_STATE_DIR": str(state)}) == 0
    return [said.partition("  ")[2] for said in capsys.readouterr().out.splitlines()]


def test_the_lines_of_all_processes_stand_in_the_order_of_time(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [said.split("  ")[0] for said in shown(state, capsys)] == ["request", "model_step", "upstream_failed", "request"]


def test_a_response_is_followed_through_its_processes(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(state, capsys, "resp_1") == [
        "request  response_id=resp_1  status=200",
        "model_step  response_id=resp_1  step=1",
        'upstream_failed  response_id=resp_1  upstream=127.0.0.1:9  cause="ConnectError: refused"  Errors=1.0',
    ]


def test_the_last_lines_are_enough_and_programs_get_them_whole(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(state, capsys, "-n", "1") == ["request  response_id=resp_2  status=200"]
    assert main(["logs", "resp_2", "--json"], {"MOORAGE_STATE_DIR": str(state)}) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(line(4, "request", response_id="resp_2", status=200))


def test_what_only_counts_pushes_nothing_out_of_the_last_lines(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = line(6, "sandboxes", SandboxesAlive=[1.0])
    with (state / "api.log").open("a") as file:
        file.writelines([count + "\n"] * 3)
    assert shown(state, capsys, "-n", "1") == ["request  response_id=resp_2  status=200"]
    assert main(["logs", "-n", "1", "--json"], {"MOORAGE_STATE_DIR": str(state)}) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(count)


def test_a_name_in_the_log_is_no_control_code(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "api.log").write_text(line(5, "request", path="/v1/\x1b]0;PWNED\x07\u202e") + "\n")
    assert shown(state, capsys, "-n", "1") == [r"request  path=/v1/\x1b]0;PWNED\x07\u202e"]


def test_what_comes_is_shown_also_from_files_that_were_emptied_or_put_aside(state: Path) -> None:
    following = subprocess.Popen(
        [sys.executable, "-m", "moorage", "logs", "--follow", "-n", "1"],
        env={"MOORAGE_STATE_DIR": str(state), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    try:
        assert "resp_2" in following.stdout.readline()
        handler = log_to_file(state / "steps.log")
        with about(response_id="resp_3"):
            tell("model_step", {"step": 7})
        assert "model_step  response_id=resp_3  step=7" in following.stdout.readline()
        os.truncate(state / "steps.log", 0)  # as local.logs.cut leaves it
        tell("model_step", {"step": 8})
        assert "step=8" in following.stdout.readline()
        os.replace(state / "api.log", aside(state / "api.log"))  # as a RotatingFile does
        (state / "api.log").write_text(line(9, "request", response_id="resp_9") + "\n")
        assert "resp_9" in following.stdout.readline()
        close_log(handler)
    finally:
        following.kill()
        following.communicate()


def test_without_a_stack_it_says_where_the_lines_of_others_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs"], {"MOORAGE_STATE_DIR": "/nonexistent"}) == 1
    assert "CloudWatch Logs" in capsys.readouterr().err
