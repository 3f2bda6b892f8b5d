"""The exec protocol from outside: what a caller sees, whatever happens to its connection, the command or the server's patience."""

import ast
import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipapp
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from moorage.errors import SandboxError, SandboxGone
from moorage.sandbox.exec_client import ExecClient, ExecEnded, ExecOutput, ExecStarted, FileListing, Heartbeat, SandboxHealth
from moorage.sandbox.provisioner import Handle

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import (
    EXEC_SERVER,
    TOKEN,
    Result,
    ServerProcess,
    collect,
    collect_bytes,
    exec_server,
    execute,
    new_id,
    pieces,
    python,
    result_of,
    run,
    text_of,
)


async def test_a_command_reports_both_streams_and_its_exit_code(client: ExecClient) -> None:
    events = await collect(execute(client, "echo out; sleep 0.1; echo err >&2; exit 3"))
    assert events == [
        ExecStarted(0),
        ExecOutput(1, "stdout", "out\n"),
        ExecOutput(2, "stderr", "err\n"),
        ExecEnded(3, "exit", 3, 0, None),
    ]


async def test_a_command_sees_the_workspace_a_home_and_its_own_variables_only(client: ExecClient, server: ServerProcess) -> None:
    result = await run(client, 'pwd; echo "$HOME" "$GREETING"; env | grep -ci token', env={"GREETING": "hello"})
    assert result.stdout == f"{server.workspace}\n{server.workspace.parent}/home hello\n0\n"


async def test_a_command_has_no_stdin_and_no_terminal(client: ExecClient) -> None:
    assert await run(client, "cat; test -t 0 || test -t 1 || echo none") == Result("none\n", "", "exit", 0)


async def test_a_long_command_goes_to_the_shell_as_well(client: ExecClient) -> None:
    result = await run(client, "true " + "x" * 200_000 + "\necho $?; echo done")
    assert result == Result("0\ndone\n", "", "exit", 0)


async def test_an_id_runs_once_however_often_it_is_started(client: ExecClient, server: ServerProcess) -> None:
    exec_id = new_id()
    command = "echo run >> runs; sleep 0.2; cat runs"
    streams = [client.exec(exec_id, command, timeout_ms=5_000, max_output_length=100) for _ in range(5)]
    every = await asyncio.gather(*map(collect, streams))
    assert all(events == [ExecStarted(0), ExecOutput(1, "stdout", "run\n"), ExecEnded(2, "exit", 0, 0, None)] for events in every)


async def test_an_id_belongs_to_one_command(client: ExecClient) -> None:
    exec_id = new_id()
    await collect(client.exec(exec_id, "true", timeout_ms=5_000, max_output_length=100))
    with pytest.raises(SandboxError, match="another command"):
        await collect(client.exec(exec_id, "false", timeout_ms=5_000, max_output_length=100))


async def test_attaching_after_any_event_gives_exactly_the_rest(client: ExecClient) -> None:
    exec_id = new_id()
    command = "for i in 1 2 3 4 5; do echo $i; echo e$i >&2; sleep 0.05; done"
    whole = await collect(client.exec(exec_id, command, timeout_ms=5_000, max_output_length=1_000))
    for number in range(-1, len(whole) + 1):
        assert await collect(client.attach(exec_id, after=number)) == whole[number + 1 :]


async def test_a_connection_torn_at_any_event_loses_nothing(client: ExecClient) -> None:
    command = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.04; done; exit 7"
    for torn_after in range(8):
        exec_id = new_id()
        seen: list[ExecStarted | ExecOutput | ExecEnded] = []
        while not seen or not isinstance(seen[-1], ExecEnded):
            after = seen[-1].n if seen else -1
            async with ExecClient(client.handle) as other:
                events = other.exec(exec_id, command, timeout_ms=5_000, max_output_length=1_000, after=after)
                async for event in events:
                    assert not isinstance(event, Heartbeat | FileListing)
                    seen.append(event)
                    if len(seen) % (torn_after + 1) == 0:
                        break
                await events.aclose()
        assert [event.n for event in seen] == list(range(len(seen)))
        assert result_of([*seen]) == Result("1\n2\n3\n4\n5\n6\n", "", "exit", 7)


async def test_the_events_that_ended_first_are_forgotten_and_their_commands_run_no_more(tmp_path: Path) -> None:
    long, first = new_id(), new_id()
    with exec_server(tmp_path) as process:
        async with ExecClient(process.handle) as client:
            await until_up(client)
            command = "until [ -e ended ]; do sleep 0.01; done; echo late"
            waiting = client.exec(long, command, timeout_ms=60_000, max_output_length=100)
            assert await anext(waiting) == ExecStarted(0)
            for number in range(70):  # A megabyte each, and 64 are kept.
                exec_id = new_id() if number else first
                command = f"head -c 1000000 /dev/zero | tr '\\0' {number % 10}"
                await collect(client.exec(exec_id, command, timeout_ms=60_000, max_output_length=1_000_000))
            await run(client, "touch ended")
            told = [ExecStarted(0), ExecOutput(1, "stdout", "late\n"), ExecEnded(2, "exit", 0, 0, None)]
            assert await collect(waiting) == told[1:]
            assert await collect(client.attach(long)) == told
            with pytest.raises(SandboxGone, match="no longer kept"):
                await collect(client.attach(first))
            with pytest.raises(SandboxGone, match="no longer kept"):
                await collect(client.exec(first, "true", timeout_ms=5_000, max_output_length=10))
            assert (await client.health()).running == 0


async def test_any_text_can_be_an_id(client: ExecClient) -> None:
    for exec_id in ("resp_1-call_2|fc_3/4?5#6 é%2F-0", "resp_1-call_2|fc_3/4?5#6 é%2F-1", "a:b"):
        command = f"printf '%s' '{exec_id}' 0123456789"
        events = await collect(client.exec(exec_id, command, timeout_ms=5_000, max_output_length=4))
        assert await collect(client.attach(exec_id)) == events
        last = events[-1]
        assert isinstance(last, ExecEnded)
        assert Path(str(last.spool_path)).read_text() == f"{exec_id}0123456789"


async def test_a_command_whose_shell_has_ended_can_no_longer_time_out(client: ExecClient) -> None:
    """While the server waits for late output of a background process."""
    for _ in range(20):  # On a slow machine the shell itself may be too late.
        result = await run(client, "sleep 5 & sleep 0.25; echo done", timeout_ms=300)
        if result.outcome == "exit":
            break
    assert result == Result("done\n", "", "exit", 0)


async def test_an_unknown_id_is_a_sandbox_that_is_gone(client: ExecClient) -> None:
    with pytest.raises(SandboxGone, match="started anew"):
        await collect(client.attach("exec_never"))


async def test_a_server_that_dies_in_the_middle_is_a_sandbox_that_is_gone(tmp_path: Path) -> None:
    with exec_server(tmp_path) as process:
        async with ExecClient(process.handle) as client:
            await until_up(client)
            events = execute(client, "sleep 60")
            assert await anext(events) == ExecStarted(0)
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(SandboxGone):
                await collect(events)


async def test_a_wrong_token_is_refused_everywhere(server: ServerProcess, client: ExecClient) -> None:
    async with ExecClient(Handle(server.handle.endpoint, "x" * 32, "sbx")) as stranger:
        with pytest.raises(SandboxError, match="token"):
            await stranger.health()
        with pytest.raises(SandboxError, match="token"):
            await collect(execute(stranger, "echo hi"))
        with pytest.raises(SandboxError, match="token"):
            await stranger.list_files(str(server.workspace))


async def test_a_connection_whose_body_was_not_read_says_that_it_takes_no_more(server: ServerProcess, client: ExecClient) -> None:
    reader, writer = await asyncio.open_unix_connection(server.handle.endpoint.removeprefix("unix:"))
    writer.write(b"PUT /v1/execs/x HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}GET /v1/health HTTP/1.1\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert (answer.count(b"HTTP/1.1"), b"\r\nconnection: close\r\n" in answer) == (1, True)


async def test_health_names_the_protocol_and_counts_what_runs(client: ExecClient) -> None:
    before = await client.health()
    events = execute(client, "sleep 60")
    assert await anext(events) == ExecStarted(0)
    assert await client.health() == SandboxHealth(1, before.boot_id, before.running + 1)
    await events.aclose()


async def test_the_last_words_before_a_time_out_are_kept(client: ExecClient) -> None:
    result = await run(client, "echo started; sleep 60; echo never", timeout_ms=300)
    assert result == Result("started\n", "", "timeout", 137)


async def test_a_time_out_ends_the_whole_family(client: ExecClient, server: ServerProcess) -> None:
    """Children in the background, and one that made itself a session of its own but kept the output."""
    command = "sleep 61 & setsid sleep 62 & (setsid bash -c 'sleep 63' &) ; echo $$; wait; sleep 64"
    result = await run(client, command, timeout_ms=400)
    assert result.outcome == "timeout"
    assert [line for line in sleeping() if line in {"61", "62", "63", "64"}] == []


async def test_a_kill_ends_a_command_once(client: ExecClient) -> None:
    exec_id = new_id()
    events = client.exec(exec_id, "echo ready; sleep 65", timeout_ms=20_000, max_output_length=100)
    assert [await anext(events), await anext(events)] == [ExecStarted(0), ExecOutput(1, "stdout", "ready\n")]
    assert await client.kill(exec_id) is True
    assert await collect(events) == [ExecEnded(2, "killed", 137, 0, None)]
    assert await client.kill(exec_id) is False
    assert await client.kill("exec_never") is False


async def test_a_background_service_lives_on_and_answers_the_next_command(client: ExecClient) -> None:
    code = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    print("waiting", flush=True)  # to an output that nobody reads any more
    connection, _ = server.accept()
    connection.sendall(b"hello")
    connection.close()
"""
    service = f"cat > service.py <<'PY'\n{code}\nPY\npython3 service.py & echo $!; sleep 0.5"
    started = await run(client, service, timeout_ms=10_000)
    pid, port, _ = started.stdout.split()
    for _ in range(3):
        answer = await run(client, f"exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3")
        assert answer == Result("hello", "", "exit", 0)
    await run(client, f"kill {pid}")


async def test_a_command_that_kills_its_parent_and_itself_harms_nobody(client: ExecClient) -> None:
    result = await run(client, "echo before; kill -9 $$")
    assert result == Result("before\n", "", "exit", 137)
    assert (await run(client, "echo after")).stdout == "after\n"


async def test_a_command_that_deletes_its_working_directory_leaves_the_next_one_a_new_one(
    client: ExecClient, server: ServerProcess
) -> None:
    await run(client, 'rm -rf "$PWD"')
    assert not server.workspace.exists()
    assert await run(client, "pwd; ls -A") == Result(f"{server.workspace}\n", "", "exit", 0)


async def test_many_commands_run_at_the_same_time(client: ExecClient) -> None:
    results = await asyncio.gather(*(run(client, f"sleep 0.3; echo {number}") for number in range(40)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(40)]


async def test_silence_is_filled_with_heartbeats(server: ServerProcess, client: ExecClient) -> None:
    async with raw_http(server) as http:
        body = {"command": "sleep 5.5", "timeout_ms": 9_000, "max_output_length": 10}
        response = await http.put(f"/v1/execs/{new_id()}", json=body, timeout=20)
    assert [json.loads(line)["type"] for line in response.text.splitlines()] == ["started", "heartbeat", "exit"]


async def test_a_slow_reader_costs_no_memory_and_holds_up_nobody(client: ExecClient, server: ServerProcess) -> None:
    exec_id = new_id()
    slow = client.exec(exec_id, "yes | head -c 300000000", timeout_ms=60_000, max_output_length=1_000_000)
    assert await anext(slow) == ExecStarted(0)
    await collect(client.attach(exec_id))
    assert (await run(client, "echo free")).stdout == "free\n"
    assert resident_mib(server.pid) < 80
    assert len(text_of(await collect(slow), "stdout")) > 1_000_000


async def test_a_hundred_megabytes_are_cut_and_kept_on_disk(client: ExecClient, server: ServerProcess) -> None:
    before = resident_mib(server.pid)
    events = await collect(execute(client, "head -c 100000000 /dev/zero | tr '\\0' x", timeout_ms=60_000, chars=100))
    last = events[-1]
    assert isinstance(last, ExecEnded)
    assert last.truncated_chars == 100_000_000 - 100
    assert last.spool_path is not None
    assert Path(last.spool_path).stat().st_size == 100_000_000
    marker = f"\n… 99999900 chars truncated; full output: {last.spool_path} …\n"
    assert text_of(events, "stdout") == "x" * 50 + marker + "x" * 50
    assert resident_mib(server.pid) - before < 20


async def test_bytes_that_are_not_utf_8_do_no_harm(client: ExecClient) -> None:
    result = await run(client, r"printf 'a\xff\xfe\xc3'; sleep 0.1; printf '\xa9b\xe2\x82'; exit 0")
    assert result.stdout == "a\ufffd\ufffdéb\ufffd"


async def test_a_fork_bomb_ends_with_its_time_out(sandbox: ExecClient) -> None:
    """In a sandbox: the limits on processes are per user, and here we are root."""
    result = await run(sandbox, ":(){ :|:& };:; sleep 60", timeout_ms=1_500, chars=1_000)
    assert result.outcome in ("timeout", "killed")  # whichever comes first
    assert (await run(sandbox, "echo alive")).stdout == "alive\n"


async def test_a_command_that_cannot_be_started_says_so(client: ExecClient) -> None:
    assert (await run(client, "/nowhere/program")).exit_code == 127
    with pytest.raises(SandboxError, match="null byte"):
        await run(client, "echo \0")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_request"),
        ({"command": 3, "timeout_ms": 1, "max_output_length": 1}, "invalid_request"),
        ({"command": "true", "timeout_ms": 0, "max_output_length": 1}, "invalid_request"),
        ({"command": "true", "timeout_ms": True, "max_output_length": 1}, "invalid_request"),
        ({"command": "true", "timeout_ms": 1, "max_output_length": -1}, "invalid_request"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    client: ExecClient, server: ServerProcess, body: dict[str, object], code: str
) -> None:
    async with raw_http(server) as http:
        response = await http.put(f"/v1/execs/{new_id()}", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, code)


async def test_what_is_not_http_is_dropped(client: ExecClient, server: ServerProcess) -> None:
    reader, writer = await asyncio.open_unix_connection(server.handle.endpoint.removeprefix("unix:"))
    writer.write(b"\x00\x01nonsense\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await client.health()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start commands as another user")
class TestAsRoot:
    """As in Docker and on Fargate: the server is root, the commands are not."""

    UID = 61_234

    @pytest.fixture
    async def other(self) -> AsyncIterator[tuple[ExecClient, ServerProcess]]:
        with tempfile.TemporaryDirectory() as name:
            os.chmod(name, 0o755)
            with exec_server(Path(name), uid=self.UID, python="/usr/bin/python3") as process:
                async with ExecClient(process.handle) as client:
                    await until_up(client)
                    yield client, process

    async def test_commands_are_somebody_else_and_cannot_harm_the_server(self, other: tuple[ExecClient, ServerProcess]) -> None:
        client, process = other
        result = await run(
            client, f"id -u; id -G; touch f ~/g; stat -c %u . ~ f; kill -9 {process.pid}; cat /proc/{process.pid}/environ"
        )
        assert result.stdout == f"{self.UID}\n{self.UID}\n" + f"{self.UID}\n" * 3
        assert "Operation not permitted" in result.stderr
        assert "Permission denied" in result.stderr
        assert (await python(client, "import os; os.getuid()"))[1].result == str(self.UID)

    async def test_no_program_gives_a_command_more_than_it_has(self, other: tuple[ExecClient, ServerProcess]) -> None:
        """Fargate has no option for it."""
        client, _ = other
        assert (await run(client, "grep NoNewPrivs /proc/self/status")).stdout == "NoNewPrivs:\t1\n"

    async def test_a_time_out_finds_the_whole_family_of_the_other_user(self, other: tuple[ExecClient, ServerProcess]) -> None:
        client, _ = other
        result = await run(client, "setsid sleep 71 & (setsid bash -c 'sleep 72' &); sleep 73", timeout_ms=400)
        assert result.outcome == "timeout"
        assert {"71", "72", "73"} & set(sleeping()) == set()

    async def test_files_belong_to_the_commands(self, other: tuple[ExecClient, ServerProcess]) -> None:
        client, _ = other
        await client.write_file("a/b", pieces(b"x"))
        assert (await run(client, "stat -c %u a a/b; echo more >> a/b; rm -r a")).stdout == f"{self.UID}\n" * 2
        await run(client, "mkdir -m 700 p; echo secret > p/f; chmod 600 p/f")
        assert await collect_bytes(client, "p/f") == b"secret\n"

    async def test_a_full_disk_ends_background_processes_too(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            os.chmod(name, 0o755)
            with exec_server(Path(name), uid=self.UID, limits={"disk_bytes": 4_000_000}) as process:
                async with ExecClient(process.handle) as client:
                    await until_up(client)
                    await run(client, "setsid sleep 81 >/dev/null 2>&1 &")
                    result = await run(client, "for i in 1 2 3; do head -c 3M /dev/zero > f$i; done; sleep 30")
                    assert result.outcome == "killed"
                    async with asyncio.timeout(30):  # Who is killed still has to be given a processor to die on.
                        while "81" in sleeping():
                            await asyncio.sleep(0.02)
                    with pytest.raises(SandboxError, match="full"):
                        await client.write_file("more", pieces(b"x"))
                    await run(client, "rm f*")

    async def test_no_directory_is_given_away_because_it_was_asked_for(self, other: tuple[ExecClient, ServerProcess]) -> None:
        client, process = other
        owned = process.workspace.parent / "roots"
        owned.mkdir()
        await run(client, "pwd", cwd=str(owned))
        assert owned.stat().st_uid == 0
        assert (await run(client, "true", cwd=f"{owned}/none")).exit_code == 126


async def test_the_configuration_is_taken_from_the_environment_and_out_of_it(tmp_path: Path) -> None:
    socket = tmp_path / "exec.sock"
    config = {
        "token_sha256": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "listen": f"unix:{socket}",
        "workspace": str(tmp_path / "data"),
        "home": str(tmp_path / "home"),
        "spool_dir": str(tmp_path / "spool"),
    }
    env = {"PATH": os.environ["PATH"], "MOORAGE_SANDBOX_CONFIG": json.dumps(config)}
    process = subprocess.Popen([sys.executable, "-I", str(EXEC_SERVER)], env=env, stdin=subprocess.DEVNULL)
    try:
        async with ExecClient(Handle(f"unix:{socket}", TOKEN, "sbx")) as client:
            await until_up(client)
            environ = Path(f"/proc/{process.pid}/environ").read_bytes() if os.geteuid() == 0 else b""
            assert b"MOORAGE" not in environ
            assert (await run(client, "env | grep -c MOORAGE")).stdout == "0\n"
    finally:
        process.kill()
        process.wait()


SANDBOX = EXEC_SERVER.parent
PROGRAMS = [*sorted(EXEC_SERVER.rglob("*.py")), *sorted(SANDBOX.glob("*.py")), *sorted((SANDBOX / "bin").iterdir())]


TOOLBOX = {"moorage-text": {"charset_normalizer", "openpyxl", "pypdf", "pypdfium2"}}
"""What a program that only the toolbox's Python runs has beside that."""


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(SANDBOX)))
def test_sandbox_programs_use_the_standard_library_and_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = {alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names} | {
        str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }
    root = EXEC_SERVER if path.is_relative_to(EXEC_SERVER) else path.parent
    beside = {module.stem for module in (*root.glob("*.py"), *(package.parent for package in root.glob("*/__init__.py")))}
    assert imported - beside - TOOLBOX.get(path.name, set()) <= sys.stdlib_module_names
    assert not (beside - {"__main__"}) & sys.stdlib_module_names, "a module that hides one of Python's"


def test_the_exec_server_runs_as_a_zip_too(tmp_path: Path) -> None:
    archive = tmp_path / "server.zip"
    zipapp.create_archive(EXEC_SERVER, archive)
    told = subprocess.run([sys.executable, "-I", "-S", str(archive)], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (
        1,
        "Usage: server --config-fd N, server --config-file PATH, or the configuration in MOORAGE_SANDBOX_CONFIG\n",
    )


def raw_http(server: ServerProcess) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=server.handle.endpoint.removeprefix("unix:"))
    return httpx.AsyncClient(transport=transport, base_url="http://sandbox", headers={"authorization": f"Bearer {TOKEN}"})


def sleeping() -> list[str]:
    """The arguments of all running ``sleep`` processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and len(words) > 1:
            found.append(words[1].decode())
    return found


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the server has gone")


async def test_commands_give_way_to_the_server_and_cannot_take_the_priority_back(client: ExecClient) -> None:
    as_somebody = "setpriv --reuid 65534 --clear-groups " if os.geteuid() == 0 else ""
    given = await run(client, "nice")
    taken = await run(client, f"{as_somebody}nice -n -5 nice 2>/dev/null")
    assert [int(each.stdout) - os.nice(0) for each in (given, taken)] == [10, 10]
