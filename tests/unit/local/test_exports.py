"""``.moorage/env`` is for shells: what it says reaches the programs that they start."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from moorage.local.exports import read_exports, write_exports

OURS = {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1", "OPENAI_API_KEY": "sk-moorage-x", "MOORAGE_MODEL": "it's a $(model)"}


@pytest.mark.parametrize("shell", [["sh", "-c"], ["bash", "-c"]], ids=["sh", "bash"])
def test_a_program_of_a_shell_that_sourced_the_file_has_its_variables(shell: list[str], tmp_path: Path) -> None:
    write_exports(tmp_path / "env", OURS)
    program = f"import os; print([os.environ.get(name) for name in {list(OURS)}])"
    command = [*shell, '. ./env; "$1" -c "$2"', "shell", sys.executable, program]
    said = subprocess.run(command, cwd=tmp_path, env={"OPENAI_API_KEY": "sk-proj-mine"}, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(list(OURS.values()))


def test_the_variables_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_exports(tmp_path / "env", OURS)
    assert read_exports(tmp_path / "env") == OURS
    assert stat.S_IMODE((tmp_path / "env").stat().st_mode) == 0o600


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("OPENAI_BASE_URL=http://127.0.0.1:8080/v1\nMOORAGE_MODEL=demo\n")
    assert read_exports(tmp_path / "env") == {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1", "MOORAGE_MODEL": "demo"}
