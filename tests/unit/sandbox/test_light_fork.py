"""The quick start of a program: as ``subprocess.Popen`` starts it, or an error of the system."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sandbox.support import EXEC_SERVER

TOLD = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:],
    "environment": os.environ.get("GIVEN"),
    "cwd": os.getcwd(),
    "umask": os.umask(0),
    "leads": os.getsid(0) == os.getpid(),
    "niceness": os.nice(0),
    "open": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "read": [os.read(int(fd), 100).decode() for fd in sys.argv[1:]],
    "said": sys.stdin.read(),
}))
"""
"""A program that tells how it was started."""

WITHOUT_CLOSE_RANGE = """
import ctypes, json, struct, sys
libc = ctypes.CDLL(None)
# Load the number of a call; if it is close_range, answer ENOSYS; else let it pass.
program = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 436, 0x06, 0, 0, 0x50026, 0x06, 0, 0, 0x7FFF0000)
kept = ctypes.create_string_buffer(program)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HxxxxxxP", 4, ctypes.addressof(kept)), 0, 0) == 0
sys.path.insert(0, sys.argv[1])
import light_fork
print(json.dumps(light_fork.is_possible((3, 4, 5))))
"""
"""A process whose kernel closes descriptors one by one."""

STARTS = """
import json, os, resource, sys, threading
sys.path.insert(0, sys.argv[1])
import light_fork

given = json.loads(sys.argv[2])
input_, output = os.pipe(), os.pipe()
os.write(input_[1], b"input")
os.close(input_[1])
os.dup2(output[1], 90, inheritable=True)  # What must not stay open in the program.
resource.setrlimit(resource.RLIMIT_NOFILE, (80, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))  # Its number is no longer given.
passed = os.pipe()
os.write(passed[1], b"passed on")
niceness = os.nice(0)

def before():
    os.nice(given["nice"])

assert light_fork.is_possible((input_[0], output[1], output[1]))
try:
    pid = light_fork.start(
        [argument.replace("FD", str(passed[0])) for argument in given["arguments"]],
        before,
        cwd=given["cwd"],
        env={"GIVEN": "x", "PATH": os.environ["PATH"]},
        streams=(input_[0], output[1], output[1]),
        pass_fds=(passed[0],),
        umask=0o027,
    )
except OSError as error:
    told = {"error": error.strerror}
else:
    os.close(output[1])
    os.close(90)
    _, status = os.waitpid(pid, 0)
    told = {"code": os.waitstatus_to_exitcode(status), "niceness": niceness, "fd": passed[0]}
    with open(output[0]) as file:
        told["text"] = file.read()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    told["children"] = 0
held = threading.Event()
threading.Thread(target=held.wait).start()
told["possible"] = light_fork.is_possible((3, 4, 5))
held.set()
print(json.dumps(told))
"""


def started(arguments: list[str], cwd: Path, *, nice: Any = 3) -> dict[str, Any]:
    given = json.dumps({"arguments": arguments, "cwd": str(cwd), "nice": nice})
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", STARTS, EXEC_SERVER, given], capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


@pytest.mark.parametrize("program", [sys.executable, Path(sys.executable).name])
def test_a_program_begins_as_it_is_told(tmp_path: Path, program: str) -> None:
    told = started([program, "-I", "-S", "-c", TOLD, "FD"], tmp_path)
    assert json.loads(told.pop("text")) == {
        "arguments": [str(told["fd"])],
        "environment": "x",
        "cwd": str(tmp_path),
        "umask": 0o027,
        "leads": True,
        "niceness": told["niceness"] + 3,
        "open": [0, 1, 2, told["fd"]],
        "read": ["passed on"],
        "said": "input",
    }
    assert (told["code"], told["children"], told["possible"]) == (0, 0, False)


def test_a_program_ignores_no_signal_that_python_does(tmp_path: Path) -> None:
    """Python's server ignores two; a program expects neither. What whoever started the tests ignores, such as a hangup, stays."""
    here = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigIgn"))
    others = int(here.split()[1], 16) & ~sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert started(["/bin/grep", "SigIgn", "/proc/self/status"], tmp_path)["text"].split() == ["SigIgn:", f"{others:016x}"]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"arguments": ["/no/such/program"]}, "No such file or directory"),
        ({"arguments": ["no-such-program"]}, "No such file or directory"),
        ({"arguments": ["/etc/passwd"]}, "Permission denied"),
        ({"cwd": Path("/no/such/folder")}, "No such file or directory"),
        ({"nice": "many"}, "Invalid argument"),
    ],
)
def test_a_program_that_cannot_begin_is_an_error_of_the_system(tmp_path: Path, changed: dict[str, Any], error: str) -> None:
    given: dict[str, Any] = {"arguments": ["/bin/true"], "cwd": tmp_path} | changed
    assert started(**given) == {"error": error, "children": 0, "possible": False}


def test_descriptors_are_never_closed_one_by_one() -> None:
    """A limit of half a million of them would take 0.1 s of each command."""
    command = [sys.executable, "-I", "-S", "-c", WITHOUT_CLOSE_RANGE, str(EXEC_SERVER)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) is False
