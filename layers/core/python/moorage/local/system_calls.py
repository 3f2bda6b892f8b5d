"""System calls that Python has no function for."""

import ctypes
import os
from typing import Any, Final

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUSER: Final = 0x10000000
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18


def private_mounts() -> None:
    """Mounts that this process makes from now on are its own."""
    system_call("unshare", _CLONE_NEWNS)
    system_call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def own_namespaces() -> None:
    """An ordinary user's means to mount: a user namespace that keeps its id, and mounts of its own."""
    uid, gid = os.geteuid(), os.getegid()
    system_call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)
    system_call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def bind_mount(source: str, target: str) -> None:
    system_call("mount", source.encode(), target.encode(), None, _MS_BIND | _MS_REC, None)


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    system_call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode())


def system_call(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
