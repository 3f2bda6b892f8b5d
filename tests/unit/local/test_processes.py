"""Processes that end when they should: with their parent, when they are told to, and when nobody may wait for them any longer."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moorage.local.processes import dying_with, end_leftover, identity, is_running, is_stopped, stop_process

from tests.processes import until

ENDS_WELL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(600)
"""

COPIED = """
import os, signal, subprocess, sys
from pathlib import Path
from moorage.local.processes import close_all_files, fork, stop_process

def sleep():
    print("begun", flush=True)
    signal.pause()

def fail():
    raise OSError("no room")

def refuse():
    raise SystemExit("no bubblewrap")

def files():
    close_all_files()
    print(sorted(os.listdir("/proc/self/fd")))

modules, output = len(sys.modules), Path(sys.argv[1])
done = fork(lambda: print(len(sys.modules) == modules, os.getsid(0) == os.getpid()), output)
print(done.wait(60), output.read_text(), end="")
failed = fork(fail, output)
print(failed.wait(60), output.read_text().splitlines()[-1])
refused = fork(refuse, output)
print(refused.wait(60), output.read_text().splitlines()[-1])
opened = os.open("/", os.O_RDONLY)
bare = fork(files, output)
print(bare.wait(60), output.read_text().splitlines()[-1])
asleep = fork(sleep, output)
try:
    asleep.wait(0.01)
except subprocess.TimeoutExpired:
    print(asleep.poll())
stop_process(asleep, 60)
print(asleep.returncode, asleep.poll())
asleep.kill()  # It has ended already.
left = fork(sleep, output)
print(left.pid)
"""


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", ENDS_WELL], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def frozen(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(process.pid))


def test_a_process_that_was_stopped_can_still_end_well(child: "subprocess.Popen[bytes]") -> None:
    frozen(child)
    stop_process(child, 60)
    assert child.returncode == 7


def test_one_whose_parent_has_ended_before_it_could_ask_to_be_told_does_not_begin() -> None:
    with subprocess.Popen([sys.executable, "-c", "print('begun')"], stdout=subprocess.PIPE, preexec_fn=dying_with(1)) as process:
        said, _ = process.communicate()
    assert (process.returncode, said) == (1, b"")


def test_what_a_dead_stack_has_left_is_killed_even_if_it_is_stopped(child: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    noted = tmp_path / "process"
    noted.write_text(identity(child.pid))
    frozen(child)
    end_leftover(noted)
    assert child.wait() == -signal.SIGKILL


@pytest.mark.parametrize("note", [None, "", "garbage", "{pid} 1"], ids=["none", "empty", "garbage", "another's start"])
def test_another_process_that_has_the_id_now_is_left_alone(child: "subprocess.Popen[bytes]", tmp_path: Path, note: str | None) -> None:
    noted = tmp_path / "process"
    if note is not None:
        noted.write_text(note.format(pid=child.pid))
    end_leftover(noted)
    assert child.poll() is None


def test_a_process_that_has_ended_does_not_run_although_nobody_has_asked_how() -> None:
    process = subprocess.Popen(["true"])
    named = identity(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert (identity(process.pid), is_running(named)) == ("", False)
    process.wait()


def test_a_copy_of_a_process_is_a_child_like_a_program(tmp_path: Path) -> None:
    """It ends with its work, by an error, by a signal, and with its parent. In a process of its own: this one has threads."""
    output = tmp_path / "copy.log"
    done = subprocess.run([sys.executable, "-c", COPIED, str(output)], capture_output=True, text=True, check=True)
    *said, left = done.stdout.splitlines()
    endings = ("0 True True", "1 OSError: no room", "1 no bubblewrap", "0 ['0', '1', '2', '3']")
    assert (said, done.stderr) == ([*endings, "None", f"{-signal.SIGTERM} {-signal.SIGTERM}"], "")
    until(lambda: not identity(int(left)))
