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
import signal
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
_LAST_FD = 0xFFFFFFFF
_CLOSE_RANGE = getattr(_LIBC, "close_range", None)
if _CLOSE_RANGE is not None:
    _CLOSE_RANGE.argtypes = (ctypes.c_uint, ctypes.c_uint, ctypes.c_int)
_CAN_CLOSE_MANY = _CLOSE_RANGE is not None and _CLOSE_RANGE(_LAST_FD, _LAST_FD, 0) == 0
"""Where the kernel or a filter does not know it, half a million numbers would be closed one by one, used or not. ``os.closerange`` does
that also in a Python that was built for an older libc."""


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
    reading, writing = os.pipe()
    try:
        pid: int = _FORK()
        if pid == 0:
            _become(arguments, before, cwd, env, streams, pass_fds, umask, writing)
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
) -> NoReturn:
    """In the copy. It ends here whatever happens: what is above in the stack belongs to the server."""
    number = errno.EINVAL
    try:
        assert _CLOSE_RANGE is not None
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
            if first < kept:
                _CLOSE_RANGE(first, kept - 1, 0)
            first = kept + 1
        _CLOSE_RANGE(first, _LAST_FD, 0)
        for fd in pass_fds:
            os.set_inheritable(fd, True)
        # The search for a program makes lists of folders, and takes as long.
        (os.execve if "/" in arguments[0] else os.execvpe)(arguments[0], arguments, env)
    except OSError as error:
        number = error.errno or number
    finally:
        os.write(writing, b"%d" % number)
        os._exit(127)
