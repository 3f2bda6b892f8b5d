"""Hints name the command as it has to be typed: in a clone by its path."""

import os
import shlex
import sys
from pathlib import Path

import pytest
from moorage.command_hints import as_typed, command_for_clients, own_command


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


def test_commands_in_quotes_alone_are_typed_otherwise() -> None:
    said = "moorage: No such key. 'moorage keys list' has them, or 'moorage ls'. The image is 'moorage-sandbox', see moorage logs."
    assert as_typed(said, ".venv/bin/moorage") == (
        "moorage: No such key. '.venv/bin/moorage keys list' has them, or '.venv/bin/moorage ls'. "
        "The image is 'moorage-sandbox', see moorage logs."
    )


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ("moorage", "moorage"),
        (".venv/bin/moorage", ".venv/bin/moorage"),
        ("'a b/bin/moorage'", "'a b/bin/moorage'"),
        ("../other/bin/moorage", "moorage"),
        ("'../a b/bin/moorage'", "moorage"),
        ("/opt/moorage/bin/moorage", "moorage"),
    ],
)
def test_clients_learn_no_path_outside_of_the_stacks_folder(own: str, told: str) -> None:
    assert command_for_clients(own) == told
