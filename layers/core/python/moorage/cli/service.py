"""``moorage service``: a systemd user unit. A local stack then runs from boot on, and is started again when it ends."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.cli.actions import CommandActions
from moorage.cli.output import say_json, told
from moorage.command_hints import typed_here
from moorage.errors import SettingsConflict
from moorage.local.processes import write_private
from moorage.terminal import say

_PASSED_ON: Final = ("MOORAGE_", "OPENAI_", "ANTHROPIC_")
_NAME: Final = "moorage.service"
_SETTINGS: Final = "EnvironmentFile="
_NO_SYSTEMD: Final = (
    "No systemd of this user answers on this machine, so nothing starts the unit. 'moorage up' serves as long as its terminal is open."
)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    actions = CommandActions(parser)
    install = actions.add("install", _install, "write the unit and print it")
    install.description = (
        "Write a systemd user unit for the stack of this folder and print it. Settings and model keys of this shell (MOORAGE_*, "
        "OPENAI_*, ANTHROPIC_*) go into a file beside the state that only you can read."
    )
    install.add_argument("--state-dir", type=Path, help="where its state lies; by default MOORAGE_STATE_DIR or .moorage")
    install.add_argument("--port", type=int, help="of the API; by default MOORAGE_PORT or 8080")
    actions.add("status", _status, "say whether the unit is written, enabled and running")
    actions.add("uninstall", _uninstall, "stop the service and remove its unit; the state stays")


def unit_file_of(environ: Mapping[str, str]) -> Path:
    """The folder of this user's units for systemd (systemd.unit(5))."""
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".config"
    return Path(home) / "systemd" / "user" / _NAME


def _install(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    state_dir = Path(options.state_dir or environ.get("MOORAGE_STATE_DIR", ".moorage")).resolve()
    unit_file = unit_file_of(environ)
    kept = {name: value for name, value in sorted(environ.items()) if name.startswith(_PASSED_ON)}
    kept["MOORAGE_STATE_DIR"] = str(state_dir)
    if options.port is not None:
        kept["MOORAGE_PORT"] = str(options.port)
    unit = unit_of(state_dir, Path.cwd(), environ.get("PATH", os.defpath))
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        unit_file.parent.mkdir(parents=True, exist_ok=True)
        write_private(state_dir / "service.env", "".join(f"{name}={_quoted(value)}\n" for name, value in kept.items()))
        write_private(unit_file, unit)
    except OSError as error:
        raise SettingsConflict(f"The unit could not be written to {error.filename}: {error.strerror}.") from error
    if _systemctl(environ) is None:
        say(typed_here(_NO_SYSTEMD), out=sys.stderr)
    if options.json:
        say_json({"unit_file": str(unit_file), "settings_file": str(state_dir / "service.env"), "unit": unit})
        return 0
    say(f"# {unit_file}\n{unit}")
    say(
        f"Written. Settings are in {state_dir / 'service.env'}. Next:\n"
        "  systemctl --user daemon-reload\n"
        "  systemctl --user enable --now moorage\n"
        f"  loginctl enable-linger {environ.get('USER', '')}".rstrip()
        + "   # from boot on, and after you log out"
    )
    return 0


def _status(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Exit code 0 if the service runs, 3 if not, as ``systemctl status`` has it."""
    unit_file = unit_file_of(environ)
    found: dict[str, str | None] = {"unit_file": str(unit_file) if unit_file.exists() else None, "enabled": None, "active": None}
    if unit_file.exists() and _systemctl(environ) is not None:
        found["enabled"] = _ask(environ, "is-enabled", _NAME)
        found["active"] = _ask(environ, "is-active", _NAME)
    if options.json:
        say_json(found)
    elif found["unit_file"] is None:
        say(typed_here("The service is not installed: 'moorage service install' writes its unit."))
    elif found["active"] is None:
        say(typed_here(f"{unit_file} is written. {_NO_SYSTEMD}"))
    else:
        say(f"{unit_file} is written; it is {found['enabled']} and {found['active']}. 'journalctl --user -u moorage' has its words.")
    return 0 if found["active"] == "active" else 3


def _uninstall(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    removed = remove_unit(environ)
    return told(
        options,
        {"removed": [str(path) for path in removed]},
        f"Removed {', '.join(map(str, removed))}. The state is as it was." if removed else "The service is not installed.",
    )


def remove_unit(environ: Mapping[str, str]) -> list[Path]:
    """Stop the service, and remove its unit and the file of its settings with the keys. Answers the removed files."""
    unit_file = unit_file_of(environ)
    if not unit_file.exists():
        return []
    settings = [Path(_unplain(line.partition("=")[2])) for line in unit_file.read_text().splitlines() if line.startswith(_SETTINGS)]
    if _systemctl(environ) is not None:
        _ask(environ, "disable", "--now", _NAME)
    removed = [path for path in (unit_file, *settings) if path.exists()]
    for path in removed:
        path.unlink()
    if _systemctl(environ) is not None:
        _ask(environ, "daemon-reload")
    return removed


def _systemctl(environ: Mapping[str, str]) -> str | None:
    """The program, if a systemd for users answers."""
    program = shutil.which("systemctl", path=environ.get("PATH", os.defpath))
    runs_here = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}", "systemd").exists()
    return program if runs_here else None


def _ask(environ: Mapping[str, str], *words: str) -> str:
    """The first line of ``systemctl --user``'s answer. Its exit code is other than 0 for all but the best news."""
    program = _systemctl(environ)
    assert program is not None
    done = subprocess.run([program, "--user", *words], env={**environ}, capture_output=True, text=True, check=False, timeout=120)
    said = done.stdout.strip() or done.stderr.strip()
    return said.splitlines()[0] if said else "unknown"


def unit_of(state_dir: Path, folder: Path, path: str) -> str:
    """The unit's text. A stack that gives up says why and exits with 1; systemd starts it again, but not for ever. One that is
    stopped or hangs does not tell systemd any more that it lives, and is killed (systemd.service(5), ``WatchdogSec``)."""
    return f"""\
[Unit]
Description=moorage: a Responses API with a computer
After=network.target
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=notify
WatchdogSec={limits.STACK_SILENCE_SECONDS_MAX}
WatchdogSignal=SIGKILL
TimeoutStartSec={limits.STACK_START_SECONDS_MAX}
ExecStart={_quoted(_plain(sys.executable))} -m moorage.local.stack
WorkingDirectory={_plain(folder)}
Environment={_quoted(_plain(f"PATH={path}"))}
{_SETTINGS}{_plain(state_dir / "service.env")}
Restart=always
RestartSec=1
KillMode=mixed
TimeoutStopSec=60

[Install]
WantedBy=default.target
"""


def _unplain(value: str) -> str:
    return value.replace("%%", "%")


def _plain(value: str | Path) -> str:
    """A text that systemd finds no specifiers in."""
    return str(value).replace("%", "%%")


def _quoted(text: str) -> str:
    """As systemd reads it, in units and in environment files."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
