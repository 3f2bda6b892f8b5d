"""The owner of the sandboxes as a child of a stack."""

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
