"""``moorage demo``: an agent at work, from question to artifacts."""

import argparse
import sys
from collections.abc import Mapping

from moorage.local.users import check_system


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Start the local stack with state of its own, and have an agent work on it: 'sales' analyses a table of sales by shell, and "
        "makes a workbook and a chart; 'computer' builds a web page by shell, looks at it in the browser, and mends it. What it makes "
        "is downloaded into this folder. OPENAI_API_KEY, ANTHROPIC_API_KEY or MOORAGE_UPSTREAM_URL choose a real model; without, the "
        "scripted one plays the agent."
    )
    parser.add_argument(
        "what", nargs="?", choices=("sales", "computer"), default="sales", help="what the agent works on; by default sales"
    )
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep the stack until Ctrl-C, with the run in the console; so it is in a terminal",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str], platform: str = sys.platform) -> int:
    """Becomes the demonstration: signals, output and exit code are its own."""
    check_system(platform)
    from moorage.local.demo import main
    from moorage.local.demonstrations import DEMONSTRATIONS

    keeps = sys.stdin.isatty() and sys.stdout.isatty() if options.keep is None else options.keep
    return main(DEMONSTRATIONS[options.what], keeps=keeps)
