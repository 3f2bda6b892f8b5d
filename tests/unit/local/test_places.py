"""How the command line is called, in the hints that a start prints."""

import os
import shlex
import sys
from pathlib import Path

from moorage.local.resource_paths import own_command


def program(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "moorage").touch(mode=0o755)
    return folder


def test_a_command_on_the_path_is_called_by_its_name(tmp_path: Path) -> None:
    folder = program(tmp_path / "bin")
    assert own_command(str(folder), str(folder / "python")) == "moorage"


def test_a_command_of_a_clone_is_called_by_its_path(tmp_path: Path) -> None:
    folder = program(tmp_path / "a clone" / "bin")
    (word,) = shlex.split(own_command(str(tmp_path), str(folder / "python")))
    assert os.path.samefile(word, folder / "moorage")


def test_without_an_installed_command_its_name_stays(tmp_path: Path) -> None:
    assert own_command("", str(tmp_path / "python")) == "moorage"
    assert own_command(None, sys.executable).endswith("moorage")
