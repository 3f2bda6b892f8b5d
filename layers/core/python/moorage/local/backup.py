"""A copy of everything that a local stack keeps, taken while it runs, and the way back.

The journal is copied as it stands at one moment (SQLite's online backup), and names every file of the bucket that belongs to that
moment. Files are written once and never changed, and while a copy is taken none is unlinked, so nothing has to stop. Into a folder only
those files are copied that it does not hold yet.
"""

import fcntl
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from moorage.disk import flush_folder
from moorage.errors import SettingsConflict
from moorage.local.housekeeping import HOLD
from moorage.local.key_file import KEY_FILE, NOTE
from moorage.local.processes import write_private
from moorage.local.state_folder import held
from moorage.local.takeover import BEFORE, STORE
from moorage.store.file_blobs import path_of
from moorage.store.journal import JOURNAL

_MANIFEST: Final = "moorage-backup.json"
_FORMAT: Final = 2
"""1 is of the journals of older versions (``takeover.py``)."""
_SEALED_WITH: Final = (KEY_FILE, NOTE)
_BESIDE: Final = ("secrets.json", *_SEALED_WITH, "key-made")
"""Files of the state folder that belong to what the journal holds."""

_OBJECT_FILE: Final = re.compile(r"[0-9a-f]{32}")
"""How the bucket names its files; a path in its place would let the bucket read, and delete, any file of its user's."""


def back_up(state_dir: Path, target: Path) -> int:
    """Write a backup to ``target``: one file, or new content into a folder. Answers how many objects' files it has."""
    formats = {state_dir / STORE: _FORMAT, state_dir / BEFORE: 1}
    store = next((place for place in formats if (place / JOURNAL).exists()), None)
    if store is None:
        raise SettingsConflict(f"There is nothing to back up in {state_dir}: no stack has stored anything there.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(_nothing_unlinked(store))
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".moorage-backup-", dir=target.parent)))
        _copy_journal(store / JOURNAL, work / JOURNAL)
        names = sorted(_named(work / JOURNAL))
        (work / _MANIFEST).write_text(json.dumps({"format": formats[store], "taken_at": int(time.time()), "objects": len(names)}))
        members = {_MANIFEST: work / _MANIFEST, JOURNAL: work / JOURNAL}
        members |= {name: state_dir / name for name in _BESIDE if (state_dir / name).exists()}
        members |= {f"objects/{name[:2]}/{name}": path_of(store, name) for name in names}
        if target.is_dir():
            _into_folder(members, target)
        else:
            _into_file(members, target, work)
    return len(names)


def restore(source: Path, state_dir: Path) -> int:
    """Put a backup in the place of a stopped stack's state, and keep that beside it. Answers how many files of the bucket it has."""
    if not source.exists():
        raise SettingsConflict(f"There is no backup at {source}.")
    with held(state_dir), tempfile.TemporaryDirectory(prefix=".restore-", dir=state_dir) as folder:
        new = Path(folder) / "backup"
        if source.is_dir():
            shutil.copytree(source, new)
        else:
            _unpack(source, new)
        count, version = _checked(source, new)
        _set_aside(state_dir)
        for name in _BESIDE:
            if (new / name).exists():
                write_private(state_dir / name, (new / name).read_text())
        # The next start takes over what an older version has backed up.
        place = state_dir / (STORE if version == _FORMAT else BEFORE)
        place.mkdir(mode=0o700)
        (new / "objects").mkdir(exist_ok=True)
        (new / "objects").rename(place / "objects")
        (new / JOURNAL).rename(place / JOURNAL)
        os.sync()
    return count


@contextmanager
def _nothing_unlinked(store: Path) -> Iterator[None]:
    with (store / HOLD).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def _copy_journal(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")


def _named(journal: Path) -> set[str]:
    """The files of the bucket that the journal names."""
    with closing(sqlite3.connect(journal)) as connection:
        found = {file for (files,) in connection.execute("SELECT files FROM objects") for file, _ in json.loads(files)}
        has_parts = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'parts'").fetchone()  # Of format 1.
        return found | {file for (file,) in (connection.execute("SELECT file FROM parts") if has_parts else ())}


def _into_file(members: dict[str, Path], target: Path, work: Path) -> None:
    """Whole or not at all."""
    packed = work / "packed"
    with packed.open("xb") as opened:
        os.fchmod(opened.fileno(), 0o600)
        with tarfile.open(fileobj=opened, mode="w") as archive:
            for name, path in members.items():
                archive.add(path, name)
        opened.flush()
        os.fsync(opened.fileno())
    packed.replace(target)
    flush_folder(target.parent)


def _into_folder(members: dict[str, Path], target: Path) -> None:
    """Objects first, the journal that names them last: an interrupted copy leaves the backup before it whole."""
    os.chmod(target, 0o700)
    for name, path in sorted(members.items(), key=lambda member: not member[0].startswith("objects/")):
        copy = target / name
        if name.startswith("objects/") and copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, new := copy.with_name(f"{copy.name}.new"))
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.replace(copy)
    for copy in (target / "objects").rglob("*"):
        if copy.is_file() and copy.relative_to(target).as_posix() not in members:
            copy.unlink()


def _unpack(source: Path, new: Path) -> None:
    try:
        with tarfile.open(source) as archive:
            archive.extractall(new, filter="data")
    except tarfile.TarError as error:
        raise SettingsConflict(f"{source} is no backup of moorage: it is no archive, or not the whole of one.") from error


def _checked(source: Path, new: Path) -> tuple[int, int]:
    """A backup is whole, or nothing is touched. Answers how many files of the bucket it has, and its format."""
    try:
        manifest = json.loads((new / _MANIFEST).read_text())
        names = _named(new / JOURNAL)
        with closing(sqlite3.connect(new / JOURNAL)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check").fetchone()
    except (OSError, ValueError, sqlite3.Error) as error:
        raise SettingsConflict(f"{source} is no backup of moorage: {error}.") from error
    if manifest["format"] not in (1, _FORMAT):
        raise SettingsConflict(f"{source} was written by another version of moorage (format {manifest['format']}, this is {_FORMAT}).")
    if foreign := sorted(name for name in names if not _OBJECT_FILE.fullmatch(name)):
        raise SettingsConflict(f"{source} is no backup of moorage: it names a file {foreign[0]!r}.")
    missing = [name for name in names if not (new / "objects" / name[:2] / name).exists()]
    if verdict != "ok" or missing:
        raise SettingsConflict(f"{source} is damaged: {len(missing)} files are missing, and its journal is {verdict}.")
    return len(names), int(manifest["format"])


def _set_aside(state_dir: Path) -> None:
    """With the keys that open its sealed content."""
    aside = state_dir / f"before-restore-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    for name in (STORE, BEFORE, *_SEALED_WITH):
        if (state_dir / name).exists():
            aside.mkdir(mode=0o700, exist_ok=True)
            (state_dir / name).rename(aside / name)
