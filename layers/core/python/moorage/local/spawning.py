import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from moorage.errors import SandboxError
from moorage.local import seccomp
from moorage.local.site import Site
from moorage.local.system_calls import bind_mount, mount, private_mounts
from moorage.local.walls import COMPILED_SERVER, LISTENING_FD, Bind, bwrap_arguments

SECCOMP_FD: Final = 4


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
                    private_mounts()
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
        raise SandboxError(f"bubblewrap could not start the sandbox. {last_words(directory)}")
    return process, json.loads(report)["child-pid"]


def last_words(directory: Path) -> str:
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


def _stage(sources: Sequence[str], stage: Path) -> None:
    """Show ``sources`` as ``stage/0``, ``stage/1`` ...: the sandbox's user may have no way through the directories above them."""
    mount("tmpfs", str(stage), "tmpfs", 0, "size=65536,mode=0755")
    for index, source in enumerate(sources):
        target = stage / str(index)
        if os.path.isdir(source):
            target.mkdir()
        else:
            target.touch()
        bind_mount(source, str(target))


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
