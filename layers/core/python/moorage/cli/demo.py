"""``moorage demo``: an agent at work, from question to artifacts."""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="run an agent on a stack of its own, and leave its artifacts here",
        description="Start the local stack with state of its own, have an agent analyse a table of sales by shell, and download the "
        "workbook and the chart that it makes into this folder. OPENAI_API_KEY, ANTHROPIC_API_KEY or MOORAGE_UPSTREAM_URL choose a "
        "real model; without, the scripted one plays the agent.",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Becomes the demonstration: signals, output and exit code are its own."""
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "moorage.local.demo"], dict(environ))  # noqa: S606
