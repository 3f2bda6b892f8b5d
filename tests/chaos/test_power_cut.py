"""Everything at once is killed without warning: what was acknowledged is there, what was deleted is not back."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from moorage.local.processes import identity
from moorage.store.api_keys import ApiKeys
from moorage.store.sqlite_table import SqliteTable

from tests.chaos.batches import assert_settled_once_and_found_once, met_in_the_middle
from tests.processes import descendants, is_launcher, is_worker, power_cut, until
from tests.stack import SHELL, Stack, clean_environment, outputs, say, script, shell

TOOLS: Any = [SHELL]


_NOBODY = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        print(len(open(path, "rb").read()))
    except OSError as error:
        print(type(error).__name__)
"""


def status(stack: Stack, path: str, key: str | None = None) -> int:
    with stack.http(key) as http:
        return http.get(path).status_code


def everything(stack: Stack) -> dict[str, str]:
    """One of each kind, as paths."""
    client = stack.client()
    ran = client.responses.create(model="demo", input=script(shell("echo kept > note.txt"), say("a")), tools=TOOLS)
    plain = client.responses.create(model="demo", input="hello")
    large = client.responses.create(model="demo", input="x" * 600_000)
    uploaded = client.files.create(file=("in.txt", b"bytes" * 100_000), purpose="user_data")
    conversation = client.conversations.create()
    container = next(item.environment.container_id for item in ran.output if item.type == "shell_call")  # type: ignore[union-attr]
    return {
        "response": f"/responses/{ran.id}",
        "plain response": f"/responses/{plain.id}",
        "large response": f"/responses/{large.id}",
        "file": f"/files/{uploaded.id}",
        "content": f"/files/{uploaded.id}/content",
        "conversation": f"/conversations/{conversation.id}",
        "container": f"/containers/{container}",
        "container's files": f"/containers/{container}/files",
    }


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_and_nothing_deleted_comes_back(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state").start()
    try:
        kept = everything(stack)
        client, first_key = stack.client(), stack.key
        deleted = client.responses.create(model="demo", input="to be deleted")
        dropped = client.files.create(file=("gone.txt", b"gone"), purpose="user_data")
        client.responses.delete(deleted.id)
        client.files.delete(dropped.id)
        store = client.vector_stores.create(name="harbour")
        met_in_the_middle(client, store, lambda: power_cut(stack.process))
        began = time.monotonic()
        stack.start()
        took = time.monotonic() - began
        assert {name: status(stack, path) for name, path in kept.items()} == dict.fromkeys(kept, 200)
        assert [status(stack, path) for path in (f"/responses/{deleted.id}", f"/files/{dropped.id}")] == [404, 404]
        listed = stack.client().files.list(purpose="user_data")
        assert [file.id for file in listed] == [kept["file"].removeprefix("/files/")]
        assert stack.key == first_key
        print(f"up again after {took:.1f} s")
        assert_settled_once_and_found_once(stack.client(), store.id)
    finally:
        assert stack.stop() == 0


@pytest.mark.timeout(300)
def test_a_revoked_key_stays_revoked(tmp_path: Path) -> None:
    """Also the one that the first start made: a later start does not make it again."""
    stack = Stack(tmp_path / "state").start()
    try:
        with stack.journal() as journal:
            keys = ApiKeys(SqliteTable(journal), clock=time.time)
            (own,) = asyncio.run(keys.page())
            _, other = asyncio.run(keys.create("default", name="other"))
            assert asyncio.run(keys.revoke(own.key_id))
        power_cut(stack.process)
        stack.start()
        assert (status(stack, "/models", stack.key), status(stack, "/models", other)) == (401, 200)
    finally:
        assert stack.stop() == 0


def frozen(stack: Stack) -> list[int]:
    """Stop the workers and the launcher (SIGSTOP), once they are alone: a process that the launcher has just forked looks like it."""
    assert stack.process is not None
    main, pids = stack.process.pid, list[int]()

    def are_alone() -> bool:
        pids[:] = [pid for pid, line in descendants(main).items() if is_worker(line) or is_launcher(line)]
        return len(pids) == 3

    until(are_alone)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


@pytest.mark.timeout(300)
def test_nobody_waits_for_children_that_hang(tmp_path: Path) -> None:
    """The API is killed while they are stopped, so that they cannot end: no 'running already' of a dead stack, and no sandboxes of one.
    Where they are stopped in a running stack, others take their places; and a stop stops them."""
    stack = Stack(tmp_path / "state").start()
    assert stack.process is not None
    left = frozen(stack)
    stack.process.kill()
    stack.process.wait()
    stack.start()
    try:
        assert not [pid for pid in left if identity(pid)]
        client = stack.client()
        text = script(shell("echo ran"), say("The end."))
        assert outputs(client.responses.create(model="demo", input=text, tools=TOOLS).output) == [[("ran\n", "", 0)]]
        replaced = frozen(stack)
        until(lambda: not [pid for pid in replaced if identity(pid)])
        assert outputs(client.responses.create(model="demo", input=text, tools=TOOLS).output) == [[("ran\n", "", 0)]]
        replaced = frozen(stack)
        until(lambda: not [pid for pid in replaced if identity(pid)])
        left = frozen(stack)  # while they are started
    finally:
        assert stack.stop() == 0
    assert not [pid for pid in left if identity(pid)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_no_other_user_reads_the_state(stack: Stack) -> None:
    stack.client().files.create(file=("in.txt", b"bytes"), purpose="user_data")
    files = [path for path in stack.state_dir.rglob("*") if path.is_file() and "sandboxes" not in path.parts]
    tried = subprocess.run(
        [sys.executable, "-c", _NOBODY, *map(str, files)], env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert len(files) > 10
    assert tried.stdout.split() == ["PermissionError"] * len(files)
