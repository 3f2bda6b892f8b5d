import os
import subprocess
from dataclasses import field
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxError
from moorage.local.control_groups import ControlGroups
from moorage.local.disk_guard import DiskLimits
from moorage.local.disks import Disks
from moorage.local.removal import start_removing
from moorage.local.start_cache import StartCache, identity_of, key_of
from moorage.sandbox.machine_bounds import MachineBounds

_SYSTEM_PYTHON: Final = "/usr/bin/python3"
_SERVER_FOLDER: Final = "server"
TERMINALS_NAME: Final = "terminals"
ETC_FILES: Final = {
    "passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:1000:1000:user:/home/user:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# By the interpreter that will run it: compiled modules are bound to its version.
_COMPILE: Final = """
import os, py_compile, sys, tempfile, zipfile
folder, archive = sys.argv[1:]
with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(archive, "w") as zipped:
    for directory, _, names in sorted(os.walk(folder)):
        for path in sorted(os.path.join(directory, name) for name in names if name.endswith(".py")):
            name, compiled = os.path.relpath(path, folder), os.path.join(scratch, "module.pyc")
            py_compile.compile(path, compiled, dfile="exec_server/" + name, doraise=True)
            zipped.write(compiled, name + "c")
"""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """A virtual environment that every sandbox sees, with the Python installation under it."""

    venv: Path
    interpreter_prefixes: tuple[str, ...]
    interpreter: str
    """The Python under it, with all links followed."""

    @classmethod
    def at(cls, venv: Path) -> "Toolbox":
        """Raises :class:`SandboxError` when there is no Python in it."""
        python = venv.resolve() / "bin" / "python"
        if not os.access(python, os.X_OK):
            raise SandboxError(f"{venv} is not a virtual environment: it has no bin/python that this user can run.")
        prefixes = dict.fromkeys(str(Path(link).parent.parent) for link in _links(python))
        return cls(
            venv.resolve(),
            tuple(prefix for prefix in prefixes if prefix != str(venv.resolve()) and not Path(prefix).is_relative_to("/usr")),
            os.path.realpath(python),
        )


def _links(path: Path) -> list[str]:
    """Every path that a chain of links goes through, and the real one at its end."""
    seen = [str(path)]
    while os.path.islink(seen[-1]):
        seen.append(os.path.normpath(os.path.join(os.path.dirname(seen[-1]), os.readlink(seen[-1]))))
    return [*seen[1:], os.path.realpath(path)]


@dataclass(frozen=True, slots=True)
class Site:
    """The folder of sandboxes, and their programs."""

    state_dir: Path
    runtime_dir: Path
    """A short path for the sockets: the name of a Unix socket has 107 characters at most."""
    server_dir: Path
    """``functions/sandbox``."""
    toolbox: Toolbox | None
    groups: ControlGroups
    runs_as_other_users: bool
    has_disable_userns: bool
    has_terminals: bool
    """Whether each sandbox has pseudo-terminals of its own."""
    disks: Disks | None
    """None where sandboxes cannot have file systems of their own."""
    disk_bytes_max: int = limits.WORKSPACE_BYTES_MAX
    bounds: MachineBounds = field(default_factory=MachineBounds)
    disk_limits: DiskLimits = field(default_factory=DiskLimits)

    def prepare(self, cache: StartCache) -> None:
        """Write the files that all sandboxes share."""
        (self.state_dir / "etc").mkdir(parents=True, exist_ok=True)
        self._compile(cache)
        if self.runs_as_other_users:
            # The sandboxes' users go through these, and may not list them; the sockets in it are ours alone.
            os.chmod(self.runtime_dir, 0o711)
            (self.runtime_dir / "stage").mkdir(mode=0o711)

    def _compile(self, cache: StartCache) -> None:
        """Here, and not at the start of each sandbox, of which it would take half of the time."""
        folder = self.server_dir / _SERVER_FOLDER
        sources = [(str(path.relative_to(folder)), path.read_bytes()) for path in sorted(folder.rglob("*.py"))]
        key = key_of(_COMPILE, self.python, identity_of(self.python), sources)
        known = cache.find(self.server.name, key)
        if known is not None:
            self.server.write_bytes(known)
            return
        subprocess.run([self.python, "-I", "-S", "-c", _COMPILE, str(folder), str(self.server)], check=True)
        cache.keep(self.server.name, key, self.server.read_bytes())

    @property
    def python(self) -> str:
        """The interpreter of the exec server, at the same place inside and outside."""
        return _SYSTEM_PYTHON if self.toolbox is None or os.path.exists(_SYSTEM_PYTHON) else self.toolbox.interpreter

    @property
    def terminals(self) -> Path:
        """The mount point of a launcher that is not root, in each sandbox's namespace."""
        return self.runtime_dir / TERMINALS_NAME

    @property
    def server(self) -> Path:
        return self.state_dir / "etc" / "exec_server.zip"

    def clear_leftovers(self) -> None:
        """After an owner was killed: its sandboxes died with it, but for one that was starting. Their files and groups did not."""
        for directory in (self.state_dir / "sandboxes").glob("sbx_*"):
            self.groups.remove(directory.name)
            start_removing(directory).wait()
            self.groups.remove(directory.name)  # What it ended has left it meanwhile.
