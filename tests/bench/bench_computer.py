"""The computer in figures, as a client of the API sees it: first output, a hundred containers at once, 500 MB down and up.

    python -m tests.bench.bench_computer [--first 20] [--idle 64] [--megabytes 500]

Starts an embedded stack of its own and speaks to it through the OpenAI SDK. ``make bench`` puts the table into its report.
"""

import argparse
import asyncio
import io
import os
import statistics
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage import limits
from moorage.sandbox.launcher_client import LauncherProvisioner
from openai import OpenAI
from openai.types.responses import Response

from tests.bench.bench_exec import parent, proportional_mib, status_mib
from tests.stack import SHELL, Stack, outputs, say, script, shell

Row = tuple[str, str]
ANSWERING_AT_ONCE = 4
"""Clients that ask the idle containers; the machine's cores, not the containers, are what would be measured with more."""
PIECE = 1024 * 1024
SKILL_PART_BYTES = 104_000
REFILL_SECONDS = 0.3
"""Between two containers: the next sandbox is prewarmed meanwhile."""
"""With 500 of them a zip is just below its bound."""


def measure(stack: Stack, *, first: int, idle: int, megabytes: int) -> list[Row]:
    client = stack.client()
    return [
        *first_output(client, first),
        *artifact(stack, client, megabytes),
        *gigabyte(stack, client),
        *crowd(stack, client),
        *skill(stack, client),
        *idle_containers(stack, client, idle),
    ]


# --- first output ----------------------------------------------------------------------------------------------------------------


def first_output(client: OpenAI, count: int) -> list[Row]:
    """From the request to the first delta of a command's output, in a new container and in the chain's. The first one of the SDK does
    not count."""
    _, response = _until_output(client, None)
    client.containers.delete(container_of(response))
    fresh, kept = [], []
    for _ in range(count):
        seconds, response = _until_output(client, None)
        fresh.append(seconds)
        kept.append(_until_output(client, response.id)[0])
        client.containers.delete(container_of(response))
        time.sleep(REFILL_SECONDS)
    return [
        (f"`container_auto` to the first byte of output, new container, one each {REFILL_SECONDS} s", percentiles(fresh)),
        ("the same in the chain's container", percentiles(kept)),
    ]


def _until_output(client: OpenAI, previous: str | None) -> tuple[float, Response]:
    began = time.perf_counter()
    seconds = 0.0
    stream: Any = client.responses.create(
        model="demo",
        input=script(shell("echo hello"), say("end")),
        tools=[SHELL],  # type: ignore[list-item]
        previous_response_id=previous,
        stream=True,
    )
    with stream:
        for event in stream:
            if event.type == "response.shell_call_output_content.delta" and not seconds:
                seconds = time.perf_counter() - began
            if event.type == "response.completed":
                assert seconds, "the command printed nothing"
                response: Response = event.response
                return seconds, response
    raise AssertionError("the response did not complete")


# --- large files -----------------------------------------------------------------------------------------------------------------


def artifact(stack: Stack, client: OpenAI, megabytes: int) -> list[Row]:
    """A file that a command makes, down; the same bytes up as a file and as a container's file."""
    size = megabytes * 1_000_000
    assert stack.process is not None
    pid = stack.process.pid
    began = time.perf_counter()
    with Peak([pid]) as peak:
        response = run(client, f"head -c {size} /dev/urandom > big.bin")
        container_id = container_of(response)
        (file,) = client.containers.files.list(container_id)
        assert file.bytes == size, file
    rows = [(f"{megabytes} MB made by a command and stored", said(began, peak))]
    began = time.perf_counter()
    with (
        Peak([pid]) as peak,
        client.containers.files.content.with_streaming_response.retrieve(file.id, container_id=container_id) as content,
    ):
        assert sum(map(len, content.iter_bytes(PIECE))) == size
    rows.append((f"{megabytes} MB downloaded (container file)", said(began, peak)))
    with tempfile.TemporaryFile() as source:
        for _ in range(megabytes):
            source.write(bytes(1_000_000))
        rows.append(_up(pid, size, "file", source, lambda: client.files.create(file=("up.bin", source), purpose="user_data")))
        rows.append(
            _up(pid, size, "container file", source, lambda: client.containers.files.create(container_id, file=("up.bin", source)))
        )
    client.containers.delete(container_id)
    return rows


def _up(pid: int, size: int, kind: str, source: Any, send: Any) -> Row:
    source.seek(0)
    began = time.perf_counter()
    with Peak([pid]) as peak:
        assert send().bytes == size
    return f"{size // 1_000_000} MB uploaded ({kind})", said(began, peak)


def gigabyte(stack: Stack, client: OpenAI) -> list[Row]:
    """A command that prints a gigabyte: what it costs the API process, and every process that runs its call."""
    assert stack.process is not None
    began = time.perf_counter()
    with Peak(list(family(stack.process.pid))) as peak:
        response = run(client, "head -c 1000000000 /dev/zero | tr '\\0' x", timeout_ms=120_000)
    client.containers.delete(container_of(response))
    return [("1 GB printed by a command (all processes of the stack)", said(began, peak))]


def crowd(stack: Stack, client: OpenAI) -> list[Row]:
    """A command that makes 100,000 files, all different: of the first 10,000 each is stored, of the others the model is told."""
    assert stack.process is not None
    make = 'python3 -c \'for n in range(100000): open(f"{n:06}", "w").write(str(n))\''
    began = time.perf_counter()
    with Peak([stack.process.pid]) as peak:
        response = run(client, make, timeout_ms=120_000)
    rows = [("100,000 files made by a command, 10,000 of them stored", said(began, peak))]
    ((_, told, _),) = outputs(response.output)[0]
    assert told == (
        "[Note: at most 10000 files are saved; not saved: /mnt/data/010000, /mnt/data/010001, /mnt/data/010002 and 89997 more.]"
    ), told
    began = time.perf_counter()
    with Peak([stack.process.pid]) as peak:
        response = run(client, "find . -type f -delete", previous=response.id)
    rows.append(("the same files deleted by a command", said(began, peak)))
    container_id = container_of(response)
    assert not client.containers.files.list(container_id).data, "files are left"
    client.containers.delete(container_id)
    return rows


def skill(stack: Stack, client: OpenAI) -> list[Row]:
    """The largest bundle that is taken: up as a zip and as a folder, and into a new container."""
    assert stack.process is not None
    manifest = b"---\nname: heavy\ndescription: As large as a skill may be.\n---\n"
    parts = {f"heavy/{number:03}.bin": os.urandom(SKILL_PART_BYTES) for number in range(limits.SKILL_FILES_MAX - 1)}
    files = {"heavy/SKILL.md": manifest, **parts}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    packed_bytes = packed.getvalue()
    assert len(packed_bytes) <= limits.SKILL_ZIP_BYTES_MAX, len(packed_bytes)
    what = f"{len(files)} files, {len(packed_bytes) / 1024**2:.0f} MiB"
    began = time.perf_counter()
    with Peak([stack.process.pid]) as peak:
        made = client.skills.create(files=("heavy.zip", packed_bytes))
    rows = [(f"skill of {what}, uploaded as a zip", said(began, peak))]
    began = time.perf_counter()
    with Peak([stack.process.pid]) as peak:
        client.skills.versions.create(made.id, files=list(files.items()))
    rows.append(("the same as a folder", said(began, peak)))
    shell_with_it: Any = {"type": "container_auto", "skills": [{"type": "skill_reference", "skill_id": made.id}]}
    began = time.perf_counter()
    with Peak(list(family(stack.process.pid))) as peak:
        response = client.responses.create(
            model="demo",
            input=script(shell("ls /home/oai/skills/heavy-* | wc -l"), say("end")),
            tools=[{"type": "shell", "environment": shell_with_it}],
        )
    assert outputs(response.output)[0][0][0] == f"{len(files)}\n", response.output
    rows.append(("a new container with it, first command and end of the response (all processes)", said(began, peak)))
    client.containers.delete(container_of(response))
    client.skills.delete(made.id)
    return rows


def run(client: OpenAI, command: str, *, previous: str | None = None, **options: Any) -> Response:
    response = client.responses.create(
        model="demo",
        input=script(shell(command, **options), say("end")),
        tools=[SHELL],  # type: ignore[list-item]
        previous_response_id=previous,
    )
    ((_, _, code),) = outputs(response.output)[0]
    assert code == 0, response.output
    return response


# --- many containers -------------------------------------------------------------------------------------------------------------


def idle_containers(stack: Stack, client: OpenAI, count: int) -> list[Row]:
    """So many containers alive at once: what each takes while nothing runs in it, and whether each still answers."""
    containers = [client.containers.create(name=f"idle-{number}").id for number in range(count)]
    began = time.perf_counter()
    with ThreadPoolExecutor(ANSWERING_AT_ONCE) as pool:
        list(pool.map(lambda container_id: _ask(client, container_id, "echo here > $HOME/mark"), containers))
    started = time.perf_counter() - began
    resident, own = asyncio.run(_memory(stack, count))
    began = time.perf_counter()
    with ThreadPoolExecutor(ANSWERING_AT_ONCE) as pool:
        said = list(pool.map(lambda container_id: _ask(client, container_id, "cat $HOME/mark"), containers))
    assert said == ["here\n"] * count, said
    answered = time.perf_counter() - began
    for container_id in containers:
        client.containers.delete(container_id)
    return [
        (
            f"memory of an idle container, {count} at once",
            f"{resident:.1f} MiB RSS, {own:.1f} MiB without what is shared",
        ),
        (f"{count} containers started and used", f"{started:.1f} s, {ANSWERING_AT_ONCE} requests at a time"),
        (f"all {count} answer again", f"{answered:.1f} s"),
    ]


def _ask(client: OpenAI, container_id: str, command: str) -> str:
    response = client.responses.create(
        model="demo",
        input=script(shell(command), say("end")),
        tools=[{"type": "shell", "environment": {"type": "container_reference", "container_id": container_id}}],
    )
    ((stdout, _, code),) = outputs(response.output)[0]
    assert code == 0, response.output
    return str(stdout)


async def _memory(stack: Stack, count: int) -> tuple[float, float]:
    """Mean RSS and PSS in MiB of a sandbox's own processes."""
    async with LauncherProvisioner(str(stack.state_dir / "launcher.sock")) as provisioner:
        running = await provisioner.running()
    assert len(running) == count, running
    families = [(sandbox.pid, parent(sandbox.pid)) for sandbox in running]
    resident = [sum(status_mib(pid, "VmRSS") for pid in pids) for pids in families]
    return statistics.mean(resident), statistics.mean(sum(map(proportional_mib, pids)) for pids in families)


# --- figures ---------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Peak:
    """By how much the memory of these processes grew at their worst, in MiB; the kernel keeps the mark, so that nothing is missed."""

    pids: Sequence[int]
    growth: float = 0.0
    _before: dict[int, float] = field(default_factory=dict)

    def __enter__(self) -> "Peak":
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): resets VmHWM to VmRSS
            self._before[pid] = status_mib(pid, "VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        alive = [pid for pid in self.pids if Path(f"/proc/{pid}/status").exists()]
        self.growth = max(status_mib(pid, "VmHWM") - self._before[pid] for pid in alive)


def family(pid: int) -> Iterator[int]:
    """A process and all that came of it, but for what runs inside sandboxes."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() != "bwrap":
                yield from family(int(child))


def container_of(response: Response) -> str:
    container_id: str = response.tools[0].environment.container_id  # type: ignore[union-attr]
    return container_id


def percentiles(seconds: Sequence[float]) -> str:
    cuts = statistics.quantiles(seconds, n=20, method="inclusive")
    return f"p50 {cuts[9] * 1000:.0f} ms, p95 {cuts[18] * 1000:.0f} ms, n={len(seconds)}"


def said(began: float, peak: Peak) -> str:
    return f"{time.perf_counter() - began:.1f} s, peak memory + {peak.growth:.0f} MiB"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure containers through the API.")
    parser.add_argument("--first", type=int, default=20)
    parser.add_argument("--idle", type=int, default=limits.TENANT_SANDBOXES_MAX)
    parser.add_argument("--megabytes", type=int, default=500)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        stack = Stack(Path(directory)).start()
        try:
            rows = measure(stack, first=options.first, idle=options.idle, megabytes=options.megabytes)
        finally:
            stack.stop()
    for name, value in rows:
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
