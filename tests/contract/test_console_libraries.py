"""The console's libraries are fetched on a machine that has no Node."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FETCHED = ROOT / ".build" / "console" / "vendor"


@pytest.mark.skipif(not FETCHED.exists(), reason="make setup could not fetch the console's libraries here")
def test_a_machine_without_npm_gets_the_same_files(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "console", tmp_path / "console")
    programs = tmp_path / "programs"
    programs.mkdir()
    environment = {**os.environ, "PATH": str(programs)}
    assert shutil.which("npm", path=environment["PATH"]) is None
    command = [sys.executable, "console/fetch.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = tmp_path / ".build" / "console" / "vendor"
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {path.name: path.read_bytes() for path in FETCHED.iterdir()}
