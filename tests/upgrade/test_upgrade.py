"""A state folder that an older version left, with a response in the middle of a command, goes on under this one.

Each archive here is what a stack of that version had on disk after Ctrl-C; ``expected.json`` in it says what was made. ``0.1.0-memory``
is of the version whose emulator kept its state in memory and wrote it when it ended, ``0.1.0-journal`` of the last one that had an
emulator.
"""

import base64
import json
import re
import sqlite3
import tarfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from moorage.egress.keys import KeyFile
from openai import NotFoundError

from tests.stack import SHELL, Stack, outputs, say, script, shell

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.gz"))
TOOLS: Any = [SHELL]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_what_an_older_version_left_goes_on(archive: Path, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    with tarfile.open(archive) as packed:
        packed.extractall(state_dir, filter="data")
    made = json.loads((state_dir / "expected.json").read_text())
    as_if_it_had_just_been_left(state_dir, int(made["response"]["created_at"]))
    stack = Stack(state_dir).start()
    try:
        assert stack.key == made["key"]
        client = stack.client()
        old = client.responses.retrieve(made["response"]["id"])
        assert old.model_dump(mode="json") == made["response"]
        assert client.responses.retrieve(made["large"]).status == "completed"
        with pytest.raises(NotFoundError):
            client.responses.retrieve(made["deleted"])
        assert client.files.content(made["file"]).read() == b"bytes" * 1000
        assert client.conversations.retrieve(made["conversation"]).id == made["conversation"]
        after = client.responses.create(
            model="demo", input=script(shell("cat note.txt"), say("b")), tools=TOOLS, previous_response_id=old.id
        )
        assert outputs(after.output)[0][0][0] == "kept\n"
        goes_on(stack, made["running"])
        assert KeyFile(state_dir / "keys.json").has(base64.b64decode(made["kms"]["sealed"])[:36].decode())
    finally:
        assert stack.stop() == 0
    assert_kept_once(state_dir)
    stack.start()
    try:
        assert stack.client().responses.retrieve(old.id) == old
    finally:
        assert stack.stop() == 0


def as_if_it_had_just_been_left(state_dir: Path, made_at: int) -> None:
    """A response may run for a day and is kept for a month; an archive is older."""
    path, since = state_dir / "aws" / "state" / "dynamodb.json", int(time.time()) - made_at - 60

    def later(found: re.Match[str]) -> str:
        moment = found[2]
        return found[1] + str(int(moment) + since * (1000 if len(moment) == len("1795355932544") else 1))

    def all_later(text: str) -> str:
        return re.sub(r'("N": ?")(\d{10}|\d{13})(?=")', later, text)

    if path.exists():
        path.write_text(all_later(path.read_text()))
        return
    with closing(sqlite3.connect(state_dir / "aws" / "journal.sqlite")) as journal:
        journal.create_function("later", 1, all_later)
        journal.execute("UPDATE rows SET item = later(item), ttl = ttl + ?", (since,))
        journal.commit()


def goes_on(stack: Stack, response_id: str) -> None:
    """It ends as it would have, but for the command that was running when its sandbox ended with the old stack."""
    client, deadline = stack.client(), time.monotonic() + 120
    while (response := client.responses.retrieve(response_id)).status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    first, second = outputs(response.output)
    assert (response.status, response.output_text) == ("completed", "The end.")
    assert "was not run again" in first[0][1]
    assert second[0][0] == "alive\n"


def assert_kept_once(state_dir: Path) -> None:
    """What the older version had stays beside the journal, out of the way."""
    store = state_dir / "store"
    assert not (state_dir / "aws").exists()
    if (older := store / "before-store.sqlite").exists():
        with closing(sqlite3.connect(older)) as journal:
            assert journal.execute("PRAGMA user_version").fetchone() == (1,)
            assert journal.execute("SELECT COUNT(*) > 10 FROM rows").fetchone() == (1,)
        return
    assert json.loads((store / "before-journal" / "state" / "dynamodb.json").read_text())["payload"]["tables"]
    assert list((store / "before-journal" / "s3").rglob("*.meta.json"))
