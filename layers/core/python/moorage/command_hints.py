"""Hints name moorage's commands in quotes. In a clone ``moorage`` is on no ``PATH``, and the word to type is a path."""

import os
import re
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

_NAMED: Final = re.compile(r"(?<=')moorage(?= [a-z-])")
_PAGE: Final = re.compile(r"(?<![\w/])docs/[\w/]+\.md")


def as_typed(text: str, command: str) -> str:
    """The text with ``command`` in place of the word in ``'moorage COMMAND'``."""
    return _NAMED.sub(lambda _: command, text)


def typed_here(text: str) -> str:
    """The same for whoever reads the output of this process, with pages of the documentation where they are read."""
    return _PAGE.sub(_address, as_typed(text, own_command(None, sys.executable)))


def _address(page: re.Match[str]) -> str:
    """A wheel of a release names its documentation on the web, and a checkout has the page itself."""
    try:
        urls = metadata.metadata("moorage").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        urls = []
    home = next((url.partition(", ")[2] for url in urls if url.startswith("Documentation, ")), "")
    return f"{home.removesuffix('docs/index.md')}{page[0]}" if home else page[0]


def own_command(search_path: str | None, interpreter: str) -> str:
    """The word that starts moorage in a shell with this PATH: its name, or the path to it beside the interpreter that runs now."""
    beside = Path(interpreter).with_name("moorage")
    if shutil.which("moorage", path=search_path) is not None or not beside.exists():
        return "moorage"
    return shlex.quote(min(str(beside), os.path.relpath(beside), key=len))


def command_for_clients(own: str) -> str:
    """What an API tells its clients: a path below the folder of the stack, and the name if a path would tell of the machine."""
    return "moorage" if os.path.isabs(shlex.split(own)[0]) or own.startswith((".." + os.sep, "'..")) else own
