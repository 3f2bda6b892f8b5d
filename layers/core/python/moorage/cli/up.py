"""``moorage up``: the local stack in this terminal."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "up",
        help="start the local stack and keep serving (Ctrl-C stops it)",
        description="Start the local stack and keep serving: API, AWS emulator and sandboxes, all on this machine. "
        "Ctrl-C stops it; what it stored is there at the next start.",
    )
    parser.add_argument("--port", type=int, help="of the API; by default MOORAGE_PORT or 8080, and 0 is any free one")
    parser.add_argument("--state-dir", type=Path, help="where its state lies; by default MOORAGE_STATE_DIR or .moorage")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Becomes the stack: signals, output and exit code are its own."""
    chosen = dict(environ)
    if options.port is not None:
        chosen["MOORAGE_PORT"] = str(options.port)
    if options.state_dir is not None:
        chosen["MOORAGE_STATE_DIR"] = str(options.state_dir)
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "moorage.local.stack"], chosen)  # noqa: S606
