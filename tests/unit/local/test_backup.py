"""A backup is what a stack held at one moment, whole; a restore puts it back, or touches nothing."""

import json
import sqlite3
import tarfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from moorage.errors import SettingsConflict
from moorage.local.backup import back_up, restore
from moorage.local.housekeeping import Housekeeping
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal


class Held:
    """The bucket of a state folder, open."""

    def __init__(self, state_dir: Path) -> None:
        self.journal = Journal(state_dir / "store")
        self._disk = ThreadPoolExecutor(1)
        self.blobs = FileBlobs(self.journal, self._disk)

    async def objects(self) -> dict[str, bytes]:
        return {key: await self.blobs.get_bytes(key) async for key, _ in self.blobs.list_prefix("")}

    def close(self) -> None:
        self.journal.close()
        self._disk.shutdown()


@pytest.fixture
async def state_dir(tmp_path: Path) -> AsyncIterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "secrets.json").write_text('{"api_key": "k"}')
    held = Held(folder)
    await held.blobs.put_bytes("a", b"first")
    yield folder
    held.close()


async def write(state_dir: Path, key: str, body: bytes) -> None:
    held = Held(state_dir)
    await held.blobs.put_bytes(key, body)
    await Housekeeping(held.journal).unlink()
    held.close()


async def held_by(state_dir: Path) -> dict[str, bytes]:
    held = Held(state_dir)
    found = await held.objects()
    held.close()
    return found


@pytest.mark.parametrize("is_folder", [False, True], ids=["a file", "a folder"])
async def test_what_was_held_then_is_held_again(state_dir: Path, tmp_path: Path, is_folder: bool) -> None:
    target = tmp_path / "backup"
    if is_folder:
        target.mkdir()
    assert back_up(state_dir, target) == 1  # while it is open
    await write(state_dir, "a", b"second")
    await write(state_dir, "b", b"later")
    assert restore(target, state_dir) == 1
    assert await held_by(state_dir) == {"a": b"first"}
    (aside,) = state_dir.glob("before-restore-*")
    assert (aside / "store" / "journal.sqlite").exists()


async def test_a_restore_into_an_empty_place_brings_the_keys_along(state_dir: Path, tmp_path: Path) -> None:
    back_up(state_dir, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "secrets.json").read_text() == '{"api_key": "k"}'
    assert ((tmp_path / "elsewhere" / "secrets.json").stat().st_mode & 0o777, (tmp_path / "backup").stat().st_mode & 0o777) == (
        0o600,
        0o600,
    )


async def test_a_folder_takes_only_what_is_new_and_drops_what_has_gone(state_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    target.mkdir()
    await write(state_dir, "kept", b"kept")
    back_up(state_dir, target)
    before = {path.name: path.stat().st_mtime_ns for path in (target / "objects").rglob("*") if path.is_file()}
    await write(state_dir, "a", b"second")
    back_up(state_dir, target)
    after = {path.name: path.stat().st_mtime_ns for path in (target / "objects").rglob("*") if path.is_file()}
    assert (len(before), len(after), len(before.items() & after.items())) == (2, 2, 1)
    restore(target, tmp_path / "new")
    assert await held_by(tmp_path / "new") == {"a": b"second", "kept": b"kept"}


@pytest.mark.parametrize("damage", ["no archive", "no manifest", "a file is missing", "a torn journal"])
async def test_a_damaged_backup_is_refused_and_nothing_is_touched(state_dir: Path, tmp_path: Path, damage: str) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    back_up(state_dir, target)
    match damage:
        case "no archive":
            target = tmp_path / "text"
            target.write_text("no archive")
        case "no manifest":
            (target / "moorage-backup.json").unlink()
        case "a file is missing":
            next(path for path in (target / "objects").rglob("*") if path.is_file()).unlink()
        case _:
            (target / "journal.sqlite").write_bytes(b"SQLite format 3\0" + b"\0" * 5000)
    with pytest.raises(SettingsConflict, match=r"damaged|no backup"):
        restore(target, state_dir)
    assert await held_by(state_dir) == {"a": b"first"}
    assert not list(state_dir.glob(".restore-*"))


@pytest.mark.parametrize("name", ["/etc/hostname", "../../etc/hostname", "00" * 15 + "zz"])
async def test_a_backup_names_no_file_outside_of_it(state_dir: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    back_up(state_dir, target)
    with closing(sqlite3.connect(target / "journal.sqlite")) as journal:
        journal.execute("UPDATE objects SET files = ?", (json.dumps([[name, 1]]),))
        journal.commit()
    with pytest.raises(SettingsConflict, match="names a file"):
        restore(target, state_dir)
    assert await held_by(state_dir) == {"a": b"first"}


async def test_a_file_that_is_no_archive_is_said_to_be_none(state_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not what you look for")
    with pytest.raises(SettingsConflict) as caught:
        restore(other, state_dir)
    assert str(caught.value) == f"{other} is no backup of moorage: it is no archive, or not the whole of one."


async def test_there_is_nothing_to_back_up_where_nothing_was_stored(tmp_path: Path) -> None:
    with pytest.raises(SettingsConflict, match="nothing to back up"):
        back_up(tmp_path, tmp_path / "backup")


async def test_an_archive_names_one_moment(state_dir: Path, tmp_path: Path) -> None:
    back_up(state_dir, tmp_path / "backup")
    with tarfile.open(tmp_path / "backup") as archive:
        archive.extractall(tmp_path / "open", filter="data")
    with closing(sqlite3.connect(tmp_path / "open" / "journal.sqlite")) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
