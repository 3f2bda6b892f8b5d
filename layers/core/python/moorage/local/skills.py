"""Skills of a sandbox of bubblewrap. They lie outside its walls, on a shelf that it sees read-only.

The shelf is in the launcher's private directory and not with the sandbox's other things: a mount tells where it comes from.
"""

import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Final

from moorage.errors import SandboxError
from moorage.skills.bundle import unpacked
from moorage.skills.front_matter import SkillProblem

_DIRECTORY: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")


def shelf(runtime_dir: Path, sandbox_id: str) -> Path:
    return runtime_dir / "skills" / sandbox_id


def add(root: Path, directory: str, archive: bytes) -> None:
    """Unpack a bundle as ``root/directory``, whole or not at all; one that is there stays as it is."""
    if not _DIRECTORY.fullmatch(directory):
        raise SandboxError("A skill's folder is called by lower-case letters, digits, '-' and '_'.")
    target = root / directory
    if target.is_dir():
        return
    aside = root.parent / f"{root.name}.{secrets.token_hex(8)}"
    try:
        for entry in unpacked(archive):
            path = aside / entry.path
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.write_bytes(entry.content)
            path.chmod(0o555 if entry.is_executable else 0o444)
        os.rename(aside, target)
    except SkillProblem as problem:
        raise SandboxError(str(problem)) from problem
    except OSError as error:
        if not target.is_dir():  # else another request was faster
            raise SandboxError(f"The skill {directory} could not be put into the container: {error.strerror}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
