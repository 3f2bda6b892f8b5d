"""The filter for both machines, run by a small interpreter: the escape table runs it in earnest, but on one machine only."""

import errno
import struct

import pytest
from moorage.sandbox.seccomp import program

ALLOWED = 0
DONE = -1
"""Answered with success, and not done."""
X86_64, AARCH64 = 0xC000003E, 0xC00000B7
NUMBERS = {
    "x86_64": {
        "read": 0,
        "clone": 56,
        "ioctl": 16,
        "socket": 41,
        "prlimit64": 302,
        "mount": 165,
        "ptrace": 101,
        "bpf": 321,
        "execve": 59,
        "setrlimit": 160,
        "prctl": 157,
        "fallocate": 285,
        "setpriority": 141,
        "ioprio_set": 251,
        "sched_setparam": 142,
        "sched_setscheduler": 144,
        "sched_setaffinity": 203,
        "sched_setattr": 314,
    },
    "aarch64": {
        "read": 63,
        "clone": 220,
        "ioctl": 29,
        "socket": 198,
        "prlimit64": 261,
        "mount": 40,
        "ptrace": 117,
        "bpf": 280,
        "execve": 221,
        "setrlimit": 164,
        "prctl": 167,
        "fallocate": 47,
        "setpriority": 140,
        "ioprio_set": 30,
        "sched_setparam": 118,
        "sched_setscheduler": 119,
        "sched_setaffinity": 122,
        "sched_setattr": 274,
    },
}
# Name, arguments, errno; the same on both machines.
CALLS = [
    ("read", (0, 0, 0), ALLOWED),
    ("execve", (0, 0, 0), ALLOWED),
    ("mount", (0, 0, 0), errno.EPERM),
    ("ptrace", (16, 1, 0), errno.EPERM),
    ("bpf", (0, 0, 0), errno.EPERM),
    ("clone", (0x11, 0, 0), ALLOWED),
    ("clone", (0x3D0F00, 0, 0), ALLOWED),  # a thread
    ("clone", (0x10000000 | 0x11, 0, 0), errno.EPERM),
    ("clone", (0x00020000, 0, 0), errno.EPERM),
    ("ioctl", (0, 0x5401, 0), ALLOWED),
    ("ioctl", (0, 0x5412, 0), errno.EPERM),
    ("ioctl", (0, 0x1_0000_5412, 0), errno.EPERM),
    ("socket", (1, 1, 0), ALLOWED),
    ("socket", (2, 1, 6), ALLOWED),
    ("socket", (10, 2, 0), ALLOWED),
    ("socket", (16, 3, 0), ALLOWED),
    ("socket", (16, 3, 12), errno.EPROTONOSUPPORT),
    ("socket", (17, 3, 0), errno.EAFNOSUPPORT),
    ("socket", (40, 1, 0), errno.EAFNOSUPPORT),
    ("prlimit64", (0, 7, 0), ALLOWED),
    ("prlimit64", (1, 7, 0), errno.EPERM),
    ("prlimit64", (1, 4, 0x1000), errno.EPERM),
    ("prlimit64", (0, 4, 0), ALLOWED),
    ("prlimit64", (0, 4, 0x1000), DONE),
    ("prlimit64", (0, 4, 0x7FFF_0000_0000), DONE),
    ("setrlimit", (7, 0x1000), ALLOWED),
    ("setrlimit", (4, 0x1000), DONE),
    *[(f"sched_set{what}", (0, 0, 0), ALLOWED) for what in ("param", "scheduler", "affinity", "attr")],
    *[(f"sched_set{what}", (77, 0, 0), ALLOWED) for what in ("param", "scheduler", "affinity", "attr")],
    *[(f"sched_set{what}", (1, 0, 0), errno.EPERM) for what in ("param", "scheduler", "affinity", "attr")],
    ("setpriority", (0, 0, 5), ALLOWED),
    ("setpriority", (0, 77, 5), ALLOWED),
    ("setpriority", (0, 1, 5), errno.EPERM),  # the exec server,
    ("setpriority", (1, 1, 5), errno.EPERM),  # its process group,
    ("setpriority", (2, 0, 5), errno.EPERM),  # and all processes of a user, of whom it is one
    ("ioprio_set", (1, 0, 5), ALLOWED),
    ("ioprio_set", (1, 1, 5), errno.EPERM),
    ("ioprio_set", (2, 1, 5), errno.EPERM),
    ("ioprio_set", (3, 1000, 5), errno.EPERM),
]


def verdict(machine: str, arch: int, number: int, arguments: tuple[int, ...] = (0, 0, 0), *, closing_key: int | None = None) -> int:
    """The errno that the filter answers with, or ``ALLOWED``, or ``DONE``."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments, *([0] * (6 - len(arguments))))
    code = list(struct.iter_unpack("=HBBI", program(machine, closing_key=closing_key)))
    position = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                position += if_true if accumulator == value else if_false
            case 0x35:
                position += if_true if accumulator >= value else if_false
            case 0x45:
                position += if_true if accumulator & value else if_false
            case 0x06:
                return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF or DONE
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS)
def test_a_call_gets_its_verdict(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    arch = X86_64 if machine == "x86_64" else AARCH64
    assert verdict(machine, arch, NUMBERS[machine][name], arguments) == expected


KEY = 0x0123_4567_89AB_CDEF
OPEN_CALLS = [
    ("prctl", (15, 0, 0), ALLOWED),
    ("prctl", (4, 0, 0), DONE),
    ("prctl", (4, 0, KEY), ALLOWED),
    ("prctl", (4, 0, KEY & 0xFFFF_FFFF), DONE),
    ("prctl", (4, 0, KEY ^ 1), DONE),
    ("fallocate", (3, 0, 0, 1 << 30), errno.EOPNOTSUPP),
    ("fallocate", (3, 1, 0, 1 << 30), errno.EOPNOTSUPP),
    ("fallocate", (3, 3, 0, 1 << 30), ALLOWED),  # a hole gives blocks back
]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("name", "arguments", "expected"), OPEN_CALLS)
def test_processes_stay_open_to_a_look_where_that_is_what_holds_the_quota(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    arch, number = X86_64 if machine == "x86_64" else AARCH64, NUMBERS[machine][name]
    assert verdict(machine, arch, number, arguments, closing_key=KEY) == expected
    assert verdict(machine, arch, number, arguments) == ALLOWED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_of_other_machines_and_interfaces_are_refused(machine: str) -> None:
    arch = X86_64 if machine == "x86_64" else AARCH64
    assert verdict(machine, 0x40000003, 0) == errno.EPERM
    assert verdict(machine, arch, 0x40000000) == errno.ENOSYS
    assert verdict(machine, arch, 435) == errno.ENOSYS


def test_a_machine_without_a_table_has_no_filter() -> None:
    with pytest.raises(KeyError):
        program("riscv64")
