"""The key file of a stack: made once, changed on demand, taken over from an older version, and missed when it is gone."""

import base64
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ministack.core import persistence
from ministack.services import kms
from moorage.egress.keys import KeyFile, KeyLost
from moorage.errors import SettingsConflict
from moorage.local.backup import back_up, restore
from moorage.local.key_file import kept_keys, rotate_keys

CONTEXT = {"tenant": "t", "container": "cntr_1"}


def said_by(answer: Any) -> Any:
    return json.loads(answer[2])


def sealed_by_an_older_version() -> tuple[str, str, bytes, bytes]:
    """The key service's document, the key's id, a data key and how it was wrapped: by ministack, as the version before this one did."""
    key_id = said_by(kms._create_key({"Description": "moorage egress"}))["KeyMetadata"]["KeyId"]
    made = said_by(kms._generate_data_key({"KeyId": key_id, "KeySpec": "AES_256", "EncryptionContext": CONTEXT}))
    document = json.dumps(kms.get_state(), default=persistence._json_default)
    return document, key_id, base64.b64decode(made["Plaintext"]), base64.b64decode(made["CiphertextBlob"])


def journal_of_an_older_version(state_dir: Path, document: str) -> None:
    (state_dir / "aws").mkdir(parents=True)
    with closing(sqlite3.connect(state_dir / "aws" / "journal.sqlite")) as journal:
        journal.execute("CREATE TABLE documents (name TEXT PRIMARY KEY, body TEXT NOT NULL)")
        journal.execute("CREATE TABLE objects (files TEXT)")
        journal.execute("CREATE TABLE parts (file TEXT)")
        journal.execute("INSERT INTO documents VALUES ('kms', ?)", (document,))
        journal.commit()


async def test_a_key_is_made_once_for_this_user_alone(tmp_path: Path) -> None:
    assert kept_keys(tmp_path) == f"file:{tmp_path}/keys.json"
    keys = KeyFile(tmp_path / "keys.json")
    made = await keys.generate(CONTEXT)
    kept_keys(tmp_path)
    assert await keys.unwrap(made.wrapped, CONTEXT) == made.plaintext
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


async def test_a_new_key_seals_and_the_old_one_still_opens(tmp_path: Path) -> None:
    kept_keys(tmp_path)
    keys = KeyFile(tmp_path / "keys.json")
    before = await keys.generate(CONTEXT)
    assert rotate_keys(tmp_path) == keys.key_id
    after = await keys.generate(CONTEXT)
    assert before.wrapped[:36] != after.wrapped[:36]
    assert [await keys.unwrap(each.wrapped, CONTEXT) for each in (before, after)] == [before.plaintext, after.plaintext]
    kept_keys(tmp_path)


@pytest.mark.parametrize("place", ["the journal", "a file of the emulator's own"])
async def test_what_the_emulated_kms_sealed_is_taken_over_once(tmp_path: Path, place: str) -> None:
    document, key_id, key, wrapped = sealed_by_an_older_version()
    if place == "the journal":
        journal_of_an_older_version(tmp_path, document)
    else:
        (tmp_path / "aws" / "state").mkdir(parents=True)
        (tmp_path / "aws" / "state" / "kms.json").write_text(f'{{"__ministack_format__": 3, "payload": {document}}}')
    (tmp_path / "egress-key").write_text(key_id)
    kept_keys(tmp_path)
    keys = KeyFile(tmp_path / "keys.json")
    assert (await keys.unwrap(wrapped, CONTEXT), keys.has(key_id), keys.key_id != key_id) == (key, True, True)
    for changed, context in ((wrapped, {"tenant": "t"}), (wrapped[:-1], CONTEXT), (wrapped[:40], CONTEXT)):
        with pytest.raises(KeyLost):
            await keys.unwrap(changed, context)
    text = (tmp_path / "keys.json").read_text()
    kept_keys(tmp_path)
    assert (tmp_path / "keys.json").read_text() == text


@pytest.mark.parametrize("lost", ["gone", "another stack's"])
async def test_a_start_without_the_key_says_so(tmp_path: Path, lost: str) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    kept_keys(state_dir)
    (state_dir / "keys.json").unlink()
    if lost != "gone":
        kept_keys(tmp_path)
        (tmp_path / "keys.json").rename(state_dir / "keys.json")
    with pytest.raises(SettingsConflict) as caught:
        kept_keys(state_dir)
    assert str(caught.value) == (
        f"The key of this stack's secrets is missing: {state_dir}/keys.json is gone, or another stack's. Put it back from a backup. "
        f"To begin with a new one, remove {state_dir}/egress-key and what is left of keys.json: what was sealed with the old one then "
        "stays closed."
    )
    (state_dir / "egress-key").unlink()
    kept_keys(state_dir)


async def test_a_backup_brings_its_keys_along_and_sets_the_others_aside(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    journal_of_an_older_version(state_dir, '{"keys": {}}')
    kept_keys(state_dir)
    keys = KeyFile(state_dir / "keys.json")
    before = await keys.generate(CONTEXT)
    back_up(state_dir, tmp_path / "backup")
    rotate_keys(state_dir)
    after = await keys.generate(CONTEXT)
    restore(tmp_path / "backup", state_dir)
    kept_keys(state_dir)
    assert await keys.unwrap(before.wrapped, CONTEXT) == before.plaintext
    with pytest.raises(KeyLost):
        await keys.unwrap(after.wrapped, CONTEXT)
    (aside,) = state_dir.glob("before-restore-*")
    assert await KeyFile(aside / "keys.json").unwrap(after.wrapped, CONTEXT) == after.plaintext
    assert stat.S_IMODE((state_dir / "keys.json").stat().st_mode) == 0o600


async def test_a_backup_of_an_older_version_is_taken_over_too(tmp_path: Path) -> None:
    document, key_id, key, wrapped = sealed_by_an_older_version()
    older, state_dir = tmp_path / "older", tmp_path / "state"
    journal_of_an_older_version(older, document)
    (older / "egress-key").write_text(key_id)
    back_up(older, tmp_path / "backup")
    state_dir.mkdir()
    kept_keys(state_dir)
    restore(tmp_path / "backup", state_dir)
    kept_keys(state_dir)
    assert await KeyFile(state_dir / "keys.json").unwrap(wrapped, CONTEXT) == key
