"""Starting a program in a copy of this process, without Python's own preparations for a life in the copy.

``os.fork``, and ``subprocess`` with a function before ``exec``, give the copy new locks and seeds, module by module. That touches two
hundred pages, which the kernel copies one by one, and takes a fifth of the time of a short command. A copy that only lowers its limits
and becomes another program needs none of it, and ``_Fork`` (POSIX.1-2024) leaves it out. A lock of another thread would stay taken in
the copy. So this is for a process with one thread.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import signal
import sys
import threading
from typing import Callable, Dict, List, NoReturn, Tuple

_LIBC = ctypes.PyDLL(None, use_errno=True)
"""Its functions are called with the interpreter's lock held: the copy has it too."""
_FORK = getattr(_LIBC, "_Fork", None)
_LIBC.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
_LIBC.signal.restype = ctypes.c_void_p
_SIG_DFL = None
_IGNORED = (int(signal.SIGPIPE), int(signal.SIGXFSZ))
"""By Python; programs do not expect that."""
_FIRST_OTHER_FD = 3
_CAN_CLOSE_MANY = sys.version_info >= (3, 10)
"""Older ones close descriptors one by one, used or not."""


def is_possible(streams: Tuple[int, int, int]) -> bool:
    return _FORK is not None and _CAN_CLOSE_MANY and threading.active_count() == 1 and min(streams) >= _FIRST_OTHER_FD


def start(
    arguments: List[str],
    before: Callable[[], None],
    *,
    cwd: str,
    env: Dict[str, str],
    streams: Tuple[int, int, int],
    pass_fds: Tuple[int, ...],
    umask: int,
) -> int:
    """Start a program in a session of its own and return its process id. ``before`` is called in the new process, last of all.

    Raises OSError if the program cannot be started, as ``subprocess.Popen`` does.
    """
    assert _FORK is not None
    fds_end = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    reading, writing = os.pipe()
    try:
        pid: int = _FORK()
        if pid == 0:
            _become(arguments, before, cwd, env, streams, pass_fds, umask, writing, fds_end)
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        os.close(writing)
        writing = -1
        failed = os.read(reading, 20)  # Nothing comes of a program that has begun: exec closes the other end.
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    if failed:
        os.waitpid(pid, 0)
        raise OSError(int(failed), os.strerror(int(failed)))
    return pid


def _become(
    arguments: List[str],
    before: Callable[[], None],
    cwd: str,
    env: Dict[str, str],
    streams: Tuple[int, int, int],
    pass_fds: Tuple[int, ...],
    umask: int,
    writing: int,
    fds_end: int,
) -> NoReturn:
    """In the copy. It ends here whatever happens: what is above in the stack belongs to the server."""
    number = errno.EINVAL
    try:
        gc.disable()
        for place, fd in enumerate(streams):
            os.dup2(fd, place)
        os.chdir(cwd)
        os.umask(umask)
        for ignored in _IGNORED:  # Without Python's function, whose enumerations take a tenth of a millisecond here.
            _LIBC.signal(ignored, _SIG_DFL)
        os.setsid()
        before()
        first = _FIRST_OTHER_FD
        for kept in sorted((*pass_fds, writing)):
            os.closerange(first, kept)
            first = kept + 1
        os.closerange(first, fds_end)
        for fd in pass_fds:
            os.set_inheritable(fd, True)
        # The search for a program makes lists of folders, and takes as long.
        (os.execve if "/" in arguments[0] else os.execvpe)(arguments[0], arguments, env)
    except OSError as error:
        number = error.errno or number
    finally:
        os.write(writing, b"%d" % number)
        os._exit(127)
