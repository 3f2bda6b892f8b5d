"""A container survives its own commands: whatever they use up, the exec server answers, files are kept, and the output says why."""

import asyncio
import re
import time
from pathlib import Path

import pytest
from moorage import limits
from moorage.sandbox.exec_client import ExecClient, PythonEnded

from tests.unit.sandbox.support import ServerProcess, execute, new_id, run

MEMORY_NEWS = (
    r"Out of memory: the container has 1024 MiB for all of its commands together; files in /tmp and /dev/shm count \(\d+ MiB now\)\. "
    r"The kernel ended a process\."
)
KEEP = "echo precious > /mnt/data/result.txt; sync; "

WAYS_TO_MEMORY = {
    "one process": 'python3 -c \'x = bytearray(1 << 30); x[::4096] = b"x" * len(x[::4096]); print("DONE")\'',
    "a program that keeps all it reads": "tail /dev/zero",
    "many processes": "for i in $(seq 30); do python3 -c 'import time; x = b\"x\" * (60 << 20); time.sleep(5)' & done; wait; exit 1",
    "a process beside full scratch directories": (
        "for i in 1 2 3 4 5; do head -c 50M /dev/zero > /tmp/x$i; head -c 24M /dev/zero > /dev/shm/x$i; done; "
        'python3 -c \'x = b"x" * (800 << 20); print("DONE")\''
    ),
}


@pytest.mark.parametrize("way", WAYS_TO_MEMORY)
async def test_memory_beyond_the_limit_costs_the_command_its_life_and_not_the_container(way: str, sandbox: ExecClient) -> None:
    before = await sandbox.health()
    result = await run(sandbox, KEEP + WAYS_TO_MEMORY[way])
    assert "DONE" not in result.stdout
    assert result.exit_code in (1, 137)
    assert re.search(MEMORY_NEWS, result.stderr)
    assert (await run(sandbox, "cat result.txt; rm -f /tmp/x* /dev/shm/x*")).stdout == "precious\n"
    assert (await sandbox.health()).boot_id == before.boot_id


async def test_a_full_scratch_directory_leaves_memory_for_commands_and_is_named(sandbox: ExecClient) -> None:
    result = await run(sandbox, KEEP + "for i in $(seq 20); do head -c 60M /dev/zero | tee /tmp/x$i > /dev/shm/x$i; done; echo done")
    assert (result.stdout, result.outcome) == ("done\n", "exit")
    for path, share in (("/tmp", limits.SANDBOX_TMP_SHARE), ("/dev/shm", limits.SANDBOX_SHM_SHARE)):
        held = f"{path} is full: it is memory of the container, and holds {1024 // share} MiB at most. Large files belong in /mnt/data."
        assert held in result.stderr
    again = await run(sandbox, "cat result.txt; python3 -c 'print(len(bytearray(300 << 20)))'")
    assert (again.stdout, again.stderr) == (f"precious\n{300 << 20}\n", "")


async def test_a_python_session_is_told_too(sandbox: ExecClient) -> None:
    events = [event async for event in sandbox.python(new_id(), "x = b'x' * (1 << 30)", timeout_ms=20_000, max_output_length=10_000)]
    assert isinstance(events[-1], PythonEnded)
    assert re.search(MEMORY_NEWS, "".join(getattr(event, "text", "") for event in events))


async def test_processes_beyond_the_limit_are_refused(sandbox: ExecClient) -> None:
    result = await run(sandbox, "for i in $(seq 700); do sleep 20 & done; echo; jobs -r | wc -l", timeout_ms=12_000, chars=100_000)
    assert "Resource temporarily unavailable" in result.stderr
    assert result.outcome == "timeout"  # a shell that waits for room is no bomb
    assert (await run(sandbox, "echo alive")).stdout == "alive\n"


TOO_MANY = "Too many processes: a container may have 512, and a command went on starting more."
BOMBS = {
    "the classic one": ":(){ :|:& };:",
    "one that stays": "python3 -c 'import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.1)'",
    "one that leaves its session": 'f(){ setsid bash -c "$(declare -f f); f & f & wait" & }; f; f; f; sleep 20',
    "one that shuts its ears": "trap '' TERM INT HUP; :(){ :|:& }; : >/dev/null 2>&1; sleep 20",
    "one of threads": (
        "python3 -c 'import threading, time\nwhile True:\n"
        "    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass'"
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_fork_bomb_is_ended_and_later_commands_work(bomb: str, sandbox: ExecClient) -> None:
    told = (await run(sandbox, KEEP + BOMBS[bomb], timeout_ms=60_000, chars=100_000)).stderr
    for _ in range(100):
        if TOO_MANY in told:
            break
        told += (await run(sandbox, "sleep 0.1", chars=100_000)).stderr
    assert TOO_MANY in told
    for _ in range(100):
        if (await run(sandbox, "ps ax | wc -l", timeout_ms=60_000)).stdout.strip() in ("4", "5"):
            break
        await asyncio.sleep(0.1)
    result = await run(sandbox, "cat result.txt; for i in $(seq 100); do echo | cat; done | wc -l; ps ax | wc -l", timeout_ms=60_000)
    assert result.stdout.split()[:2] == ["precious", "100"]
    assert int(result.stdout.split()[2]) <= 6


@pytest.mark.parametrize("bomb", ["the classic one", "one that stays"])
async def test_a_fork_bomb_is_ended_without_control_groups_too(bomb: str, ordinary_sandbox: ExecClient) -> None:
    told = (await run(ordinary_sandbox, KEEP + BOMBS[bomb], timeout_ms=60_000, chars=100_000)).stderr
    for _ in range(100):
        if TOO_MANY in told:
            break
        told += (await run(ordinary_sandbox, "sleep 0.1", chars=100_000)).stderr
    assert TOO_MANY in told
    assert (await run(ordinary_sandbox, "cat result.txt; date | wc -l")).stdout == "precious\n1\n"


async def test_commands_that_take_every_processor_do_not_keep_the_server_from_answering(sandbox: ExecClient) -> None:
    events = execute(sandbox, "renice 19 -p 1; for i in $(seq 200); do while :; do :; done & done; sleep 30")
    await anext(events)
    longest = 0.0
    for _ in range(20):
        await asyncio.sleep(0.1)
        started = time.monotonic()
        await sandbox.health()
        longest = max(longest, time.monotonic() - started)
    assert longest < limits.EXEC_SILENCE_SECONDS / 2
    await events.aclose()


async def test_a_file_that_is_named_like_an_upload_is_listed(sandbox: ExecClient) -> None:
    await run(sandbox, "echo x > .moorage-upload-mine; echo y > other")
    listing = await sandbox.list_files("/mnt/data")
    assert sorted(file.path for file in listing.files) == [".moorage-upload-mine", "other"]


async def test_a_python_session_that_writes_answers_on_and_on_costs_the_server_no_memory(
    server: ServerProcess, client: ExecClient
) -> None:
    code = (
        "import os, threading\n"
        "fd = max(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}') "
        "and os.readlink(f'/proc/self/fd/{n}').startswith('pipe:'))\n"
        "def flood():\n"
        "    while True: os.write(fd, b'x' * 65536)\n"
        "def later():\n"
        "    import time\n"
        "    while not os.path.exists('flood'): time.sleep(0.01)\n"
        "    flood()\n"
        "threading.Thread(target=later, daemon=True).start()"
    )
    events = [event async for event in client.python(new_id(), code, timeout_ms=20_000, max_output_length=1_000)]
    assert isinstance(events[-1], PythonEnded)
    assert events[-1].outcome == "exit"
    (server.workspace / "flood").touch()
    await asyncio.sleep(0.5)
    before = resident(server.pid)
    await asyncio.sleep(1.0)
    await client.health()
    assert resident(server.pid) - before < 8 * 1024 * 1024


def resident(pid: int) -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) * 1024
