"""A sandbox's view of this machine, and the input of its first process."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress import trust
from moorage.errors import SandboxError
from moorage.local.control_groups import ControlGroup
from moorage.local.sandbox_paths import ETC_FILES, Site
from moorage.sandbox.provisioner import EgressSpec, SandboxSpec
from moorage.skills.bundle import SKILLS

SERVER: Final = "/opt/moorage"
COMPILED_SERVER: Final = "/opt/exec_server.zip"
TOOLBOX: Final = "/opt/toolbox"
EGRESS: Final = "/run/egress"
LISTENING_FD: Final = 3
CONTROL_FD: Final = 6
NEIGHBOUR_FD: Final = 7
GROUPS_FD: Final = 8
"""The first of the commands' control groups; others follow."""
TERMINALS: Final = "/dev/pts"
FALLBACK: Final = "/opt/fallback"
"""Last on the PATH: ``python``, where neither the toolbox nor the system has it under this name."""

SANDBOX_UID: Final = 1000
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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
    "php",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
SCRATCH: Final = {"/tmp": limits.SANDBOX_TMP_SHARE, "/dev/shm": limits.SANDBOX_SHM_SHARE}
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
class BindMount:
    source: str
    target: str
    is_writable: bool = False


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A copy for a sandbox. A mount would show its place on this machine in ``/proc/self/mountinfo``."""

    target: str
    content: bytes
    mode: int = 0o644


_SESSIONS: Final = ("python_session.py", "javascript_session.js")


def exec_server_files(site: Site) -> list[CopiedFile]:
    """What the exec server itself needs."""
    seen = [CopiedFile(f"/etc/{name}", content.encode()) for name, content in ETC_FILES.items()]
    return [*seen, CopiedFile(COMPILED_SERVER, site.server.read_bytes())]


def files(site: Site) -> list[CopiedFile]:
    seen = exec_server_files(site)
    seen += [CopiedFile(f"{SERVER}/{name}", (site.server_dir / name).read_bytes()) for name in (*_SESSIONS, "matplotlibrc")]
    programs = sorted((site.server_dir / "bin").iterdir())
    return seen + [CopiedFile(f"{SERVER}/bin/{program.name}", program.read_bytes(), 0o755) for program in programs]


def binds(site: Site, directory: Path, skills: Path, egress: EgressSpec | None, *, is_read_only: bool = False) -> list[BindMount]:
    """A sandbox's view of this machine beside ``/usr`` and some of ``/etc``."""
    toolbox = site.toolbox
    seen = [BindMount(str(skills), SKILLS)]
    if toolbox is not None:
        seen += [BindMount(prefix, prefix) for prefix in toolbox.interpreter_prefixes]
        seen.append(BindMount(str(toolbox.venv), TOOLBOX))
    if egress is not None:
        seen.append(BindMount(str(socket_of(egress).parent), EGRESS))
    closed = {DATA} if is_read_only else set()
    return seen + [BindMount(str(directory / name), target, is_writable=name not in closed) for name, target in WORKSPACE.items()]


DATA: Final = "data"
WORKSPACE: Final = {DATA: "/mnt/data", "home": "/home/user", "spool": "/tmp/.exec"}
"""The directories that hold what a container writes, and count against its quota."""
LINK: Final = "/workspace"
"""The workspace by the name that it has in OpenAI's Agents API."""


def bwrap_arguments(
    site: Site, visible: Sequence[BindMount], terminals: str | None, scratch: Mapping[str, int], *, has_namespaces: bool = False
) -> list[str]:
    """The whole command line but for descriptors and the command. The order is that of the mounts.

    ``scratch`` are directories in memory, with their bytes. ``has_namespaces``: what runs in it may make namespaces of its own.
    """
    arguments = ["bwrap", "--unshare-all", "--unshare-user", "--uid", str(SANDBOX_UID), "--gid", str(SANDBOX_UID)]
    arguments += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--clearenv"]
    if site.has_disable_userns and not has_namespaces:
        arguments.append("--disable-userns")
    for name in ("etc", "home", "mnt", "opt", "run", "var"):
        arguments += ["--perms", "0755", "--dir", f"/{name}"]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        arguments += _system_directory(name)
    for name in (*_ETC, *sorted(path.name for path in Path("/etc").glob("java-*-openjdk"))):
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    arguments += ["--proc", "/proc", *_closed_proc(), "--dev", "/dev"]
    if terminals is not None:
        arguments += ["--dev-bind", terminals, TERMINALS]
    for path, size in scratch.items():
        arguments += ["--perms", "1777", "--size", str(size), "--tmpfs", path]
    arguments += ["--symlink", WORKSPACE["data"], LINK, "--symlink", "/tmp", "/var/tmp", "--symlink", site.python, f"{FALLBACK}/python"]
    for bind in visible:
        arguments += ["--bind" if bind.is_writable else "--ro-bind", bind.source, bind.target]
    return arguments


def finish_arguments() -> list[str]:
    """Nothing more is written if no command may."""
    return ["--remount-ro", "/dev", "--remount-ro", "/"]


def scratch_of(memory_gib: int) -> dict[str, int]:
    """The directories in memory of a sandbox, with their bytes."""
    return {path: memory_gib * 1024**3 // share for path, share in SCRATCH.items()}


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


def server_config(site: Site, spec: SandboxSpec, group: ControlGroup) -> dict[str, Any]:
    """The exec server's input on stdin."""
    toolbox = {"VIRTUAL_ENV": TOOLBOX} if site.toolbox else {}
    egress = trust.environment(_proxy_url(spec.egress), trust.CA_BUNDLE) if spec.egress else {}
    return {
        "token": spec.token,
        "unclaimed": spec.is_unclaimed,
        "listen": f"fd:{LISTENING_FD}",
        "env": {**toolbox, **egress, **spec.env},
        "path": ":".join([f"{SERVER}/bin", *([f"{TOOLBOX}/bin"] if site.toolbox else []), SYSTEM_PATH, FALLBACK]),
        "python": f"{TOOLBOX}/bin/python" if site.toolbox else site.python,
        "python_session": f"{SERVER}/{_SESSIONS[0]}",
        "javascript_session": f"{SERVER}/{_SESSIONS[1]}",
        "egress": _egress_config(spec.egress) if spec.egress else None,
        "control_fd": CONTROL_FD,
        "neighbour_fd": NEIGHBOUR_FD,
        **({"read_only": True, "workspace_fd": workspace_fd(group)} if spec.is_read_only else {}),
        "owns_disk": site.disks is not None,
        "groups": groups_config(group, GROUPS_FD),
        "scratch": list(SCRATCH),
        "limits": {
            "processes": limits.CONTAINER_PROCESSES_MAX,
            "memory_bytes": spec.memory_gib * 1024**3 if group.commands else 0,
            "open_files": limits.CONTAINER_OPEN_FILES_MAX,
            "process_bytes": 0 if group.commands else spec.memory_gib * 1024**3,
            "disk_bytes": site.disk_bytes_max,
            # The launcher looks after what is left: it knows who has taken the rest.
            "disk_reserve_bytes": 0,
            "spool_bytes": limits.OUTPUT_SPOOL_BYTES_MAX,
        },
    }


def groups_config(group: ControlGroup, first_fd: int) -> dict[str, Any]:
    """Numbers of descriptors, in the order in which :func:`group_files` names the files."""
    if not group.commands:
        return {}
    joins = list(range(first_fd, first_fd + len(group.commands)))
    return {"join": joins, "memory_events": joins[-1] + 1, "process_events": joins[-1] + 2}


def workspace_fd(group: ControlGroup) -> int:
    """Of a workspace that commands can only read: its directory, where the exec server may write."""
    return GROUPS_FD + len(group_files(group))


def group_files(group: ControlGroup) -> list[tuple[Path, int]]:
    """The exec server's control groups, with the flags to open them by."""
    events = [path for path in (group.memory_events, group.process_events) if path is not None]
    return [(path, os.O_WRONLY) for path in group.commands] + [(path, os.O_RDONLY) for path in events]


def _proxy_url(egress: EgressSpec) -> str:
    return trust.proxy_url(trust.FORWARDER, egress.username, egress.password)


def _egress_config(egress: EgressSpec) -> dict[str, str]:
    return {
        "socket": f"{EGRESS}/{socket_of(egress).name}",
        "ca_pem": egress.ca_pem,
    }


def socket_of(egress: EgressSpec) -> Path:
    if not egress.proxy.startswith("unix:"):
        raise SandboxError("A local sandbox has no network: the egress proxy must be a Unix socket.")
    return Path(egress.proxy.removeprefix("unix:"))
