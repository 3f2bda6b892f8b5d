"""The owner of the sandboxes as a child of a stack."""

import subprocess
import sys
from pathlib import Path

import pytest
from moorage.local.children import LauncherProcess
from moorage.local.processes import identity, stop_process


def test_a_stack_goes_on_while_its_launcher_starts(tmp_path: Path) -> None:
    launcher = LauncherProcess(tmp_path, tmp_path / "l.sock")
    process = launcher.begin()
    try:
        assert not launcher.socket_path.exists()
        assert (tmp_path / "launcher.process").read_text() == identity(process.pid)
        launcher.await_answer(process)
        assert launcher.socket_path.is_socket()
    finally:
        stop_process(process, 60)


def test_a_launcher_that_cannot_work_says_why_to_whoever_waits(tmp_path: Path) -> None:
    launcher = LauncherProcess(tmp_path, tmp_path / "missing" / "l.sock")
    launcher.log_file.write_text("what an earlier one has said: ü\n")
    process = launcher.begin()
    with pytest.raises(SystemExit, match=r"(?s)^Traceback.*FileNotFoundError"):
        launcher.await_answer(process)
    assert process.poll() is not None


COPIED = """
import sys
import subprocess
import sys
from pathlib import Path
from moorage.local.children import LauncherProcess
from moorage.local.processes import stop_process

opened = open(sys.argv[1] + "/mine", "w")
launcher = LauncherProcess(Path(sys.argv[1]), Path(sys.argv[1]) / "l.sock")
child = launcher.child()
launcher.await_answer(child.process)
before = child.process.pid
held = [str(each.readlink()) for each in Path(f"/proc/{before}/fd").iterdir()]
print(Path(f"/proc/{before}/comm").read_text().strip(), opened.name in held, f"{sys.argv[1]}/sandboxes/launcher.lock" in held)
stop_process(child.process, 60)
child.process = child.restart()
command = Path(f"/proc/{child.process.pid}/cmdline").read_bytes().split(b"\\0")
print(Path(f"/proc/{child.process.pid}/comm").read_text().strip(), command[2].decode())
stop_process(child.process, 60)
"""


def test_a_stacks_launcher_is_a_copy_first_and_a_program_then(tmp_path: Path) -> None:
    """A copy holds files of its own alone. In a process of its own: this one has threads."""
    done = subprocess.run([sys.executable, "-c", COPIED, str(tmp_path)], capture_output=True, text=True, check=False)
    said = ["moorage-launch False True", "moorage-launch moorage.local.launcher"]
    assert (done.stdout.splitlines(), done.stderr) == (said, "")
