"""``moorage backup`` and ``moorage restore``: a copy of all that a local stack keeps, and the way back."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.local.backup import back_up, restore


def add_to(commands: Any) -> None:
    backup = commands.add_parser(
        "backup",
        help="copy all that a local stack keeps into a file",
        description="Copy all that a local stack keeps, as it stands at one moment, into FILE; the stack may run. If FILE is a folder, "
        "only objects that it does not hold yet are copied. A backup holds the stack's keys: keep it as safe as the state itself.",
    )
    backup.add_argument("file", metavar="FILE", type=Path)
    backup.set_defaults(run=_back_up)
    back = commands.add_parser(
        "restore",
        help="put a backup in the place of what a stopped local stack keeps",
        description="Put a backup in the place of what a stopped local stack keeps. What was there stays beside it.",
    )
    back.add_argument("file", metavar="FILE", type=Path)
    back.set_defaults(run=_restore)
    for parser in (backup, back):
        parser.add_argument("--state-dir", type=Path, help="where the state lies; by default MOORAGE_STATE_DIR or .moorage")


def _state_dir(options: argparse.Namespace, environ: Mapping[str, str]) -> Path:
    return Path(options.state_dir or environ.get("MOORAGE_STATE_DIR", ".moorage")).resolve()


def _back_up(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    count = back_up(_state_dir(options, environ), options.file)
    print(f"Backed up the journal and {count} stored objects to {options.file}.")
    return 0


def _restore(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    state_dir = _state_dir(options, environ)
    count = restore(options.file, state_dir)
    print(f"Restored the journal and {count} stored objects into {state_dir}. 'moorage up' serves them.")
    return 0
