"""``moorage service``: a systemd user unit, so that a local stack runs from boot on and is started again when it ends."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.cli.output import add_json, say_json
from moorage.errors import SettingsConflict
from moorage.local.processes import write_private
from moorage.terminal import say

_PASSED_ON: Final = ("MOORAGE_", "OPENAI_", "ANTHROPIC_")
_NAME: Final = "moorage.service"


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    install = actions.add_parser(
        "install",
        help="write the unit and print it",
        description="Write a systemd user unit for the stack of this folder and print it. Settings and model keys of this shell "
        "(MOORAGE_*, OPENAI_*, ANTHROPIC_*) go into a file beside the state that only you can read.",
    )
    install.add_argument("--state-dir", type=Path, help="where its state lies; by default MOORAGE_STATE_DIR or .moorage")
    install.add_argument("--port", type=int, help="of the API; by default MOORAGE_PORT or 8080")
    add_json(install)
    install.set_defaults(run=_install)


def _install(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    state_dir = Path(options.state_dir or environ.get("MOORAGE_STATE_DIR", ".moorage")).resolve()
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".config"
    unit_file = Path(home) / "systemd" / "user" / _NAME
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
EnvironmentFile={_plain(state_dir / "service.env")}
Restart=always
RestartSec=1
KillMode=mixed
TimeoutStopSec=60

[Install]
WantedBy=default.target
"""


def _plain(value: str | Path) -> str:
    """A text that systemd finds no specifiers in."""
    return str(value).replace("%", "%%")


def _quoted(text: str) -> str:
    """As systemd reads it, in units and in environment files."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
