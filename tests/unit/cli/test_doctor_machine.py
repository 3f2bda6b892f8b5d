"""What the doctor finds on the machine that is to run a stack."""

import argparse
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from moorage.cli import demo, up
from moorage.cli.checks.computer import computer_finding, started_here
from moorage.cli.checks.findings import Finding, Level
from moorage.cli.checks.machine import disk_finding, environment_finding, model_finding, port_finding, python_finding, sandbox_finding
from moorage.errors import DeskUnavailable, SandboxError, SettingsConflict
from moorage.local.environments import ToolEnvironment
from moorage.sandbox.desk_client import DeskState

from tests.unit.sandbox.desk_support import needs_browser
from tests.upstream import MockUpstream


def test_an_old_python_is_refused() -> None:
    assert [python_finding(version).level for version in ((3, 10, 4), (3, 11, 0), (4, 0))] == [Level.FAIL, Level.OK, Level.OK]


ON_A_MAC = "moorage runs on Linux, and this is macOS: 'docker compose up' in a clone runs it here (docs/docker.md)."


@pytest.mark.parametrize("command", [up, demo], ids=["up", "demo"])
def test_on_a_mac_a_start_says_how_it_runs_there(command: ModuleType) -> None:
    with pytest.raises(SettingsConflict) as refused:
        command.run(argparse.Namespace(), {}, platform="darwin")
    assert str(refused.value) == ON_A_MAC


def test_on_a_mac_the_doctor_says_the_same() -> None:
    assert sandbox_finding({}, platform="darwin") == Finding(Level.FAIL, "this machine can have no sandboxes", ON_A_MAC)


@pytest.mark.parametrize(
    ("bwrap", "advice"),
    [
        (None, "bubblewrap is not installed ('apt install bubblewrap'): there can be no sandboxes."),
        ("exit 1", "bubblewrap can make no namespaces on this machine, so there can be no sandboxes."),
    ],
    ids=["no bubblewrap", "no namespaces"],
)
def test_a_machine_that_can_have_no_sandboxes_is_told_why(bwrap: str | None, advice: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    if bwrap is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{bwrap}\n")
        (tmp_path / "bwrap").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "moorage", "doctor"],
        env={"PATH": str(tmp_path), "MOORAGE_STATE_DIR": str(tmp_path), "MOORAGE_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[1] == "fail  this machine can have no sandboxes"
    assert lines[2].startswith(f"      {advice}") or "The users of sandboxes cannot run" in lines[2]
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_is_warned_of(tmp_path: Path) -> None:
    assert disk_finding(tmp_path / "none" / "yet").level is Level.OK
    assert disk_finding(tmp_path, bytes_min=2**62).advice == "Files, artifacts and sandboxes lie there: make room."


def test_a_port_is_free_or_wrong_or_anothers(free_port: int) -> None:
    assert port_finding({"MOORAGE_PORT": str(free_port)}) == Finding(Level.OK, f"port {free_port} is free")
    assert port_finding({"MOORAGE_PORT": "http"}) == Finding(
        Level.FAIL, "no port for the API", "MOORAGE_PORT must be a whole number, not 'http'."
    )
    with MockUpstream() as other:
        port = other.url.split(":")[2].split("/")[0]
        assert port_finding({"MOORAGE_PORT": port}) == Finding(
            Level.FAIL, f"port {port} is taken by another program", "MOORAGE_PORT=8090 (or any free port) chooses another."
        )


SILENT = '[[models]]\nname = "m"\nprovider = "chat_completions"\nbase_url = "http://127.0.0.1:9/v1"\n'


@pytest.mark.parametrize(
    ("situation", "text", "level"),
    [
        ("nothing is configured", "", "warn"),
        ("a server that does not answer", SILENT, "fail"),
        ("a file that cannot be read", "[[models", "fail"),
    ],
)
def test_the_model_that_would_answer_is_checked(tmp_path: Path, situation: str, text: str, level: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text)
    finding = model_finding({"MOORAGE_MODELS_FILE": str(path)})
    assert (finding.level.value, bool(finding.advice)) == (level, True), situation


def test_a_model_server_that_answers_is_well(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("")
    with MockUpstream() as upstream:
        finding = model_finding({"MOORAGE_MODELS_FILE": str(tmp_path / "models.toml"), "MOORAGE_UPSTREAM_URL": upstream.url})
    assert finding.level is Level.OK


def test_packages_that_no_start_would_install_are_no_reason_to_worry(tmp_path: Path) -> None:
    egress, toolbox = (ToolEnvironment(name, tmp_path / f"{name}.txt", tmp_path / name) for name in ("egress", "toolbox"))
    allowed = {"MOORAGE_ALLOWED_EGRESS_DOMAINS": "pypi.example"}
    found = [environment_finding(environ, known).level for environ in ({}, allowed) for known in (egress, toolbox)]
    assert found == [Level.OK, Level.WARN, Level.WARN, Level.WARN]


# --- the hosted computer ------------------------------------------------------------------------------------------------------------

TOLD = "a hosted computer can run here: Chrome/156.0"


@pytest.mark.parametrize(
    ("is_whole", "has_own_sandbox", "level", "what"),
    [
        (True, True, Level.OK, f"{TOLD}, with Chromium's own sandbox"),
        (True, False, Level.WARN, f"{TOLD}, without Chromium's own sandbox"),
        (False, True, Level.WARN, f"{TOLD}, without its windows"),
    ],
    ids=["all walls", "no own sandbox", "the headless shell"],
)
def test_the_browser_and_its_walls_are_named(is_whole: bool, has_own_sandbox: bool, level: Level, what: str) -> None:
    finding = computer_finding(lambda: DeskState("desk_1", "Chrome/156.0", is_whole, has_own_sandbox, 1280, 800))
    assert (finding.level, finding.what, bool(finding.advice)) == (level, what, level is Level.WARN)


@pytest.mark.parametrize(
    ("error", "level", "what"),
    [
        (DeskUnavailable("None is there."), Level.WARN, "this machine can have no hosted computer"),
        (SandboxError("It fell."), Level.FAIL, "no browser starts beside a sandbox"),
    ],
    ids=["no browser", "a browser that does not start"],
)
def test_a_machine_without_a_browser_is_told_so(error: SandboxError, level: Level, what: str) -> None:
    def start() -> DeskState:
        raise error

    finding = computer_finding(start)
    assert (finding.level, finding.what, error.message in finding.advice) == (level, what, True)


@needs_browser
def test_the_doctor_starts_the_browser_that_requests_would_have() -> None:
    desk = started_here()
    assert (desk.browser.partition("/")[0], desk.width, desk.height) == ("Chrome", 1280, 800)
