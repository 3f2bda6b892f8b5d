import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from moorage.errors import SandboxGone
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import SandboxSpec

from tests.unit.sandbox.support import TOKEN, ServerProcess, exec_server, launcher, new_id


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


async def until_up(client: ExecClient) -> None:
    for _ in range(500):
        try:
            await client.health()
        except SandboxGone:
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError("the exec server did not come up")
