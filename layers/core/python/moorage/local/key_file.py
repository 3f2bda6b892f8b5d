"""The key file of a stack on one machine: what seals the secrets of containers, the operator's, and the proxy's CA.

Beside it lies a note of the key that seals: a file that is lost, or another stack's, is found out before anything is sealed anew. Older
versions kept their keys in an emulated KMS; these are taken over with the first start.
"""

import base64
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from moorage.egress.keys import FILE_PREFIX, KeyFile, Keys
from moorage.errors import SettingsConflict
from moorage.local.processes import write_private

KEY_FILE: Final = "keys.json"
NOTE: Final = "egress-key"
_JOURNAL: Final = "aws/journal.sqlite"
"""Of older versions; it is taken over after the keys are (``takeover.py``)."""
_BEFORE_THE_JOURNAL: Final = "aws/state/kms.json"


def kept_keys(state_dir: Path) -> str:
    """What ``MOORAGE_EGRESS_KEY`` is there; made if there is none yet. Raises :class:`SettingsConflict` for a key that is missing,
    another stack's, or open to others."""
    path, note = state_dir / KEY_FILE, state_dir / NOTE
    noted = note.read_text() if note.exists() else ""
    if not path.exists():
        emulated = _emulated(state_dir)
        if noted and noted not in emulated:
            raise SettingsConflict(_missing(path, note))
        write_private(path, Keys.new(emulated).text())
    keys = KeyFile(path)
    if noted and not keys.has(noted):
        raise SettingsConflict(_missing(path, note))
    if noted != keys.key_id:
        write_private(note, keys.key_id)
    return f"{FILE_PREFIX}{path}"


def rotate_keys(state_dir: Path) -> str:
    """A new key wraps from now on, and secrets of older ones are still unwrapped. Answers its id."""
    kept_keys(state_dir)
    held, new = KeyFile(state_dir / KEY_FILE).read(), Keys.new({})
    write_private(state_dir / KEY_FILE, replace(held, current=new.current, keys={**held.keys, **new.keys}).text())
    write_private(state_dir / NOTE, new.current)
    return new.current


def _missing(path: Path, note: Path) -> str:
    return (
        f"The key of this stack's secrets is missing: {path} is gone, or another stack's. Put it back from a backup. To begin with a "
        f"new one, remove {note} and what is left of {path.name}: what was sealed with the old one then stays closed."
    )


def _emulated(state_dir: Path) -> dict[str, bytes]:
    """The keys that an older version left there, by their ids."""
    entries = _document(state_dir).get("keys", {}).get("data", {}).values()
    return {each["KeyId"]: base64.b64decode(each["_symmetric_key_b64"]) for each in entries if "_symmetric_key_b64" in each}


def _document(state_dir: Path) -> Any:
    journal, older = state_dir / _JOURNAL, state_dir / _BEFORE_THE_JOURNAL
    if journal.exists():
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
            is_older = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'documents'").fetchone()
            found = connection.execute("SELECT body FROM documents WHERE name = 'kms'").fetchone() if is_older else None
        if found is not None:
            return json.loads(found[0])
    return json.loads(older.read_text())["payload"] if older.exists() else {}
