"""Attempts to get out of a sandbox, each with the refusal that is expected. Every row runs in a real one."""

import ctypes
import os
import socket
from pathlib import Path

import pytest
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec

from tests.unit.sandbox.support import ROOT, TOKEN, Result, new_id, run

PYTHON_CALL = """python3 - <<'PY'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
result = {call}
print("DONE" if result >= 0 else os.strerror(ctypes.get_errno()))
PY"""


def call(expression: str) -> str:
    """A system call through the C library; prints the error, or DONE."""
    return PYTHON_CALL.format(call=expression)


# What is tried, the command, what its output must contain. "DONE" must never be in it.
ESCAPES = {
    "mount a file system": (call("libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)"), "Operation not permitted"),
    "make the system writable": (call("libc.mount(None, b'/usr', None, 4128, None)"), "Operation not permitted"),
    "unmount what covers /proc": (call("libc.umount2(b'/proc/sys', 2)"), "Operation not permitted"),
    "mount by the new interface": (call("libc.syscall(430, b'tmpfs', 0)"), "Operation not permitted"),
    "change the root": (call("libc.chroot(b'/tmp')"), "Operation not permitted"),
    "a nested user namespace": (call("libc.unshare(0x10000000)"), "Operation not permitted"),
    "a nested user namespace by clone": (call("libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)"), "Operation not permitted"),
    "a nested user namespace by clone3": (call("libc.syscall(435, 0, 0)"), "Function not implemented"),
    "a mount namespace": (call("libc.unshare(0x20000)"), "Operation not permitted"),
    "the first process's namespaces": (call("libc.setns(os.open('/proc/self/ns/net', 0), 0)"), "Operation not permitted"),
    "calls of the 32-bit interface": (call("libc.syscall(0x40000000 + 39)"), "Function not implemented"),
    "trace the exec server": (call("libc.ptrace(16, 1, 0, 0)"), "Operation not permitted"),
    "read its memory": (call("libc.process_vm_readv(1, 0, 0, 0, 0, 0)"), "Operation not permitted"),
    "steal its descriptors": (call("libc.syscall(438, libc.syscall(434, 1, 0), 3, 0)"), "Operation not permitted"),
    "read its environment": ("cat /proc/1/environ && echo DONE", "Permission denied"),
    "read its memory as a file": ("head -c 1 /proc/1/mem && echo DONE", "Permission denied"),
    "list its descriptors": ("ls /proc/1/fd && echo DONE", "Permission denied"),
    "see its maps": ("cat /proc/1/maps && echo DONE", "Permission denied"),
    "find the token in any process": (
        "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; tr '\\0' ' ' < $p/cmdline; done 2>/dev/null | grep -o 'a-toke[n]-of-at'"
        " && echo DONE || echo nothing",
        "nothing",
    ),
    "find the token in any file": (
        "grep -rIl 'a-toke[n]-of-at-least-32' /etc /opt/moorage /run /tmp /home /mnt /var 2>/dev/null && echo DONE || echo nothing",
        "nothing",
    ),
    "kill the exec server": ("for s in KILL STOP INT TERM HUP USR1 QUIT SEGV; do kill -$s 1; done; echo survived", "survived"),
    "kill everything": ("kill -9 -1; kill -9 1; echo survived", "survived"),
    "new limits for the exec server": ("prlimit --pid 1 --nofile=0:0 && echo DONE", "Operation not permitted"),
    "slow the exec server": ("renice 19 -p 1 && echo DONE", "Operation not permitted"),
    "slow the exec server's group": ("renice 19 -g 1 && echo DONE", "Operation not permitted"),
    "slow all of its user": ("renice 19 -u 1000 && echo DONE", "Operation not permitted"),
    "make it wait for everybody": ("chrt -i -p 0 1 && echo DONE", "Operation not permitted"),
    "pin it to a processor": ("taskset -p 1 1 && echo DONE", "Operation not permitted"),
    "its turn at the disk": ("ionice -c3 -p 1 && echo DONE", "Operation not permitted"),
    "its turn at the disk, by its group": ("ionice -c3 -P 1 && echo DONE", "Operation not permitted"),
    "a dump by the host's program": ("ulimit -c 0; grep -E 'core file size +1 +1 ' /proc/self/limits", "Max core file size"),
    "more processes than allowed": ("ulimit -u 100000 && echo DONE", "cannot modify limit"),
    "become root": (
        "su -c 'echo DONE' </dev/null; sudo -n echo DONE; python3 -c 'import os; os.setuid(0); print(\"DONE\")'",
        "Invalid argument|not permitted",
    ),
    "a capability": ("grep CapEff /proc/self/status; grep CapBnd /proc/self/status", "CapBnd:\t0000000000000000"),
    "new privileges": ("grep -h NoNewPrivs /proc/self/status", "NoNewPrivs:\t1"),
    "the host's secrets": ("cat /etc/shadow /root/.bashrc /etc/ssh/ssh_host_ed25519_key && echo DONE", "No such file"),
    "the host's processes": ("ls -d /proc/[0-9]* | wc -l | grep -qE '^[0-9]$' && echo few", "few"),
    "the host's sockets": ("ls /run /var/run/docker.sock /tmp | grep -v exec; find / -type s 2>/dev/null | wc -l", "0"),
    "the host's devices": ("ls /dev/kvm /dev/vda /dev/mem /dev/fuse /dev/net/tun && echo DONE", "No such file"),
    "a device node": ("mknod /tmp/d b 254 0 && echo DONE", "Operation not permitted"),
    "a kernel setting": ("echo 0 > /proc/sys/kernel/randomize_va_space && echo DONE", "denied|Read-only"),
    "what runs at a crash": ("echo '|/mnt/data/x' > /proc/sys/kernel/core_pattern && echo DONE", "denied|Read-only"),
    "the kernel's keys": (call("libc.syscall(250, 0, -3, 1)"), "Operation not permitted"),
    "a new kernel key": (call("libc.syscall(248, b'user', b'k', b'v', 1, -3)"), "Operation not permitted"),
    "the kernel's log": ("dmesg && echo DONE", "Operation not permitted"),
    "a BPF program": (call("libc.syscall(321, 5, 0, 0)"), "Operation not permitted"),
    "performance counters": (call("libc.syscall(298, 0, 0, -1, -1, 0)"), "Operation not permitted"),
    "faults handled in user space": (call("libc.syscall(323, 0)"), "Operation not permitted"),
    "io_uring": (call("libc.syscall(425, 1, 0)"), "Operation not permitted"),
    "a kernel module": (call("libc.syscall(313, 0, b'', 0)"), "Operation not permitted"),
    "another kernel": (call("libc.syscall(246, 0, 0, 0, 0)"), "Operation not permitted"),
    "the host's name": (call("libc.sethostname(b'x', 1)"), "Operation not permitted"),
    "type into a terminal": (call("libc.ioctl(0, 0x5412, b'x')"), "Operation not permitted"),
    "type into a terminal, disguised": (call("libc.ioctl(0, ctypes.c_ulong(0x100005412), b'x')"), "Operation not permitted"),
    "a packet socket": (call("libc.socket(17, 3, 768)"), "Address family not supported"),
    "a socket to the hypervisor": (call("libc.socket(40, 1, 0)"), "Address family not supported"),
    "the kernel's cryptography": (call("libc.socket(38, 5, 0)"), "Address family not supported"),
    "a raw socket": (call("libc.socket(2, 3, 1)"), "Operation not permitted"),
    "netfilter": (call("libc.socket(16, 3, 12)"), "Protocol not supported"),
    "an address outside": ("timeout 3 bash -c '</dev/tcp/192.0.2.1/80' && echo DONE", "unreachable"),
    "the metadata service": ("timeout 3 bash -c '</dev/tcp/169.254.169.254/80' && echo DONE", "unreachable"),
    "a name outside": ("timeout 3 getent hosts example.com && echo DONE || echo unresolved", "unresolved"),
    "change the programs": ("touch /usr/bin/x /opt/moorage/x /etc/x /x /dev/x /proc/x && echo DONE", "Read-only file system"),
    "change the exec server": ("echo >> /opt/moorage/python_session.py && echo DONE", "Permission denied|Read-only"),
    "fill the memory with /dev/shm": (
        "trap 'rm -f /dev/shm/x*' EXIT; for i in 1 2 3 4 5 6; do head -c 60M /dev/zero > /dev/shm/x$i || exit 1; done && echo DONE",
        "No space left",
    ),
    "one huge file": ("head -c 100M /dev/zero > /mnt/data/x && echo DONE; rm -f /mnt/data/x", "File too large|File size limit"),
}


@pytest.mark.parametrize("attempt", ESCAPES)
async def test_an_escape_is_refused(attempt: str, shared_sandbox: ExecClient) -> None:
    command, expected = ESCAPES[attempt]
    result = await run(shared_sandbox, command, timeout_ms=20_000)
    assert "DONE" not in result.text
    assert any(words in result.text for words in expected.split("|")), result
    assert (await run(shared_sandbox, "echo alive")).stdout == "alive\n"


SECRETS = "/tmp/s /dev/shm/s /mnt/data/s ~/s"


async def test_no_command_sees_another_container(provisioner: LauncherProvisioner, shared_sandbox: ExecClient) -> None:
    handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
    async with ExecClient(handle) as other:
        await run(other, "python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 0.5")
        assert (await run(other, f"for f in {SECRETS}; do echo secret > $f; done; cat {SECRETS}")).stdout == "secret\n" * 4
        assert "refused" in (await run(shared_sandbox, "</dev/tcp/127.0.0.1/8123")).stderr
        assert (await run(shared_sandbox, f"cat {SECRETS}; ps ax | grep -c '[h]ttp.server'")).stdout == "0\n"
        assert (await run(shared_sandbox, "ipcmk -M 100 >/dev/null; echo made")).stdout == "made\n"
        assert "0x" not in (await run(other, "ipcs -m | tail -n +4")).stdout
    await provisioner.stop(handle.sandbox_id)


async def test_abstract_sockets_of_the_host_are_out_of_reach(shared_sandbox: ExecClient) -> None:
    name = f"moorage-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}'); print('DONE')"
        assert "refused" in (await run(shared_sandbox, f'python3 -c "{code}"')).stderr


async def test_the_host_is_not_in_sight(shared_sandbox: ExecClient, launcher_socket: Path) -> None:
    result = await run(shared_sandbox, f"ls -d {ROOT} {launcher_socket} {launcher_socket.parent}; echo; cat /proc/mounts; hostname")
    assert result.stdout.startswith("\n")
    assert result.stdout.endswith("sandbox\n")


async def test_mounts_do_not_say_where_things_lie_on_the_host(shared_sandbox: ExecClient, launcher_socket: Path) -> None:
    mounts = (await run(shared_sandbox, "cat /proc/self/mountinfo")).stdout
    assert str(ROOT / "functions") not in mounts
    if os.geteuid() == 0:
        assert str(launcher_socket.parent) not in mounts


FILLINGS = {
    "files": "for i in 1 2 3 4; do head -c 30M /dev/zero > f$i; done",
    "the home directory": "for i in 1 2 3 4; do head -c 30M /dev/zero > ~/f$i; done",
    "the spools": "for i in 1 2 3 4; do head -c 30M /dev/zero > /tmp/.exec/f$i; done",
    "a closed directory": "mkdir d; for i in 1 2 3 4; do head -c 30M /dev/zero > d/f$i; done; chmod 000 d",
    "deleted files": 'for i in 3 4 5 6; do eval "exec $i>x"; rm x; head -c 30M /dev/zero >&$i; done',
}


CLEANING = "chmod -R u+rwx /mnt/data; rm -rf /mnt/data/* ~/* /tmp/.exec/f*; echo gone"


@pytest.mark.parametrize("way", FILLINGS)
async def test_a_full_disk_stops_the_writers_and_says_why(way: str, either_sandbox: ExecClient) -> None:
    sandbox = either_sandbox
    result = await run(sandbox, f"{FILLINGS[way]}; sleep 15; echo DONE", timeout_ms=30_000)
    assert (result.outcome, result.stdout) == ("killed", "")
    assert "The disk of the container is full" in result.stderr
    assert (await run(sandbox, CLEANING)).stdout == "gone\n"
    assert await run(sandbox, "sleep 1.2; echo fine") == Result("fine\n", "", "exit", 0)


async def test_a_disk_that_was_filled_at_one_go_leaves_time_to_clean(either_sandbox: ExecClient) -> None:
    """Whoever fills it passes the quota by more than the slack before anybody looks."""
    filling = "for f in a b; do fallocate -l 39M $f || head -c 39M /dev/zero > $f; done; sleep 15; echo DONE"
    result = await run(either_sandbox, filling, timeout_ms=30_000)
    assert (result.outcome, result.stdout) == ("killed", "")
    assert await run(either_sandbox, "sleep 4; rm a b; echo gone") == Result("gone\n", "", "exit", 0)


async def test_a_tree_too_deep_to_measure_counts_as_full_where_trees_are_measured(ordinary_sandbox: ExecClient) -> None:
    deep = "for i in $(seq 30); do mkdir $(printf '%0200d' 1) && cd $(printf '%0200d' 1); done"
    result = await run(ordinary_sandbox, f"{deep}; sleep 15; echo DONE", timeout_ms=30_000)
    assert (result.outcome, result.stdout) == ("killed", "")
    assert "The disk of the container is full" in result.stderr
    assert (await run(ordinary_sandbox, CLEANING)).stdout == "gone\n"


@pytest.fixture(scope="module")
async def shared_sandbox(launcher_socket: Path):  # type: ignore[no-untyped-def]
    """One sandbox for all attempts: each must leave it working for the next."""
    async with LauncherProvisioner(str(launcher_socket)) as provisioner:
        handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
        async with ExecClient(handle) as client:
            yield client
        await provisioner.stop(handle.sandbox_id)


def test_the_table_tries_real_calls() -> None:
    """Outside a sandbox some of these calls do work, so that a refusal inside says something."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(250, 0, -3, 1) >= 0
    assert libc.socket(2, 2, 0) >= 0
