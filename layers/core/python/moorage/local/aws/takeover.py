"""State folders that an older version left: ministack's own files, taken over once, with a copy kept.

Earlier stacks let ministack write its tables as JSON when it ended, and its objects as files under their names. All of it goes
into the journal by one commit; the old folders then stay beside it under another name, for a step back.
"""

import hashlib
import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson
from ministack.core import persistence

from moorage.disk import flush_folder
from moorage.local.aws.journal import Journal
from moorage.local.aws.table import Shape, shape_of

KEPT: Final = "before-journal"
_META: Final = ".meta.json"


async def take_over(state_dir: Path, journal: Journal) -> bool:
    """Whether there was anything. A takeover that was interrupted is begun anew."""
    old = [state_dir / "state", state_dir / "s3"]
    if not any(folder.exists() for folder in old):
        return False
    if journal.reader.execute("SELECT 1 FROM tables UNION SELECT 1 FROM buckets LIMIT 1").fetchone() is None:
        await journal.write(lambda connection: _read(connection, state_dir))
    kept = state_dir / KEPT
    kept.mkdir(mode=0o700, exist_ok=True)
    for folder in old:
        with suppress(FileNotFoundError):
            folder.rename(kept / folder.name)
    flush_folder(state_dir)
    return True


def _read(connection: sqlite3.Connection, state_dir: Path) -> None:
    for name, table, ttl in _tables(state_dir / "state" / "dynamodb.json"):
        description = {key: table[key] for key in ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes") if table.get(key)} | {
            "TableName": name
        }
        shape = shape_of(description, ttl)
        connection.execute("INSERT INTO tables VALUES (?, ?, ?)", (name, orjson.dumps(description).decode(), ttl))
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", _rows(shape, table))
    _read_objects(connection, state_dir)


def _tables(path: Path) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    if not path.exists():
        return
    state = json.loads(path.read_text(), object_hook=persistence._json_object_hook)["payload"]
    expiries = {name: setting for (_, _, name), setting in state["ttl_settings"]._data.items()}
    for (_, _, name), table in state["tables"]._data.items():
        yield name, table, expiries.get(name, {}).get("AttributeName")


def _rows(shape: Shape, table: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for partition in table["items"].values():
        for item in partition.values():
            yield (shape.name, *shape.key_of(item), *shape.indexed(item), shape.expires(item), orjson.dumps(item).decode())


def _read_objects(connection: sqlite3.Connection, state_dir: Path) -> None:
    """Their bytes are copied, so that the kept ones stay what they were."""
    incoming = state_dir / "incoming"
    incoming.mkdir(mode=0o700, exist_ok=True)
    for account in sorted((state_dir / "s3").glob("[0-9]" * 12)):
        for bucket in sorted(path for path in account.iterdir() if path.is_dir()):
            connection.execute("INSERT OR IGNORE INTO buckets VALUES (?)", (bucket.name,))
            for meta in sorted(bucket.rglob(f"*{_META}")):
                _read_object(connection, bucket.name, meta, incoming)
    flush_folder(incoming)


def _read_object(connection: sqlite3.Connection, bucket: str, meta: Path, incoming: Path) -> None:
    path = meta.with_name(meta.name.removesuffix(_META))
    said = json.loads(meta.read_text())
    if not path.is_file() or said.get("is_delete_marker"):
        return
    file = secrets.token_hex(16)
    shutil.copyfile(path, incoming / file)
    with (incoming / file).open("rb") as copied:
        os.fsync(copied.fileno())
        etag = hashlib.file_digest(copied, "md5").hexdigest()
    size = path.stat().st_size
    files = orjson.dumps([[file, size]]).decode()
    row = (bucket, said["key"], size, etag, path.stat().st_mtime, said.get("content_type"), files)
    connection.execute("REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?)", row)
