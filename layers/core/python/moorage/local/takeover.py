"""State folders that older versions left, taken over once, with a copy kept.

Until the store of one machine, a stack kept DynamoDB's items and S3's names in a journal of format 1, in the folder ``aws``. Before
that an emulator wrote its tables as JSON when it ended, and its objects as files under their names. Either becomes the folder ``store``
by one commit and one rename. The old journal, or the old files, stay in it for a step back.
"""

import base64
import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import orjson

from moorage.disk import flush_folder
from moorage.errors import SettingsConflict
from moorage.store.dynamodb import decode
from moorage.store.journal import FORMAT, JOURNAL, SCHEMA, connect
from moorage.store.sqlite_table import PUT, row_of

STORE: Final = "store"
BEFORE: Final = "aws"
KEPT_JOURNAL: Final = "before-store.sqlite"
KEPT_FILES: Final = "before-journal"
_NAME: Final = "moorage"
"""Of the table and of the bucket."""
_META: Final = ".meta.json"
_AT_ONCE: Final = 1000
_LEFT: Final = ("environment", "process")
"""Files of the emulator that mean nothing any more."""


def take_over(state_dir: Path) -> bool:
    """Whether there was anything. For a start, while it alone has the folder; one that was interrupted is begun anew.

    Raises :class:`SettingsConflict` if an older version has run after this one.
    """
    before, store = state_dir / BEFORE, state_dir / STORE
    if not before.exists():
        return False
    if (store / JOURNAL).exists():
        raise SettingsConflict(
            f"An older version of moorage has stored something in {before} after this one had taken its state over into {store}. "
            "Move one of the two folders away."
        )
    if (before / JOURNAL).exists() and _version(before / JOURNAL) == 1:
        _keep_journal(before)
        with closing(connect(before / JOURNAL)) as connection:
            _migrate(connection)
    elif (before / "state").exists() or (before / "s3").exists():
        _read_files(before)
    _set_files_aside(before)
    for name in _LEFT:
        (before / name).unlink(missing_ok=True)
    shutil.rmtree(before / "tmp", ignore_errors=True)
    shutil.rmtree(store, ignore_errors=True)  # What a start made that ended before its journal was.
    before.rename(store)
    flush_folder(state_dir)
    return True


def _version(journal: Path) -> int:
    with closing(sqlite3.connect(journal)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return int(version)


# --- format 1 ---


def _keep_journal(folder: Path) -> None:
    kept = folder / KEPT_JOURNAL
    new = kept.with_suffix(".new")
    new.unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / JOURNAL)) as live, closing(sqlite3.connect(new)) as copy:
        live.backup(copy)
    new.chmod(0o600)
    new.replace(kept)


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ALTER TABLE objects RENAME TO old_objects")
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    rows = connection.execute("SELECT item FROM rows WHERE place = ?", (_NAME,))
    while some := rows.fetchmany(_AT_ONCE):
        connection.executemany(PUT, [row_of(decode(_with_bytes(orjson.loads(item)))) for (item,) in some])
    connection.execute("INSERT INTO objects SELECT key, size, modified, files FROM old_objects WHERE bucket = ?", (_NAME,))
    connection.execute("INSERT OR IGNORE INTO garbage SELECT file FROM parts")
    for table in ("tables", "rows", "tokens", "buckets", "old_objects", "uploads", "parts", "documents"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _with_bytes(item: dict[str, Any]) -> dict[str, Any]:
    """DynamoDB's JSON has bytes in base64: boto3 decodes them."""
    return {name: _typed(value) for name, value in item.items()}


def _typed(value: dict[str, Any]) -> dict[str, Any]:
    match value:
        case {"B": str(text)}:
            return {"B": base64.b64decode(text)}
        case {"L": list(elements)}:
            return {"L": [_typed(each) for each in elements]}
        case {"M": dict(inner)}:
            return {"M": _with_bytes(inner)}
        case _:
            return value


# --- the files of an emulator, before it ---


def _read_files(folder: Path) -> None:
    with closing(connect(folder / JOURNAL)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.executemany(PUT, (row_of(decode(_with_bytes(item))) for item in _items(folder / "state" / "dynamodb.json")))
        _read_objects(connection, folder)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")


def _items(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for table in _scoped(json.loads(path.read_text())["payload"]["tables"]).values():
        for partition in table["items"].values():
            yield from partition.values()


def _scoped(value: dict[str, Any]) -> dict[str, Any]:
    """A dictionary of the emulator's by account and region."""
    return dict(value.get("data", value))


def _read_objects(connection: sqlite3.Connection, folder: Path) -> None:
    """Their bytes are copied, so that the kept ones stay the same."""
    incoming = folder / "incoming"
    incoming.mkdir(mode=0o700, exist_ok=True)
    for account in sorted((folder / "s3").glob("[0-9]" * 12)):
        for meta in sorted((account / _NAME).rglob(f"*{_META}")):
            _read_object(connection, meta, incoming)
    flush_folder(incoming)


def _read_object(connection: sqlite3.Connection, meta: Path, incoming: Path) -> None:
    path = meta.with_name(meta.name.removesuffix(_META))
    said = json.loads(meta.read_text())
    if not path.is_file() or said.get("is_delete_marker"):
        return
    file = secrets.token_hex(16)
    shutil.copyfile(path, incoming / file)
    with (incoming / file).open("rb") as copied:
        os.fsync(copied.fileno())
    size = path.stat().st_size
    row = (said["key"], size, path.stat().st_mtime, orjson.dumps([[file, size]]).decode())
    connection.execute("REPLACE INTO objects VALUES (?, ?, ?, ?)", row)


def _set_files_aside(folder: Path) -> None:
    kept = folder / KEPT_FILES
    for name in ("state", "s3"):
        if (folder / name).exists():
            kept.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):
                (folder / name).rename(kept / name)
    flush_folder(folder)
