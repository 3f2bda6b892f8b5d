"""Files of variables that a shell can source: ``.moorage/env`` for clients of a stack.

Each line is ``export NAME=value``, with the value quoted as a POSIX shell wants it. So ``. .moorage/env`` reaches the programs that the
shell starts: without ``export`` they would keep an ``OPENAI_BASE_URL`` of their own, and send moorage's key there.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from moorage.local.processes import write_private


def write_exports(path: Path, values: Mapping[str, str]) -> None:
    """Write the variables for this user alone. The file is there whole, or not at all."""
    write_private(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items()))


def read_exports(path: Path) -> dict[str, str]:
    """The variables of such a file. Files of moorage 0.1.0 lack the word ``export``. Raises OSError."""
    words = (shlex.split(line.removeprefix("export ")) for line in path.read_text().splitlines())
    return dict(word.split("=", 1) for line in words for word in line if "=" in word)
