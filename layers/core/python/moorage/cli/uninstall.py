"""``moorage uninstall``: remove from this machine what moorage keeps on it, after it has been listed."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from moorage.cli.backup import state_dir_of
from moorage.cli.output import add_json, say_json
from moorage.cli.service import remove_unit, unit_file_of
from moorage.cli.target import TargetError
from moorage.command_hints import typed_here
from moorage.local.removal import start_removing
from moorage.local.resource_paths import cache_folder
from moorage.local.state_folder import held
from moorage.terminal import say


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List what moorage keeps on this machine for this user: the state of the stack in this folder, the service's unit, the "
        "environments of its Python programs. With --yes it is removed. The package itself stays: 'pip uninstall moorage' removes it."
    )
    parser.add_argument("--yes", action="store_true", help="remove what is listed")
    parser.add_argument("--keep-state", action="store_true", help="leave the state, with its keys, files and responses")
    parser.add_argument("--state-dir", type=Path, help="where the state lies; by default MOORAGE_STATE_DIR or .moorage")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    folders = [] if options.keep_state else [state_dir_of(options, environ)]
    if any(folder.exists() and not (folder / "secrets.json").exists() for folder in folders):
        raise TargetError(f"{folders[0]} is no state folder of moorage: nothing of it is removed.")
    folders = [folder for folder in (*folders, cache_folder()) if folder.exists()]
    found = [*folders, *([unit_file_of(environ)] if unit_file_of(environ).exists() else [])]
    sizes = {str(path): _bytes_of(path) for path in found}
    if options.yes:
        # First, for it starts the stack again when that ends.
        remove_unit(environ)
        for folder in folders:
            _remove(folder)
    if options.json:
        say_json({"removed": options.yes, "bytes": sizes})
        return 0
    for path, size in sizes.items():
        say(f"{size / 1e6:10.1f} MB  {path}")
    if not found:
        say("Nothing of moorage lies here.")
    elif options.yes:
        say("Removed.")
    else:
        say(
            typed_here(
                "Nothing was removed yet. 'moorage uninstall --yes' removes all of it, 'moorage backup FILE' copies the state before."
            )
        )
    return 0


def _remove(folder: Path) -> None:
    """A state folder is held meanwhile: one whose stack runs is refused."""
    if folder == cache_folder():
        start_removing(folder).wait()
        return
    with held(folder):
        start_removing(folder).wait()


def _bytes_of(path: Path) -> int:
    """Its bytes on the disk: a file with holes is larger than that."""
    if path.is_file():
        return path.stat().st_blocks * 512
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
