from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import Any, Dict, Iterator, List, Optional, Set

from configuration import ServerConfig
from request_errors import RequestError, disk_full, no_such_file

BATCH_FILE_BYTES_MAX = 256 * 1024
"""A file in an answer that holds many; each is read whole, so that its length stands before it."""
TREE_DEPTH_MAX = 100
UPLOAD_PREFIX = ".moorage-upload-"
LINK = "/workspace"
"""Another name of the directory, for commands and models; no link is followed to find it."""


class Workspace:
    """The files under one directory. No path leaves it: each component is opened without following links."""

    def __init__(self, config: ServerConfig) -> None:
        self.root = config.workspace
        self._under_way: Set[str] = set()
        """Names that no listing shows, for their files are not whole."""
        is_root = config.uid is not None and os.geteuid() == 0
        self._uid = config.uid if is_root and not config.read_only else None
        if config.read_only and not is_root and config.workspace_fd is None:
            raise ValueError("nothing keeps commands from changing a workspace that they should only read")
        self._is_read_only = config.read_only
        self._is_sealed = False
        self._writable = config.workspace_fd
        if config.workspace_fd is not None:
            os.set_inheritable(config.workspace_fd, False)
        elif config.read_only:
            os.makedirs(self.root, exist_ok=True)
            os.chown(self.root, 0, 0)
            os.chmod(self.root, 0o755)

    def seal(self) -> None:
        """Commands, which are not trusted, are about to begin: from now on a workspace for reading can only be read."""
        if self._is_read_only and not self._is_sealed:
            self._is_sealed = True
            if self._writable is not None:
                os.close(self._writable)
                self._writable = None

    def _check_open(self) -> None:
        if self._is_sealed:
            raise RequestError(409, "not_writable", f"The files below {self.root} can only be read.")

    def entries(self, root: str) -> Iterator[Optional[Dict[str, Any]]]:
        """Every file below ``root``; None if the tree is deeper than the bound or closed."""
        if os.path.normpath(root) != self.root:
            raise RequestError(400, "invalid_request", f"Only {self.root} can be listed.")
        try:
            stack = [(self._open_directory([]), "")]
        except FileNotFoundError:
            return
        iterators = [os.scandir(stack[0][0])]
        try:
            while stack:
                entry = next(iterators[-1], None)
                if entry is None:
                    iterators.pop().close()
                    os.close(stack.pop()[0])
                    continue
                directory, prefix = stack[-1]
                path = prefix + entry.name
                try:
                    status = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        if entry.name not in self._under_way:
                            yield listed(path, status)
                    elif len(stack) >= TREE_DEPTH_MAX:
                        yield None
                    else:
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                        stack.append((os.open(entry.name, flags, dir_fd=directory), path + "/"))
                        iterators.append(os.scandir(stack[-1][0]))
                except PermissionError:
                    yield None  # a directory that its owner has closed
                except OSError:
                    continue  # removed or replaced while we looked
        finally:
            for iterator in iterators:
                iterator.close()
            for fd, _ in stack:
                os.close(fd)

    def open_for_reading(self, path: str) -> int:
        *parents, name = self._components(path)
        try:
            directory = self._open_directory(parents)
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise no_such_file(path) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise no_such_file(path)
        return fd

    def small_content(self, path: str) -> Optional[bytes]:
        """All of a small file; None for one that is larger than ``BATCH_FILE_BYTES_MAX``, or that must be asked for alone to learn
        what is wrong with it."""
        try:
            fd = self.open_for_reading(path)
        except RequestError:
            return None
        with os.fdopen(fd, "rb") as file:
            content = file.read(BATCH_FILE_BYTES_MAX + 1)
        return content if len(content) <= BATCH_FILE_BYTES_MAX else None

    def delete(self, path: str) -> None:
        self._check_open()
        *parents, name = self._components(path)
        try:
            directory = self._open_directory(parents, changes=True)
            try:
                os.unlink(name, dir_fd=directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise no_such_file(path) from error

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[int]:
        """A descriptor to write a file with; the file appears under its name when all went well."""
        self._check_open()
        *parents, name = self._components(path)
        temporary = UPLOAD_PREFIX + secrets.token_hex(8)
        directory = -1
        self._under_way.add(temporary)
        try:
            directory = self._open_directory(parents, create=True, changes=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o644, dir_fd=directory)
            try:
                self._give_away(fd)
                yield fd
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise disk_full() from error
            raise RequestError(409, "not_writable", f"'{path}' cannot be written: {error.strerror}.") from error
        finally:
            self._under_way.discard(temporary)
            if directory >= 0:
                os.close(directory)

    def _components(self, path: str) -> List[str]:
        root = LINK if path == LINK or path.startswith(f"{LINK}/") else self.root
        relative = os.path.relpath(path, root) if path.startswith("/") else path
        components = [part for part in relative.split("/") if part not in ("", ".")]
        if not components or ".." in components or "\0" in path or len(components) > TREE_DEPTH_MAX:
            raise RequestError(400, "invalid_path", f"'{path}' is not a path below {self.root}.")
        return components

    def _open_directory(self, components: List[str], create: bool = False, changes: bool = False) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.root, flags) if self._writable is None or not changes else os.open(".", flags, dir_fd=self._writable)
        for component in components:
            try:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(component, 0o755, dir_fd=fd)
                        if self._uid is not None:
                            os.chown(component, self._uid, self._uid, dir_fd=fd, follow_symlinks=False)
                child = os.open(component, flags, dir_fd=fd)
            finally:
                os.close(fd)
            fd = child
        return fd

    def _give_away(self, fd: int) -> None:
        if self._uid is not None:
            os.fchown(fd, self._uid, self._uid)


def listed(path: str, status: os.stat_result) -> Dict[str, Any]:
    kind = "file" if stat.S_ISREG(status.st_mode) else "symlink" if stat.S_ISLNK(status.st_mode) else "other"
    name = os.fsencode(path)
    text = name.decode("utf-8", "replace")
    if text.encode() != name:
        kind = "not_utf8"  # such a name cannot be asked for again
    return {"path": text, "size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino, "kind": kind}
