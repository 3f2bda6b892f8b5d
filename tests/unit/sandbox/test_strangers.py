"""Nobody else on this machine reaches the launcher, the exec servers or what they keep; a web page even less."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner, RunningSandbox
from moorage.sandbox.provisioner import Handle, SandboxSpec

from tests.unit.sandbox.support import SYSTEM_PYTHON, TOKEN, exec_server, launcher, new_id, run

STRANGER = 61_999
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('DONE')"


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that everybody may enter, and that somebody made before the launcher came."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "state").mkdir(mode=0o755)
        yield Path(name)


@asynccontextmanager
async def a_sandbox(path: Path) -> AsyncIterator[tuple[Handle, RunningSandbox]]:
    async with LauncherProvisioner(str(path)) as provisioner:
        handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
        (running,) = await provisioner.running()
        yield handle, running
        await provisioner.stop(handle.sandbox_id)


def as_stranger(*command: str) -> str:
    """What another user of this machine gets out of it, and the complaint."""
    tried = subprocess.run([*command], user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, text=True, cwd="/")
    return tried.stdout + tried.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_reaches_neither_launcher_nor_exec_server_nor_files(open_directory: Path) -> None:
    with launcher(open_directory) as path:
        async with a_sandbox(path) as (handle, running):
            async with ExecClient(handle) as client:
                await run(client, "echo secret > /mnt/data/secret")
            for place in (str(path), handle.endpoint.removeprefix("unix:")):
                assert "Permission denied" in as_stranger(SYSTEM_PYTHON, "-c", CONNECT, place)
            for command in (
                ("ls", str(open_directory / "state")),
                ("ls", str(Path(handle.endpoint.removeprefix("unix:")).parent)),
                ("cat", f"/proc/{running.pid}/root/mnt/data/secret"),
                ("cat", f"/proc/{running.pid}/environ"),
                ("ls", f"/proc/{running.pid}/fd"),
            ):
                assert "Permission denied" in as_stranger(*command), command


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_one_sandboxs_user_reaches_no_other_sandbox_from_outside(open_directory: Path) -> None:
    """As if a command had got out with the number of its user."""
    with launcher(open_directory) as path:
        async with a_sandbox(path) as (handle, running):
            own = os.stat(f"/proc/{running.pid}").st_uid
            for uid in {own, STRANGER}:
                tried = subprocess.run(
                    [SYSTEM_PYTHON, "-c", CONNECT, handle.endpoint.removeprefix("unix:")],
                    user=uid,
                    group=uid,
                    extra_groups=[],
                    capture_output=True,
                    text=True,
                    cwd="/",
                )
                assert "Permission denied" in tried.stderr


async def test_there_is_no_port_that_a_web_page_could_ask(open_directory: Path) -> None:
    """Launcher and exec servers listen on Unix sockets alone, and inside a sandbox nothing listens at all."""
    with launcher(open_directory) as path:
        async with a_sandbox(path) as (handle, running):
            children = descendants_of_parent(running.pid)
            assert running.pid in children
            assert [pid for pid in children if listening_ports(pid)] == []
            async with ExecClient(handle) as client:
                assert (
                    await run(client, "grep -c ' 0A ' /proc/net/tcp /proc/net/tcp6")
                ).stdout == "/proc/net/tcp:0\n/proc/net/tcp6:0\n"


def descendants_of_parent(pid: int) -> set[int]:
    """The launcher of this sandbox and all its processes."""
    parents = {int(path.name): parent_of(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    family = {parents[parents[pid]]}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def listening_ports(pid: int) -> list[str]:
    inodes = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}").removeprefix("socket:[").removesuffix("]"))
        lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
    except OSError:
        return []
    return [line[1] for line in lines if line[3] == "0A" and line[9] in inodes]


async def test_what_a_browser_would_send_to_an_exec_server_that_has_a_port_gets_nothing(tmp_path: Path) -> None:
    """On Fargate it has one, in a network of its own. Without the token nothing is said, and nobody is invited to read it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with exec_server(tmp_path, listen=f"tcp:127.0.0.1:{port}"):
        headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False) as page:
            await until_listening(port)
            answer = await page.put("/v1/execs/x", content='{"command": "id", "timeout_ms": 1, "max_output_length": 9}')
            assert answer.status_code == 401
            preflight = await page.options("/v1/execs/x")
            assert preflight.status_code == 401
            assert not any(name.startswith("access-control") for name in (*answer.headers, *preflight.headers))
            with_token = await page.put("/v1/execs/x", headers={"Authorization": f"Bearer {TOKEN}"}, content="{}")
            assert (with_token.status_code, with_token.json()["error"]["code"]) == (403, "cross_site")


async def until_listening(port: int) -> None:
    for _ in range(500):
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        await asyncio.sleep(0.01)
    raise AssertionError("the exec server did not come up")
