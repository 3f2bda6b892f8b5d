import asyncio
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxError
from moorage.local.bubblewrap_arguments import (
    COMPILED_SERVER,
    CONTROL_FD,
    DATA,
    GROUPS_FD,
    LISTENING_FD,
    NEIGHBOUR_FD,
    WORKSPACE,
    BindMount,
    CopiedFile,
    bwrap_arguments,
    finish_arguments,
    group_files,
)
from moorage.local.control_groups import ControlGroup
from moorage.local.disks import Disk
from moorage.local.sandbox_paths import TERMINALS_NAME, Site
from moorage.local.system_calls import bind_mount, mount, own_namespaces, private_mounts
from moorage.local.terminals import mount_terminals

SECCOMP_FD: Final = 4
INFO_FD: Final = 5
FIRST_HANDED_FD: Final = 6
"""Of what is handed over beside these; control groups follow."""


@dataclass(frozen=True, slots=True)
class SpawnPlan:
    """One sandbox that is to be started."""

    site: Site
    directory: Path
    endpoint: Path
    visible: Sequence[BindMount]
    configuration: int
    """The reading end of the pipe by which the exec server is told whom it serves: until that is closed it waits."""
    group: ControlGroup
    uid: int
    disk: Disk | None
    system_calls: bytes
    """A program of ``seccomp.py``."""
    handed: Sequence[int]
    """Descriptors for the exec server, from ``FIRST_HANDED_FD`` on."""
    files: Sequence[CopiedFile]
    scratch: Mapping[str, int]
    """Directories in memory, with their bytes."""
    directory_inside: str = "/"
    """Where the exec server starts."""
    has_namespaces: bool = False
    """Whether what runs in it may make namespaces of its own."""
    hands_workspace: bool = False
    """The exec server is handed the workspace's directory, behind the control groups: its own mount of it can only be read."""

    @property
    def stage(self) -> Path | None:
        """The folder of a root launcher's files for users without access to the originals."""
        return self.site.runtime_dir / "stage" if self.site.runs_as_other_users else None


def spawn(plan: SpawnPlan) -> tuple[subprocess.Popen[bytes], int]:
    """Start one bwrap. Returns it with the process id of the first process in it. Raises :class:`SandboxError`."""
    info_reading, info_writing = os.pipe()
    with ExitStack() as stack:
        listener = stack.enter_context(listening_socket(plan.endpoint))
        output = stack.enter_context(open(plan.directory / "sandbox.log", "wb"))
        system_calls = stack.enter_context(_memory_file(plan.system_calls))
        wanted = [listener.fileno(), system_calls, info_writing, *plan.handed]
        wanted += [stack.enter_context(_opened(path, flags)) for path, flags in group_files(plan.group)]
        workspace = stack.enter_context(_opened(plan.directory, os.O_DIRECTORY))  # What is in it may not be there yet.
        wanted += [workspace] if plan.hands_workspace else []
        copies: list[str] = []
        for file in plan.files:
            copies += ["--perms", f"{file.mode:04o}", "--file", str(LISTENING_FD + len(wanted)), file.target]
            wanted.append(stack.enter_context(_memory_file(file.content)))
        arguments = [
            *_bwrap(plan),
            *copies,
            *finish_arguments(),
            "--chdir",
            plan.directory_inside,
            "--seccomp",
            str(SECCOMP_FD),
            "--info-fd",
            str(INFO_FD),
        ]
        arguments += [plan.site.python, "-I", "-S", COMPILED_SERVER, "--config-fd", "0"]

        try:
            process = subprocess.Popen(
                arguments,
                stdin=plan.configuration,
                stdout=output,
                stderr=output,
                env={"PATH": os.defpath},
                close_fds=False,
                cwd="/",
                preexec_fn=lambda: _become_bwrap(plan, wanted, workspace),
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(info_reading)
            raise SandboxError(f"bubblewrap could not be started: {error}") from error
        finally:
            os.close(info_writing)
    # bwrap writes its report before it runs the command, and nothing if it fails.
    with os.fdopen(info_reading, "rb") as info:
        report = info.read()
    if not report:
        process.wait()
        raise SandboxError(f"bubblewrap could not start the sandbox. {last_words(plan.directory)}")
    return process, json.loads(report)["child-pid"]


def _become_bwrap(plan: SpawnPlan, wanted: Sequence[int], workspace: int) -> None:
    # See seccomp.py, which keeps it so.
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    for path in plan.group.server:
        path.write_text("0")
    if plan.stage is not None:
        private_mounts()
        _stage(plan, plan.stage)
    elif plan.site.has_terminals:
        own_namespaces()
        mount_terminals(plan.site.terminals)
    if plan.hands_workspace:
        os.dup2(_data_of(plan), workspace)
    if plan.stage is not None:
        os.setgroups([])
        os.setresgid(plan.uid, plan.uid, plan.uid)
        os.setresuid(plan.uid, plan.uid, plan.uid)
    _keep_descriptors(wanted)


def _bwrap(plan: SpawnPlan) -> list[str]:
    visible, terminals = plan.visible, plan.site.terminals
    if plan.stage is not None:
        visible = [BindMount(f"{plan.stage}/{index}", bind.target, bind.is_writable) for index, bind in enumerate(plan.visible)]
        terminals = plan.stage / TERMINALS_NAME
    shown = str(terminals) if plan.site.has_terminals else None
    return bwrap_arguments(plan.site, visible, shown, plan.scratch, has_namespaces=plan.has_namespaces)


def _data_of(plan: SpawnPlan) -> int:
    """The workspace's directory, open, where it is mounted by now."""
    source = str(plan.directory / DATA)
    if plan.stage is not None:
        source = f"{plan.stage}/{[bind.source for bind in plan.visible].index(source)}"
    return os.open(source, os.O_RDONLY | os.O_DIRECTORY)


def last_words(directory: Path) -> str:
    try:
        return (directory / "sandbox.log").read_text(errors="replace")[-500:]
    except FileNotFoundError:
        return ""


def _keep_descriptors(wanted: Sequence[int]) -> None:
    """Number descriptors from ``LISTENING_FD`` on in their order, and close all others but the standard ones."""
    after = LISTENING_FD + len(wanted)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, after) for fd in wanted]
    for number, fd in enumerate(high, LISTENING_FD):
        os.dup2(fd, number)
    os.closerange(after, 65_536)


assert tuple(range(LISTENING_FD + 1, LISTENING_FD + 6)) == (SECCOMP_FD, INFO_FD, CONTROL_FD, NEIGHBOUR_FD, GROUPS_FD)
assert FIRST_HANDED_FD == CONTROL_FD


def _stage(plan: SpawnPlan, stage: Path) -> None:
    """Show things as ``stage/0``, ``stage/1`` ...: the sandbox's user may have no way through the directories above them."""
    mount("tmpfs", str(stage), "tmpfs", 0, "size=65536,mode=0755")
    if plan.site.has_terminals:
        (stage / TERMINALS_NAME).mkdir()
        mount_terminals(stage / TERMINALS_NAME)
    workspace = plan.directory
    if plan.disk is not None:
        workspace = stage / "disk"
        workspace.mkdir()
        plan.disk.mount(workspace)
        make_workspace(workspace, plan.uid)
    for index, bind in enumerate(plan.visible):
        source = Path(bind.source)
        if source.parent == plan.directory:
            source = workspace / source.name
        target = stage / str(index)
        if source.is_dir():
            target.mkdir()
        else:
            target.touch()
        bind_mount(str(source), str(target))


def make_workspace(directory: Path, uid: int) -> None:
    for name in WORKSPACE:
        (directory / name).mkdir(mode=0o755, parents=True)
        os.chown(directory / name, uid, uid if os.geteuid() == 0 else -1)


@contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    fd = os.memfd_create("moorage", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def listening_socket(path: Path) -> socket.socket:
    """Nobody can connect before ``listen``, and by then the socket is ours alone."""
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


async def kill(first_process: int, cleared: asyncio.Event) -> None:
    """Kill all of a sandbox or desk by its first process, and wait until its owner has cleared it away."""
    with suppress(ProcessLookupError):
        os.kill(first_process, signal.SIGKILL)
    await asyncio.wait_for(cleared.wait(), limits.SANDBOX_START_SECONDS)
