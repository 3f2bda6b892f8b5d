"""The processes of ``moorage up`` are killed, and the disk is full: what a user sees of it."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, OpenAI

from tests.processes import descendants, is_launcher, is_worker, kill_all, until
from tests.stack import SHELL, Stack, outputs, say, script, shell

TOOLS: Any = [SHELL]


@pytest.mark.timeout(300)
def test_a_dead_launcher_comes_back_and_commands_wait_for_it(tmp_path: Path) -> None:
    """One that had begun is lost, never said not to have run; those after it run."""
    stack = Stack(tmp_path / "state").start()
    try:
        assert stack.process is not None
        client = stack.client()
        text = script(shell("echo begun; sleep 45.5; echo ended"), shell("echo alive"), say("The end."))
        running = client.responses.create(model="demo", input=text, tools=TOOLS, background=True)
        deadline = time.monotonic() + 60
        while not any(line.startswith("sleep 45.5") for line in descendants(stack.process.pid).values()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        assert kill_all(stack.process.pid, is_launcher)
        kill_all(stack.process.pid, is_worker)
        while (ended := client.responses.retrieve(running.id)).status in ("queued", "in_progress"):
            assert time.monotonic() < deadline + 120
            time.sleep(0.2)
        first, second = outputs(ended.output)
        assert (ended.status, first[0][0], first[0][2]) == ("completed", "begun\n", 137)
        assert "was not run again" in first[0][1]
        assert "could not be run" not in str(outputs(ended.output))
        assert second[0][0].endswith("alive\n")
    finally:
        assert stack.stop() == 0


@pytest.mark.timeout(300)
def test_a_stack_whose_child_cannot_live_ends_with_a_sentence(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state").start()
    assert stack.process is not None
    deadline = time.monotonic() + 120
    while stack.process.poll() is None:
        assert time.monotonic() < deadline
        kill_all(stack.process.pid, is_launcher)
        time.sleep(0.05)
    assert stack.process.returncode == 1
    said = (stack.state_dir / "up.log").read_text()
    assert "moorage: The owner of the sandboxes was started 6 times and died at once each time" in said
    assert "Traceback" not in said


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"\0" * 65536)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="a small disk takes mount")
@pytest.mark.timeout(300)
def test_a_full_disk_is_said_reads_go_on_and_it_heals(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=True)
    stack = Stack(disk / "state")
    try:
        stack.start()
        client = stack.client()
        kept = client.responses.create(model="demo", input="before")
        fill(disk)
        with pytest.raises(APIStatusError) as caught:
            client.files.create(file=("large.bin", os.urandom(2_000_000)), purpose="user_data")
        assert (caught.value.status_code, caught.value.code) == (507, "insufficient_storage")
        assert client.responses.retrieve(kept.id) == kept
        with pytest.raises(APIStatusError, match="The disk of this deployment is full"):
            client.responses.create(model="demo", input="meanwhile")
        (disk / "ballast").unlink()
        uploaded = client.files.create(file=("large.bin", b"x" * 2_000_000), purpose="user_data")
        assert client.files.content(uploaded.id).read() == b"x" * 2_000_000
        assert client.responses.create(model="demo", input="after").status == "completed"
        assert stack.stop() == 0
        stack.start()
        assert stack.client().responses.retrieve(kept.id) == kept
    finally:
        if stack.process is not None and stack.process.poll() is None:
            stack.stop()
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="a small disk takes mount")
@pytest.mark.timeout(300)
def test_on_a_full_disk_a_run_ends_and_what_is_stored_can_be_deleted(tmp_path: Path) -> None:
    """The store has a disk of its own: sandboxes leave theirs a gibibyte."""
    disk = tmp_path / "state" / "store"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", str(disk)], check=True)
    stack = Stack(tmp_path / "state")
    try:
        stack.start()
        client = stack.client()
        files = [client.files.create(file=(f"{n}.bin", os.urandom(5_000_000)), purpose="user_data") for n in range(4)]
        steps = script(shell("sleep 6; head -c 1000 /dev/urandom > /mnt/data/left"), say("done"))
        running = client.responses.create(model="demo", input=steps, tools=TOOLS, background=True)
        until(lambda: client.responses.retrieve(running.id).output, 60)
        fill(disk)
        until(lambda: client.responses.retrieve(running.id).status not in ("queued", "in_progress"), 60)
        ended = client.responses.retrieve(running.id)
        assert ended.status == "completed"
        (((_, told, _),),) = outputs(ended.output)
        assert "what changed under /mnt/data could not be stored" in told
        for file in files:
            assert client.files.delete(file.id).deleted
        until(lambda: _takes(client), 30)
        assert stack.stop() == 0
    finally:
        if stack.process is not None and stack.process.poll() is None:
            stack.stop()
        subprocess.run(["umount", str(disk)], check=True)


def _takes(client: OpenAI) -> bool:
    try:
        return client.responses.create(model="demo", input="after").status == "completed"
    except APIStatusError:
        return False


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="a small disk takes mount")
@pytest.mark.timeout(300)
def test_a_stop_on_a_full_disk_says_what_is_not_stored(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=True)
    stack = Stack(disk / "state")
    try:
        stack.start()
        fill(disk)
        with pytest.raises(APIStatusError):
            stack.client().files.create(file=("large.bin", os.urandom(2_000_000)), purpose="user_data")
        assert stack.stop(signal.SIGINT) == 1
    finally:
        if stack.process is not None and stack.process.poll() is None:
            stack.stop()
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.timeout(300)
def test_more_responses_than_steps_may_run_wait_for_each_other(tmp_path: Path) -> None:
    """Also where all of them begin anew at once. None fails."""
    stack = Stack(tmp_path / "state", {"MOORAGE_STEPS_MAX": "3"}).start()
    try:
        assert stack.process is not None
        client = stack.client()
        script_of_one = [{"sleep_ms": 1500}, say("Done.")]
        begun = [client.responses.create(model="demo", input=script(*script_of_one), background=True).id for _ in range(12)]
        deadline = time.monotonic() + 200
        is_killed = False
        while True:
            statuses = [client.responses.retrieve(name).status for name in begun]
            if statuses.count("completed") >= 3 and not is_killed:
                assert kill_all(stack.process.pid, is_worker)
                is_killed = True
            if not {"queued", "in_progress"} & set(statuses):
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (statuses, is_killed) == (["completed"] * 12, True)
    finally:
        assert stack.stop() == 0
