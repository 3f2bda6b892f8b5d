"""Sandboxes by bubblewrap: how one is built, started and cleared away. The launcher (``local/launcher.py``) serves this.

A sandbox is one ``bwrap`` whose first process is the exec server (``functions/sandbox``). Its listening socket is made here and
handed over as an open descriptor, so that no command can see or replace it and a caller may connect before the server is up; its
token goes through a file in memory. When the owner ends, however it ends, the kernel kills its sandboxes (``--die-with-parent``).

Where the owner is root, each sandbox runs as a user of its own: user namespaces alone would leave it root's right to files that
belong to root, ``/proc/sys`` above all. The walls and their reasons are in ``docs/sandbox.md``.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from moorage import limits
from moorage.egress import trust
from moorage.errors import SandboxCapacity, SandboxError, SandboxGone
from moorage.local import seccomp
from moorage.local.control_groups import ControlGroups
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import EgressSpec, Handle, SandboxSpec, SandboxStatus

SERVER: Final = "/opt/moorage"
COMPILED_SERVER: Final = "/opt/exec_server.zip"
TOOLBOX: Final = "/opt/toolbox"
EGRESS: Final = "/run/egress"
LISTENING_FD: Final = 3
SECCOMP_FD: Final = 4
CA_BUNDLE: Final = "/tmp/.exec/ca-certificates.crt"
"""Written by the exec server: the system's certificates and the proxy's."""
FALLBACK: Final = "/opt/fallback"
"""Last on the PATH: ``python``, where neither the toolbox nor the system has it under this name."""

FORWARDER: Final = "127.0.0.1:3128"
SANDBOX_UID: Final = 1000
HOST_UIDS_FROM: Final = 1_900_000_000
HOST_UIDS: Final = 100_000
"""Users for the sandboxes of a root launcher; above everything that systemd or subuid ranges hand out."""

_GROUP_REMOVALS_MAX: Final = 100
_SYSTEM_PYTHON: Final = "/usr/bin/python3"
_SERVER_FOLDER: Final = "server"
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The part of /etc that programs need and that says nothing about this machine.
_ETC: Final = (
    "alternatives",
    "ca-certificates",
    "fonts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "magic.mime",
    "mime.types",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
_ETC_FILES: Final = {
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
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".py")):
        compiled = os.path.join(scratch, name + "c")
        py_compile.compile(os.path.join(folder, name), compiled, dfile="exec_server/" + name, doraise=True)
        zipped.write(compiled, name + "c")
"""
_SCRATCH: Final = {"/tmp": limits.SANDBOX_TMP_BYTES_MAX, "/dev/shm": limits.SANDBOX_SHM_BYTES_MAX}
# What of /proc can be changed, or tells of other containers. bubblewrap covers such places only when it thinks them writable.
_PROC_READ_ONLY: Final = ("sys", "bus", "fs", "irq", "sysrq-trigger")
_PROC_HIDDEN_DIRECTORIES: Final = ("acpi", "asound", "driver", "scsi")
_PROC_HIDDEN_FILES: Final = (
    "kcore",
    "kallsyms",
    "keys",
    "key-users",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "timer_list",
    "timer_stats",
)


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
    """Where sandboxes are made, and with what."""

    state_dir: Path
    runtime_dir: Path
    """A short path for the sockets: the name of a Unix socket has 107 characters at most."""
    server_dir: Path
    """``functions/sandbox``."""
    toolbox: Toolbox | None
    groups: ControlGroups
    runs_as_other_users: bool
    has_disable_userns: bool
    disk_bytes_max: int = limits.WORKSPACE_BYTES_MAX
    sandboxes_max: int = limits.LOCAL_SANDBOXES_MAX

    def prepare(self) -> None:
        """Write the files that all sandboxes share."""
        (self.state_dir / "etc").mkdir(parents=True, exist_ok=True)
        for name, content in _ETC_FILES.items():
            (self.state_dir / "etc" / name).write_text(content)
        # Compiled once and not at every start, which would take half of the time.
        compiling = [self.python, "-I", "-S", "-c", _COMPILE, str(self.server_dir / _SERVER_FOLDER), str(self.server)]
        subprocess.run(compiling, check=True)
        if self.runs_as_other_users:
            # The sandboxes' users go through these, and may not list them; the sockets in it are ours alone.
            os.chmod(self.runtime_dir, 0o711)
            (self.runtime_dir / "stage").mkdir(mode=0o711)

    @property
    def python(self) -> str:
        """The interpreter of the exec server, at the same place inside and outside."""
        return _SYSTEM_PYTHON if self.toolbox is None or os.path.exists(_SYSTEM_PYTHON) else self.toolbox.interpreter

    @property
    def server(self) -> Path:
        return self.state_dir / "etc" / "exec_server.zip"

    def clear_leftovers(self) -> None:
        """After an owner was killed: its sandboxes died with it, their files and groups did not."""
        for directory in (self.state_dir / "sandboxes").glob("sbx_*"):
            self.groups.remove(directory.name)
            start_removing(directory).wait()


def may_run_as_other_users() -> bool:
    """Whether this process can give each sandbox a user of its own: root, with the right to mount."""
    if os.geteuid() != 0:
        return False
    try:
        subprocess.run(["/bin/true"], preexec_fn=_private_mounts, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def has_disable_userns() -> bool:
    """Whether this bubblewrap (0.8 or newer) can forbid nested user namespaces. Raises :class:`SandboxError` where there is none."""
    if shutil.which("bwrap") is None:
        raise SandboxError("bubblewrap is not installed ('apt install bubblewrap'): there can be no sandboxes.")
    return "--disable-userns" in subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout


def check_namespaces(as_other_user: bool) -> None:
    """Make the smallest of sandboxes, as the user that sandboxes will have. Raises :class:`SandboxError`, which says what to do."""
    try:
        tried = subprocess.run(
            ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "--unshare-user", "--die-with-parent", "/bin/true"],
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=_become_other_user if as_other_user else None,
        )
    except OSError as error:
        raise SandboxError(f"The users of sandboxes cannot run {shutil.which('bwrap')}: {error.strerror}.") from error
    if tried.returncode != 0:
        raise SandboxError(
            "bubblewrap can make no namespaces on this machine, so there can be no sandboxes. "
            + how_to_allow_namespaces(Path("/proc/sys"))
            + f"\nbubblewrap said: {tried.stderr.strip() or tried.returncode}"
        )


def _become_other_user() -> None:
    os.setgroups([])
    os.setresgid(HOST_UIDS_FROM, HOST_UIDS_FROM, HOST_UIDS_FROM)
    os.setresuid(HOST_UIDS_FROM, HOST_UIDS_FROM, HOST_UIDS_FROM)


# Names under /proc/sys, the value that forbids, the one that allows, and who sets it.
_NAMESPACE_SWITCHES: Final = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0", "AppArmor keeps user namespaces from programs (Ubuntu 23.10 on)"),
    ("kernel/unprivileged_userns_clone", "0", "1", "This kernel keeps user namespaces to root (Debian and others)"),
    ("user/max_user_namespaces", "0", "15000", "The number of user namespaces is set to none (Red Hat and others)"),
)


def how_to_allow_namespaces(sysctl: Path) -> str:
    """What the owner of this machine must do; ``sysctl`` is ``/proc/sys``."""
    for name, forbids, allows, reason in _NAMESPACE_SWITCHES:
        path = sysctl / name
        if path.exists() and path.read_text().strip() == forbids:
            return f"{reason}. Please run:  sudo sysctl -w {name.replace('/', '.')}={allows}"
    return (
        "If this is a container itself, its engine forbids them: start it with "
        "'--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined', or with "
        "'--privileged', or use a virtual machine."
    )


@dataclass(frozen=True, slots=True)
class Bind:
    source: str
    target: str
    is_writable: bool = False


def binds(site: Site, directory: Path, egress: EgressSpec | None) -> list[Bind]:
    """What a sandbox sees of this machine beside ``/usr`` and some of ``/etc``."""
    toolbox = site.toolbox
    seen = [Bind(str(site.state_dir / "etc" / name), f"/etc/{name}") for name in _ETC_FILES]
    seen += [Bind(str(site.server_dir), SERVER), Bind(str(site.server), COMPILED_SERVER)]
    if toolbox is not None:
        seen += [Bind(prefix, prefix) for prefix in toolbox.interpreter_prefixes]
        seen.append(Bind(str(toolbox.venv), TOOLBOX))
    if egress is not None:
        seen.append(Bind(str(_socket_of(egress).parent), EGRESS))
    writable = {"data": "/mnt/data", "home": "/home/user", "spool": "/tmp/.exec"}
    return seen + [Bind(str(directory / name), target, is_writable=True) for name, target in writable.items()]


def bwrap_arguments(site: Site, visible: Sequence[Bind]) -> list[str]:
    """The whole command line but for descriptors and the command. The order is that of the mounts."""
    arguments = ["bwrap", "--unshare-all", "--unshare-user", "--uid", str(SANDBOX_UID), "--gid", str(SANDBOX_UID)]
    arguments += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--clearenv"]
    if site.has_disable_userns:
        arguments.append("--disable-userns")
    for name in ("etc", "home", "mnt", "opt", "run", "var"):
        arguments += ["--perms", "0755", "--dir", f"/{name}"]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        arguments += _system_directory(name)
    for name in _ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    arguments += ["--proc", "/proc", *_closed_proc(), "--dev", "/dev"]
    for path, size in _SCRATCH.items():
        arguments += ["--perms", "1777", "--size", str(size), "--tmpfs", path]
    arguments += ["--symlink", "/tmp", "/var/tmp", "--symlink", site.python, f"{FALLBACK}/python"]
    for bind in visible:
        arguments += ["--bind" if bind.is_writable else "--ro-bind", bind.source, bind.target]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/mnt/data"]


def _system_directory(name: str) -> list[str]:
    path = Path("/") / name
    if path.is_symlink():
        return ["--symlink", os.readlink(path), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.is_dir() else []


def _closed_proc() -> list[str]:
    arguments = []
    for name in _PROC_READ_ONLY:
        arguments += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for name in _PROC_HIDDEN_DIRECTORIES:
        if os.path.isdir(f"/proc/{name}"):
            arguments += ["--size", "4096", "--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
    for name in _PROC_HIDDEN_FILES:
        if os.path.exists(f"/proc/{name}"):
            arguments += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return arguments


def server_config(site: Site, spec: SandboxSpec) -> dict[str, Any]:
    """What the exec server reads from its stdin."""
    toolbox = {"VIRTUAL_ENV": TOOLBOX} if site.toolbox else {}
    egress = trust.environment(_proxy_url(spec.egress), CA_BUNDLE) if spec.egress else {}
    return {
        "token": spec.token,
        "unclaimed": spec.is_unclaimed,
        "listen": f"fd:{LISTENING_FD}",
        "env": {**toolbox, **egress, **spec.env},
        "path": ":".join([f"{SERVER}/bin", *([f"{TOOLBOX}/bin"] if site.toolbox else []), _SYSTEM_PATH, FALLBACK]),
        "python": f"{TOOLBOX}/bin/python" if site.toolbox else site.python,
        "python_session": f"{SERVER}/python_session.py",
        "egress": _egress_config(spec.egress) if spec.egress else None,
        "limits": {
            "processes": limits.CONTAINER_PROCESSES_MAX,
            "open_files": limits.CONTAINER_OPEN_FILES_MAX,
            "process_bytes": 0 if site.groups.are_available else spec.memory_gib * 1024**3,
            "disk_bytes": site.disk_bytes_max,
            "spool_bytes": limits.OUTPUT_SPOOL_BYTES_MAX,
        },
    }


def _proxy_url(egress: EgressSpec) -> str:
    return trust.proxy_url(FORWARDER, egress.username, egress.password)


def _egress_config(egress: EgressSpec) -> dict[str, str]:
    return {
        "socket": f"{EGRESS}/{_socket_of(egress).name}",
        "ca_pem": egress.ca_pem,
    }


def _socket_of(egress: EgressSpec) -> Path:
    if not egress.proxy.startswith("unix:"):
        raise SandboxError("A local sandbox has no network: the egress proxy must be a Unix socket.")
    return Path(egress.proxy.removeprefix("unix:"))


@dataclass(slots=True, eq=False)
class Sandbox:
    sandbox_id: str
    tenant_id: str
    container_id: str
    directory: Path
    endpoint: str
    process: subprocess.Popen[bytes]
    first_process: int
    """The exec server's process id, seen from here."""
    uid: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Bubblewrap:
    """All sandboxes of one owner. Not a :class:`Provisioner` itself: it lives in the owner's process, and others ask by HTTP."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._by_id: dict[str, Sandbox] = {}
        self._by_container: dict[tuple[str, str], Sandbox] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._uids = itertools.cycle(range(HOST_UIDS_FROM, HOST_UIDS_FROM + HOST_UIDS))
        self._starting = 0

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Idempotent per container; two callers at once get the same sandbox."""
        key = (spec.tenant_id, spec.container_id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = self._by_container.get(key)
            if known is not None:
                return known
            if len(self._by_id) + self._starting >= self._site.sandboxes_max:
                raise SandboxCapacity(f"{self._site.sandboxes_max} sandboxes are running on this machine; it takes no more.")
            self._starting += 1
            try:
                return await self._start(key, spec)
            finally:
                self._starting -= 1

    async def stop(self, sandbox_id: str) -> None:
        """Kill it and wait until it is cleared away."""
        sandbox = self._by_id.get(sandbox_id)
        if sandbox is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(sandbox.first_process, signal.SIGKILL)
        await asyncio.wait_for(sandbox.ended.wait(), limits.SANDBOX_START_SECONDS)

    async def stop_all(self) -> None:
        await asyncio.gather(*(self.stop(sandbox_id) for sandbox_id in list(self._by_id)))

    def describe(self, sandbox_id: str) -> SandboxStatus:
        return SandboxStatus.RUNNING if sandbox_id in self._by_id else SandboxStatus.STOPPED

    def running(self) -> list[Sandbox]:
        return list(self._by_id.values())

    async def _start(self, key: tuple[str, str], spec: SandboxSpec) -> Sandbox:
        sandbox = self._spawn(spec)
        self._by_id[sandbox.sandbox_id] = sandbox
        self._watch(sandbox)
        try:
            await self._until_healthy(sandbox, spec.token)
        except BaseException:
            await self.stop(sandbox.sandbox_id)
            raise
        if not sandbox.ended.is_set():
            self._by_container[key] = sandbox
        return sandbox

    def _spawn(self, spec: SandboxSpec) -> Sandbox:
        sandbox_id = f"sbx_{secrets.token_hex(12)}"
        directory = self._site.state_dir / "sandboxes" / sandbox_id
        uid = self._free_uid()
        visible = binds(self._site, directory, spec.egress)
        for bind in visible:
            if bind.is_writable:
                os.makedirs(bind.source, mode=0o755)
                os.chown(bind.source, uid, uid if self._site.runs_as_other_users else -1)
            elif not os.path.exists(bind.source):
                shutil.rmtree(directory, ignore_errors=True)
                raise SandboxError(f"{bind.source} does not exist, which the sandbox should see as {bind.target}.")
        if spec.egress is not None and self._site.runs_as_other_users:
            # Connecting takes the right to write. Only those who see the directory get this far.
            with contextlib.suppress(FileNotFoundError):
                os.chmod(_socket_of(spec.egress), 0o666)
        endpoint = self._site.runtime_dir / f"{sandbox_id}.sock"
        config = json.dumps(server_config(self._site, spec)).encode()
        try:
            joins = self._site.groups.create(sandbox_id, spec.memory_gib)
            process, first_process = spawn(self._site, directory, endpoint, visible, config, joins, uid)
        except BaseException:
            endpoint.unlink(missing_ok=True)
            self._site.groups.remove(sandbox_id)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return Sandbox(sandbox_id, spec.tenant_id, spec.container_id, directory, f"unix:{endpoint}", process, first_process, uid)

    def _free_uid(self) -> int:
        if not self._site.runs_as_other_users:
            return os.geteuid()
        taken = {sandbox.uid for sandbox in self._by_id.values()}
        return next(uid for uid in self._uids if uid not in taken)

    def _watch(self, sandbox: Sandbox) -> None:
        task = asyncio.create_task(self._until_ended(sandbox))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _until_ended(self, sandbox: Sandbox) -> None:
        """Notice the end of a sandbox, whoever brought it about, and clear it away."""
        await ended(sandbox.process)
        self._forget(sandbox)
        await ended(start_removing(sandbox.directory))
        for _ in range(_GROUP_REMOVALS_MAX):
            if self._site.groups.remove(sandbox.sandbox_id):
                break
            await asyncio.sleep(0.05)  # processes that are on their way out still hold it
        sandbox.ended.set()

    def _forget(self, sandbox: Sandbox) -> None:
        del self._by_id[sandbox.sandbox_id]
        key = (sandbox.tenant_id, sandbox.container_id)
        if self._by_container.get(key) is sandbox:
            del self._by_container[key]
        Path(sandbox.endpoint.removeprefix("unix:")).unlink(missing_ok=True)

    async def _until_healthy(self, sandbox: Sandbox, token: str) -> None:
        async with ExecClient(Handle(sandbox.endpoint, token, sandbox.sandbox_id)) as client:
            try:
                await asyncio.wait_for(client.health(), limits.SANDBOX_START_SECONDS)
            except (SandboxGone, TimeoutError) as error:
                raise SandboxError(f"The sandbox did not come up. {_last_words(sandbox.directory)}") from error


def spawn(
    site: Site, directory: Path, endpoint: Path, visible: Sequence[Bind], config: bytes, joins: Sequence[Path], uid: int
) -> tuple[subprocess.Popen[bytes], int]:
    """Start one bwrap. Returns it with the process id of the first process in it. Raises :class:`SandboxError`."""
    stage = site.runtime_dir / "stage" if site.runs_as_other_users else None
    sources = [Bind(f"{stage}/{index}", bind.target, bind.is_writable) if stage else bind for index, bind in enumerate(visible)]
    info_reading, info_writing = os.pipe()
    config_fd, filter_fd = _memory_file(config), _memory_file(seccomp.program())
    arguments = bwrap_arguments(site, sources)
    arguments += ["--seccomp", str(SECCOMP_FD), "--info-fd", str(info_writing)]
    arguments += [site.python, "-I", "-S", COMPILED_SERVER, "--config-fd", "0"]
    try:
        with _listen(endpoint) as listener, open(directory / "sandbox.log", "wb") as output:

            def become_bwrap() -> None:
                for path in joins:
                    path.write_text("0")
                if stage is not None:
                    _private_mounts()
                    _stage([bind.source for bind in visible], stage)
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                _keep_descriptors({listener.fileno(): LISTENING_FD, filter_fd: SECCOMP_FD}, info_writing)

            process = subprocess.Popen(
                arguments,
                stdin=config_fd,
                stdout=output,
                stderr=output,
                env={"PATH": os.defpath},
                close_fds=False,
                cwd="/",
                preexec_fn=become_bwrap,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"bubblewrap could not be started: {error}") from error
    finally:
        for fd in (info_writing, config_fd, filter_fd):
            os.close(fd)
        # bwrap writes its report before it runs the command, and nothing if it fails.
        with os.fdopen(info_reading, "rb") as info:
            report = info.read()
    if not report:
        process.wait()
        raise SandboxError(f"bubblewrap could not start the sandbox. {_last_words(directory)}")
    return process, json.loads(report)["child-pid"]


def _last_words(directory: Path) -> str:
    try:
        return (directory / "sandbox.log").read_text(errors="replace")[-500:]
    except FileNotFoundError:
        return ""


def _keep_descriptors(wanted: dict[int, int], also: int) -> None:
    """Give descriptors their numbers and close all others but the standard ones and ``also``."""
    high = {os.dup2(fd, 200 + index): number for index, (fd, number) in enumerate(wanted.items())}
    kept = os.dup2(also, 250)
    for fd, number in high.items():
        os.dup2(fd, number)
    os.dup2(kept, also)
    last = max(wanted.values())
    os.closerange(last + 1, also)
    os.closerange(max(also, last) + 1, 65_536)


_CLONE_NEWNS: Final = 0x00020000
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18


def _private_mounts() -> None:
    """Mounts that this process makes from now on are its own."""
    _system_call("unshare", _CLONE_NEWNS)
    _system_call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def _stage(sources: Sequence[str], stage: Path) -> None:
    """Show ``sources`` as ``stage/0``, ``stage/1`` ...: the sandbox's user may have no way through the directories above them."""
    _system_call("mount", b"tmpfs", str(stage).encode(), b"tmpfs", 0, b"size=65536,mode=0755")
    for index, source in enumerate(sources):
        target = stage / str(index)
        if os.path.isdir(source):
            target.mkdir()
        else:
            target.touch()
        _system_call("mount", source.encode(), str(target).encode(), None, _MS_BIND | _MS_REC, None)


def _system_call(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("moorage", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        os.chmod(path, 0o600)
        listener.listen(1024)
    except BaseException:
        listener.close()
        raise
    return listener


async def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a child without a thread: a process with threads should not fork."""
    loop, pidfd = asyncio.get_running_loop(), os.pidfd_open(process.pid)
    has_ended = asyncio.Event()
    loop.add_reader(pidfd, has_ended.set)
    try:
        await has_ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    process.wait()


def start_removing(path: Path) -> subprocess.Popen[bytes]:
    """Remove a directory although its owner may have taken the permissions away. Another process, for there may be 100,000 files."""
    script = 'chmod -R u+rwX "$0" 2>/dev/null; exec rm -rf "$0"'
    return subprocess.Popen(["/bin/sh", "-c", script, str(path)], stdin=subprocess.DEVNULL)
