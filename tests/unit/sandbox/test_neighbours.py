"""One tenant cannot take a shared thing from the others: disk, pseudo-terminals, sandboxes. Seen from the neighbour's side."""

import asyncio
import os
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from configuration import ServerConfig
from disk_quota import DiskQuota
from execs import Execs
from moorage.errors import SandboxCapacity, SandboxError
from moorage.local.control import Control
from moorage.local.disk_guard import DiskGuard, DiskLimits, DiskUse, DiskWarning, account_of
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec
from owner import Owner

from tests.unit.sandbox.support import (
    NOBODY,
    SYSTEM_PYTHON,
    TOKEN,
    Result,
    can_be_ordinary,
    launcher,
    launcher_process,
    new_id,
    run,
)

MIB = 1024**2


@asynccontextmanager
async def sandbox_of(tenant_id: str, socket: Path) -> AsyncIterator[ExecClient]:
    async with LauncherProvisioner(str(socket)) as provisioner:
        handle = await provisioner.start(SandboxSpec(tenant_id, new_id(), TOKEN))
        async with ExecClient(handle) as client:
            yield client
        await provisioner.stop(handle.sandbox_id)


def python(code: str) -> str:
    return f"cat > /tmp/program.py <<'END'\n{textwrap.dedent(code)}\nEND\npython3 /tmp/program.py"


COMMON = """
    import ctypes, mmap, os, socket, sys, time
    MIB = 1 << 20
    def fill(fd, size):
        for _ in range(size // MIB):
            os.write(fd, b"x" * MIB)
        os.fsync(fd)
    """
HIDING_PLACES = {
    "mapped, closed and deleted": """
    kept = []
    for i in range(8):
        fd = os.open(f"/mnt/data/x{i}", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 40 * MIB)
        kept.append(mmap.mmap(fd, 40 * MIB))
        os.close(fd)
        os.unlink(f"/mnt/data/x{i}")
        for page in range(0, 40 * MIB, 4096):
            kept[-1][page] = 1
        kept[-1].flush()
    """,
    "one page mapped of a file that was written": """
    kept = []
    for i in range(8):
        fd = os.open(f"/mnt/data/x{i}", os.O_RDWR | os.O_CREAT)
        fill(fd, 40 * MIB)
        kept.append(mmap.mmap(fd, 4096))
        os.close(fd)
        os.unlink(f"/mnt/data/x{i}")
    """,
    "in a process that asks not to be looked into": """
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    kept = []
    for i in range(8):
        kept.append(os.open(f"/mnt/data/x{i}", os.O_RDWR | os.O_CREAT))
        os.unlink(f"/mnt/data/x{i}")
        fill(kept[-1], 40 * MIB)
    """,
    "in a message that nobody reads": """
    here, there = socket.socketpair()
    for i in range(8):
        fd = os.open(f"/mnt/data/x{i}", os.O_RDWR | os.O_CREAT)
        os.unlink(f"/mnt/data/x{i}")
        socket.send_fds(here, [b"x"], [fd])
        fill(fd, 40 * MIB)
        os.close(fd)
    """,
    "in messages within messages": """
    outer = socket.socketpair()
    for i in range(8):
        inner = socket.socketpair()
        fd = os.open(f"/mnt/data/x{i}", os.O_RDWR | os.O_CREAT)
        os.unlink(f"/mnt/data/x{i}")
        fill(fd, 40 * MIB)
        socket.send_fds(inner[0], [b"x"], [fd])
        socket.send_fds(outer[0], [b"x"], [inner[1].fileno()])
        for each in (fd, inner[1].detach()):
            os.close(each)
    """,
    "asked of the file system and never written": """
    here, there = socket.socketpair()
    for i in range(8):
        fd = os.open(f"/mnt/data/x{i}", os.O_RDWR | os.O_CREAT)
        os.unlink(f"/mnt/data/x{i}")
        os.posix_fallocate(fd, 0, 40 * MIB)
        socket.send_fds(here, [b"x"], [fd])
        os.close(fd)
    """,
    "by a process that has ended": """
    here, there = socket.socketpair()
    for i in range(8):
        fd = os.open(f"/mnt/data/x{i}", os.O_RDWR | os.O_CREAT)
        os.unlink(f"/mnt/data/x{i}")
        if os.fork() == 0:
            fill(fd, 40 * MIB)
            os._exit(0)
        os.wait()
        socket.send_fds(here, [b"x"], [fd])
        os.close(fd)
    """,
}
LINGER = """
    time.sleep(20)
    print("STILL ALIVE")
    """
UNREADABLE = "cp /usr/bin/python3 ~/unreadable && chmod 111 ~/unreadable\n"
HIDDEN = {name: python("".join(textwrap.dedent(part) for part in (COMMON, code, LINGER))) for name, code in HIDING_PLACES.items()}
HIDDEN["in a program that cannot be read"] = UNREADABLE + HIDDEN["in a process that asks not to be looked into"].replace(
    "python3 /tmp", "~/unreadable /tmp"
)
TICKS = "head -c 10M /dev/zero > mine; for i in $(seq 12); do echo tick; sleep 0.2; done; stat -c %s mine"


@pytest.mark.parametrize("place", HIDDEN)
async def test_what_is_hidden_counts_and_the_neighbour_works_on(place: str, either_socket: Path) -> None:
    async with sandbox_of("evil", either_socket) as evil, sandbox_of("good", either_socket) as good:
        neighbour = asyncio.create_task(run(good, TICKS))
        hidden = await run(evil, HIDDEN[place], timeout_ms=30_000)
        assert "STILL ALIVE" not in hidden.stdout
        if hidden.outcome == "killed":
            assert "The disk of the container is full" in hidden.stderr
        else:  # the file system had no more blocks before anybody looked
            assert "No space left on device" in hidden.stderr or hidden.exit_code == 135
        assert await neighbour == Result("tick\n" * 12 + f"{10 * MIB}\n", "", "exit", 0)
        await good.write_file("uploaded", once(b"x"))
        assert await run(evil, "sleep 1.2; echo fine") == Result("fine\n", "", "exit", 0)


async def once(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


async def until_written(client: ExecClient, path: str) -> None:
    """The launcher looks at the disk now and then, and tells a sandbox that it may write again."""
    while True:
        try:
            return await client.write_file(path, once(b"x"))
        except SandboxError:
            await asyncio.sleep(0.05)


async def test_a_program_that_passes_descriptors_and_writes_within_the_quota_is_left_alone(either_sandbox: ExecClient) -> None:
    code = """
    here, there = socket.socketpair()
    fd = os.open("/mnt/data/x", os.O_RDWR | os.O_CREAT)
    os.unlink("/mnt/data/x")
    fill(fd, 20 * MIB)
    socket.send_fds(here, [b"x"], [fd])
    page = mmap.mmap(fd, 4096)
    os.close(fd)
    time.sleep(2)
    print("done")
    """
    assert await run(either_sandbox, python(textwrap.dedent(COMMON) + textwrap.dedent(code))) == Result("done\n", "", "exit", 0)


# --- A machine whose disk runs full ------------------------------------------------------------------------------------------

ON_A_SMALL_DISK = 'mount -t tmpfs -o size="$0",mode=0755 none "$1" && chown "$2:$2" "$1" && shift 2 && exec "$@"'


@contextmanager
def crowded_launcher(disk: str, *options: str, is_root: bool = True) -> Iterator[Path]:
    """A launcher whose state lies on a disk of its own, which is small and a mount of nobody else's."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "state").mkdir()
        owner = 0 if is_root else NOBODY
        os.chown(directory, owner, owner)
        readable = [path for path in sys.path if "site-packages" in path or "/layers/core" in path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(readable)}
        if not is_root:
            environment["TMPDIR"] = name
        who = [] if is_root else ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        interpreter = sys.executable if is_root else SYSTEM_PYTHON
        prefix = ["unshare", "-m", "sh", "-c", ON_A_SMALL_DISK, disk, str(directory / "state"), str(owner), *who, interpreter]
        with launcher_process(directory, *options, python=prefix, env=environment) as (process, path):
            assert process.poll() is None, (directory / "launcher.log").read_text()
            yield path


@pytest.fixture(params=[True, False], ids=["as root", "as an ordinary user"])
def crowded(request: pytest.FixtureRequest) -> Iterator[Path]:
    if os.geteuid() != 0 or not can_be_ordinary():
        pytest.skip("only root can mount a small disk, and give it to another user")
    options = ("--disk-bytes", str(800 * MIB), "--disk-reserve-bytes", str(300 * MIB))
    with crowded_launcher("1000M", *options, is_root=request.param) as path:
        yield path


async def test_when_the_machine_runs_full_the_one_who_filled_it_goes_and_is_told_why(crowded: Path) -> None:
    """Although it is within its quota: there is less than everybody's quota. The neighbours are within their share."""
    async with sandbox_of("evil", crowded) as evil, sandbox_of("good", crowded) as good, sandbox_of("other", crowded) as other:
        neighbours = [asyncio.create_task(run(each, TICKS)) for each in (good, other)]
        filled = await run(evil, "for i in $(seq 79); do head -c 10M /dev/zero > x$i; sleep 0.05; done; sleep 20; echo STILL ALIVE")
        assert (filled.outcome, filled.stdout) == ("killed", "")
        assert "The disk of this machine is nearly full, and this container has grown most." in filled.stderr
        with pytest.raises(SandboxError, match="disk of this machine"):
            await evil.write_file("more", once(b"x"))
        for neighbour in neighbours:
            assert await neighbour == Result("tick\n" * 12 + f"{10 * MIB}\n", "", "exit", 0)
        await good.write_file("uploaded", once(b"x"))
        assert (await run(evil, "rm x*; echo gone")).stdout == "gone\n"
        await until_written(evil, "more")
        assert await run(evil, "sleep 0.7; echo fine") == Result("fine\n", "", "exit", 0)


async def test_the_sandboxes_of_one_tenant_together_have_a_bound_that_is_no_other_tenants(tmp_path: Path) -> None:
    with launcher(tmp_path, "--disk-bytes", str(200 * MIB), "--tenant-disk-bytes", str(300 * MIB)) as path:
        async with sandbox_of("many", path) as one, sandbox_of("many", path) as two, sandbox_of("good", path) as good:
            assert (await run(one, "for i in 1 2 3; do head -c 45M /dev/zero > x$i; done; echo kept")).stdout == "kept\n"
            neighbour = asyncio.create_task(run(good, TICKS))
            second = await run(two, "for i in 1 2 3 4; do head -c 45M /dev/zero > x$i; sleep 0.3; done; sleep 20; echo STILL ALIVE")
            assert (second.outcome, second.stdout) == ("killed", "")
            assert "the containers of this account together hold more than they may" in second.stderr
            assert await neighbour == Result("tick\n" * 12 + f"{10 * MIB}\n", "", "exit", 0)
            assert (await run(one, "ls x* | wc -l; echo more > y; cat y")).stdout == "3\nmore\n"


async def test_the_sandboxes_of_one_tenant_are_limited_in_number(tmp_path: Path) -> None:
    with launcher(tmp_path, "--tenant-sandboxes-max", "2") as path:
        async with sandbox_of("many", path), sandbox_of("many", path):
            with pytest.raises(SandboxCapacity, match="2 sandboxes of this account"):
                async with sandbox_of("many", path):
                    pass
            async with sandbox_of("good", path) as good:
                assert (await run(good, "echo fine")).stdout == "fine\n"


async def test_the_sandboxes_of_one_tenant_are_limited_in_memory(tmp_path: Path) -> None:
    with launcher(tmp_path, "--tenant-memory-gib-max", "2") as path:
        async with sandbox_of("many", path), sandbox_of("many", path):
            with pytest.raises(SandboxCapacity, match="All sandboxes of this account together have 2 GiB of memory at most"):
                async with sandbox_of("many", path):
                    pass
            async with sandbox_of("good", path) as good:
                assert (await run(good, "echo fine")).stdout == "fine\n"


TERMINALS = python(
    """
    import os, time
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/ptmx", os.O_RDWR))
    except OSError:
        print(len(taken), flush=True)
    time.sleep(6)
    """
)


async def test_who_takes_all_pseudo_terminals_takes_them_from_himself(either_socket: Path) -> None:
    async with sandbox_of("evil", either_socket) as evil, sandbox_of("good", either_socket) as good:
        greedy = asyncio.create_task(run(evil, f"{TERMINALS} & sleep 1; python3 /tmp/program.py & wait"))
        await asyncio.sleep(2)
        assert (await run(good, "script -qc 'echo in a terminal' /dev/null")).stdout == "in a terminal\r\n"
        assert (await greedy).stdout == "64\n0\n"


# --- Who it was ----------------------------------------------------------------------------------------------------------------


def uses(used: dict[str, int]) -> list[DiskUse]:
    """``t-1`` is a sandbox of the tenant ``t``."""
    return [DiskUse(name, name.partition("-")[0], size) for name, size in used.items()]


def guard_of(*looks: tuple[dict[str, int], int], tenant_max: int = 10_000) -> DiskGuard:
    guard = DiskGuard(DiskLimits(reserve=100, share_min=10, tenant_max=tenant_max))
    for used, free in looks:
        guard.look(uses(used), free)
    return guard


def verdicts(*looks: tuple[dict[str, int], int], tenant_max: int = 10_000) -> dict[str, DiskWarning]:
    """After the last of these looks: what each sandbox holds, and what is free."""
    used, free = looks[-1]
    return dict(guard_of(*looks[:-1], tenant_max=tenant_max).look(uses(used), free))


FINE, MACHINE, TENANT = DiskWarning.FINE, DiskWarning.MACHINE, DiskWarning.TENANT


def test_while_there_is_room_nobody_is_told() -> None:
    assert verdicts(({"a": 900, "b": 1}, 100)) == {"a": FINE, "b": FINE}


def test_the_one_that_grew_most_is_told_and_not_the_one_that_holds_most() -> None:
    looks = [({"old": 500, "new": 0}, 500)] * 300 + [({"old": 500, "new": 460}, 40)]
    assert verdicts(*looks) == {"old": FINE, "new": MACHINE}


def test_whoever_holds_no_more_than_a_share_is_never_told() -> None:
    """Somebody else has filled the disk: the operator, another program."""
    assert verdicts(({"a": 8, "b": 9}, 90), ({"a": 9, "b": 10}, 20)) == {"a": FINE, "b": FINE}


def test_others_are_told_when_it_goes_on_without_the_first() -> None:
    looks = [({"a": 300, "b": 100}, 100), ({"a": 600, "b": 100}, 50), ({"a": 600, "b": 400}, 40)]
    assert verdicts(*looks[:2]) == {"a": MACHINE, "b": FINE}
    assert verdicts(*looks) == {"a": MACHINE, "b": FINE}  # b holds less than half of what there is
    assert verdicts(*looks, ({"a": 600, "b": 600}, 30)) == {"a": MACHINE, "b": MACHINE}


def test_it_is_taken_back_when_there_is_room_again() -> None:
    assert verdicts(({"a": 600, "b": 1}, 50), ({"a": 100, "b": 1}, 550)) == {"a": FINE, "b": FINE}


def test_who_was_told_and_takes_half_of_the_reserve_goes() -> None:
    assert guard_of(({"a": 600, "b": 1}, 60)).to_stop(60) == []
    assert guard_of(({"a": 600, "b": 1}, 49)).to_stop(49) == ["a"]


def test_a_tenant_is_one_however_many_sandboxes_it_has() -> None:
    looks = [({"t-1": 50, "t-2": 40, "u-1": 90}, 900), ({"t-1": 50, "t-2": 80, "u-1": 90}, 900)]
    assert verdicts(*looks, tenant_max=100) == {"t-1": FINE, "t-2": TENANT, "u-1": FINE}


def test_sandboxes_of_the_warm_pool_may_serve_different_tenants_and_have_no_sum() -> None:
    held = {"pool_1": 50, "pool_2": 80, "cntr_1": 50, "cntr_2": 80}
    tenants = {name: "pool" if name.startswith("pool") else "acme" for name in held}
    guard = DiskGuard(DiskLimits(reserve=100, share_min=10, tenant_max=100))
    told = guard.look([DiskUse(name, account_of(tenants[name], name), size) for name, size in held.items()], 900)
    assert told == {"pool_1": FINE, "pool_2": FINE, "cntr_1": FINE, "cntr_2": TENANT}


async def test_a_container_that_cannot_be_measured_weighs_its_quota() -> None:
    """Its exec server has ended what ran. If it weighed more than the account may have, the verdict would come late and end what runs
    next."""
    config = ServerConfig({"token": TOKEN, "listen": "", "limits": {"disk_bytes": 64}})
    quota = DiskQuota(config, cast("Execs", SimpleNamespace(kill_all=lambda notice: None)))
    quota.used = sys.maxsize  # what a look finds where a process lets nobody look
    control, servers_end = Control.pair()
    control.attach()
    met = asyncio.create_task(Owner(quota).met(*await asyncio.open_unix_connection(sock=servers_end)))
    while not control.used:
        await asyncio.sleep(0)
    control.close()
    await met
    assert control.used == 64
