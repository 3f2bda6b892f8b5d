"""A file system for each sandbox, in a file of the launcher's.

A container's quota should hold whatever its commands do: files that they map and delete, pass to each other over sockets, or hold in
processes that let nobody look. All of them are blocks of some file system, and a file system of one's own counts its blocks exactly and
has no more of them than it was made with. So each sandbox gets one: ext4 in a sparse file, by a loop device that goes with its last
mount. It is mounted in the sandbox's own mount namespace, so that nothing is left when the launcher is killed but the file.

This takes root and loop devices. If they cannot be had, workspaces are directories, and the exec server counts.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moorage.dataclass import dataclass
from moorage.errors import SandboxError
from moorage.local.system_calls import mount, private_mounts

IMAGE: Final = "disk.img"

# linux/loop.h
_CONTROL: Final = "/dev/loop-control"
_GET_FREE: Final = 0x4C82
_CONFIGURE: Final = 0x4C0A
_AUTOCLEAR: Final = 4
_DIRECT_IO: Final = 16
_CONFIG: Final = struct.Struct("=II40sIIII64s64s32s16s64s")
_DEVICES_TRIED_MAX: Final = 100

# linux/mount.h
_NOSUID: Final = 2
_NODEV: Final = 4
_NOATIME: Final = 1024

_INODE_BYTES: Final = 256
_BLOCK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system that is ready to be mounted, once."""

    device: str
    fd: int
    """Of the loop device, which ends with its last user: to be closed when it is mounted, or when it will not be."""

    def mount(self, target: Path) -> None:
        """In the calling process's mount namespace. Inode tables are not zeroed: their blocks were never written."""
        mount(self.device, str(target), "ext4", _NOSUID | _NODEV | _NOATIME, "discard,noinit_itable")

    def close(self) -> None:
        os.close(self.fd)


class Disks:
    """Makes file systems by copying an empty one."""

    def __init__(self, state_dir: Path, bytes_max: int, entries_max: int) -> None:
        """A file system holds a sixteenth more than ``bytes_max``: the watcher of the quota acts first, and says why."""
        self._template = state_dir / "empty-disk.img"
        self._inodes = min(entries_max, max(65_536, bytes_max // 16_384))
        self._bytes = bytes_max + bytes_max // 16 + 16 * 1024**2 + self._inodes * _INODE_BYTES

    def prepare(self) -> None:
        """Make the template, and try one. Raises :class:`SandboxError` if this cannot be done."""
        if shutil.which("mke2fs", path=_PROGRAMS) is None:
            raise SandboxError("mke2fs is not installed.")
        self._template.unlink(missing_ok=True)
        _make_file_system(self._template, self._bytes, self._inodes)
        with contextlib.ExitStack() as stack:
            disk = self.make(self._template.parent)
            stack.callback(os.unlink, self._template.parent / IMAGE)
            stack.callback(disk.close)
            try:
                subprocess.run(["/bin/true"], preexec_fn=lambda: _try(disk, self._template.parent), check=True)
            except (OSError, subprocess.SubprocessError) as error:
                raise SandboxError(f"A loop device cannot be mounted: {error}") from error

    def make(self, directory: Path) -> Disk:
        """Put a file system into ``directory``. Raises :class:`SandboxError`."""
        image = directory / IMAGE
        try:
            _copy_sparse(self._template, image)
            with open(image, "r+b") as file:
                device, fd = _attach(file.fileno())
        except OSError as error:
            raise SandboxError(f"The sandbox's disk could not be made: {error}") from error
        return Disk(device, fd)


_PROGRAMS: Final = "/usr/sbin:/sbin:/usr/bin:/bin"


def _make_file_system(image: Path, size: int, inodes: int) -> None:
    with open(image, "wb") as file:
        file.truncate(size - size % _BLOCK_BYTES)
    # No journal: a file system that ends with its sandbox is never repaired.
    options = ["-F", "-q", "-t", "ext4", "-b", str(_BLOCK_BYTES), "-I", str(_INODE_BYTES), "-N", str(inodes), "-m", "0"]
    options += ["-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard"]
    made = subprocess.run(["mke2fs", *options, str(image)], capture_output=True, text=True, env={"PATH": _PROGRAMS})
    if made.returncode != 0:
        raise SandboxError(f"mke2fs failed: {made.stderr.strip()}")


def _try(disk: Disk, target: Path) -> None:
    private_mounts()
    disk.mount(target)


def _copy_sparse(source: Path, target: Path) -> None:
    with open(source, "rb") as reading, open(target, "wb") as writing:
        size = os.fstat(reading.fileno()).st_size
        writing.truncate(size)
        for start, end in _data(reading.fileno(), size):
            while start < end:
                start += os.pwrite(writing.fileno(), os.pread(reading.fileno(), min(end - start, 1 << 20), start), start)


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The written ranges of a sparse file."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:
            return  # nothing but a hole is left
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def _attach(image_fd: int) -> tuple[str, int]:
    """A loop device for the file. Others may take the free one first, so there are several tries."""
    config = _CONFIG.pack(image_fd, _BLOCK_BYTES, bytes(40), 0, 0, 0, _AUTOCLEAR | _DIRECT_IO, b"", b"", b"", b"", b"")
    with open(_CONTROL, "r+b", buffering=0) as control:
        for _ in range(_DEVICES_TRIED_MAX):
            device = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(fd, _CONFIGURE, config)
            except OSError:
                os.close(fd)
                continue
            return device, fd
    raise OSError("no loop device is free")
