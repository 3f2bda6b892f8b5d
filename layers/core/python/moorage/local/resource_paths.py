"""Where the files lie that are no Python modules of this package.

In a checkout they lie where they are edited. A wheel carries the same files, laid out alike, in ``moorage/carried`` (``pyproject.toml``
says which), so that everything else names them by one path below :data:`ROOT`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[1]
_CARRIED: Final = PACKAGE / "carried"
IS_CHECKOUT: Final = not _CARRIED.is_dir()
ROOT: Final = PACKAGE.parents[3] if IS_CHECKOUT else _CARRIED
LOOP: Final = PACKAGE / "loop" / "agent_loop.asl.json"
"""The definition of the state machine."""
LOCKS: Final = ROOT / "requirements"


def models_file(environ: Mapping[str, str]) -> Path:
    """The file of ``MOORAGE_MODELS_FILE``, or the ``models.toml`` of this folder, or the one that comes with moorage."""
    named, here = environ.get("MOORAGE_MODELS_FILE"), Path("models.toml")
    if named:
        return Path(named)
    return here.absolute() if here.exists() else ROOT / "models.toml"


def cache_folder() -> Path:
    """Of this user, for files that can be made anew."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "moorage"


def start_cache_folder() -> Path | None:
    """Of what starts find out about this machine; None for a user without a home."""
    if IS_CHECKOUT:
        return ROOT / ".build" / "start"
    try:
        return cache_folder() / "start"
    except RuntimeError:
        return None
