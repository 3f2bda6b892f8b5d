"""Connections to exec servers of this machine, which one client hands to the next."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from moorage import limits
from moorage.errors import SandboxError, SandboxGone
from moorage.sandbox.exec_client import ExecClient, ExecConnections
from moorage.sandbox.provisioner import Handle

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import ServerProcess, collect, exec_server, execute


@pytest.fixture
async def connections() -> AsyncIterator[ExecConnections]:
    kept = ExecConnections()
    yield kept
    await kept.aclose()


async def _files(client: ExecClient, server: ServerProcess) -> None:
    await client.list_files(str(server.workspace))


async def _health(client: ExecClient, _: ServerProcess) -> None:
    await client.health()


async def _command(client: ExecClient, _: ServerProcess) -> None:
    await collect(execute(client, "echo hello"))


@pytest.mark.parametrize("ask", [_health, _command, _files])
async def test_a_request_leaves_its_connection_to_the_next_client(
    connections: ExecConnections, server: ServerProcess, ask: Callable[[ExecClient, ServerProcess], Awaitable[None]]
) -> None:
    async with connections.connect(server.handle) as client:
        await until_up(client)
        assert not client.has_just_answered, "of itself it does not know more than it asks"
    for _ in range(20):
        async with connections.connect(server.handle) as client:
            assert client.has_just_answered
            await ask(client, server)


async def test_two_clients_at_once_have_a_connection_each(connections: ExecConnections, server: ServerProcess) -> None:
    async with connections.connect(server.handle) as one, connections.connect(server.handle) as other:
        await until_up(one)
        await asyncio.gather(*(_command(client, server) for client in (one, other, one)))
    async with connections.connect(server.handle) as client:
        assert client.has_just_answered
        await client.health()


async def test_who_has_another_token_gets_no_connection_of_others(connections: ExecConnections, server: ServerProcess) -> None:
    async with connections.connect(server.handle) as client:
        await until_up(client)
    async with connections.connect(replace(server.handle, token="x" * 40)) as stranger:
        assert not stranger.has_just_answered
        with pytest.raises(SandboxError):
            await stranger.health()


async def test_an_exec_server_that_has_died_has_not_just_answered(connections: ExecConnections, tmp_path: Path) -> None:
    with exec_server(tmp_path) as server:
        async with connections.connect(server.handle) as client:
            await until_up(client)
        async with connections.connect(server.handle) as client:
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(SandboxGone):
                await _until_refused(client)
    async with connections.connect(server.handle) as client:
        assert not client.has_just_answered
        with pytest.raises(SandboxGone):
            await client.health()


async def _until_refused(client: ExecClient) -> None:
    while True:
        await client.health()


async def test_an_answer_of_long_ago_says_nothing(server: ServerProcess) -> None:
    connections = ExecConnections()
    async with connections.connect(server.handle) as client:
        await until_up(client)
    (transport,) = connections._idle.values()
    assert [transport._quick.is_connected(seconds) for seconds in (60, 0)] == [True, False]
    await connections.aclose()


async def test_connections_are_kept_for_so_many_sandboxes_and_no_more(connections: ExecConnections) -> None:
    handles = [Handle(f"unix:/nowhere/{number}.sock", "t" * 32, f"sbx_{number}") for number in range(100)]
    for handle in handles:
        async with connections.connect(handle):
            pass
    assert list(connections._idle) == handles[-limits.SANDBOX_CONNECTIONS_KEPT_MAX :]


async def test_a_sandbox_on_another_machine_has_a_client_of_its_own(connections: ExecConnections) -> None:
    async with connections.connect(Handle("http://127.0.0.1:9", "t" * 32, "sbx_1")) as client:
        assert not client.has_just_answered
    assert not connections._idle
