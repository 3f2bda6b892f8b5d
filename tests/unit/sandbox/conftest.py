import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from moorage.errors import SandboxGone
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec

from tests.unit.sandbox.support import TOKEN, ServerProcess, can_be_ordinary, exec_server, launcher, new_id, ordinary_launcher


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with exec_server(tmp_path_factory.mktemp("bare")) as process:
        yield process


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[ExecClient]:
    """A client of the bare exec server."""
    async with ExecClient(server.handle) as client:
        await until_up(client)
        yield client


@pytest.fixture(scope="session")
def launcher_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with launcher(tmp_path_factory.mktemp("launcher"), "--disk-bytes", str(64 * 1024 * 1024)) as socket:
        yield socket


@pytest.fixture
async def provisioner(launcher_socket: Path) -> AsyncIterator[LauncherProvisioner]:
    async with LauncherProvisioner(str(launcher_socket)) as provisioner:
        yield provisioner


@pytest.fixture
async def sandbox(provisioner: LauncherProvisioner) -> AsyncIterator[ExecClient]:
    """A client of a fresh sandbox."""
    handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
    async with ExecClient(handle) as client:
        yield client
    await provisioner.stop(handle.sandbox_id)


@pytest.fixture(scope="session")
def ordinary_socket() -> Iterator[Path]:
    """The launcher of a user who is not root."""
    if not can_be_ordinary():
        pytest.skip("no other user can read this checkout and run a Python of its version")
    with ordinary_launcher("--disk-bytes", str(64 * 1024 * 1024)) as socket:
        yield socket


@pytest.fixture
async def ordinary_sandbox(ordinary_socket: Path) -> AsyncIterator[ExecClient]:
    """A client of a fresh sandbox whose launcher is not root."""
    async with LauncherProvisioner(str(ordinary_socket)) as provisioner:
        handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
        async with ExecClient(handle) as client:
            yield client
        await provisioner.stop(handle.sandbox_id)


@pytest.fixture(params=["launcher_socket", "ordinary_socket"], ids=["as root", "as an ordinary user"])
def either_socket(request: pytest.FixtureRequest) -> Path:
    """Each of the two launchers; the same twice where the tests do not run as root."""
    socket: Path = request.getfixturevalue(request.param)
    return socket


@pytest.fixture
async def either_sandbox(either_socket: Path) -> AsyncIterator[ExecClient]:
    async with LauncherProvisioner(str(either_socket)) as provisioner:
        handle = await provisioner.start(SandboxSpec("acme", new_id(), TOKEN))
        async with ExecClient(handle) as client:
            yield client
        await provisioner.stop(handle.sandbox_id)


async def until_up(client: ExecClient) -> None:
    for _ in range(500):
        try:
            await client.health()
        except SandboxGone:
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError("the exec server did not come up")
