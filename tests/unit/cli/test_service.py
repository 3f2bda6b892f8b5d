"""``moorage service install``: what systemd reads is what was meant, and keys stay with their user."""

import json
import shlex
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


COMMAND = shlex.quote(str(Path(sys.executable).with_name("moorage")))
"""As it is typed in a folder elsewhere whose PATH has none."""
NO_SYSTEMD = (
    "No systemd of this user answers on this machine, so nothing starts the unit. "
    f"'{COMMAND} up' serves as long as its terminal is open."
)


def moorage(folder: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    own = {"HOME": str(folder / "home"), "XDG_RUNTIME_DIR": str(folder / "run"), "PATH": "/usr/bin:/opt/50%", "USER": "ada"}
    return subprocess.run(
        [sys.executable, "-m", "moorage.cli.main", *words],
        cwd=folder,
        env=own | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def install(folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return moorage(folder, "service", "install", "--port", "8099", **environment)


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$HOME/asked"
case "$2" in is-enabled) echo enabled ;; is-active) echo active ;; esac
"""
"""A stand-in that notes what it was asked: there is no systemd of a user where tests run."""


def with_systemd(folder: Path) -> dict[str, str]:
    """The environment of a user whose systemd answers, and with it a home to note things in."""
    (folder / "run" / "systemd").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "bin").mkdir()
    (folder / "bin" / "systemctl").write_text(SYSTEMCTL)
    (folder / "bin" / "systemctl").chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}


def test_the_unit_starts_this_stack_and_its_settings_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "my stack 100%"
    folder.mkdir()
    done = install(folder, OPENAI_API_KEY='sk-"quoted"\\', MOORAGE_LOG_LEVEL="INFO", OTHER="not passed on")
    unit_file = folder / "home" / ".config" / "systemd" / "user" / "moorage.service"
    settings = folder / ".moorage" / "service.env"
    assert (done.returncode, done.stderr) == (0, f"{NO_SYSTEMD}\n")
    lines = unit_file.read_text().splitlines()
    assert [line for line in lines if "=" in line][3:] == [
        "StartLimitBurst=10",
        "Type=notify",
        "WatchdogSec=60",
        "WatchdogSignal=SIGKILL",
        "TimeoutStartSec=1800",
        f'ExecStart="{sys.executable}" -m moorage.local.stack',
        f"WorkingDirectory={tmp_path}/my stack 100%%",
        'Environment="PATH=/usr/bin:/opt/50%%"',
        f"EnvironmentFile={tmp_path}/my stack 100%%/.moorage/service.env",
        "Restart=always",
        "RestartSec=1",
        "KillMode=mixed",
        "TimeoutStopSec=60",
        "WantedBy=default.target",
    ]
    assert settings.read_text().splitlines() == [
        'MOORAGE_LOG_LEVEL="INFO"',
        'OPENAI_API_KEY="sk-\\"quoted\\"\\\\"',
        f'MOORAGE_STATE_DIR="{folder}/.moorage"',
        'MOORAGE_PORT="8099"',
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (settings, unit_file)} == {0o600}
    assert unit_file.read_text() in done.stdout
    assert "sk-" not in done.stdout
    assert "systemctl --user enable --now moorage" in done.stdout


def test_a_unit_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("in the way")
    done = install(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"moorage: The unit could not be written to {tmp_path}/config/systemd")


def test_the_status_says_what_systemd_says_and_uninstall_leaves_the_state(tmp_path: Path) -> None:
    systemd = with_systemd(tmp_path)
    unit_file = tmp_path / "home" / ".config" / "systemd" / "user" / "moorage.service"
    missing = moorage(tmp_path, "service", "status", **systemd)
    assert (missing.returncode, missing.stdout) == (3, f"The service is not installed: '{COMMAND} service install' writes its unit.\n")
    assert install(tmp_path, **systemd).stderr == ""
    status = moorage(tmp_path, "service", "status", "--json", **systemd)
    assert (status.returncode, json.loads(status.stdout)) == (
        0,
        {"unit_file": str(unit_file), "enabled": "enabled", "active": "active"},
    )
    done = moorage(tmp_path, "service", "uninstall", **systemd)
    settings = tmp_path / ".moorage" / "service.env"
    assert (done.returncode, done.stdout) == (0, f"Removed {unit_file}, {settings}. The state is as it was.\n")
    assert (unit_file.exists(), settings.exists(), settings.parent.exists()) == (False, False, True)
    asked = (tmp_path / "home" / "asked").read_text().splitlines()
    assert asked[-2:] == ["--user disable --now moorage.service", "--user daemon-reload"]
    assert moorage(tmp_path, "service", "uninstall", **systemd).stdout == "The service is not installed.\n"


def test_without_systemd_the_status_says_so(tmp_path: Path) -> None:
    install(tmp_path)
    status = moorage(tmp_path, "service", "status")
    unit_file = tmp_path / "home" / ".config" / "systemd" / "user" / "moorage.service"
    assert (status.returncode, status.stdout) == (3, f"{unit_file} is written. {NO_SYSTEMD}\n")


def test_what_lies_on_the_machine_is_listed_before_it_is_removed(tmp_path: Path) -> None:
    state, cache = tmp_path / ".moorage", tmp_path / "home" / ".cache" / "moorage"
    cache.mkdir(parents=True)
    (cache / "wheel").write_bytes(bytes(100_000))
    install(tmp_path)
    (state / "secrets.json").write_text("{}")
    unit_file = tmp_path / "home" / ".config" / "systemd" / "user" / "moorage.service"
    listed = moorage(tmp_path, "uninstall", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    told = json.loads(listed.stdout)
    assert (told["removed"], [*told["bytes"]]) == (False, [str(state), str(cache), str(unit_file)])
    assert told["bytes"][str(cache)] >= 100_000
    kept = moorage(tmp_path, "uninstall", "--yes", "--keep-state")
    assert kept.stdout.endswith("Removed.\n")
    assert [path.exists() for path in (state, cache, unit_file)] == [True, False, False]
    assert moorage(tmp_path, "uninstall", "--yes").returncode == 0
    assert not state.exists()
    assert moorage(tmp_path, "uninstall").stdout == "Nothing of moorage lies here.\n"


def test_no_folder_is_removed_that_is_no_state_folder(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = moorage(tmp_path, "uninstall", "--yes", "--state-dir", str(tmp_path / "home"))
    assert (done.returncode, done.stderr) == (1, f"moorage: {tmp_path}/home is no state folder of moorage: nothing of it is removed.\n")
    assert (tmp_path / "home").exists()
