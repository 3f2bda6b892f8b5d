"""The virtual environments beside moorage's own, made when they are first needed, from the locks that come with it.

The *toolbox* is what every sandbox offers beside the standard library; the *egress* proxy has its own because mitmproxy pins much of
what it uses. A checkout keeps them in ``.venv-<name>``, everything else in the user's cache folder, under the hash of the lock, so that
two versions of moorage do not take them from one another.

An environment is made aside and renamed when it is whole: a start that is interrupted leaves nothing that a later one takes for whole,
and of two starts at once the second waits for the first.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import uv

from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict
from moorage.local.processes import dying_with
from moorage.local.resource_paths import IS_CHECKOUT, LOCKS, ROOT, cache_folder
from moorage.terminal import say

_USES: Final = {"toolbox": "the packages that sandboxes offer", "egress": "the packages of the egress proxy"}
ENVIRONMENTS: Final = tuple(_USES)
_HASH_CHARS: Final = 16
_COMPANY: Final = "Behind a proxy with certificates of its own, set UV_SYSTEM_CERTS=1."
EGRESS_PYTHON: Final = (3, 12)
"""From here on mitmproxy takes the newest h2, h11 and brotli; for older Pythons it is an older one that holds them back."""


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    name: str
    """``toolbox`` or ``egress``, as its lock is called."""
    lock: Path
    folder: Path

    @property
    def use(self) -> str:
        return _USES[self.name]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def version(self) -> tuple[int, ...]:
        """Of its Python, such as (3, 12)."""
        said = dict(line.split(" = ", 1) for line in (self.folder / "pyvenv.cfg").read_text().splitlines() if " = " in line)
        return tuple(map(int, said["version_info"].split(".")[:2]))

    @property
    def is_made(self) -> bool:
        """Whether it is whole. The interpreter that it links to may have been removed since."""
        return (self.folder / ".done").exists() and os.access(self.python, os.X_OK)


def environment(name: str) -> ToolEnvironment:
    lock = LOCKS / f"{name}.txt"
    return ToolEnvironment(name, lock, ROOT / f".venv-{name}" if IS_CHECKOUT else cache_folder() / f"{name}-{_identity(lock)}")


def _identity(lock: Path) -> str:
    """Of the lock and the Python that it is installed for."""
    known = lock.read_bytes() + f"{sys.implementation.cache_tag} {sys.platform} {os.uname().machine}".encode()
    return hashlib.sha256(known).hexdigest()[:_HASH_CHARS]


def ensure(wanted: ToolEnvironment) -> ToolEnvironment:
    """Make it, unless it is there. Raises :class:`SettingsConflict` if it cannot be made."""
    if not wanted.is_made:
        with _alone(wanted) as lock:
            if not wanted.is_made:
                _make(wanted, lock)
    return wanted


@contextlib.contextmanager
def _alone(wanted: ToolEnvironment) -> Iterator[int]:
    """One maker at a time. The lock goes with the last process that holds it: an installer outlives its parent by moments."""
    path = wanted.folder.with_name(f"{wanted.folder.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsConflict(
            f"{wanted.use.capitalize()} cannot be kept in {path.parent}: {error.strerror}. XDG_CACHE_HOME takes another folder."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"Another start is installing {wanted.use}; waiting for it ...")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _make(wanted: ToolEnvironment, lock: int) -> None:
    aside, began = wanted.folder.with_name(f"{wanted.folder.name}.new"), time.monotonic()
    _say(f"Installing {wanted.use} into {wanted.folder} (once; {_packages(wanted.lock)} packages) ...")
    shutil.rmtree(aside, ignore_errors=True)
    _make_bare(wanted, lock, aside)
    _uv(
        wanted,
        lock,
        *("pip", "install", "--python", str(aside / "bin" / "python"), "--compile-bytecode"),
        *("--require-hashes", "-r", str(wanted.lock)),
    )
    (aside / ".done").touch()
    shutil.rmtree(wanted.folder, ignore_errors=True)
    aside.rename(wanted.folder)
    _say(f"Installed {wanted.use} in {time.monotonic() - began:.0f} s.")


def _make_bare(wanted: ToolEnvironment, lock: int, folder: Path) -> None:
    """On this Python; for the egress proxy on a newer one, if the machine has one or uv can fetch it."""
    command = ("venv", "--relocatable", "--python")
    if wanted.name == "egress" and sys.version_info < EGRESS_PYTHON:
        newer = ">={}.{},<3.14".format(*EGRESS_PYTHON)
        if _run_uv(lock, *command, newer, str(folder)).returncode == 0:
            return
    _uv(wanted, lock, *command, sys.executable, str(folder))


def _uv(wanted: ToolEnvironment, lock: int, *arguments: str) -> None:
    """Run uv: its progress is shown in a terminal, and its words if it fails."""
    done = _run_uv(lock, *arguments, is_shown=sys.stderr.isatty())
    if done.returncode:
        said = f": {done.stderr.decode(errors='replace').strip()}" if done.stderr else ", and uv says why above"
        raise SettingsConflict(f"{wanted.use.capitalize()} could not be installed{said}. It needs a package index, once. {_COMPANY}")


def _run_uv(lock: int, *arguments: str, is_shown: bool = False) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [uv.find_uv_bin(), *arguments, *([] if is_shown else ["--quiet"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if is_shown else subprocess.PIPE,
        pass_fds=(lock,),
        preexec_fn=_as_installer(os.getpid()),
        env={key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")},
        check=False,
    )


def _as_installer(parent: int) -> Callable[[], None]:
    """Sandboxes run as other users. They read the installed packages despite this user's mask."""
    end_with_parent = dying_with(parent)

    def prepare() -> None:
        os.umask(0o022)
        end_with_parent()

    return prepare


def _packages(lock: Path) -> int:
    return sum("==" in line for line in lock.read_text().splitlines())


def _say(text: str) -> None:
    say(f"moorage: {text}", out=sys.stderr)


def main(names: Sequence[str]) -> int:
    """Make these anew, as ``make setup`` does when their locks have changed."""
    try:
        for wanted in map(environment, names):
            (wanted.folder / ".done").unlink(missing_ok=True)
            ensure(wanted)
    except SettingsConflict as error:
        raise SystemExit(f"moorage: {error}") from error
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
