"""What runs in a sandbox, as its exec server tells it."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from moorage.errors import SandboxGone
from moorage.sandbox.exec_client import ExecClient, RunningProcess

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import exec_server, run

SERVES = "import socket, time; each = socket.create_server(('127.0.0.1', 0)); print(each.getsockname()[1]); time.sleep(60)"


async def serve(client: ExecClient, python: str = "python3") -> int:
    """A service that outlives its command; the port on which it listens."""
    await run(client, f'setsid {python} -u -c "{SERVES}" > port 2>/dev/null < /dev/null & until [ -s port ]; do sleep 0.05; done')
    return int((await run(client, "cat port")).stdout)


async def only(client: ExecClient) -> RunningProcess:
    running = await client.processes()
    assert running.is_complete
    (process,) = running.processes
    return process


async def test_a_service_is_told_with_its_port_until_it_ends(sandbox: ExecClient) -> None:
    await _served(sandbox)


async def test_where_the_server_is_not_alone_nothing_of_others_is_told(tmp_path: Path) -> None:
    with exec_server(tmp_path) as server:
        async with ExecClient(server.handle) as client:
            await until_up(client)
            await _served(client)


async def _served(client: ExecClient) -> None:
    assert (await client.processes()).processes == ()
    port = await serve(client)
    process = await only(client)
    assert process == RunningProcess(
        process.pid,
        process.parent_pid,
        process.command,
        process.started_at_ms,
        process.cpu_seconds,
        process.memory_bytes,
        (port,),
    )
    assert process.command.endswith(f"python3 -u -c {SERVES}")
    assert abs(process.started_at_ms - time.time() * 1000) < 3_600_000
    assert process.memory_bytes > 1_000_000
    await run(client, f"kill {process.pid}; while kill -0 {process.pid}; do sleep 0.05; done")
    assert (await client.processes()).processes == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start commands as another user")
async def test_the_ports_of_another_user_are_seen(tmp_path: Path) -> None:
    """As in Docker and on Fargate."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        with exec_server(Path(name), uid=61_236, python="/usr/bin/python3") as server:
            async with ExecClient(server.handle) as client:
                await until_up(client)
                port = await serve(client, "/usr/bin/python3")
                process = await only(client)
                assert process.ports == (port,)
                await run(client, f"kill {process.pid}")


async def test_commands_are_bounded_and_a_crowd_is_cut(tmp_path: Path) -> None:
    with exec_server(tmp_path, limits={"processes": 4_000}) as server:
        async with ExecClient(server.handle) as client:
            await until_up(client)
            await run(client, f"setsid bash -c 'sleep 60; : {'x' * 3_000}' >/dev/null 2>&1 </dev/null &")
            command = next(each.command for each in await settled(client, 2) if each.command.startswith("bash"))
            assert (len(command), command[:22]) == (1_000, "bash -c sleep 60; : xx")
            await run(client, "for i in $(seq 505); do setsid sleep 60 >/dev/null 2>&1 </dev/null & echo $! >> pids; done")
            assert len(await settled(client, 500)) == 500
            assert not (await client.processes()).is_complete
            await run(client, "kill $(cat pids)")


async def settled(client: ExecClient, number: int) -> Any:
    """Those that run, as soon as they are so many: a command does not wait for what it leaves behind."""
    deadline = time.monotonic() + 60
    while len(running := (await client.processes()).processes) < number:
        assert time.monotonic() < deadline
    return running


async def test_a_sandbox_that_is_gone_says_so(tmp_path: Path) -> None:
    with exec_server(tmp_path) as server:
        client = ExecClient(server.handle)
        await until_up(client)
    with pytest.raises(SandboxGone):
        await client.processes()
    await client.aclose()
