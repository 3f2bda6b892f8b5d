"""Pseudo-terminals with a bound of their own: bwrap's mount has only the kernel's bound, for the whole machine."""

import os
import subprocess
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.local.system_calls import mount, own_namespaces, private_mounts

_NOSUID: Final = 2
_NOEXEC: Final = 8


def mount_terminals(target: Path) -> None:
    """In the calling process's mount namespace."""
    mount("devpts", str(target), "devpts", _NOSUID | _NOEXEC, f"newinstance,ptmxmode=0666,mode=0620,max={limits.SANDBOX_TERMINALS_MAX}")


def may_mount_terminals(target: Path, is_root: bool) -> bool:
    """Whether sandboxes can have theirs. An ordinary user needs a namespace for it, and some systems give that to bwrap alone."""

    def attempt() -> None:
        private_mounts() if is_root else own_namespaces()
        mount_terminals(target)

    try:
        subprocess.run(["/bin/true"], preexec_fn=attempt, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return os.path.isdir(target)
