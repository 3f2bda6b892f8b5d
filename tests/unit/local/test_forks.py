"""Processes of steps: forked from one that has imported what they need, and handled as if they had been started."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moorage.local.aws.forks import Fork, Nursery, take_in_orphans
from moorage.local.processes import identity, is_running

from tests.processes import descendants, until

TELLS = """
import json, os, random, sys
import steps
print(json.dumps({
    "asked": sys.stdin.readline(), "arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ),
    "parent": os.getppid(), "steps": steps.__name__, "random": random.random(), "descriptors": sorted(os.listdir("/proc/self/fd")),
}))
print("heard", file=sys.stderr)
sys.stdout.flush()
sys.stdin.readline()
"""
CALLS = """
import asyncio, sys
from moorage.errors import SandboxHostAway
from moorage.sandbox.launcher_client import LauncherProvisioner
before = set(sys.modules)
async def call():
    try:
        await LauncherProvisioner("/nowhere.sock").running()
    except SandboxHostAway:
        print("away", sorted(set(sys.modules) - before))
asyncio.run(call())
"""
ASKS = """
import os, sys, time
from moorage.local.aws.forks import Nursery, take_in_orphans
take_in_orphans()
nursery = Nursery()
fork = nursery.fork([sys.executable, sys.argv[1]], ".", dict(os.environ))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    take_in_orphans()
    made = Nursery()
    made.start()
    yield made
    made.stop()
    take_in_orphans(False)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "_worker.py"
    path.write_text(TELLS)
    return str(path)


def closed(fork: Fork) -> int:
    for stream in (fork.stdin, fork.stdout, fork.stderr):
        stream.close()
    return fork.wait(60)


def nurseries_of_this_process() -> set[int]:
    """An emulator that another test has started has one of its own."""
    children = {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
    return {pid for pid, line in descendants(os.getpid()).items() if pid in children and "moorage.local.aws.nursery" in line}


def nursery_of_this_process() -> int:
    (found,) = nurseries_of_this_process()
    return found


def test_a_program_has_its_own_arguments_folder_environment_and_streams(nursery: Nursery, program: str, tmp_path: Path) -> None:
    environment = {"HERE": "alone", "PATH": os.environ["PATH"]}
    first, second = (nursery.fork([sys.executable, program, "x"], str(tmp_path), environment) for _ in range(2))
    said = []
    for fork in (first, second):
        fork.stdin.write(f"{fork.pid}\n")
        fork.stdin.flush()
        said.append(json.loads(fork.stdout.readline()))
        assert fork.stderr.readline() == "heard\n"
        assert (fork.poll(), descendants(os.getpid())[fork.pid].split()) == (None, [sys.executable, program, "x"])
        fork.stdin.close()
        assert (fork.wait(60), fork.poll(), closed(fork)) == (0, 0, 0)
    drawn = [each.pop("random") for each in said]
    assert drawn[0] != drawn[1]
    assert said == [
        {
            "asked": f"{fork.pid}\n",
            "arguments": [program, "x"],
            "folder": str(tmp_path),
            "environment": environment,
            "parent": os.getpid(),
            "steps": "steps",
            "descriptors": ["0", "1", "2", "3"],
        }
        for fork in (first, second)
    ]


def test_an_end_is_told_as_of_any_child(nursery: Nursery, program: str) -> None:
    killed, ended = (nursery.fork([sys.executable, program], "/", dict(os.environ)) for _ in range(2))
    with pytest.raises(subprocess.TimeoutExpired):
        killed.wait(0.01)
    killed.kill()
    assert closed(killed) == -signal.SIGKILL
    ended.terminate()
    assert closed(ended) == -signal.SIGTERM
    ended.terminate()


def test_its_first_request_finds_everything_imported(nursery: Nursery, tmp_path: Path) -> None:
    program = tmp_path / "_worker.py"
    program.write_text(CALLS)
    fork = nursery.fork([sys.executable, str(program)], "/", {"PATH": os.environ["PATH"]})
    assert fork.stdout.read() == "away []\n"
    assert closed(fork) == 0


def test_a_program_that_fails_says_why(nursery: Nursery, tmp_path: Path) -> None:
    fork = nursery.fork([sys.executable, str(tmp_path / "nothing.py")], "/", dict(os.environ))
    assert "FileNotFoundError" in fork.stderr.read()
    assert closed(fork) == 1


def test_one_thread_forks(nursery: Nursery, program: str) -> None:
    """A lock that another thread holds would never be released in a copy."""
    closed(nursery.fork([sys.executable, program], "/", dict(os.environ)))
    assert len(os.listdir(f"/proc/{nursery_of_this_process()}/task")) == 1


def test_a_killed_one_is_replaced_and_its_copies_live_on(nursery: Nursery, program: str) -> None:
    before = nursery.fork([sys.executable, program], "/", dict(os.environ))
    killed = nursery_of_this_process()
    os.kill(killed, signal.SIGKILL)
    until(lambda: not is_running(identity(killed)))
    after = nursery.fork([sys.executable, program], "/", dict(os.environ))
    assert nursery_of_this_process() != killed
    for fork in (before, after):
        fork.stdin.write("x\n")
        fork.stdin.flush()
        assert json.loads(fork.stdout.readline())["asked"] == "x\n"
        closed(fork)


def test_one_that_does_not_answer_in_time_is_asked_no_more(nursery: Nursery, program: str) -> None:
    """What it says too late would be taken for the answer to the next question."""
    closed(nursery.fork([sys.executable, program], "/", dict(os.environ)))
    before, impatient = nurseries_of_this_process(), Nursery(patience_seconds=0.001)
    with pytest.raises(TimeoutError):
        impatient.fork([sys.executable, program], "/", dict(os.environ))
    assert nurseries_of_this_process() == before


def test_nothing_is_left_of_one_who_is_killed(program: str) -> None:
    with subprocess.Popen([sys.executable, "-c", ASKS, program], stdout=subprocess.PIPE) as asker:
        assert asker.stdout is not None
        asker.stdout.readline()
        left = [identity(pid) for pid in descendants(asker.pid)]
        assert len(left) == 2
        asker.kill()
    until(lambda: not any(map(is_running, left)))
