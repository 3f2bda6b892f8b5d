"""The system calls that a sandbox may not make: as a BPF program for ``bwrap --seccomp``, and as a profile for container engines.

A deny list, because people run anything in a sandbox: calls into kernel parts that ordinary programs do not need (and that had holes),
calls that look into other processes, and all that would build new namespaces or mounts. They fail with EPERM, and calls that libraries
try and fall back from with ENOSYS. The other walls (namespaces, no capabilities, no new privileges) stand behind it. Numbers:
``asm/unistd_64.h`` and ``asm-generic/unistd.h``.
"""

import errno
import platform
import struct
from typing import Any, Final, NamedTuple

# Calls that have the same number everywhere (from 424 on all architectures agree).
_COMMON: Final = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "process_mrelease": 448,
    "open_tree_attr": 467,
}
_X86_64: Final = _COMMON | {
    "ptrace": 101,
    "syslog": 103,
    "personality": 135,
    "ustat": 136,
    "sysfs": 139,
    "vhangup": 153,
    "modify_ldt": 154,
    "pivot_root": 155,
    "_sysctl": 156,
    "adjtimex": 159,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "create_module": 174,
    "init_module": 175,
    "delete_module": 176,
    "get_kernel_syms": 177,
    "query_module": 178,
    "quotactl": 179,
    "nfsservctl": 180,
    "lookup_dcookie": 212,
    "clock_settime": 227,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "migrate_pages": 256,
    "unshare": 272,
    "move_pages": 279,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}
_AARCH64: Final = _COMMON | {
    "lookup_dcookie": 18,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "nfsservctl": 42,
    "chroot": 51,
    "vhangup": 58,
    "quotactl": 60,
    "acct": 89,
    "personality": 92,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "settimeofday": 170,
    "adjtimex": 171,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "swapon": 224,
    "swapoff": 225,
    "migrate_pages": 238,
    "move_pages": 239,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "open_by_handle_at": 265,
    "clock_adjtime": 266,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}


class Calls(NamedTuple):
    """Numbers of the calls that are denied by their arguments."""

    clone: int
    ioctl: int
    socket: int
    prlimit64: int
    setrlimit: int
    setpriority: int
    ioprio_set: int
    prctl: int
    fallocate: int
    sched: tuple[int, ...]
    """``sched_setparam``, ``sched_setscheduler``, ``sched_setaffinity``, ``sched_setattr``: each begins with a process id."""


# For each machine its AUDIT_ARCH, what is denied, and what is denied by its arguments.
_MACHINES: Final = {
    "x86_64": (0xC000003E, _X86_64, Calls(56, 16, 41, 302, 160, 141, 251, 157, 285, (142, 144, 203, 314))),
    "aarch64": (0xC00000B7, _AARCH64, Calls(220, 29, 198, 261, 164, 140, 30, 167, 47, (118, 119, 122, 274))),
}
_CLONE3: Final = 435
_X32_BIT: Final = 0x40000000

# linux/sched.h: every CLONE_NEW flag that clone() takes
_NAMESPACE_FLAGS: Final = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
# Of these, what Chromium's sandbox makes (sandbox/linux/services/credentials.cc): CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET.
_BROWSER_FLAGS: Final = 0x10000000 | 0x20000000 | 0x40000000
_BROWSER_CALLS: Final = ("chroot", "unshare")
# A terminal that one shares with somebody could be typed into. asm-generic/ioctls.h, linux/tiocl.h
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C
# AF_UNIX, AF_INET, AF_INET6. Others are not bound to the network namespace (AF_VSOCK) or are rich in holes (AF_ALG, AF_PACKET).
_FAMILIES: Final = (1, 2, 10)
# The exec server in its own namespace, and its process group.
_SERVER_PID: Final = 1
# linux/resource.h, linux/ioprio.h: whose priority; the third is that of all processes of a user.
_PRIO_USER: Final = 2
_IOPRIO_WHO_USER: Final = 3
_RLIMIT_CORE: Final = 4
# linux/prctl.h, linux/falloc.h
_PR_SET_DUMPABLE: Final = 4
_FALLOC_PUNCH_HOLE: Final = 2
_AF_NETLINK: Final = 16
_NETLINK_ROUTE: Final = 0

# linux/bpf_common.h, linux/seccomp.h
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_GREATER_EQUAL: Final = 0x35
_JUMP_SET: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_DONE: Final = 0
"""The error that is none: the call returns 0, and nothing happens."""
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_OCI_ERRNO: Final = "SCMP_ACT_ERRNO"
_LOWER_HALF: Final = 0xFFFFFFFF


def program(machine: str = "", *, closing_key: int | None = None, has_namespaces: bool = False) -> bytes:
    """The filter as an array of ``struct sock_filter``. Raises :class:`KeyError` on a machine that has no table here.

    A sandbox that does not own its disk is held to its quota by a look at its processes: they stay open to a look, and take no blocks
    without writing them. Only the exec server closes itself, by a ``closing_key`` of 64 bits that nobody else knows.

    ``has_namespaces`` is for a desk with Chromium's own sandbox behind these walls: it makes empty user, process and network namespaces
    of its own, and changes their root. No command runs there.
    """
    arch, denied, calls = _MACHINES[machine or platform.machine()]
    code = [
        _load(_ARCH),
        *_unless(_JUMP_EQUAL, arch, errno.EPERM),
        _load(_NR),
        *_when(_JUMP_GREATER_EQUAL, _X32_BIT, errno.ENOSYS),
        *_when(_JUMP_EQUAL, _CLONE3, errno.ENOSYS),
    ]
    free = {denied[name] for name in _BROWSER_CALLS} if has_namespaces else set()
    namespaces = _NAMESPACE_FLAGS & ~_BROWSER_FLAGS if has_namespaces else _NAMESPACE_FLAGS
    for number in sorted(set(denied.values()) - free):
        code += _when(_JUMP_EQUAL, number, errno.EPERM)
    code += _on_call(
        calls.clone,
        [_load_argument(0), *_when(_JUMP_SET, namespaces, errno.EPERM), _allow()],
    )
    code += _on_call(
        calls.ioctl,
        [
            _load_argument(1),
            *_when(_JUMP_EQUAL, _TIOCSTI, errno.EPERM),
            *_when(_JUMP_EQUAL, _TIOCLINUX, errno.EPERM),
            _allow(),
        ],
    )
    code += _out_of_the_servers_way(calls)
    code += _no_core_dumps(calls)
    if closing_key is not None:
        code += _open_to_a_look(calls, closing_key)
    families = [line for family in _FAMILIES for line in (_jump(_JUMP_EQUAL, family, 0, 1), _allow())]
    code += _on_call(
        calls.socket,
        [
            _load_argument(0),
            *families,
            *_unless(_JUMP_EQUAL, _AF_NETLINK, errno.EAFNOSUPPORT),
            _load_argument(2),
            *_unless(_JUMP_EQUAL, _NETLINK_ROUTE, errno.EPROTONOSUPPORT),
            _allow(),
        ],
    )
    code.append(_allow())
    return b"".join(code)


def profile(*, has_namespaces: bool = False) -> dict[str, Any]:
    """The same table, and the same exception for a desk, as container engines take it (``SecurityOpt: seccomp=``; OCI runtime
    specification, "Seccomp").

    Rules that keep commands out of the exec server's way are left out: in an engine's container they are another user. Engines ignore
    names that their machine does not have.
    """
    free = set(_BROWSER_CALLS) if has_namespaces else set()
    namespaces = _NAMESPACE_FLAGS & ~_BROWSER_FLAGS if has_namespaces else _NAMESPACE_FLAGS
    denied = {"names": sorted((_X86_64.keys() | _AARCH64.keys()) - free), "action": _OCI_ERRNO, "errnoRet": errno.EPERM}
    others = [family for family in range(_AF_NETLINK) if family not in _FAMILIES]
    families = [
        *(_oci("socket", errno.EAFNOSUPPORT, (0, "SCMP_CMP_EQ", family)) for family in others),
        _oci("socket", errno.EAFNOSUPPORT, (0, "SCMP_CMP_GT", _AF_NETLINK)),
        _oci("socket", errno.EPROTONOSUPPORT, (0, "SCMP_CMP_EQ", _AF_NETLINK), (2, "SCMP_CMP_NE", _NETLINK_ROUTE)),
    ]
    flags = [1 << bit for bit in range(32) if namespaces >> bit & 1]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            denied,
            {"names": ["clone3"], "action": _OCI_ERRNO, "errnoRet": errno.ENOSYS},
            *(_oci("clone", errno.EPERM, (0, "SCMP_CMP_MASKED_EQ", flag, flag)) for flag in flags),
            *(_oci("ioctl", errno.EPERM, (1, "SCMP_CMP_MASKED_EQ", _LOWER_HALF, number)) for number in (_TIOCSTI, _TIOCLINUX)),
            _oci("setrlimit", _DONE, (0, "SCMP_CMP_EQ", _RLIMIT_CORE)),
            _oci("prlimit64", _DONE, (1, "SCMP_CMP_EQ", _RLIMIT_CORE), (2, "SCMP_CMP_NE", 0)),
            *families,
        ],
    }


def _oci(name: str, error: int, *arguments: tuple[int, str, int] | tuple[int, str, int, int]) -> dict[str, Any]:
    compared = [
        {"index": index, "op": compare, "value": value, **({"valueTwo": rest[0]} if rest else {})}
        for index, compare, value, *rest in arguments
    ]
    return {"names": [name], "action": _OCI_ERRNO, "errnoRet": error, "args": compared}


def _out_of_the_servers_way(calls: Calls) -> list[bytes]:
    """Of another process of the same user, such as the exec server, anybody may change limits and scheduling; nobody may here."""
    code: list[bytes] = []
    for call in calls.sched:
        code += _on_call(call, [_load_argument(0), *_when(_JUMP_EQUAL, _SERVER_PID, errno.EPERM), _allow()])
    for call, user in ((calls.setpriority, _PRIO_USER), (calls.ioprio_set, _IOPRIO_WHO_USER)):
        whose = [_load_argument(0), *_when(_JUMP_EQUAL, user, errno.EPERM)]
        code += _on_call(call, [*whose, _load_argument(1), *_when(_JUMP_EQUAL, _SERVER_PID, errno.EPERM), _allow()])
    return code


def _no_core_dumps(calls: Calls) -> list[bytes]:
    """Keep RLIMIT_CORE at 1: with any other value a core_pattern that is a program would be run, outside and as root (core(5)).

    Setting it is answered as done: programs that hold secrets want it to be 0, and some end when they cannot have it.
    """
    own_limit = [
        _load_argument(0),
        *_unless(_JUMP_EQUAL, 0, errno.EPERM),
        _load_argument(1),
        _jump(_JUMP_EQUAL, _RLIMIT_CORE, 1, 0),
        _allow(),
        # A new value, unless both halves of the pointer to it are 0.
        _load_argument(2),
        *_unless(_JUMP_EQUAL, 0, _DONE),
        _load_upper(2),
        *_unless(_JUMP_EQUAL, 0, _DONE),
        _allow(),
    ]
    return [
        *_on_call(calls.setrlimit, [_load_argument(0), *_when(_JUMP_EQUAL, _RLIMIT_CORE, _DONE), _allow()]),
        *_on_call(calls.prlimit64, own_limit),
    ]


def _open_to_a_look(calls: Calls, key: int) -> list[bytes]:
    """A request to be closed is answered as done; a request for blocks, that this file system cannot give them.

    The kernel looks at no third argument of ``PR_SET_DUMPABLE``, so the key stands there.
    """
    asked = [
        _load_argument(0),
        _jump(_JUMP_EQUAL, _PR_SET_DUMPABLE, 1, 0),
        _allow(),
        _load_argument(2),
        *_unless(_JUMP_EQUAL, key & 0xFFFFFFFF, _DONE),
        _load_upper(2),
        *_unless(_JUMP_EQUAL, key >> 32, _DONE),
        _allow(),
    ]
    given = [_load_argument(1), _jump(_JUMP_SET, _FALLOC_PUNCH_HOLE, 0, 1), _allow(), _fail(errno.EOPNOTSUPP)]
    return [*_on_call(calls.prctl, asked), *_on_call(calls.fallocate, given)]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _line(_LOAD, offset)


def _load_argument(index: int) -> bytes:
    """The lower 32 bits (both machines are little-endian); the upper ones of these arguments are ignored by the kernel."""
    return _load(_ARGUMENTS + 8 * index)


def _load_upper(index: int) -> bytes:
    return _load(_ARGUMENTS + 8 * index + 4)


def _jump(kind: int, value: int, if_true: int, if_false: int) -> bytes:
    return _line(kind, value, if_true, if_false)


def _allow() -> bytes:
    return _line(_RETURN, _ALLOW)


def _fail(number: int) -> bytes:
    return _line(_RETURN, _ERRNO | number)


def _when(kind: int, value: int, error: int) -> list[bytes]:
    return [_jump(kind, value, 0, 1), _fail(error)]


def _unless(kind: int, value: int, error: int) -> list[bytes]:
    return [_jump(kind, value, 1, 0), _fail(error)]


def _on_call(number: int, body: list[bytes]) -> list[bytes]:
    """``body`` for one system call (it must return); others skip it."""
    return [_jump(_JUMP_EQUAL, number, 0, len(body)), *body]
