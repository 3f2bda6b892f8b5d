"""``moorage service install``: what systemd reads is what was meant, and keys stay with their user."""

import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def install(folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "moorage.cli.main", "service", "install", "--port", "8099"],
        cwd=folder,
        env={"HOME": str(folder / "home"), "PATH": "/usr/bin:/opt/50%", "USER": "ada", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_unit_starts_this_stack_and_its_settings_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "my stack 100%"
    folder.mkdir()
    done = install(folder, OPENAI_API_KEY='sk-"quoted"\\', MOORAGE_LOG_LEVEL="INFO", OTHER="not passed on")
    unit_file = folder / "home" / ".config" / "systemd" / "user" / "moorage.service"
    settings = folder / ".moorage" / "service.env"
    assert (done.returncode, done.stderr) == (0, "")
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
