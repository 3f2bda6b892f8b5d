"""``moorage backup``: a copy of all that a local stack keeps. ``moorage restore`` is the way back."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from moorage.cli.output import add_json, told
from moorage.local.backup import back_up


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Copy all that a local stack keeps, as it stands at one moment, into FILE; the stack may run. If FILE is a folder, "
        "only objects that it does not hold yet are copied. A backup holds the stack's keys: keep it as safe as the state itself."
    )
    add_places(parser)
    parser.set_defaults(run=_back_up)


def add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path)
    add_json(parser)
    parser.add_argument("--state-dir", type=Path, help="where the state lies; by default MOORAGE_STATE_DIR or .moorage")


def state_dir_of(options: argparse.Namespace, environ: Mapping[str, str]) -> Path:
    return Path(options.state_dir or environ.get("MOORAGE_STATE_DIR", ".moorage")).resolve()


def _back_up(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    count = back_up(state_dir_of(options, environ), options.file)
    return told(
        options, {"path": str(options.file), "objects": count}, f"Backed up the journal and {count} stored objects to {options.file}."
    )
