"""The life of local sandboxes: who starts them, what they outlive, and what ends them."""

import asyncio
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from moorage import limits
from moorage.errors import SandboxCapacity, SandboxError, SandboxGone, SandboxHostAway
from moorage.local.control_groups import ControlGroup, ControlGroups
from moorage.local.sandbox_paths import Toolbox
from moorage.local.users import how_to_allow_namespaces
from moorage.sandbox.exec_client import ExecClient, ExecStarted, Heartbeat, PythonEnded
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import EgressSpec, Handle, SandboxSpec, SandboxStatus

from tests.processes import descendants, until
from tests.unit.sandbox.support import LAUNCHER, ROOT, TOKEN, collect, execute, launcher, launcher_process, new_id, run


def spec(container_id: str, *, tenant_id: str = "acme", egress: EgressSpec | None = None) -> SandboxSpec:
    return SandboxSpec(tenant_id, container_id, TOKEN, env={"API_KEY": "placeholder"}, egress=egress)


async def test_a_container_has_one_sandbox_however_often_it_is_started(provisioner: LauncherProvisioner) -> None:
    container = new_id()
    handles = await asyncio.gather(*(provisioner.start(spec(container)) for _ in range(5)))
    assert len(set(handles)) == 1
    await provisioner.stop(handles[0].sandbox_id)


async def test_containers_of_two_tenants_are_two_sandboxes_whatever_their_ids(provisioner: LauncherProvisioner) -> None:
    container = new_id()
    one, other = [await provisioner.start(spec(container, tenant_id=tenant)) for tenant in ("acme", "umbrella")]
    assert one.sandbox_id != other.sandbox_id
    for handle in (one, other):
        await provisioner.stop(handle.sandbox_id)


async def test_a_sandbox_outlives_its_callers(launcher_socket: Path) -> None:
    container = new_id()
    async with LauncherProvisioner(str(launcher_socket)) as first:
        handle = await first.start(spec(container))
        async with ExecClient(handle) as client:
            await run(client, "echo kept > /mnt/data/file; sleep 300 >/dev/null 2>&1 &")
    async with LauncherProvisioner(str(launcher_socket)) as second, ExecClient(await second.start(spec(container))) as client:
        assert (await run(client, "cat file; pgrep -c sleep")).stdout == "kept\n1\n"
        await second.stop(handle.sandbox_id)


async def test_a_stopped_sandbox_is_gone_with_its_files_and_the_next_one_is_empty(provisioner: LauncherProvisioner) -> None:
    container = new_id()
    assert await provisioner.find(spec(container)) is None
    handle = await provisioner.start(spec(container))
    assert await provisioner.find(spec(container)) == handle.sandbox_id
    async with ExecClient(handle) as client:
        await run(client, "mkdir -p locked/in && touch locked/in/file && chmod 000 locked/in locked; echo x > ~/file")
        events = execute(client, "sleep 60")
        assert await anext(events) == ExecStarted(0)
        assert await provisioner.describe(handle.sandbox_id) == SandboxStatus.RUNNING
        await provisioner.stop(handle.sandbox_id)
        with pytest.raises(SandboxGone):
            await collect(events)
    assert await provisioner.describe(handle.sandbox_id) == "stopped"
    await provisioner.stop(handle.sandbox_id)
    again = await provisioner.start(spec(container))
    assert again.sandbox_id != handle.sandbox_id
    async with ExecClient(again) as client:
        assert (await run(client, "ls -A /mnt/data ~")).stdout == "/home/user:\n\n/mnt/data:\n"
    await provisioner.stop(again.sandbox_id)


async def test_a_sandbox_whose_first_process_is_killed_is_stopped_and_started_anew(provisioner: LauncherProvisioner) -> None:
    container = new_id()
    handle = await provisioner.start(spec(container))
    (sandbox,) = [each for each in await provisioner.running() if each.container_id == container]
    async with ExecClient(handle) as client:
        events = execute(client, "sleep 60")
        assert await anext(events) == ExecStarted(0)
        before = await client.health()
        os.kill(sandbox.pid, signal.SIGKILL)
        with pytest.raises(SandboxGone):
            await collect(events)
    while await provisioner.describe(handle.sandbox_id) == "running":
        await asyncio.sleep(0.01)
    again = await provisioner.start(spec(container))
    async with ExecClient(again) as client:
        assert (await client.health()).boot_id != before.boot_id
    await provisioner.stop(again.sandbox_id)


async def test_a_killed_launcher_takes_its_sandboxes_along_and_the_next_one_clears_away(tmp_path: Path) -> None:
    with launcher_process(tmp_path) as (process, path):
        async with LauncherProvisioner(str(path)) as provisioner:
            handle = await provisioner.start(spec("cntr_1"))
            (sandbox,) = await provisioner.running()
            first_process = os.pidfd_open(sandbox.pid)
            process.kill()
            process.wait()
            ended, _, _ = select.select([first_process], [], [], 10)
            os.close(first_process)
            assert ended
            with pytest.raises(SandboxHostAway, match="does not answer"):
                await provisioner.describe(handle.sandbox_id)
    left = tmp_path / "state" / "sandboxes" / handle.sandbox_id
    assert left.exists()
    with launcher(tmp_path) as path:
        assert not left.exists()
        assert not Path(handle.endpoint.removeprefix("unix:")).exists()
        async with LauncherProvisioner(str(path)) as provisioner:
            assert await provisioner.describe(handle.sandbox_id) == "stopped"
            assert await provisioner.running() == []


async def test_a_launcher_that_ends_leaves_nothing(tmp_path: Path) -> None:
    with launcher(tmp_path) as path:
        async with LauncherProvisioner(str(path)) as provisioner:
            handle = await provisioner.start(spec("cntr_1"))
    assert os.listdir(tmp_path / "state" / "sandboxes") == []
    assert not Path(handle.endpoint.removeprefix("unix:")).parent.exists()
    assert not path.exists()


def exec_servers(launcher_pid: int) -> set[int]:
    """The first processes of all its sandboxes, also of one that is nobody's."""
    return {pid for pid, line in descendants(launcher_pid).items() if "exec_server" in line and not line.startswith("bwrap")}


async def spare_of(launcher_pid: int, provisioner: LauncherProvisioner) -> int:
    taken = {each.pid for each in await provisioner.running()}
    until(lambda: len(exec_servers(launcher_pid) - taken) == 1)
    (spare,) = exec_servers(launcher_pid) - taken
    return spare


async def test_one_that_was_nobodys_stands_ready(tmp_path: Path) -> None:
    with launcher_process(tmp_path) as (process, path):
        async with LauncherProvisioner(str(path)) as provisioner:
            first = await provisioner.start(spec("cntr_1"))
            spare = await spare_of(process.pid, provisioner)
            assert [each.sandbox_id for each in await provisioner.running()] == [first.sandbox_id]
            handle = await provisioner.start(spec("cntr_2", tenant_id="umbrella"))
            assert {each.container_id: each.pid for each in await provisioner.running()}["cntr_2"] == spare
            async with ExecClient(handle) as client:
                assert (await run(client, "echo $API_KEY; find /mnt/data ~ -mindepth 1")).stdout == "placeholder\n"
            assert await spare_of(process.pid, provisioner) != spare
    assert os.listdir(tmp_path / "state" / "sandboxes") == []


async def test_one_stands_ready_before_the_first_is_asked_for(tmp_path: Path) -> None:
    with launcher_process(tmp_path) as (process, path):
        async with LauncherProvisioner(str(path)) as provisioner:
            spare = await spare_of(process.pid, provisioner)
            async with ExecClient(await provisioner.start(spec("cntr_1"))) as client:
                assert (await run(client, "echo hello")).stdout == "hello\n"
            assert [each.pid for each in await provisioner.running()] == [spare]


async def test_what_stands_ready_is_like_the_last_one_and_not_given_to_another_kind(tmp_path: Path) -> None:
    large = SandboxSpec("acme", "cntr_2", TOKEN, memory_gib=4)
    with launcher_process(tmp_path) as (process, path):
        async with LauncherProvisioner(str(path)) as provisioner:
            await provisioner.start(spec("cntr_1"))
            small = await spare_of(process.pid, provisioner)
            async with ExecClient(await provisioner.start(large)) as client:
                free = "df --output=size -B1 /dev/shm | tail -1"
                assert int((await run(client, free)).stdout) == 4 * 1024**3 // limits.SANDBOX_SHM_SHARE
            until(lambda: small not in exec_servers(process.pid))
            spare = await spare_of(process.pid, provisioner)
            await provisioner.start(replace(large, container_id="cntr_3"))
            assert {each.container_id: each.pid for each in await provisioner.running()}["cntr_3"] == spare


async def test_one_that_died_while_it_stood_ready_is_missed_by_nobody(tmp_path: Path) -> None:
    with launcher_process(tmp_path) as (process, path):
        async with LauncherProvisioner(str(path)) as provisioner:
            handle = await provisioner.start(spec("cntr_1"))
            os.kill(await spare_of(process.pid, provisioner), signal.SIGKILL)
            left = tmp_path / "state" / "sandboxes"
            until(lambda: [path.name for path in left.glob("sbx_*")] == [handle.sandbox_id])
            async with ExecClient(await provisioner.start(spec("cntr_2"))) as client:
                assert (await run(client, "echo hello")).stdout == "hello\n"


async def test_one_that_dies_where_it_stands_as_somebody_asks_is_not_what_they_get(tmp_path: Path) -> None:
    with launcher_process(tmp_path) as (process, path):
        async with LauncherProvisioner(str(path)) as provisioner:
            handles = [await provisioner.start(spec("cntr_1"))]
            for container in ("cntr_2", "cntr_3", "cntr_4"):
                os.kill(await spare_of(process.pid, provisioner), signal.SIGKILL)
                handles.append(await provisioner.start(spec(container)))  # Its end takes longer to be seen than this to arrive.
                async with ExecClient(handles[-1]) as client:
                    assert (await run(client, "echo hello")).stdout == "hello\n"
            assert {each.sandbox_id for each in await provisioner.running()} == {each.sandbox_id for each in handles}


async def test_where_none_can_be_made_whoever_asks_is_told_and_the_next_one_asks_again(tmp_path: Path) -> None:
    place, aside = tmp_path / "state" / "sandboxes", tmp_path / "state" / "aside"
    with launcher_process(tmp_path) as (process, path):
        shelves = Path((tmp_path / "state" / "runtime-dir").read_text()) / "skills"
        async with LauncherProvisioner(str(path)) as provisioner:
            await provisioner.start(spec("cntr_1"))
            await spare_of(process.pid, provisioner)
            place.rename(aside)
            place.touch()
            untouched = shelves.stat().st_mtime_ns
            await provisioner.start(spec("cntr_2"))
            until(lambda: shelves.stat().st_mtime_ns != untouched)  # One to stand ready was tried in vain.
            with pytest.raises(SandboxError, match=r"^The sandbox could not be made: Not a directory\.$"):
                await provisioner.start(spec("cntr_3"))
            place.unlink()
            aside.rename(place)
            await provisioner.start(spec("cntr_3"))
            await spare_of(process.pid, provisioner)
    assert "Traceback" not in (tmp_path / "launcher.log").read_text()


async def test_there_is_one_launcher_for_a_state_directory(tmp_path: Path) -> None:
    with launcher(tmp_path), launcher_process(tmp_path) as (second, _):
        assert second.wait(60) == 1
        assert "Another launcher runs" in (tmp_path / "launcher.log").read_text()


def opened_by(pid: int) -> list[str]:
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            found.append(os.readlink(descriptor))
    return found


def test_a_launcher_that_is_told_to_end_while_it_starts_ends(tmp_path: Path) -> None:
    """It holds the lock by then: one that went on would keep every other from starting."""
    lock, note = tmp_path / "state" / "launcher.lock", tmp_path / "state" / "runtime-dir"
    note.parent.mkdir()
    os.mkfifo(note)  # It waits for somebody to say where an earlier launcher's folder was.
    command = [sys.executable, *LAUNCHER, "--socket", str(tmp_path / "launcher.sock"), "--state-dir", str(note.parent)]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: str(lock) in opened_by(process.pid))
            process.terminate()
            assert process.wait(60) == -signal.SIGTERM
        finally:
            process.kill()


async def test_a_full_launcher_says_so(tmp_path: Path) -> None:
    with launcher(tmp_path, "--sandboxes-max", "1") as path:
        async with LauncherProvisioner(str(path)) as provisioner:
            await provisioner.start(spec("cntr_1"))
            with pytest.raises(SandboxCapacity, match="1 sandboxes"):
                await provisioner.start(spec("cntr_2"))


async def test_a_start_that_cannot_work_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with launcher(tmp_path) as path:
        async with LauncherProvisioner(str(path)) as provisioner:
            with pytest.raises(SandboxError, match="/nowhere does not exist"):
                await provisioner.start(spec("cntr_1", egress=EgressSpec(proxy="unix:/nowhere/proxy.sock", username="u", password="p")))
            with pytest.raises(SandboxError, match="Unix socket"):
                await provisioner.start(spec("cntr_1", egress=EgressSpec(proxy="http://proxy:3128", username="u", password="p")))
            with pytest.raises(SandboxError, match="did not come up"):
                await provisioner.start(SandboxSpec("acme", "cntr_1", "short"))
            assert await provisioner.running() == []
    assert os.listdir(tmp_path / "state" / "sandboxes") == []


async def test_a_toolbox_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with launcher_process(tmp_path, "--toolbox", str(tmp_path / "none")) as (process, _):
        assert process.wait(60) == 1
        assert "is not a virtual environment" in (tmp_path / "launcher.log").read_text()


@contextmanager
def with_bwrap(script: str | None) -> Iterator[dict[str, str]]:
    """An environment whose ``bwrap`` is this script, or is missing. Sandboxes' users must be able to enter its directory."""
    with tempfile.TemporaryDirectory() as name:
        programs = Path(name)
        programs.chmod(0o755)
        if script is not None:
            (programs / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
            (programs / "bwrap").chmod(0o755)
        yield {**os.environ, "PATH": name}


ABSENT = (None, "bubblewrap is not installed ('apt install bubblewrap')")
REFUSED = ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "bwrap: No permissions to create new namespace")


@pytest.mark.parametrize(
    ("program", "script", "words"),
    [("launcher", *ABSENT), ("launcher", *REFUSED), ("stack", *REFUSED)],
    ids=["no bubblewrap", "no namespaces", "no namespaces for a stack, which says what its launcher has said"],
)
def test_a_machine_that_cannot_have_sandboxes_is_told_at_the_start(
    program: str, script: str | None, words: str, tmp_path: Path
) -> None:
    arguments = {
        "launcher": [*LAUNCHER, "--socket", str(tmp_path / "launcher.sock"), "--state-dir", str(tmp_path / "state")],
        "stack": ["-m", "moorage.local.stack"],
    }[program]
    with with_bwrap(script) as environment:
        environment |= {"MOORAGE_STATE_DIR": str(tmp_path / "up"), "MOORAGE_PORT": "0"}
        ended = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, words in ended.stderr, "Traceback" in ended.stderr) == (1, True, False), ended.stderr


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"),
        ("user/max_user_namespaces", "100", "--privileged"),
    ],
)
def test_a_machine_without_namespaces_is_told_which_switch_allows_them(name: str, value: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(f"{value}\n")
    assert advice in how_to_allow_namespaces(tmp_path)


async def test_only_its_user_can_talk_to_a_launcher_and_its_sandboxes(provisioner: LauncherProvisioner, launcher_socket: Path) -> None:
    handle = await provisioner.start(spec(new_id()))
    endpoint = Path(handle.endpoint.removeprefix("unix:"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in (launcher_socket, endpoint)} == {0o600}
    assert stat.S_IMODE(endpoint.parent.stat().st_mode) in (0o700, 0o711)
    async with ExecClient(Handle(handle.endpoint, "another-token-of-32-characters-or-more", "sbx")) as stranger:
        with pytest.raises(SandboxError, match="token"):
            await stranger.health()
    await provisioner.stop(handle.sandbox_id)


@pytest.mark.skipif(not os.access(ROOT / ".venv-toolbox" / "bin" / "python", os.X_OK), reason="'make setup' builds the toolbox")
async def test_the_toolbox_comes_first_on_the_path_and_draws(tmp_path: Path) -> None:
    with launcher(tmp_path, "--toolbox", str(ROOT / ".venv-toolbox")) as path:
        async with LauncherProvisioner(str(path)) as provisioner, ExecClient(await provisioner.start(spec("cntr_1"))) as client:
            assert (await run(client, "which python python3")).stdout == "/opt/toolbox/bin/python\n/opt/toolbox/bin/python3\n"
            assert (await run(client, "python -c 'import openpyxl, pandas, requests'", timeout_ms=60_000)).exit_code == 0
            code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
            run_code = client.python(new_id(), code, timeout_ms=60_000, max_output_length=1_000)
            events = [event async for event in run_code if not isinstance(event, Heartbeat)]
            last = events[-1]
            assert isinstance(last, PythonEnded)
            assert (last.images, events[1:-1]) == (("/mnt/data/figure-1.png",), [])


class TestEgress:
    async def test_the_proxy_is_reached_through_the_forwarder_and_nothing_else_is(
        self, provisioner: LauncherProvisioner, tmp_path: Path
    ) -> None:
        with echo_proxy(tmp_path / "proxy") as path:
            egress = EgressSpec(proxy=f"unix:{path}", username="cntr_1", password="pass/word", ca_pem="-----PROXY CA-----\n")
            handle = await provisioner.start(spec(new_id(), egress=egress))
            async with ExecClient(handle) as client:
                result = await run(client, "exec 3<>/dev/tcp/127.0.0.1/3128; echo 'CONNECT a:443' >&3; head -c 24 <&3")
                assert result.stdout == "proxy got: CONNECT a:443"
                result = await run(client, 'echo "$HTTPS_PROXY $https_proxy $NO_PROXY"; tail -n 2 "$SSL_CERT_FILE"; echo "$API_KEY"')
                url = "http://cntr_1:pass%2Fword@127.0.0.1:3128"
                expected = f"{url} {url} localhost,127.0.0.1,::1\n-----PROXY CA-----\n\nplaceholder\n"
                assert result.stdout == expected
                assert "unreachable" in (await run(client, "</dev/tcp/192.0.2.1/443")).stderr
            await provisioner.stop(handle.sandbox_id)

    async def test_a_proxy_that_is_started_again_is_found(self, provisioner: LauncherProvisioner, tmp_path: Path) -> None:
        command = "exec 3<>/dev/tcp/127.0.0.1/3128; echo x >&3; head -c 12 <&3"
        with echo_proxy(tmp_path / "proxy") as path:
            handle = await provisioner.start(spec(new_id(), egress=EgressSpec(proxy=f"unix:{path}", username="u", password="p")))
        async with ExecClient(handle) as client:
            assert (await run(client, command)).stdout == ""
            with echo_proxy(tmp_path / "proxy"):
                assert (await run(client, command)).stdout == "proxy got: x"
        await provisioner.stop(handle.sandbox_id)

    async def test_without_a_policy_there_is_no_forwarder(self, sandbox: ExecClient) -> None:
        result = await run(sandbox, "</dev/tcp/127.0.0.1/3128; env | grep -ci proxy")
        assert "refused" in result.stderr
        assert result.stdout == "0\n"


@contextmanager
def echo_proxy(directory: Path) -> Iterator[Path]:
    """A Unix socket that says back what it was told."""
    directory.mkdir(exist_ok=True)
    path = directory / "egress.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen()
        thread = threading.Thread(target=_answer, args=(listener,))
        thread.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _answer(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"proxy got: " + connection.recv(1024))


def test_a_toolbox_names_every_directory_that_its_python_goes_through(tmp_path: Path) -> None:
    for name in ("real/bin", "alias", "venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "real" / "bin" / "python3.11").touch(0o755)
    (tmp_path / "alias" / "bin").symlink_to("../real/bin")
    (tmp_path / "venv" / "bin" / "python3").symlink_to(tmp_path / "alias" / "bin" / "python3.11")
    (tmp_path / "venv" / "bin" / "python").symlink_to("python3")
    prefixes = (str(tmp_path / "alias"), str(tmp_path / "real"))
    interpreter = str(tmp_path / "real" / "bin" / "python3.11")
    assert Toolbox.at(tmp_path / "venv") == Toolbox(tmp_path / "venv", prefixes, interpreter)
    with pytest.raises(SandboxError, match="not a virtual environment"):
        Toolbox.at(tmp_path / "none")


class TestControlGroups:
    def test_version_2_uses_the_nearest_group_that_is_delegated(self, tmp_path: Path) -> None:
        session = tmp_path / "user.slice" / "session.scope"
        session.mkdir(parents=True)
        for directory, controllers in ((tmp_path, "cpu memory pids"), (tmp_path / "user.slice", "memory pids"), (session, "")):
            (directory / "cgroup.subtree_control").write_text(controllers)
            (directory / "cgroup.procs").touch()
        groups = ControlGroups(tmp_path, "0::/user.slice/session.scope\n")
        assert groups.are_available
        group = tmp_path / "user.slice" / "moorage-sbx_1"
        assert groups.create("sbx_1", 4) == ControlGroup(
            (group / "server" / "cgroup.procs",),
            (group / "commands" / "cgroup.procs",),
            group / "commands" / "memory.events",
            group / "commands" / "pids.events",
        )
        assert (group / "commands" / "memory.max").read_text() == str(4 * 1024**3)
        assert (group / "commands" / "memory.swap.max").read_text() == "0"
        assert (group / "memory.max").read_text() == str(4 * 1024**3 + limits.SANDBOX_RESERVE_BYTES)
        assert not (group / "server" / "memory.max").exists()

    def test_version_1_uses_our_own_group_of_each_controller(self, tmp_path: Path) -> None:
        for controller in ("memory", "pids", "cpu"):
            (tmp_path / controller / "own").mkdir(parents=True)
            (tmp_path / controller / "own" / "cgroup.procs").touch()
        groups = ControlGroups(tmp_path, "3:memory:/own\n2:pids:/own\n1:cpu:/own\n0::/\n")
        group = groups.create("sbx_1", 1)
        joins = {str(path.relative_to(tmp_path)) for path in (*group.server, *group.commands)}
        assert joins == {
            f"{controller}/own/moorage-sbx_1/{part}/tasks"
            for controller in ("memory", "pids", "cpu")
            for part in ("server", "commands")
        }
        own = tmp_path / "memory/own/moorage-sbx_1"
        assert (own / "commands/memory.limit_in_bytes").read_text() == str(1024**3)
        assert (own / "memory.limit_in_bytes").read_text() == str(1024**3 + limits.SANDBOX_RESERVE_BYTES)

    def test_where_nothing_may_be_made_there_are_none(self, tmp_path: Path) -> None:
        groups = ControlGroups(tmp_path, "0::/\n")
        assert (groups.are_available, groups.create("sbx_1", 1)) == (False, ControlGroup())

    async def test_removing_a_group_ends_what_was_left_in_it(self) -> None:
        groups = ControlGroups(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup").read_text())
        if not groups.are_available:
            pytest.skip("This user may make no control groups here.")
        name = f"sbx_{os.urandom(8).hex()}"
        group = groups.create(name, 1)
        joining = " ".join(map(str, group.server))
        left = await asyncio.create_subprocess_exec(
            "sh", "-c", f"for f in {joining}; do echo 0 > $f; done; echo in; exec sleep 60", stdout=-1
        )
        assert left.stdout is not None
        assert await left.stdout.readline() == b"in\n"
        is_removed = groups.remove(name)  # A process may be gone at once.
        assert await left.wait() == -signal.SIGKILL
        async with asyncio.timeout(30):
            while not is_removed:  # The kernel may know of one a moment longer than its parent.
                await asyncio.sleep(0.01)
                is_removed = groups.remove(name)
