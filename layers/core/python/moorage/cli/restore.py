"""``moorage restore``: a backup in the place of what a stopped local stack keeps."""

import argparse
from collections.abc import Mapping

from moorage.cli.backup import add_places, state_dir_of
from moorage.cli.output import told
from moorage.local.backup import restore


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Put a backup in the place of what a stopped local stack keeps. What was there stays beside it."
    add_places(parser)
    parser.set_defaults(run=_restore)


def _restore(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    state_dir = state_dir_of(options, environ)
    count = restore(options.file, state_dir)
    sentence = (
        f"Restored the journal and {count} stored objects into {state_dir}. 'moorage up' serves them. "
        "A backup holds no models.toml: bring the one along that names the models of these responses."
    )
    return told(options, {"state_dir": str(state_dir), "objects": count}, sentence)
